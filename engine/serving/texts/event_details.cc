#include "engine/serving/texts/event_details.h"

#include <array>
#include <cmath>
#include <string_view>

#include "text/jinja/text.h"
#include "text/json.h"

namespace tessera {

namespace {

// JSON has no infinities; null stands for probability 0.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json likeliest_json(const PositionLogProbabilities& position, const Tokenizer* tokenizer) {
  Json top = Json::array();
  for (const TokenLogProbability& it : position.likeliest) {
    Json entry = {{"token", it.token}, {"logprob", number(it.log_probability)}};
    if (tokenizer != nullptr) entry["text"] = jinja::valid_utf8(tokenizer->decode(std::array{it.token}));
    top.push_back(std::move(entry));
  }
  return top;
}

Json position_json(const PositionLogProbabilities& position, const Tokenizer* tokenizer) {
  return {{"logprob", number(position.own.log_probability)}, {"top", likeliest_json(position, tokenizer)}};
}

Json usage_json(const ServedUsage& usage, const Tokenizer* tokenizer) {
  Json json = {{"prompt_tokens", usage.prompt_tokens},
               {"cached_tokens", usage.cached_tokens},
               {"tokens", usage.tokens},
               {"reasoning_tokens", usage.reasoning_tokens},
               {"seed", static_cast<int64_t>(usage.seed)},
               {"waited_seconds", usage.waited_s},
               {"first_token_seconds", usage.first_token_s},
               {"seconds", usage.total_s}};
  if (usage.stop_token >= 0) json["stop_token"] = usage.stop_token;
  if (usage.stop) {
    json["stop_logprob"] = number(usage.stop->own.log_probability);
    json["stop_top"] = likeliest_json(*usage.stop, tokenizer);
  }
  if (usage.has_log_probability) json["logprob"] = number(usage.log_probability);
  return json;
}

}  // namespace

std::string event_details_json(const ServingEvent& event, const Tokenizer* tokenizer) {
  switch (event.kind) {
    case ServingEvent::Kind::kToken: {
      if (event.log_probabilities.empty() && event.reasoning.empty()) return {};
      Json json = event.log_probabilities.empty() ? Json::object()
                                                  : position_json(event.log_probabilities[0], tokenizer);
      if (!event.reasoning.empty()) json["reasoning"] = event.reasoning;
      return dump(json);
    }
    case ServingEvent::Kind::kPrompt: {
      Json tokens = Json::array();
      for (size_t i = 0; i < event.log_probabilities.size(); ++i) {
        Json position = position_json(event.log_probabilities[i], tokenizer);
        if (event.first == 0 && i == 0) position["logprob"] = Json();
        position["token"] = event.log_probabilities[i].own.token;
        tokens.push_back(std::move(position));
      }
      return dump({{"first", event.first}, {"tokens", std::move(tokens)}});
    }
    case ServingEvent::Kind::kEnd: {
      Json json = usage_json(*event.usage, tokenizer);
      if (!event.message.empty()) json["message"] = Json::parse(event.message);
      if (!event.failure.ok())
        json["error"] = {{"code", static_cast<int32_t>(event.failure.code())},
                         {"message", jinja::valid_utf8(std::string(event.failure.message()))}};
      return dump(json);
    }
    case ServingEvent::Kind::kPending:
    case ServingEvent::Kind::kLogits: break;
  }
  return {};
}

}  // namespace tessera
