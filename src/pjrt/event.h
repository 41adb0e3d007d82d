// Something that a device has still to do.
#pragma once

#include <functional>
#include <memory>

#include "pjrt/client.h"

struct PJRT_Event;

namespace mt::pjrt {

class Event {
 public:
  Event(std::shared_ptr<const Client> client, PJRT_Event* event);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  bool is_ready() const;
  void await() const;  // throws what went wrong, with the device's text
  // Keeps `owner` alive until the event is ready (also when this Event is gone by then).
  void keep_until_ready(std::shared_ptr<const void> owner) const;

 private:
  void destroy() noexcept;
  std::shared_ptr<const Client> client_;
  PJRT_Event* event_ = nullptr;
};

}  // namespace mt::pjrt
