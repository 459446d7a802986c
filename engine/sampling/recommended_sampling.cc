#include "engine/sampling/recommended_sampling.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/generation_config.h"
#include "text/python_json.h"

namespace tessera {
namespace {

struct Renamed {
  std::string_view key, option;
};

// Keys of generation_config.json (transformers'
// GenerationConfig), then GGUF's own, and their options here.
constexpr auto kOptions = std::to_array<Renamed>({
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"repetition_penalty", "repetition_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"max_new_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"stop_strings", "stop"},
    {"general.sampling.penalty_last_n", "penalty_last"},
});

// The option of a key in either format; empty: none.
std::string_view option_of(std::string_view key) {
  for (const SamplingWord& word : sampling_words())
    if (key == word.gguf) key = word.huggingface;
  const auto known = std::ranges::find(kOptions, key, &Renamed::key);
  return known == kOptions.end() ? std::string_view() : known->option;
}

// Neutral: unsupported rules, and the value that disables each.
struct Neutral {
  std::string_view key;
  double value;
};
constexpr auto kNeutral = std::to_array<Neutral>({
    {"num_beams", 1},
    {"num_beam_groups", 1},
    {"num_return_sequences", 1},
    {"no_repeat_ngram_size", 0},
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"diversity_penalty", 0},
    {"length_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"penalty_alpha", 0},
    {"guidance_scale", 1},
    {"early_stopping", 0},
    {"remove_invalid_values", 0},
    {"renormalize_logits", 0},
    {"general.sampling.xtc_probability", 0},
    {"general.sampling.mirostat", 0},
});

// Keys that do not affect draws, or only with a rule above.
constexpr auto kOther = std::to_array<std::string_view>({
    "transformers_version",
    "use_cache",
    "return_dict_in_generate",
    "cache_implementation",
    "max_length",
    "min_length",
    "max_matching_ngram_size",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "general.sampling.xtc_threshold",
    "general.sampling.mirostat_tau",
    "general.sampling.mirostat_eta",
});

std::optional<double> number_of(const AttrValue& value) {
  if (const double* real = std::get_if<double>(&value)) return *real;
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

bool is_passed_over(std::string_view key) {
  return key.starts_with('_') || key.ends_with("_token_id") || std::ranges::find(kOther, key) != kOther.end();
}

// Files may contain "temperature": 1 or "top_k": 50.0.
AttrValue as_integer_if_whole(const AttrValue& value) {
  if (const double* real = std::get_if<double>(&value))
    if (*real >= -1e9 && *real <= 1e9 && *real == static_cast<double>(static_cast<int64_t>(*real)))
      return static_cast<int64_t>(*real);
  return value;
}

}  // namespace

Result<Options> generation_config_values(std::string_view json) {
  TSR_ASSIGN_OR_RETURN(const Json config, parse_python_json(json, "generation_config.json"));
  if (!config.is_object())
    return Status(StatusCode::kCorrupt,
                  format("generation_config.json: found {}, wanted a JSON object", quote_json(config)));
  Options values;
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    AttrValue& out = values[key];
    if (value.is_boolean())
      out = int64_t{value.get<bool>()};
    else if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
      out = value.get<double>();
    else if (value.is_number_integer())
      out = value.get<int64_t>();
    else if (value.is_number())
      out = value.get<double>();
    else if (value.is_string())
      out = value.get<std::string>();
    else
      out = dump(value);
  }
  return values;
}

RecommendedSampling recommend_sampling(const Options& values, const SamplingSettings& otherwise) {
  RecommendedSampling recommended{otherwise, {}};
  const auto obey = [&](std::string_view key, std::string_view option, const AttrValue& value) {
    const Options one{{std::string(option), as_integer_if_whole(value)}};
    Result<SamplingSettings> read = read_sampling_settings(one, recommended.settings);
    if (read.ok())
      recommended.settings = std::move(read).value();
    else
      recommended.not_obeyed.push_back(format("{}: {}", quote(key), read.status().message()));
  };
  for (const auto& [key, value] : values) {
    if (is_passed_over(key) || key == "do_sample") continue;
    if (const std::string_view option = option_of(key); !option.empty()) {
      const bool is_window = option == "penalty_last";
      const std::optional<double> number = number_of(value);
      if (is_window && number == 0.0) continue;  // handled below
      if ((is_window || option == "top_k") && number && *number < 0)
        obey(key, option, int64_t{0});  // 0 means all
      else
        obey(key, option, value);
      continue;
    }
    const auto neutral = std::ranges::find(kNeutral, std::string_view(key), &Neutral::key);
    if (neutral != kNeutral.end() && number_of(value) == neutral->value) continue;
    recommended.not_obeyed.push_back(
        format("{} is {}: there is no such rule here", quote(key), quote(to_text(value))));
  }
  if (const auto last = values.find("general.sampling.penalty_last_n");
      last != values.end() && number_of(last->second) == 0.0) {
    recommended.settings.repetition_penalty = 1;
    recommended.settings.presence_penalty = recommended.settings.frequency_penalty = 0;
  }
  if (const auto sample = values.find("do_sample");
      sample != values.end() && number_of(sample->second) == 0.0)
    recommended.settings.temperature = 0;
  return recommended;
}

}  // namespace tessera
