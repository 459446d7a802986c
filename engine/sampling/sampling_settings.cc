#include "engine/sampling/sampling_settings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

Status bad_bias(std::string_view what) {
  return Status(
      StatusCode::kInvalidArgument,
      format("text: option 'logit_bias' holds {}, wanted a JSON object of token ids and numbers between "
             "-100 and 100, such as {\"15043\": -100}",
             what));
}

// {"token id": bias}, by token.
Result<std::vector<TokenBias>> parse_logit_bias(const std::string& text) {
  std::vector<TokenBias> biases;
  if (trim(text).empty()) return biases;
  const Result<Json> object = parse_json(text, "text: option 'logit_bias'");
  if (!object.ok() || !object->is_object()) return bad_bias(quote(text));
  if (object->size() > kMostBiases)
    return Status(
        StatusCode::kInvalidArgument,
        format("text: option 'logit_bias' has {} tokens, wanted at most {}", object->size(), kMostBiases));
  for (const auto& [key, value] : object->items()) {
    const std::optional<int64_t> token = parse_i64(key);
    if (!token || *token < 0 || *token > INT32_MAX) return bad_bias(format("the token id '{}'", quote(key)));
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
      return bad_bias(format("{} for token {}", quote_json(value), *token));
    biases.push_back({static_cast<int32_t>(*token), value.get<float>()});
  }
  std::ranges::sort(biases, {}, &TokenBias::token);
  const auto twice = std::ranges::adjacent_find(biases, {}, &TokenBias::token);
  if (twice != biases.end()) return bad_bias(format("token {} twice", twice->token));
  return biases;
}

}  // namespace

Status check_together(const SamplingSettings& settings) {
  const auto invalid = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  size_t stop_bytes = 0;
  for (const std::string& text : settings.stop) stop_bytes += text.size();
  if (stop_bytes > kMostStopBytes)
    return invalid(format("text: option 'stop' holds {} bytes in {} texts, wanted at most {} bytes",
                          stop_bytes, settings.stop.size(), kMostStopBytes));
  if (settings.stop_ids.size() > kMostStopIds)
    return invalid(format("text: option 'stop_ids' holds {} ids, wanted at most {}", settings.stop_ids.size(),
                          kMostStopIds));
  if (settings.max_tokens > 0 && settings.min_tokens > settings.max_tokens)
    return invalid(format("text: option 'min_tokens' is {}, wanted at most 'max_tokens', which is {}",
                          settings.min_tokens, settings.max_tokens));
  if (settings.best_of < settings.n)
    return invalid(format("text: option 'best_of' is {}, wanted at least 'n', which is {}", settings.best_of,
                          settings.n));
  return {};
}

SamplingSettings read_sampling(OptionReader& reader, const SamplingSettings& otherwise) {
  SamplingSettings settings = otherwise;
  static_cast<TextSettings&>(settings) = read_text(reader, otherwise);
  settings.min_p = reader.f64("min_p", otherwise.min_p, 0, 1);
  settings.typical_p = reader.f64("typical_p", otherwise.typical_p, 0, 1);
  settings.repetition_penalty = reader.f64("repetition_penalty", otherwise.repetition_penalty, 0.01, 100);
  settings.presence_penalty = reader.f64("presence_penalty", otherwise.presence_penalty, -2, 2);
  settings.frequency_penalty = reader.f64("frequency_penalty", otherwise.frequency_penalty, -2, 2);
  settings.penalty_last = reader.i64("penalty_last", otherwise.penalty_last, 0, 1 << 24);
  const std::string bias = reader.text("logit_bias");
  if (reader.has("logit_bias")) {
    Result<std::vector<TokenBias>> parsed = parse_logit_bias(bias);
    if (parsed.ok())
      settings.logit_bias = std::move(parsed).value();
    else
      reader.fail(parsed.status());
  }
  settings.min_tokens = reader.i64("min_tokens", otherwise.min_tokens, 0);
  settings.logprobs = reader.i64("logprobs", otherwise.logprobs, -1, kMostAlternatives);
  settings.prompt_logprobs = reader.i64("prompt_logprobs", otherwise.prompt_logprobs, -1, kMostAlternatives);
  settings.n = reader.i64("n", otherwise.n, 1, kMostTexts);
  const bool asks_n = reader.has("n");
  settings.best_of = reader.i64("best_of", asks_n ? settings.n : otherwise.best_of, 1, kMostTexts);
  settings.ignore_eos = reader.flag("ignore_eos", otherwise.ignore_eos);
  return settings;
}

Result<SamplingSettings> read_sampling_settings(const Options& options, const SamplingSettings& otherwise) {
  OptionReader reader(options, "text");
  SamplingSettings settings = read_sampling(reader, otherwise);
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(check_together(settings));
  return settings;
}

const std::vector<std::string>& sampling_option_names() {
  static const std::vector<std::string> names = [] {
    const Options none;
    OptionReader reader(none, "text");
    (void)read_sampling(reader, {});
    return reader.known();
  }();
  return names;
}

Status check_tokens(const SamplingSettings& settings, int64_t vocabulary) {
  for (const TokenBias& bias : settings.logit_bias)
    if (bias.token >= vocabulary)
      return Status(StatusCode::kInvalidArgument,
                    format("text: option 'logit_bias' names token {}, the model has {} tokens", bias.token,
                           vocabulary));
  return {};
}

}  // namespace tessera
