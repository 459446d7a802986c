#include "capi/engine/sampling_settings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/json.h"

namespace tessera {
namespace {

// One text, or a JSON array of texts.
Result<std::vector<std::string>> parse_stop(const std::string& stop) {
  if (!stop.starts_with('[')) return stop.empty() ? std::vector<std::string>() : std::vector{stop};
  const Result<Json> list = parse_json(stop, "generator: option 'stop'");
  if (!list.ok())
    return Status(StatusCode::kInvalidArgument,
                  format("{}; wanted a text, or a JSON array of texts", list.status().message()));
  std::vector<std::string> texts;
  for (const Json& item : *list) {
    if (!item.is_string() || item.get<std::string>().empty())
      return Status(
          StatusCode::kInvalidArgument,
          format("generator: option 'stop' holds {}, wanted texts that are not empty", quote_json(item)));
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Result<std::vector<int64_t>> parse_stop_ids(const std::string& stop_ids) {
  std::vector<int64_t> ids;
  if (trim(stop_ids).empty()) return ids;
  for (const std::string& part : split(stop_ids, ',')) {
    const std::optional<int64_t> id = parse_i64(trim(part));
    if (!id || *id < 0)
      return Status(StatusCode::kInvalidArgument,
                    format("generator: option 'stop_ids' holds '{}', wanted token ids such as 2,13", part));
    ids.push_back(*id);
  }
  return ids;
}

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

TextSettings read_text(OptionReader& reader, const TextSettings& otherwise) {
  TextSettings text = otherwise;
  text.max_tokens = reader.i64("max_tokens", otherwise.max_tokens, 0);
  text.temperature = reader.f64("temperature", otherwise.temperature, 0, 1e6);
  text.top_k = reader.i64("top_k", otherwise.top_k, 0, INT32_MAX);
  text.top_p = reader.f64("top_p", otherwise.top_p, 0, 1);
  const int64_t seed = reader.i64("seed", 0);
  if (reader.has("seed")) text.seed = seed;
  text.echo = reader.flag("echo", otherwise.echo);
  text.special = reader.flag("special", otherwise.special);
  const auto take = [&](auto parsed, auto& out) {
    if (parsed.ok())
      out = std::move(parsed).value();
    else
      reader.fail(parsed.status());
  };
  const std::string stop = reader.text("stop"), stop_ids = reader.text("stop_ids");
  if (reader.has("stop")) take(parse_stop(stop), text.stop);
  if (reader.has("stop_ids")) take(parse_stop_ids(stop_ids), text.stop_ids);
  return text;
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
