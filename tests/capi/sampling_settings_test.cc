// Settings of sampling: read from options, and as model files recommend them.
#include "engine/sampling/sampling_settings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampling/recommended_sampling.h"

using namespace tessera;

namespace {

std::string error_of(const Options& options, const SamplingSettings& otherwise = {}) {
  const Result<SamplingSettings> read = read_sampling_settings(options, otherwise);
  return std::string(read.ok() ? "" : read.status().message());
}

SamplingSettings read(const Options& options, const SamplingSettings& otherwise = {}) {
  const Result<SamplingSettings> settings = read_sampling_settings(options, otherwise);
  REQUIRE_MESSAGE(settings.ok(), settings.status().to_string());
  return *settings;
}

RecommendedSampling recommend(const char* json, const SamplingSettings& otherwise = {}) {
  const Result<Options> values = generation_config_values(json);
  REQUIRE_MESSAGE(values.ok(), values.status().to_string());
  return recommend_sampling(*values, otherwise);
}

}  // namespace

TEST_CASE("sampling options are read, and what they leave out is as before") {
  const SamplingSettings none = read({});
  CHECK(none.temperature == 0.8);
  CHECK(none.typical_p == 1);
  CHECK(none.repetition_penalty == 1);
  CHECK(none.logprobs == -1);
  CHECK(none.best_of == 1);
  CHECK(!none.seed);
  const SamplingSettings some = read({{"temperature", 0.5},
                                      {"top_k", int64_t{40}},
                                      {"min_p", 0.05},
                                      {"typical_p", 0.9},
                                      {"repetition_penalty", 1.1},
                                      {"presence_penalty", -0.5},
                                      {"frequency_penalty", int64_t{1}},
                                      {"penalty_last", int64_t{64}},
                                      {"logit_bias", std::string(R"({"7": -100, "3": 0.5})")},
                                      {"min_tokens", int64_t{2}},
                                      {"max_tokens", int64_t{2}},
                                      {"stop", std::string(R"(["a", "b"])")},
                                      {"stop_ids", std::string("2, 13")},
                                      {"logprobs", int64_t{20}},
                                      {"prompt_logprobs", int64_t{0}},
                                      {"n", int64_t{2}},
                                      {"seed", int64_t{-1}},
                                      {"ignore_eos", int64_t{1}}});
  CHECK(some.logit_bias.size() == 2);
  CHECK(some.logit_bias[0].token == 3);
  CHECK(some.logit_bias[1].bias == -100);
  CHECK(some.stop == std::vector<std::string>{"a", "b"});
  CHECK(some.stop_ids == std::vector<int64_t>{2, 13});
  CHECK(some.best_of == 2);  // as n
  CHECK(some.seed == -1);
  const SamplingSettings later = read({{"top_p", 0.5}}, some);
  CHECK(later.min_p == 0.05);
  CHECK(later.logit_bias.size() == 2);
  CHECK(later.top_p == 0.5);
  CHECK(read({{"logit_bias", std::string()}}, some).logit_bias.empty());
  CHECK(read({{"n", int64_t{1}}}, some).best_of == 1);
}

TEST_CASE("every sampling option has a name, and a wrong one is told with the nearest") {
  const std::vector<std::string>& names = sampling_option_names();
  for (const char* name :
       {"temperature", "top_k",       "top_p",      "min_p",    "typical_p",       "repetition_penalty",
        "seed",        "logit_bias",  "min_tokens", "logprobs", "prompt_logprobs", "presence_penalty",
        "n",           "best_of",     "ignore_eos", "stop",     "stop_ids",        "frequency_penalty",
        "max_tokens",  "penalty_last"})
    CHECK(std::ranges::find(names, name) != names.end());
  CHECK(error_of({{"min_q", 0.1}}).starts_with("text: unknown option 'min_q'; nearest: min_p"));
}

TEST_CASE("bad values of sampling options are told with what was wanted") {
  const std::vector<std::pair<Options, std::string>> cases = {
      {{{"min_p", 1.5}}, "text: option 'min_p' is 1.5, wanted between 0 and 1"},
      {{{"typical_p", -0.1}}, "text: option 'typical_p' is -0.1, wanted between 0 and 1"},
      {{{"repetition_penalty", 0.0}}, "text: option 'repetition_penalty' is 0, wanted between 0.01 and 100"},
      {{{"presence_penalty", 3.0}}, "text: option 'presence_penalty' is 3, wanted between -2 and 2"},
      {{{"frequency_penalty", std::string("x")}},
       "text: option 'frequency_penalty' is \"x\", wanted a number"},
      {{{"penalty_last", int64_t{-1}}}, "text: option 'penalty_last' is -1, wanted between 0 and 16777216"},
      {{{"logprobs", int64_t{21}}}, "text: option 'logprobs' is 21, wanted between -1 and 20"},
      {{{"n", int64_t{0}}}, "text: option 'n' is 0, wanted between 1 and 128"},
      {{{"n", int64_t{3}}, {"best_of", int64_t{2}}},
       "text: option 'best_of' is 2, wanted at least 'n', which is 3"},
      {{{"min_tokens", int64_t{9}}, {"max_tokens", int64_t{8}}},
       "text: option 'min_tokens' is 9, wanted at most 'max_tokens', which is 8"},
      {{{"stop", std::string("[\"a\", \"\"]")}},
       "generator: option 'stop' holds \"\", wanted texts that are not empty"},
      {{{"stop_ids", std::string("2,x")}},
       "generator: option 'stop_ids' holds 'x', wanted token ids such as 2,13"},
      {{{"stop", std::string(10001, 'x')}},
       "text: option 'stop' holds 10001 bytes in 1 texts, wanted at most 10000 bytes"},
  };
  for (const auto& [options, message] : cases) CHECK(error_of(options) == message);
  const std::string wanted =
      ", wanted a JSON object of token ids and numbers between -100 and 100, such as {\"15043\": -100}";
  const std::vector<std::pair<std::string, std::string>> biases = {
      {"[1]", "[1]"},
      {"{", "{"},
      {"{\"x\": 1}", "the token id 'x'"},
      {"{\"-1\": 1}", "the token id '-1'"},
      {"{\"99999999999\": 1}", "the token id '99999999999'"},
      {"{\"1\": 101}", "101 for token 1"},
      {"{\"1\": \"a\"}", "\"a\" for token 1"},
      {"{\"1\": 1, \"01\": 2}", "token 1 twice"},
  };
  for (const auto& [text, found] : biases)
    CHECK(error_of({{"logit_bias", text}}) == "text: option 'logit_bias' holds " + found + wanted);
  std::string many = "{\"0\": 1";
  for (int token = 1; token <= 4096; ++token) many += ", \"" + std::to_string(token) + "\": 1";
  CHECK(error_of({{"logit_bias", many + "}"}}) ==
        "text: option 'logit_bias' has 4097 tokens, wanted at most 4096");
  std::string ids = "0";
  for (int token = 1; token <= 4096; ++token) ids += "," + std::to_string(token);
  CHECK(error_of({{"stop_ids", ids}}) == "text: option 'stop_ids' holds 4097 ids, wanted at most 4096");
  CHECK(check_tokens(read({{"logit_bias", std::string("{\"9\": 1}")}}), 9).message() ==
        "text: option 'logit_bias' names token 9, the model has 9 tokens");
  CHECK(check_tokens(read({{"stop_ids", std::string("9")}}), 9).ok());
}

TEST_CASE("a generation_config.json gives the defaults that it recommends") {
  const RecommendedSampling qwen = recommend(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "repetition_penalty": 1.05,
          "temperature": 0.7, "top_p": 0.8, "top_k": 20, "transformers_version": "4.37.0", "_from_model_config": true,
          "min_p": null, "max_new_tokens": 2048, "stop_strings": ["a", "b"], "num_beams": 1})");
  CHECK(qwen.not_obeyed.empty());
  CHECK(qwen.settings.temperature == 0.7);
  CHECK(qwen.settings.top_p == 0.8);
  CHECK(qwen.settings.top_k == 20);
  CHECK(qwen.settings.repetition_penalty == 1.05);
  CHECK(qwen.settings.max_tokens == 2048);
  CHECK(qwen.settings.stop == std::vector<std::string>{"a", "b"});
  CHECK(qwen.settings.min_p == 0);
  CHECK(recommend(R"({"do_sample": false, "temperature": 0.7})").settings.temperature == 0);
  CHECK(recommend("{}", qwen.settings).settings.top_k == 20);
  const RecommendedSampling odd = recommend(
      R"({"temperature": -1, "num_beams": 4, "no_repeat_ngram_size": 3, "top_k": 50.0, "eta_cutoff": 0.0})");
  CHECK(odd.settings.temperature == 0.8);
  CHECK(odd.settings.top_k == 50);
  CHECK(odd.not_obeyed == std::vector<std::string>{
                              "no_repeat_ngram_size is 3: there is no such rule here",
                              "num_beams is 4: there is no such rule here",
                              "temperature: text: option 'temperature' is -1, wanted between 0 and 1e+06"});
  CHECK(generation_config_values("[1]").status().message() ==
        "generation_config.json: found [1], wanted a JSON object");
  CHECK(!generation_config_values("{").ok());
}

TEST_CASE("the sampling keys of a GGUF file give the defaults that they recommend") {
  const auto key = [](const char* name) { return std::string("general.sampling.") + name; };
  const RecommendedSampling some =
      recommend_sampling({{key("temp"), 1.0},
                          {key("top_k"), int64_t{64}},
                          {key("top_p"), 0.95},
                          {key("min_p"), 0.0},
                          {key("penalty_repeat"), 1.1},
                          {key("penalty_last_n"), int64_t{-1}},
                          {key("mirostat"), int64_t{0}},
                          {key("mirostat_tau"), 5.0},
                          {key("xtc_probability"), 0.5},
                          {key("sequence"), std::string("penalties;temperature")}},
                         {});
  CHECK(some.settings.temperature == 1);
  CHECK(some.settings.top_k == 64);
  CHECK(some.settings.top_p == 0.95);
  CHECK(some.settings.repetition_penalty == 1.1);
  CHECK(some.settings.penalty_last == 0);
  CHECK(some.not_obeyed ==
        std::vector<std::string>{
            "general.sampling.sequence is \"penalties;temperature\": there is no such rule here",
            "general.sampling.xtc_probability is 0.5: there is no such rule here"});
  const RecommendedSampling off =
      recommend_sampling({{key("penalty_repeat"), 1.1}, {key("penalty_last_n"), int64_t{0}}}, {});
  CHECK(off.settings.repetition_penalty == 1);
  CHECK(recommend_sampling({{key("penalty_last_n"), int64_t{64}}}, {}).settings.penalty_last == 64);
}
