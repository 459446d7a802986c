#include "serialize/generation_config.h"

#include <algorithm>
#include <array>

#include "graph/base/text.h"
#include "text/python_json.h"

namespace tessera {
namespace {

// llama.cpp's keys (src/llama-arch.cpp), and two further penalties found in files.
constexpr auto kWords = std::to_array<SamplingWord>({
    {"temperature", "general.sampling.temp", false},
    {"top_k", "general.sampling.top_k", true},
    {"top_p", "general.sampling.top_p", false},
    {"min_p", "general.sampling.min_p", false},
    {"repetition_penalty", "general.sampling.penalty_repeat", false},
    {"presence_penalty", "general.sampling.penalty_present", false},
    {"frequency_penalty", "general.sampling.penalty_freq", false},
});
constexpr const char *kTemperature = "general.sampling.temp", *kWindow = "general.sampling.penalty_last_n",
                     *kDoSample = "do_sample";

Json object_of(std::string_view metadata) {
  if (metadata.empty()) return Json::object();
  Result<Json> json = parse_python_json(metadata, kGenerationConfigKey);
  return json.ok() && json->is_object() ? std::move(json).value() : Json::object();
}

// Token ids, and descriptions of the file itself.
bool is_left_out(std::string_view key) {
  return key.starts_with('_') || key.ends_with("_token_id") || key == "transformers_version" || key == "exported_by";
}

bool is_zero(const Json& value) { return value.is_number() && value.get<double>() == 0; }

}  // namespace

std::span<const SamplingWord> sampling_words() { return kWords; }

Json huggingface_generation_config(std::string_view metadata) {
  const Json given = object_of(metadata);
  Json out = Json::object();
  bool is_gguf = false;
  for (const auto& [key, value] : given.items()) {
    const auto word = std::ranges::find(kWords, std::string_view(key), &SamplingWord::gguf);
    if (word != kWords.end()) {
      is_gguf = true;
      if (key != kTemperature || !is_zero(value)) out[std::string(word->huggingface)] = value;
      continue;
    }
    is_gguf |= key.starts_with(kSamplingPrefix);
    // All tokens, as in GGUF.
    if (key == kWindow && value.is_number() && value.get<double>() < 0) continue;
    if (is_left_out(key) || value.is_null() || (out.contains(key) && is_gguf)) continue;
    out[key] = value;
  }
  const auto temperature = given.find(kTemperature);
  const bool is_greedy = temperature != given.end() && is_zero(*temperature);
  if (is_greedy)
    out[kDoSample] = false;
  else if (is_gguf && !given.contains(kDoSample))
    out[kDoSample] = true;
  return out;
}

GgufSampling gguf_sampling(std::string_view metadata) {
  const Json given = object_of(metadata);
  GgufSampling out;
  Json rest = Json::object();
  const auto put = [&](std::string_view key, const Json& value) {
    const bool is_whole = value.is_number_integer() ||
                          (value.is_number() && value.get<double>() == static_cast<double>(
                                                    static_cast<int64_t>(std::clamp(value.get<double>(), -1e9, 1e9))));
    const auto word = std::ranges::find(kWords, key, &SamplingWord::gguf);
    if (value.is_boolean() || value.is_null() || (value.is_string() && word != kWords.end())) return false;
    if (value.is_string()) {
      out.texts.emplace_back(key, value.get<std::string>());
    } else if (!value.is_number()) {
      return false;
    } else if (is_whole && (word == kWords.end() ? value.is_number_integer() : word->is_integer)) {
      const double number = value.get<double>();
      out.integers.emplace_back(key, static_cast<int64_t>(std::clamp(number, -2147483648.0, 2147483647.0)));
    } else {
      out.reals.emplace_back(key, value.get<double>());
    }
    return true;
  };
  const auto sample = given.find(kDoSample);
  const bool is_greedy = sample != given.end() && sample->is_boolean() && !sample->get<bool>();
  bool penalizes = false;
  for (const auto& [key, value] : given.items()) {
    if (is_left_out(key)) continue;
    const auto word = std::ranges::find(kWords, std::string_view(key), &SamplingWord::huggingface);
    const bool is_temperature = word != kWords.end() && word->gguf == kTemperature;
    if (word != kWords.end() && !(is_temperature && is_greedy) && !given.contains(word->gguf) &&
        put(word->gguf, value)) {
      penalizes |= key.ends_with("_penalty");
      continue;
    }
    if (key.starts_with(kSamplingPrefix) && put(key, value)) continue;
    rest[key] = value;
  }
  if (is_greedy && !given.contains(kTemperature)) out.reals.emplace_back(kTemperature, 0);
  // In llama.cpp penalties default to the last 64 tokens.
  if (penalizes && !given.contains(kWindow)) out.integers.emplace_back(kWindow, -1);
  if (out.integers.empty() && out.reals.empty() && out.texts.empty() && rest.empty()) return out;
  // A missing setting must not enable sampling.
  if (!rest.contains(kDoSample)) rest[kDoSample] = Json();
  out.rest = dump(rest);
  return out;
}

}  // namespace tessera
