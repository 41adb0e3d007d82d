// `maxtext decode` as a user runs it: what it prints, where it ends, faults and exit codes.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/test_files.h"
#include "data/test_models.h"
#include "support/run_program.h"

namespace mt {
namespace {

using testing::lines_of;
using testing::ProgramEnd;
using Words = std::vector<std::string>;

class DecodeProgram : public ::testing::Test {
 protected:
  void SetUp() override { write_file(tokenizer_, data::write_model(data::tiny_spec())); }

  // Random weights of a model that compiles in a moment. Later words replace earlier ones.
  Words words(const Words& more) const {
    Words base{"model_name=gemma3-4b",
               "override_model_config=true",
               "base_num_decoder_layers=2",
               "base_emb_dim=16",
               "base_num_query_heads=2",
               "base_num_kv_heads=1",
               "head_dim=8",
               "base_mlp_dim=32",
               "vocab_size=300",
               "sliding_window_size=4",
               "max_prefill_predict_length=8",
               "max_target_length=16",
               "dtype=float32",
               "prompt=the cat",
               "ignore_eos=true",
               "tokenizer_path=" + tokenizer_,
               "jax_cache_dir=" + folder_ / "cache"};
    Words all{"decode", MT_SOURCE_DIR "/configs/base.yml"};
    for (const std::string& word : more) {
      const std::string key = word.substr(0, word.find('=') + 1);
      std::erase_if(base, [&](const std::string& b) { return b.starts_with(key); });
    }
    all.insert(all.end(), base.begin(), base.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  ProgramEnd run(const Words& more = {}) {
    return testing::run_program(folder_.path(), words(more));
  }
  std::string output(const Words& more = {}) {
    const ProgramEnd end = run(more);
    EXPECT_EQ(end.code, 0) << end.err;
    const size_t at = end.out.find("Input `");
    return at == std::string::npos ? end.out : end.out.substr(at);
  }
  std::string fault(const Words& more, int code) {
    const ProgramEnd end = run(more);
    EXPECT_EQ(end.code, code) << end.out << end.err;
    EXPECT_EQ(lines_of(end.err).size(), 1U) << end.err;
    EXPECT_EQ(end.out.find("Input `"), std::string::npos) << "half-printed";
    return end.err;
  }
  checkpoint::testing::TempFolder folder_;
  std::string tokenizer_ = folder_ / "tokenizer.model";
};

TEST_F(DecodeProgram, PrintsMemoryAndTheText) {
  const ProgramEnd end = run();
  ASSERT_EQ(end.code, 0) << end.err;
  for (const char* part : {"Memstats: After load_params:", "RAMstats: After load_params:",
                           "Cache: ", "Generation: ", "Input `the cat` -> `"}) {
    EXPECT_NE(end.out.find(part), std::string::npos) << part;
  }
}

TEST_F(DecodeProgram, TheSameTextInPiecesAndWithTheSameSeed) {
  const std::string greedy = output();
  EXPECT_EQ(output({"prefill_chunk_size=1"}), greedy);
  EXPECT_EQ(output({"prefill_chunk_size=3"}), greedy);
  const Words draw{"decode_sampling_strategy=weighted", "decode_sampling_temperature=5"};
  const auto with_seed = [&](const std::string& seed) {
    Words words = draw;
    words.push_back("decode_sampling_seed=" + seed);
    return output(words);
  };
  const std::string first = with_seed("1");
  EXPECT_EQ(with_seed("1"), first);
  EXPECT_NE(with_seed("2"), first);
  EXPECT_EQ(output({"decode_sampling_strategy=topk", "decode_sampling_top_k=1"}), greedy);
  EXPECT_EQ(output({"decode_sampling_strategy=topk", "decode_sampling_top_k=4294967297",
                    "decode_sampling_temperature=5", "decode_sampling_seed=1"}),
            first)
      << "more than the vocabulary, not 1";
  EXPECT_EQ(output({"decode_sampling_strategy=nucleus", "decode_sampling_nucleus_p=1e-6"}), greedy);
}

TEST_F(DecodeProgram, PenaltiesAndBiasChangeTheText) {
  const std::string greedy = output();
  // The same 8 tokens wherever the output is the same text.
  EXPECT_NE(output({"decode_sampling_repetition_penalty=5"}), greedy);
  EXPECT_NE(output({"decode_sampling_frequency_penalty=5"}), greedy);
  EXPECT_NE(output({"decode_sampling_presence_penalty=5"}), greedy);
  EXPECT_EQ(output({"decode_logit_bias=107:-0.0"}), greedy);
  const std::string a = output({"decode_logit_bias=97:1000"});  // a byte piece, again and again
  EXPECT_NE(a, greedy);
  const Words draw{"decode_sampling_strategy=weighted", "decode_sampling_temperature=5",
                   "decode_sampling_min_p=1"};
  EXPECT_EQ(output(draw), greedy);
}

TEST_F(DecodeProgram, TellsLogProbabilities) {
  const ProgramEnd end = run({"return_log_prob=true", "decode_top_log_probs=2"});
  ASSERT_EQ(end.code, 0) << end.err;
  const std::string of_output = end.out.substr(end.out.find("log p of output    0:"));
  EXPECT_NE(end.out.find("log p of prompt    0:           `"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("log p of prompt    1:   -"), std::string::npos) << end.out;
  EXPECT_NE(of_output.find("` of `"), std::string::npos) << of_output;
  EXPECT_EQ(end.out.find("nan"), std::string::npos);
}

TEST_F(DecodeProgram, ALogProbabilityStaysInItsLine) {
  const ProgramEnd end =
      run({"return_log_prob=true", "decode_logit_bias=4:1000", "max_target_length=12"});
  ASSERT_EQ(end.code, 0) << end.err;
  const Words lines = lines_of(end.out);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.starts_with("log p of "); }),
            12);
  EXPECT_TRUE(lines.back().ends_with(" `\\n`")) << lines.back();
}

TEST_F(DecodeProgram, PrintsEveryKeyIfAsked) {
  EXPECT_NE(run({"log_config=true"}).out.find("\nConfig param prompt: the cat\n"),
            std::string::npos);
  EXPECT_EQ(run().out.find("Config param"), std::string::npos);
}

TEST_F(DecodeProgram, NotesRowsThatNoPieceBelongsTo) {
  EXPECT_NE(
      run().out.find(tokenizer_ +
                     " has 291 pieces, the model has vocab_size=300: the last 9 as padding\n"),
      std::string::npos);
  EXPECT_EQ(run({"vocab_size=291"}).out.find("pieces"), std::string::npos);
}

TEST_F(DecodeProgram, Faults) {
  EXPECT_NE(fault({"prompt=the cat the cat the cat"}, 2).find("max_prefill_predict_length=8"),
            std::string::npos);
  EXPECT_NE(fault({"max_target_length=8"}, 2).find("leaves no room"), std::string::npos);
  EXPECT_NE(fault({"vocab_size=64"}, 2).find("291 pieces"), std::string::npos);
  EXPECT_NE(fault({"tokenizer_path="}, 2).find("tokenizer_path"), std::string::npos);
  EXPECT_NE(fault({"decode_sampling_strategy=beam"}, 2).find("greedy"), std::string::npos);
  EXPECT_NE(fault({"decode_sampling_strategy=topk"}, 2).find("decode_sampling_top_k above 0"),
            std::string::npos);
  EXPECT_NE(fault({"decode_sampling_temperature=0"}, 2).find("decode_sampling_temperature"),
            std::string::npos);
  for (const auto& [word, part] : std::vector<std::pair<std::string, std::string>>{
           {"decode_sampling_min_p=1.5", "decode_sampling_min_p"},
           {"decode_sampling_repetition_penalty=0", "decode_sampling_repetition_penalty"},
           {"decode_sampling_presence_penalty=1e9", "decode_sampling_presence_penalty"},
           {"decode_sampling_frequency_penalty=x", "decode_sampling_frequency_penalty"},
           {"decode_top_log_probs=21", "decode_top_log_probs"},
           {"decode_top_log_probs=2", "needs return_log_prob=true"},
           {"decode_logit_bias=5", "'5' is not id:bias"},
           {"decode_logit_bias=5:1,", "is not id:bias"},
           {"decode_logit_bias=5:inf", "is not id:bias"},
           {"decode_logit_bias=5:1,5:2", "token 5 stands there twice"},
           {"decode_logit_bias=300:1", "decode_logit_bias: token 300, but vocab_size=300"},
           {"decode_logit_bias=-1:1", "decode_logit_bias: token -1, but vocab_size=300"},
           {"save_quantized_params_path=x.gguf", "x.gguf needs quantization=int8"},
           {"ici_tensor_parallelism=1000000",
            "ici_tensor_parallelism=1000000: 1000000 CPU devices, at most 1024 can be made"}}) {
    EXPECT_NE(fault({word}, 2).find(part), std::string::npos) << word;
  }
  for (const std::string word :
       {"autoregressive_decode_assert=x", "return_log_prob=true", "chat_system_prompt=\xff"}) {
    EXPECT_NE(fault({"--chat", word}, 2).find(word.substr(0, word.find('='))), std::string::npos)
        << word;
  }
  EXPECT_NE(fault({"load_parameters_path=/nowhere/x.gguf"}, 3).find("/nowhere/x.gguf"),
            std::string::npos);
  EXPECT_NE(fault({"prompt=\xff\xfe"}, 2).find("prompt: not valid UTF-8"), std::string::npos);
  EXPECT_NE(fault({"vocab_size=600"}, 2).find("291 pieces"), std::string::npos);
  // The weights' own fault, not that they bring no tokenizer.
  EXPECT_NE(fault({"tokenizer_path=", "load_parameters_path=/nowhere"}, 3).find("/nowhere"),
            std::string::npos);
  EXPECT_EQ(fault({"tokenizer_path="}, 2),
            "maxtext: error: no tokenizer: set tokenizer_path to a SentencePiece or GGUF file, or "
            "load_parameters_path to a GGUF file, which holds one\n");
  const std::string caches =
      fault({"max_target_length=2000000000", "base_num_decoder_layers=6"}, 5);
  EXPECT_NE(caches.find("max_target_length=2000000000: the caches of so many tokens need "),
            std::string::npos)
      << caches;
}

TEST_F(DecodeProgram, ATokenizerWithoutBos) {
  data::ModelSpec spec = data::tiny_spec();
  for (auto& piece : spec.pieces) {
    if (piece.text == "<bos>") piece.text = "<other>";
  }
  spec.bos_id = -1;
  write_file(tokenizer_, data::write_model(spec));
  EXPECT_EQ(fault({}, 2), "maxtext: error: " + tokenizer_ +
                              ": the tokenizer has no BOS piece; set add_bos=false\n");
  EXPECT_EQ(run({"add_bos=false"}).code, 0);
}

TEST_F(DecodeProgram, SaysWhatItDoesAndNothingOfTraining) {
  const ProgramEnd end = run({"weight_dtype=bfloat16"});
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.err, "") << "of updates that round away";
  EXPECT_NE(end.out.find("load_parameters_path is not set: the weights are random"),
            std::string::npos);
  EXPECT_EQ(end.out.find("Updating keys"), std::string::npos);
  const ProgramEnd help = testing::run_program(folder_.path(), {"decode", "--help"});
  EXPECT_LT(help.out.find("\nNeeded first:\n"), help.out.find("\nDecoding:\n"));
  EXPECT_LT(help.out.find("\nDecoding:\n"), help.out.find("\nRun:\n"));
  size_t at = 0;
  for (const char* key : {"model_name", "load_parameters_path", "tokenizer_path", "prompt",
                          "max_prefill_predict_length", "max_target_length",
                          "decode_sampling_strategy", "quantize_kvcache"}) {
    const std::string entry = std::string("\n  ") + key + "=";
    const size_t next = help.out.find(entry);
    ASSERT_NE(next, std::string::npos) << key;
    EXPECT_GT(next, at) << key;
    EXPECT_EQ(help.out.find(entry, next + 1), std::string::npos) << key << " stands there twice";
    at = next;
  }
  EXPECT_LT(help.out.find("\nRun:\n"), help.out.find("\nOptimizer:\n"));
}

// What was generated is kept, wherever it goes.
TEST_F(DecodeProgram, ASignalKeepsTheText) {
  for (const auto& [number, name] : {std::pair{SIGINT, "SIGINT"}, std::pair{SIGTERM, "SIGTERM"}}) {
    testing::ProgramRun program(folder_.path(), words({"max_target_length=1000000"}));
    ASSERT_TRUE(program.wait_for("Generating behind "));
    program.send(number);
    const ProgramEnd end = program.wait();
    EXPECT_EQ(end.code, 128 + number) << end.err;
    EXPECT_NE(end.out.find("Input `the cat` -> `"), std::string::npos) << end.out;
    EXPECT_TRUE(lines_of(end.out).back().starts_with(std::string("Stopped by ") + name + " after "))
        << end.out;
    EXPECT_EQ(end.err,
              std::string(name) + ": stopping after this token; once more stops at once\n");
  }
}

// The real 270M without a compile cache takes seconds before the first token.
TEST_F(DecodeProgram, ASignalDuringSetUp) {
  testing::ProgramRun program(
      folder_.path(), {"decode", "model_name=gemma3-270m", "jax_cache_dir=",
                       "load_parameters_path=" MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf"});
  ASSERT_TRUE(program.wait_for("Cache: "));
  program.send(SIGTERM);
  const ProgramEnd end = program.wait();
  EXPECT_EQ(end.code, 143);
  EXPECT_EQ(end.err, "SIGTERM: stopped before the first token\n");
}

// The real 270M with another window: its shapes say nothing of it.
TEST_F(DecodeProgram, WeightsOfOtherNumbers) {
  const std::string weights = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";
  const ProgramEnd end = testing::run_program(
      folder_.path(),
      {"decode", "model_name=gemma3-270m", "override_model_config=true", "sliding_window_size=256",
       "jax_cache_dir=", "max_target_length=80", "load_parameters_path=" + weights});
  EXPECT_EQ(end.code, 2) << end.out << end.err;
  EXPECT_NE(end.err.find(weights + ": gemma3.attention.sliding_window is 512, but the run has "
                                   "sliding_window_size=256"),
            std::string::npos)
      << end.err;
}

TEST_F(DecodeProgram, TheAssertionDecidesTheExitCode) {
  const std::string line = output();
  const std::string text = line.substr(line.find("-> `") + 4, 3);
  EXPECT_EQ(run({"autoregressive_decode_assert=" + text}).code, 0);
  const ProgramEnd wrong = run({"autoregressive_decode_assert=something else"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("generated text mismatch"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace mt
