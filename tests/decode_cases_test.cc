// What people reported of other decoders, tried on `maxtext decode` itself: where a text ends, what
// stands at its beginning, bytes, limits, weights and tokenizers that are not what they should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "checkpoint/test_files.h"
#include "data/open_tokenizer.h"
#include "data/test_models.h"
#include "support/chain_model.h"
#include "support/run_program.h"

namespace mt {
namespace {

using testing::lines_of;
using testing::ProgramEnd;
using Words = std::vector<std::string>;

constexpr int64_t kVocab = 320;
const std::string kHf = MT_SOURCE_DIR "/tests/golden/hf";
const std::string kReal = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";

// A model whose every token has one follower, and a tokenizer with Gemma's turns.
class Chain : public ::testing::Test {
 protected:
  Chain() {
    spec_ = data::tiny_spec();
    using data::PieceType;
    for (const char* piece : {"<start_of_turn>", "<end_of_turn>"}) {
      spec_.pieces.push_back({piece, 0, PieceType::kUserDefined});
    }
    // <end_of_turn> spelled in letters, each piece once.
    for (const char* piece : {"<", "en", "d", "_of", "_tur", "n>"}) {
      if (id(piece) < 0) spec_.pieces.push_back({piece, -500, PieceType::kNormal});
    }
    write_file(folder_ / "tokenizer.model", data::write_model(spec_));
  }
  int32_t id(const std::string& piece) const {
    for (size_t i = 0; i < spec_.pieces.size(); ++i) {
      if (spec_.pieces[i].text == piece) return static_cast<int32_t>(i);
    }
    return -1;
  }
  void follow(const Words& pieces) {
    std::map<int32_t, int32_t> followers;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      ASSERT_GE(id(pieces[i + 1]), 0) << pieces[i + 1];
      followers[id(pieces[i])] = id(pieces[i + 1]);
    }
    testing::write_chain_model(folder_ / "chain.safetensors", kVocab, followers);
  }
  // Later words replace earlier ones.
  ProgramEnd run(const Words& more) {
    Words words{"decode",
                "load_parameters_path=" + folder_ / "chain.safetensors",
                "tokenizer_path=" + folder_ / "tokenizer.model",
                "dtype=float32",
                "jax_cache_dir=" + cache().path(),
                "max_prefill_predict_length=24",
                "max_target_length=40"};
    const Words model = testing::chain_words(kVocab);
    words.insert(words.end(), model.begin(), model.end());
    for (const std::string& word : more) {
      const std::string key = word.substr(0, word.find('=') + 1);
      if (!key.empty()) std::erase_if(words, [&](const auto& w) { return w.starts_with(key); });
      words.push_back(word);
    }
    return testing::run_program(folder_.path(), words);
  }
  // What was generated behind the prompt.
  std::string text(const Words& more, const std::string& prompt = "x") {
    Words words = more;
    words.push_back("prompt=" + prompt);
    const ProgramEnd end = run(words);
    EXPECT_EQ(end.code, 0) << end.err;
    const std::string head = "Input `" + prompt + "` -> `";
    const size_t at = end.out.find(head);
    if (at == std::string::npos) return "nothing: " + end.out;
    return end.out.substr(at + head.size(), end.out.rfind('`') - at - head.size());
  }
  static const checkpoint::testing::TempFolder& cache() {
    static const checkpoint::testing::TempFolder folder;
    return folder;
  }
  checkpoint::testing::TempFolder folder_;
  data::ModelSpec spec_;
};

// A9: at <eos> and <end_of_turn> and nowhere else, and neither is in the text.
TEST_F(Chain, TheTextEndsAtItsEnd) {
  follow({"x", "a", "\n", "b", "<end_of_turn>", "x"});
  EXPECT_EQ(text({}), "a\nb") << "a newline is no end";
  EXPECT_EQ(text({"ignore_eos=true", "max_target_length=9", "max_prefill_predict_length=3"}),
            "a\nb<end_of_turn>xa\n");
  follow({"x", "a", "\n", "b", "<eos>", "x"});
  EXPECT_EQ(text({}), "a\nb");
  EXPECT_EQ(text({"ignore_eos=true", "max_target_length=9", "max_prefill_predict_length=3"}),
            "a\nbxa\n");
  follow({"x", "<", "en", "d", "_of", "_tur", "n>", "b", "<end_of_turn>"});
  EXPECT_EQ(text({}), "<end_of_turn>b") << "the word is text, the token is an end";
}

TEST_F(Chain, AnAnswerEndsAtItsEnd) {
  follow({"\n", "b", "<end_of_turn>"});
  write_file(folder_ / "in", "hello\n\nagain\n/exit\n");
  const ProgramEnd end = [&] {
    const int old = ::dup(STDIN_FILENO), in = ::open((folder_ / "in").c_str(), O_RDONLY);
    ::dup2(in, STDIN_FILENO);
    const ProgramEnd chat = run({"--chat", "max_target_length=100"});
    ::dup2(old, STDIN_FILENO);
    ::close(old);
    ::close(in);
    return chat;
  }();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "b\nb\n");
}

// A10: one BOS, whatever the text says; C7: the prompt's tokens are counted with it, the output's
// with its end.
TEST_F(Chain, OneBosAndEveryTokenIsCounted) {
  follow({"x", "a", "<end_of_turn>"});
  const auto pieces = [&](const std::string& of, const Words& more) {
    Words out, words = more;
    words.push_back("return_log_prob=true");
    for (const std::string& line : lines_of(run(words).out)) {
      if (!line.starts_with("log p of " + of)) continue;
      const size_t at = line.find('`');
      out.push_back(line.substr(at + 1, line.rfind('`') - at - 1));
    }
    return out;
  };
  EXPECT_EQ(pieces("prompt", {"prompt=x"}), (Words{"<bos>", "x"}));
  EXPECT_EQ(pieces("prompt", {"prompt=x", "add_bos=false"}), Words{"x"});
  EXPECT_EQ(pieces("output", {"prompt=x"}), (Words{"a", "<end_of_turn>"}));
  const Words literal = pieces("prompt", {"prompt=<bos>x"});
  EXPECT_EQ(literal.front(), "<bos>");
  EXPECT_EQ(std::count(literal.begin(), literal.end(), "<bos>"), 1) << "in the text it is text";
  EXPECT_EQ(literal.back(), "x");
}

// A14: bytes become characters, or are shown as none.
TEST_F(Chain, BytesBecomeCharacters) {
  follow({"x", "<0xC3>", "<0xA9>", "the", "<0xE2>", "<eos>"});
  EXPECT_EQ(text({}), "\u00e9the\uFFFD");
  EXPECT_EQ(text({}, "\U0001F999 \u65e5\u672c x"), "\u00e9the\uFFFD");
  follow({"x", "\u2581the", "<eos>"});
  EXPECT_EQ(text({}), " the") << "the space of a continuation stays";
}

TEST(DecodeCases, AContinuationKeepsItsSpaceOnTheRealWeights) {
  const checkpoint::testing::TempFolder folder;
  const ProgramEnd end = testing::run_program(
      folder.path(), {"decode", "model_name=gemma3-270m", "prompt=I love", "max_target_length=70",
                      "jax_cache_dir=", "load_parameters_path=" + kReal});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("Input `I love` -> ` "), std::string::npos) << end.out;
}

// B14: not a bit of a log-probability changes.
TEST_F(Chain, DropsNothingOut) {
  follow({"x", "a", "b", "x"});
  const auto scored = [&](const std::string& rate) {
    Words out;
    for (const std::string& line :
         lines_of(run({"prompt=xa", "return_log_prob=true", "dropout_rate=" + rate}).out)) {
      if (line.starts_with("log p of ")) out.push_back(line);
    }
    return out;
  };
  const Words without = scored("0.0");
  EXPECT_EQ(without.size(), 40U);
  EXPECT_EQ(scored("0.5"), without);
}

// C7: the limits are kept to the token, and what is none is refused with its key.
TEST_F(Chain, Limits) {
  follow({"x", "a", "b", "x"});
  for (const int length : {4, 5, 6, 7, 12}) {  // BOS and x before them
    const Words words{"max_target_length=" + std::to_string(length),
                      "max_prefill_predict_length=3"};
    EXPECT_EQ(text(words).size(), static_cast<size_t>(length - 2)) << length;
  }
  for (const std::string key : {"max_target_length", "max_prefill_predict_length"}) {
    for (const std::string value : {"0", "-1", "1.5", "x", "", "99999999999999999999", "1e9"}) {
      const ProgramEnd end = run({key + "=" + value});
      EXPECT_EQ(end.code, 2) << key << "=" << value << ": " << end.out;
      EXPECT_EQ(lines_of(end.err).size(), 1U) << end.err;
      EXPECT_NE(end.err.find(key), std::string::npos) << end.err;
    }
  }
}

// D2, D3, D4: files that are not what they should be: one line that names the file, and no more.
class BadFiles : public Chain {
 protected:
  BadFiles() { follow({"x", "a"}); }
  void expect_refused(const std::string& key, const std::string& path, const std::string& part) {
    const auto start = std::chrono::steady_clock::now();
    const ProgramEnd end = run({key + "=" + path});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(end.code == 2 || end.code == 3) << path << ": " << end.code;
    EXPECT_EQ(lines_of(end.err).size(), 1U) << end.err;
    EXPECT_NE(end.err.find(path), std::string::npos) << end.err;
    EXPECT_NE(end.err.find(part), std::string::npos) << end.err;
    EXPECT_EQ(end.out.find("Input `"), std::string::npos) << end.out;
    EXPECT_LT(seconds.count(), 3) << path;  // of a machine that does other things too
  }
  void weights(const std::string& name, const std::string& bytes, const std::string& part) {
    write_file(folder_ / name, bytes);
    expect_refused("load_parameters_path", folder_ / name, part);
  }
};

TEST_F(BadFiles, Safetensors) {
  const std::string good = read_file(folder_ / "chain.safetensors");
  weights("short.safetensors", good.substr(0, good.size() - 1), "");
  weights("long.safetensors", good + '\0', "");
  weights("cut.safetensors", good.substr(0, 7), "");
  weights("empty.safetensors", "", "");
  weights("length.safetensors", std::string(8, '\xff') + good.substr(8), "");
  std::string other = good;
  other[8] = '[';
  weights("json.safetensors", other, "");
  other = good;
  other.replace(other.find("\"F32\""), 5, "\"F33\"");
  weights("type.safetensors", other, "F33");
  // A tensor under another name: what lacks is named.
  other = good;
  other.replace(other.find("q_norm"), 6, "q_nerm");
  weights("name.safetensors", other, "query_norm");
  std::filesystem::create_directory(folder_ / "nothing");
  expect_refused("load_parameters_path", folder_ / "nothing", "");
  expect_refused("load_parameters_path", folder_ / "absent.safetensors", "No such file");
  expect_refused("load_parameters_path", "/dev/null", "");
}

TEST_F(BadFiles, Shards) {
  std::filesystem::create_directory(folder_ / "shards");
  write_file(folder_ / "shards/model.safetensors.index.json",
             R"({"weight_map":{"model.norm.weight":"model-00002-of-00002.safetensors"}})");
  expect_refused("load_parameters_path", folder_ / "shards", "model-00002-of-00002.safetensors");
  write_file(folder_ / "shards/model.safetensors.index.json",
             R"({"weight_map":{"model.norm.weight":"../chain.safetensors"}})");
  expect_refused("load_parameters_path", folder_ / "shards", "../chain.safetensors");
  write_file(folder_ / "shards/model.safetensors.index.json", "{\"weight_map\":");
  expect_refused("load_parameters_path", folder_ / "shards", "invalid JSON");
}

TEST_F(BadFiles, Gguf) {
  const std::string real = read_file(kReal).substr(0, 1 << 23);
  weights("cut.gguf", real, "");
  weights("version.gguf", real.substr(0, 4) + '\x09' + real.substr(5), "version");
  weights("text.gguf", "not a model", "");
  checkpoint::testing::GgufBuilder llama;
  llama.text("general.architecture", "llama");
  weights("llama.gguf", llama.build(), "\"llama\", expected \"gemma3\"");
}

TEST_F(BadFiles, Tokenizers) {
  const std::string good = read_file(folder_ / "tokenizer.model");
  const auto tokenizer = [&](const std::string& name, const std::string& bytes,
                             const std::string& part) {
    write_file(folder_ / name, bytes);
    expect_refused("tokenizer_path", folder_ / name, part);
  };
  tokenizer("cut.model", good.substr(0, good.size() / 2), "");
  tokenizer("empty.model", "", "");
  tokenizer("varint.model", std::string(11, '\xff'), "");
  tokenizer("past.model", "\x0a\x7f", "");
  tokenizer("weights.model", read_file(folder_ / "chain.safetensors").substr(0, 1000), "");
  data::ModelSpec two = spec_;
  two.pieces[280].text = two.pieces[281].text;
  tokenizer("two.model", data::write_model(two), two.pieces[281].text);
}

}  // namespace
}  // namespace mt
