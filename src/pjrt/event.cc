#include "pjrt/event.h"

#include <utility>

#include "pjrt/api.h"

namespace mt::pjrt {

Event::Event(std::shared_ptr<const Client> client, PJRT_Event* event)
    : client_(std::move(client)), event_(event) {}

Event::~Event() { destroy(); }

Event::Event(Event&& other) noexcept
    : client_(std::move(other.client_)), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    destroy();
    client_ = std::move(other.client_);
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

void Event::destroy() noexcept {
  if (event_ == nullptr) return;
  PJRT_Event_Destroy_Args args{};
  args.event = std::exchange(event_, nullptr);
  call_quietly(client_->api(), args);
}

bool Event::is_ready() const {
  if (event_ == nullptr) return true;
  PJRT_Event_IsReady_Args args{};
  args.event = event_;
  call(client_->api(), args);
  return args.is_ready;
}

void Event::await() const {
  if (event_ == nullptr) return;
  PJRT_Event_Await_Args args{};
  args.event = event_;
  if (PJRT_Error* error = try_call(client_->api(), args)) {
    throw take_error(client_->api(), error, "the device reports");
  }
}

namespace {

// What the callback needs: it frees the error that it is given, then lets the owner go.
struct Kept {
  const PJRT_Api* api;
  std::shared_ptr<const void> owner;
};

void release(PJRT_Error* error, void* kept) {
  const std::unique_ptr<Kept> done(static_cast<Kept*>(kept));
  if (error != nullptr) take_error(*done->api, error, "");
}

}  // namespace

void Event::keep_until_ready(std::shared_ptr<const void> owner) const {
  if (event_ == nullptr) return;
  auto kept = std::make_unique<Kept>(Kept{&client_->api(), std::move(owner)});
  PJRT_Event_OnReady_Args args{};
  args.event = event_;
  args.callback = release;
  args.user_arg = kept.get();
  call(client_->api(), args);
  kept.release();  // now the callback's
}

}  // namespace mt::pjrt
