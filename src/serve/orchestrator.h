// Many requests on one engine (JetStream's orchestrator). Threads and who owns what:
//
//   any thread      submit(), cancel(), counts(): under the mutex, never waiting for the engine
//   engine thread   owns the engine. A round: leave out what was cancelled or is too late; fill
//                   free slots from the queue; one chunk of one prompt; one step of all slots. So a
//                   long prompt costs the others a chunk between two of their tokens, no more.
//   text thread     makes text of tokens, looks for stop strings, calls the listeners
//
// The queue takes turns between submissions: one with many texts doesn't hold up those behind it.
// A request that goes wrong ends alone, with its reason.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/tokenizer.h"
#include "serve/serving_counts.h"
#include "serve/slot_engine.h"

namespace mt::serve {

using Clock = std::chrono::steady_clock;

struct Request {
  std::vector<int32_t> tokens;  // the prompt
  Sampling sampling;
  int64_t max_tokens = 0;  // to generate; 0: the prompt is run only. What a slot holds at most
  std::vector<std::string> stops;
  bool ignore_ends = false;  // go on behind <eos> and <end_of_turn>
  PrefillOptions prefill;
  std::optional<Clock::time_point> deadline;
};

enum class Finish : uint8_t {
  kStop,       // an end token or a stop string
  kLength,     // max_tokens, or the slot is full
  kCancelled,  // cancel()
  kExpired,    // the deadline
  kFault,      // the engine threw
  kStopping    // stop()
};

// How a request went.
struct Summary {
  Finish finish = Finish::kStop;
  std::string reason;  // of kFault
  int64_t prompt_tokens = 0, reused_tokens = 0;
  int64_t output_tokens = 0;  // with the end token; up to the stop string
  double queue_seconds = 0, first_token_seconds = 0, total_seconds = 0;
};

// A generated token that is in the text shown.
struct ShownToken {
  Token token;
  size_t offset = 0;  // where its text begins, in bytes of all text made
};

struct Event {
  // With the first event of a request whose prompt was scored.
  std::vector<float> prompt_log_probs;
  std::vector<std::vector<Alternative>> prompt_top;
  std::string text;  // new, valid UTF-8 by itself
  std::vector<ShownToken> tokens;
  std::optional<Summary> end;  // the last event
};

// Called on the text thread, one event at a time; must not block or throw.
using Listener = std::function<void(const Event&)>;

struct OrchestratorOptions {
  int64_t max_waiting = 64;    // requests without a slot
  int64_t round_tokens = 512;  // of prompts that are run between two steps, or one chunk
  std::vector<int32_t> ends;   // token ids that end a text
};

class Orchestrator {
 public:
  class Ticket;
  using Tickets = std::vector<std::shared_ptr<Ticket>>;

  // Starts the threads. Engine (loaded) and tokenizer must outlive this.
  Orchestrator(SlotEngine& engine, const data::Tokenizer& tokenizer, OrchestratorOptions options);
  ~Orchestrator();  // stop() without grace
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

  struct Entry {
    Request request;
    Listener listener;
  };
  // All of them or none. Throws kConfig for a request that can't be served, kLimit if there is no
  // room for so many, kCancelled while stopping.
  Tickets submit(std::vector<Entry> entries);
  // Its end event comes soon, if it hasn't come yet.
  void cancel(const std::shared_ptr<Ticket>& ticket);
  // Takes no more requests and ends those that wait; those that run have `grace` to end. Returns
  // when all have ended and their listeners were told.
  void stop(std::chrono::milliseconds grace);

  ServingCounts counts() const;
  // Requests at a time: slots and places of the queue.
  int64_t capacity() const { return engine_.slots() + options_.max_waiting; }

 private:
  struct Run;
  using RunPtr = std::shared_ptr<Run>;
  struct Said {  // for the text thread
    RunPtr run;
    std::optional<Token> token;
    bool is_end_token = false;
    std::vector<float> prompt_log_probs;
    std::vector<std::vector<Alternative>> prompt_top;
    std::optional<Finish> finish;
    std::string reason;
  };
  struct Filler {
    RunPtr run;
    Filling filling;
    int64_t slot = 0;
  };

  void check(const Request& request) const;

  void engine_loop();
  bool wait_for_work();  // false: time to go
  void leave_out();
  std::vector<RunPtr> leave_queue(Clock::time_point now);
  void admit();
  RunPtr next_waiting();
  void fill();
  void place(Filler filler);
  void step();
  bool take(const RunPtr& run, const Token& token, Filling* filling = nullptr);
  void end(const RunPtr& run, Finish finish, const std::string& reason = "");
  void note_slots();

  void text_loop();
  void tell(Said said);
  void say(Said& said);
  void push_token(Run& run, const Said& said, Event& event);
  void end_text(Run& run, Finish finish, const std::string& reason, Event& event);
  void note_end(const Summary& summary, const Run& run);

  SlotEngine& engine_;
  const data::Tokenizer& tokenizer_;
  const OrchestratorOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable work_, ended_;
  std::deque<std::deque<RunPtr>> queue_;  // by submission
  ServingCounts counts_;
  int64_t in_flight_ = 0;  // accepted and not ended
  bool stopping_ = false, hurry_ = false, quit_ = false;

  // The engine thread's.
  std::deque<Filler> fillers_;
  std::vector<RunPtr> running_;  // by slot
  std::vector<bool> reserved_;   // by a filler

  std::mutex said_mutex_;
  std::condition_variable said_something_;
  std::deque<Said> said_;
  bool no_more_ = false;

  std::thread engine_thread_, text_thread_;
};

}  // namespace mt::serve
