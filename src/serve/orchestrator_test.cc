// The orchestrator on an engine whose output can be worked out by hand: the token after a text is
// the sum of its tokens and their number, modulo 26, as a letter.
#include "serve/orchestrator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "data/test_models.h"

namespace mt::serve {
namespace {

using Tokens = std::vector<int32_t>;
using std::chrono::milliseconds;

constexpr int32_t kLetters = 261;  // 'a' of the tiny tokenizer
constexpr int32_t kPoison = 7;     // a prompt with it has no finite logits after it
constexpr int32_t kBomb = 8;       // a prompt with it makes advance() throw

int32_t next_of(const Tokens& tokens) {
  return kLetters +
         (std::accumulate(tokens.begin(), tokens.end(), 0) + static_cast<int32_t>(tokens.size())) %
             26;
}

class SumEngine final : public SlotEngine {
 public:
  explicit SumEngine(int64_t slots) : held_(static_cast<size_t>(slots)), last_(held_.size()) {}
  int64_t slots() const override { return std::ssize(held_); }
  int64_t max_length() const override { return 200; }
  int64_t vocab_size() const override { return 300; }
  Filling begin(std::span<const int32_t> tokens, const Sampling& sampling,
                const PrefillOptions& options) override {
    Filling f;
    f.tokens.assign(tokens.begin(), tokens.end());
    f.prefix.tokens = f.tokens;
    f.prefix.sampling = sampling;
    f.options = options;
    return f;
  }
  bool advance(Filling& f) override {
    wait_at_gate();
    if (std::count(f.tokens.begin(), f.tokens.end(), kBomb) > 0) {
      throw fail(ErrorKind::kDevice, "a bomb");
    }
    order.push_back(f.tokens.front());
    f.done = std::min(f.done + 4, f.tokens.size());
    if (f.done < f.tokens.size()) return false;
    f.prefix.length = std::ssize(f.tokens);
    f.prefix.first = {next_of(f.tokens), -1, {}};
    return true;
  }
  void insert(Prefix prefix, int64_t slot) override {
    held_[at(slot)] = prefix.tokens;
    last_[at(slot)] = prefix.first.id;
  }
  std::vector<Token> step() override {
    ++steps;
    if (steps == closes_at) close_gate();
    wait_at_gate();
    if (fault_at == steps) throw fail(ErrorKind::kDevice, "the device is gone");
    std::vector<Token> out(held_.size());
    for (size_t s = 0; s < held_.size(); ++s) {
      if (held_[s].empty()) continue;
      held_[s].push_back(last_[s]);
      last_[s] = next_of(held_[s]);
      const bool bad = std::count(held_[s].begin(), held_[s].end(), kPoison) > 0;
      out[s] = {last_[s], bad ? std::numeric_limits<float>::quiet_NaN() : -1, {}};
    }
    return out;
  }
  void release(int64_t slot) override { held_[at(slot)].clear(); }
  void clear() override {
    for (Tokens& t : held_) t.clear();
    ++cleared;
  }
  int64_t length(int64_t slot) const override { return std::ssize(held_[at(slot)]); }

  // While closed, the engine thread stands still before its next call.
  void close_gate() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }
  void open_gate() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

  // Of the engine thread; read when all is quiet.
  std::vector<int32_t> order;  // first tokens of the prompts that advanced
  int64_t steps = 0, cleared = 0;
  int64_t fault_at = -1, closes_at = -1;  // steps

 private:
  static size_t at(int64_t slot) { return static_cast<size_t>(slot); }
  void wait_at_gate() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }
  std::vector<Tokens> held_;
  Tokens last_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = true;
};

// What a listener was told.
class Told {
 public:
  Listener listener() {
    return [this](const Event& event) {
      const std::lock_guard<std::mutex> lock(mutex_);
      EXPECT_FALSE(end_) << "an event after the end";
      text_ += event.text;
      for (const ShownToken& t : event.tokens) tokens_.push_back(t.token.id);
      if (event.end) end_ = event.end;
      changed_.notify_all();
    };
  }
  Summary wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool ended = changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !!end_; });
    EXPECT_TRUE(ended) << "never told of an end";
    return end_.value_or(Summary{.finish = Finish::kFault, .reason = "no end"});
  }
  void wait_for_text() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !text_.empty() || end_; });
  }
  bool ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !!end_;
  }
  std::string text() {
    wait();
    return text_;
  }
  Tokens tokens() {
    wait();
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  Tokens tokens_;
  std::optional<Summary> end_;
};

Tokens expected_tokens(Tokens prompt, int64_t count) {
  Tokens out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(next_of(prompt));
    prompt.push_back(out.back());
  }
  return out;
}

std::string letters(const Tokens& tokens) {
  std::string out;
  for (const int32_t id : tokens) out += static_cast<char>('a' + id - kLetters);
  return out;
}

Tokens prompt_of(int32_t i, size_t length = 3) {
  Tokens out(length, 20);
  out[0] = 30 + i;
  return out;
}

class OrchestratorTest : public ::testing::Test {
 protected:
  void start(int64_t slots, OrchestratorOptions options = {}) {
    engine = std::make_unique<SumEngine>(slots);
    if (options.round_tokens == OrchestratorOptions{}.round_tokens) options.round_tokens = 4;
    orchestrator = std::make_unique<Orchestrator>(*engine, tokenizer, options);
  }
  std::shared_ptr<Orchestrator::Ticket> submit(Told& told, Request request) {
    return orchestrator->submit({{std::move(request), told.listener()}})[0];
  }
  data::Tokenizer tokenizer = data::tiny_tokenizer();
  std::unique_ptr<SumEngine> engine;
  std::unique_ptr<Orchestrator> orchestrator;
};

// C9: one after another, all at once in any order, whatever the slots.
TEST_F(OrchestratorTest, TextsDontDependOnCompanyOrOrder) {
  std::mt19937 random(1);
  for (const int64_t slots : {1, 4, 16}) {
    start(slots);
    std::vector<int32_t> order(16);
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < 20; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      std::map<int32_t, Told> told;
      for (const int32_t i : order) {
        submit(told[i], {.tokens = prompt_of(i, static_cast<size_t>(1 + i)), .max_tokens = 5 + i});
      }
      for (auto& [i, t] : told) {
        const Tokens expected = expected_tokens(prompt_of(i, static_cast<size_t>(1 + i)), 5 + i);
        EXPECT_EQ(t.tokens(), expected) << i;
        EXPECT_EQ(t.text(), letters(expected)) << i;
        EXPECT_EQ(t.wait().finish, Finish::kLength);
        EXPECT_EQ(t.wait().output_tokens, 5 + i);
      }
    }
    const ServingCounts counts = orchestrator->counts();
    EXPECT_EQ(counts.finished, 320);
    EXPECT_EQ(counts.waiting, 0);
  }
}

TEST_F(OrchestratorTest, EndsAtAnEndTokenAStopStringAndTheSlotsEnd) {
  const Tokens prompt = prompt_of(1);
  const Tokens all = expected_tokens(prompt, 197);
  start(2, {.ends = {all[4]}});
  const auto first = std::find(all.begin(), all.end(), all[4]) - all.begin();
  Told end, stop, full;
  submit(end, {.tokens = prompt, .max_tokens = 50});
  EXPECT_EQ(end.tokens(), Tokens(all.begin(), all.begin() + first));
  EXPECT_EQ(end.wait().finish, Finish::kStop);
  EXPECT_EQ(end.wait().output_tokens, first + 1);
  // It is complete with the last token that is allowed: a stop all the same.
  const std::string text = letters(all);
  submit(stop,
         {.tokens = prompt, .max_tokens = 20, .stops = {text.substr(17, 3)}, .ignore_ends = true});
  EXPECT_EQ(stop.text(), text.substr(0, std::min<size_t>(text.find(text.substr(17, 3)), 17)));
  EXPECT_EQ(stop.wait().finish, Finish::kStop);
  EXPECT_EQ(stop.tokens().size(), stop.text().size());
  submit(full, {.tokens = prompt, .max_tokens = 1'000'000, .ignore_ends = true});
  EXPECT_EQ(full.text(), text);
  EXPECT_EQ(full.wait().finish, Finish::kLength);
}

TEST_F(OrchestratorTest, ALongPromptDoesNotStallTheOthers) {
  start(2);
  engine->closes_at = 5;
  Told running, longer;
  submit(running, {.tokens = prompt_of(1), .max_tokens = 150});
  running.wait_for_text();
  submit(longer, {.tokens = prompt_of(2, 160), .max_tokens = 1});  // 40 chunks
  engine->open_gate();
  longer.wait();
  running.wait();
  const auto chunks = std::count(engine->order.begin(), engine->order.end(), 32);
  EXPECT_EQ(chunks, 40);
  EXPECT_GE(engine->steps, 40);  // as many steps as chunks
}

TEST_F(OrchestratorTest, SubmissionsTakeTurns) {
  start(1);
  engine->close_gate();
  Told first;
  submit(first, {.tokens = prompt_of(0), .max_tokens = 1});
  std::vector<Told> many(3);
  std::vector<Orchestrator::Entry> entries;
  for (size_t i = 0; i < many.size(); ++i) {
    entries.push_back(
        {{.tokens = prompt_of(static_cast<int32_t>(1 + i)), .max_tokens = 1}, many[i].listener()});
  }
  orchestrator->submit(std::move(entries));
  Told late;
  submit(late, {.tokens = prompt_of(10), .max_tokens = 1});
  engine->open_gate();
  for (Told& t : many) t.wait();
  EXPECT_EQ(engine->order, (Tokens{30, 31, 40, 32, 33}));
}

TEST_F(OrchestratorTest, CancelledInEveryPhase) {
  start(1);
  engine->closes_at = 5;
  Told running, waiting, after;
  const auto run = submit(running, {.tokens = prompt_of(1), .max_tokens = 190});
  running.wait_for_text();
  const auto wait = submit(waiting, {.tokens = prompt_of(2), .max_tokens = 5});
  orchestrator->cancel(wait);
  orchestrator->cancel(run);
  engine->open_gate();
  EXPECT_EQ(waiting.wait().finish, Finish::kCancelled);
  EXPECT_EQ(running.wait().finish, Finish::kCancelled);
  EXPECT_LE(engine->steps, 6);
  // In prefill: of 40 chunks no more than the one at hand is run.
  engine->close_gate();
  Told filling;
  const auto fill = submit(filling, {.tokens = prompt_of(3, 160), .max_tokens = 5});
  while (orchestrator->counts().waiting > 0) std::this_thread::yield();
  orchestrator->cancel(fill);
  engine->open_gate();
  EXPECT_EQ(filling.wait().finish, Finish::kCancelled);
  EXPECT_LE(std::count(engine->order.begin(), engine->order.end(), 33), 2);
  submit(after, {.tokens = prompt_of(4), .max_tokens = 3});
  EXPECT_EQ(after.text(), letters(expected_tokens(prompt_of(4), 3)));
  const ServingCounts counts = orchestrator->counts();
  EXPECT_EQ(counts.cancelled, 3);
  EXPECT_EQ(counts.finished, 1);
}

TEST_F(OrchestratorTest, ADeadlineEndsWhatWaitsAndWhatRuns) {
  start(1);
  engine->close_gate();
  Told running, waiting;
  const auto soon = Clock::now() + milliseconds(20);
  submit(running, {.tokens = prompt_of(1), .max_tokens = 190, .deadline = soon});
  submit(waiting, {.tokens = prompt_of(2), .max_tokens = 5, .deadline = soon});
  std::this_thread::sleep_for(milliseconds(30));
  engine->open_gate();
  EXPECT_EQ(running.wait().finish, Finish::kExpired);
  EXPECT_EQ(waiting.wait().finish, Finish::kExpired);
  EXPECT_EQ(orchestrator->counts().expired, 2);
}

TEST_F(OrchestratorTest, RefusesWhatHasNoRoom) {
  start(1, {.max_waiting = 2});
  engine->close_gate();
  std::vector<Told> told(3);
  for (Told& t : told) submit(t, {.tokens = prompt_of(1), .max_tokens = 2});
  Told none;
  try {
    submit(none, {.tokens = prompt_of(1), .max_tokens = 2});
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kLimit);
    EXPECT_STREQ(e.what(), "no room for 1 more requests: 3 are being served or wait, 3 at most");
  }
  engine->open_gate();
  for (Told& t : told) EXPECT_EQ(t.wait().finish, Finish::kLength);
  EXPECT_EQ(orchestrator->counts().refused, 1);
  for (const Tokens& bad : {Tokens{}, Tokens(200, 1), Tokens{300}, Tokens{-1}}) {
    EXPECT_THROW(submit(none, {.tokens = bad, .max_tokens = 2}), Error);
  }
}

TEST_F(OrchestratorTest, AFaultEndsItsRequestAlone) {
  start(3);
  engine->close_gate();
  Told good, poisoned, bomb;
  submit(good, {.tokens = prompt_of(1), .max_tokens = 10});
  submit(poisoned, {.tokens = {kPoison, 20}, .max_tokens = 10});
  submit(bomb, {.tokens = {kBomb, 20}, .max_tokens = 10});
  engine->open_gate();
  EXPECT_EQ(good.text(), letters(expected_tokens(prompt_of(1), 10)));
  EXPECT_EQ(poisoned.wait().finish, Finish::kFault);
  EXPECT_NE(poisoned.wait().reason.find("not finite"), std::string::npos);
  EXPECT_EQ(bomb.wait().reason, "a bomb");
}

TEST_F(OrchestratorTest, AFaultOfAStepEndsThoseInItAndServingGoesOn) {
  start(2);
  engine->close_gate();
  engine->fault_at = 3;
  Told a, b, after;
  submit(a, {.tokens = prompt_of(1), .max_tokens = 10});
  submit(b, {.tokens = prompt_of(2), .max_tokens = 10});
  engine->open_gate();
  EXPECT_EQ(a.wait().reason, "the device is gone");
  EXPECT_EQ(b.wait().finish, Finish::kFault);
  submit(after, {.tokens = prompt_of(3), .max_tokens = 4});
  EXPECT_EQ(after.text(), letters(expected_tokens(prompt_of(3), 4)));
  EXPECT_EQ(engine->cleared, 1);
}

TEST_F(OrchestratorTest, StopsGracefully) {
  start(1);
  engine->closes_at = 5;
  Told running, waiting, late;
  submit(running, {.tokens = prompt_of(1), .max_tokens = 100});
  running.wait_for_text();
  submit(waiting, {.tokens = prompt_of(2), .max_tokens = 5});
  auto stopping = std::async(std::launch::async, [&] { orchestrator->stop(milliseconds(20'000)); });
  std::this_thread::sleep_for(milliseconds(20));
  try {
    submit(late, {.tokens = prompt_of(3), .max_tokens = 5});
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCancelled);
  }
  engine->open_gate();
  stopping.get();
  EXPECT_EQ(running.text(), letters(expected_tokens(prompt_of(1), 100)));
  EXPECT_EQ(running.wait().finish, Finish::kLength);
  EXPECT_EQ(waiting.wait().finish, Finish::kStopping);
}

TEST_F(OrchestratorTest, StopsAtOnceWithoutGrace) {
  start(1);
  engine->closes_at = 5;
  Told running;
  submit(running, {.tokens = prompt_of(1), .max_tokens = 190});
  running.wait_for_text();
  auto stopping = std::async(std::launch::async, [&] { orchestrator->stop(milliseconds(0)); });
  std::this_thread::sleep_for(milliseconds(50));
  engine->open_gate();
  stopping.get();
  EXPECT_TRUE(running.ended());
  EXPECT_EQ(running.wait().finish, Finish::kStopping);
}

TEST_F(OrchestratorTest, APromptThatIsOnlyScored) {
  start(1);
  Told told;
  submit(told, {.tokens = prompt_of(1, 9), .max_tokens = 0});
  EXPECT_EQ(told.wait().finish, Finish::kLength);
  EXPECT_EQ(told.wait().output_tokens, 0);
  EXPECT_EQ(told.text(), "");
}

}  // namespace
}  // namespace mt::serve
