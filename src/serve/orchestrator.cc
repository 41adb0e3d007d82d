#include "serve/orchestrator.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/text_stream.h"

namespace mt::serve {

// One request on its way.
struct Orchestrator::Run {
  Run(Entry entry, const data::Tokenizer& tokenizer)
      : request(std::move(entry.request)),
        listener(std::move(entry.listener)),
        stream(tokenizer, request.stops) {}

  const Request request;
  const Listener listener;
  const Clock::time_point submitted = Clock::now();
  std::atomic<bool> cancelled{false};
  std::atomic<bool> over{false};  // its end event was made: the engine may forget it

  // The engine thread's; the text thread reads them after the engine told it something.
  std::optional<Clock::time_point> started;
  int64_t generated = 0, reused = 0;

  // The text thread's.
  TextStream stream;
  std::deque<ShownToken> held;  // of text that is held back
  std::optional<Clock::time_point> first_token;
  int64_t output_tokens = 0;
};

class Orchestrator::Ticket {
 public:
  explicit Ticket(RunPtr run) : run_(std::move(run)) {}

 private:
  friend class Orchestrator;
  RunPtr run_;
};

namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Orchestrator::Orchestrator(SlotEngine& engine, const data::Tokenizer& tokenizer,
                           OrchestratorOptions options)
    : engine_(engine), tokenizer_(tokenizer), options_(std::move(options)) {
  running_.resize(static_cast<size_t>(engine.slots()));
  reserved_.resize(running_.size());
  counts_.slots = engine.slots();
  counts_.tokens_room = engine.slots() * engine.max_length();
  engine_thread_ = std::thread([this] { engine_loop(); });
  text_thread_ = std::thread([this] { text_loop(); });
}

Orchestrator::~Orchestrator() { stop(std::chrono::milliseconds(0)); }

// --- any thread ---------------------------------------------------------------------------------

void Orchestrator::check(const Request& request) const {
  const auto count = std::ssize(request.tokens);
  if (count < 1 || count >= engine_.max_length()) {
    throw fail(ErrorKind::kConfig, "a prompt of {} tokens: expected 1 to {}", count,
               engine_.max_length() - 1);
  }
  for (const int32_t id : request.tokens) {
    if (id < 0 || id >= engine_.vocab_size()) {
      throw fail(ErrorKind::kConfig, "token {} in the prompt: the vocabulary has {}", id,
                 engine_.vocab_size());
    }
  }
  serve::check(request.sampling, engine_.vocab_size());
}

Orchestrator::Tickets Orchestrator::submit(std::vector<Entry> entries) {
  std::deque<RunPtr> runs;
  for (Entry& entry : entries) {
    check(entry.request);
    const int64_t room = engine_.max_length() - std::ssize(entry.request.tokens);
    entry.request.max_tokens = std::clamp<int64_t>(entry.request.max_tokens, 0, room);
    runs.push_back(std::make_shared<Run>(std::move(entry), tokenizer_));
  }
  Tickets tickets;
  for (const RunPtr& run : runs) tickets.push_back(std::make_shared<Ticket>(run));
  const auto count = std::ssize(runs);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) {
    counts_.refused += count;
    throw fail(ErrorKind::kCancelled, "the server is stopping");
  }
  if (in_flight_ + count > capacity()) {
    counts_.refused += count;
    throw fail(ErrorKind::kLimit,
               "no room for {} more requests: {} are being served or wait, {} at most", count,
               in_flight_, capacity());
  }
  in_flight_ += count;
  counts_.accepted += count;
  counts_.waiting += count;
  if (count > 0) queue_.push_back(std::move(runs));
  work_.notify_one();
  return tickets;
}

void Orchestrator::cancel(const std::shared_ptr<Ticket>& ticket) { ticket->run_->cancelled = true; }

void Orchestrator::stop(std::chrono::milliseconds grace) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (quit_) return;
    stopping_ = true;
    work_.notify_one();
    const auto all_ended = [&] { return in_flight_ == 0; };
    if (!ended_.wait_for(lock, grace, all_ended)) {
      hurry_ = true;
      ended_.wait(lock, all_ended);
    }
    quit_ = true;
    work_.notify_one();
  }
  engine_thread_.join();
  {
    const std::lock_guard<std::mutex> lock(said_mutex_);
    no_more_ = true;
    said_something_.notify_one();
  }
  text_thread_.join();
}

ServingCounts Orchestrator::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

// --- engine thread ------------------------------------------------------------------------------

void Orchestrator::engine_loop() {
  while (wait_for_work()) {
    leave_out();
    admit();
    fill();
    step();
    note_slots();
  }
}

bool Orchestrator::wait_for_work() {
  const bool busy = !fillers_.empty() || std::any_of(running_.begin(), running_.end(),
                                                     [](const RunPtr& r) { return r != nullptr; });
  std::unique_lock<std::mutex> lock(mutex_);
  work_.wait(lock, [&] { return busy || !queue_.empty() || quit_; });
  return busy || !queue_.empty();
}

// Takes out of the queue what is not to be served; under its lock.
std::vector<Orchestrator::RunPtr> Orchestrator::leave_queue(Clock::time_point now) {
  std::vector<RunPtr> out;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::deque<RunPtr>& group : queue_) {
    std::erase_if(group, [&](const RunPtr& run) {
      const bool late = run->request.deadline && *run->request.deadline <= now;
      if (!run->cancelled && !late && !stopping_) return false;
      out.push_back(run);
      return true;
    });
  }
  std::erase_if(queue_, [](const std::deque<RunPtr>& group) { return group.empty(); });
  counts_.waiting -= std::ssize(out);
  return out;
}

void Orchestrator::leave_out() {
  const auto now = Clock::now();
  bool hurry = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    hurry = hurry_;
  }
  // Ends it if it is not to go on; true then.
  const auto out = [&](const RunPtr& run, bool stopping) {
    if (run->over) return true;  // by a stop string
    if (run->cancelled) {
      end(run, Finish::kCancelled);
    } else if (run->request.deadline && *run->request.deadline <= now) {
      end(run, Finish::kExpired);
    } else if (stopping) {
      end(run, Finish::kStopping);
    } else {
      return false;
    }
    return true;
  };
  for (const RunPtr& run : leave_queue(now)) out(run, true);
  std::erase_if(fillers_, [&](const Filler& filler) {
    if (!out(filler.run, hurry)) return false;
    reserved_[static_cast<size_t>(filler.slot)] = false;
    return true;
  });
  for (size_t slot = 0; slot < running_.size(); ++slot) {
    if (running_[slot] == nullptr || !out(running_[slot], hurry)) continue;
    running_[slot] = nullptr;
    engine_.release(static_cast<int64_t>(slot));
  }
}

// The submissions take turns.
Orchestrator::RunPtr Orchestrator::next_waiting() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.empty()) return nullptr;
  std::deque<RunPtr> group = std::move(queue_.front());
  queue_.pop_front();
  RunPtr run = std::move(group.front());
  group.pop_front();
  if (!group.empty()) queue_.push_back(std::move(group));
  --counts_.waiting;
  return run;
}

void Orchestrator::admit() {
  for (size_t slot = 0; slot < running_.size(); ++slot) {
    while (running_[slot] == nullptr && !reserved_[slot]) {
      const RunPtr run = next_waiting();
      if (run == nullptr) return;
      run->started = Clock::now();
      try {
        const Request& r = run->request;
        fillers_.push_back(
            {run, engine_.begin(r.tokens, r.sampling, r.prefill), static_cast<int64_t>(slot)});
        reserved_[slot] = true;
      } catch (const std::exception& e) {
        end(run, Finish::kFault, e.what());
      }
    }
  }
}

// Chunks of prompts in turn, as many tokens as a round may have.
void Orchestrator::fill() {
  int64_t left = options_.round_tokens;
  while (!fillers_.empty() && left > 0) {
    Filler filler = std::move(fillers_.front());
    fillers_.pop_front();
    const size_t before = filler.filling.done;
    try {
      const bool whole = engine_.advance(filler.filling);
      left -= static_cast<int64_t>(filler.filling.done - before);
      if (whole) {
        place(std::move(filler));
      } else {
        fillers_.push_back(std::move(filler));
      }
    } catch (const std::exception& e) {
      reserved_[static_cast<size_t>(filler.slot)] = false;
      end(filler.run, Finish::kFault, e.what());
    }
  }
}

// A prompt that is whole: its first token, and into its slot.
void Orchestrator::place(Filler filler) {
  const auto slot = static_cast<size_t>(filler.slot);
  reserved_[slot] = false;
  Prefix& prefix = filler.filling.prefix;
  if (!take(filler.run, prefix.first, &filler.filling)) return;
  try {
    engine_.insert(std::move(prefix), filler.slot);
    running_[slot] = filler.run;
  } catch (const std::exception& e) {
    end(filler.run, Finish::kFault, e.what());
  }
}

// Hands a token to the text thread; whether the text goes on.
bool Orchestrator::take(const RunPtr& run, const Token& token, Filling* filling) {
  Said said{.run = run};
  if (filling != nullptr) {
    said.prompt_log_probs = std::move(filling->prefix.log_probs);
    said.prompt_top = std::move(filling->prefix.top);
  }
  if (run->request.max_tokens > 0) {
    ++run->generated;
    said.token = token;
    const auto& ends = options_.ends;
    said.is_end_token =
        !run->request.ignore_ends && std::find(ends.begin(), ends.end(), token.id) != ends.end();
  }
  if (said.is_end_token) {
    said.finish = Finish::kStop;
  } else if (run->generated >= run->request.max_tokens) {
    said.finish = Finish::kLength;
  }
  const bool goes_on = !said.finish;
  tell(std::move(said));
  return goes_on;
}

void Orchestrator::step() {
  if (std::all_of(running_.begin(), running_.end(), [](const RunPtr& r) { return r == nullptr; })) {
    return;
  }
  std::vector<Token> tokens;
  std::string fault;
  try {
    tokens = engine_.step();
  } catch (const std::exception& e) {
    fault = e.what();
  }
  for (size_t slot = 0; slot < running_.size(); ++slot) {
    const RunPtr run = running_[slot];
    if (run == nullptr) continue;
    if (!fault.empty()) {
      end(run, Finish::kFault, fault);
    } else if (std::isnan(tokens[slot].log_prob)) {
      end(run, Finish::kFault, "the logits are not finite: the weights hold a NaN or infinity");
    } else if (take(run, tokens[slot])) {
      continue;
    }
    running_[slot] = nullptr;
    engine_.release(static_cast<int64_t>(slot));
  }
  if (!fault.empty()) engine_.clear();
}

void Orchestrator::end(const RunPtr& run, Finish finish, const std::string& reason) {
  tell({.run = run, .finish = finish, .reason = reason});
}

void Orchestrator::note_slots() {
  int64_t generating = 0, held = 0;
  for (size_t slot = 0; slot < running_.size(); ++slot) {
    if (running_[slot] == nullptr) continue;
    ++generating;
    held += engine_.length(static_cast<int64_t>(slot));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_.generating = generating;
  counts_.tokens_held = held;
  counts_.filling = std::ssize(fillers_);
  if (generating > 0) ++counts_.steps;
}

// --- text thread --------------------------------------------------------------------------------

void Orchestrator::tell(Said said) {
  const std::lock_guard<std::mutex> lock(said_mutex_);
  said_.push_back(std::move(said));
  said_something_.notify_one();
}

void Orchestrator::text_loop() {
  while (true) {
    std::unique_lock<std::mutex> lock(said_mutex_);
    said_something_.wait(lock, [&] { return !said_.empty() || no_more_; });
    if (said_.empty()) return;
    Said said = std::move(said_.front());
    said_.pop_front();
    lock.unlock();
    say(said);
  }
}

void Orchestrator::say(Said& said) {
  Run& run = *said.run;
  if (run.over) return;  // of a text that met its stop string
  Event event;
  event.prompt_log_probs = std::move(said.prompt_log_probs);
  event.prompt_top = std::move(said.prompt_top);
  if (said.token) push_token(run, said, event);
  if (run.stream.stopped()) said.finish = Finish::kStop;
  if (said.finish) end_text(run, *said.finish, said.reason, event);
  if (event.text.empty() && event.tokens.empty() && event.prompt_log_probs.empty() && !event.end) {
    return;
  }
  // After the counts: who has seen the end finds it counted.
  if (event.end) note_end(*event.end, run);
  run.listener(event);
  if (!event.end) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  --in_flight_;
  ended_.notify_all();
}

void Orchestrator::push_token(Run& run, const Said& said, Event& event) {
  ++run.output_tokens;
  if (!run.first_token) run.first_token = Clock::now();
  if (said.is_end_token) return;
  run.held.push_back({*said.token, run.stream.made()});
  event.text = run.stream.push(said.token->id);
  // A token is shown with the last byte of its text.
  while (!run.held.empty()) {
    const size_t end = run.held.size() > 1 ? run.held[1].offset : run.stream.made();
    if (end > run.stream.shown() || run.stream.stopped()) break;
    event.tokens.push_back(std::move(run.held.front()));
    run.held.pop_front();
  }
}

void Orchestrator::end_text(Run& run, Finish finish, const std::string& reason, Event& event) {
  event.text += run.stream.finish();
  if (run.stream.stopped()) finish = Finish::kStop;
  for (ShownToken& token : run.held) {
    if (run.stream.stopped() && token.offset >= run.stream.shown()) break;
    event.tokens.push_back(std::move(token));
  }
  run.held.clear();
  const auto now = Clock::now();
  event.end = Summary{.finish = finish,
                      .reason = reason,
                      .prompt_tokens = std::ssize(run.request.tokens),
                      .reused_tokens = run.reused,
                      .output_tokens = run.output_tokens,
                      .queue_seconds = seconds_between(run.submitted, run.started.value_or(now)),
                      .total_seconds = seconds_between(run.submitted, now)};
  if (run.first_token) {
    event.end->first_token_seconds = seconds_between(run.submitted, *run.first_token);
  }
  run.over = true;
}

void Orchestrator::note_end(const Summary& s, const Run& run) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ServingCounts& c = counts_;
  switch (s.finish) {
    case Finish::kStop:
    case Finish::kLength: ++c.finished; break;
    case Finish::kCancelled: ++c.cancelled; break;
    case Finish::kExpired: ++c.expired; break;
    case Finish::kFault: ++c.faulty; break;
    case Finish::kStopping: ++c.stopped; break;
  }
  c.output_tokens += s.output_tokens;
  if (!run.started) return;
  c.prompt_tokens += s.prompt_tokens;
  c.reused_tokens += s.reused_tokens;
  c.prompt_length.observe(static_cast<double>(s.prompt_tokens));
  c.output_length.observe(static_cast<double>(s.output_tokens));
  c.queue_seconds.observe(s.queue_seconds);
  c.request_seconds.observe(s.total_seconds);
  if (s.output_tokens == 0) return;
  c.first_token_seconds.observe(s.first_token_seconds);
  c.prompt_token_seconds.observe((s.first_token_seconds - s.queue_seconds) /
                                 static_cast<double>(s.prompt_tokens));
  if (s.output_tokens > 1) {
    c.output_token_seconds.observe((s.total_seconds - s.first_token_seconds) /
                                   static_cast<double>(s.output_tokens - 1));
  }
}

}  // namespace mt::serve
