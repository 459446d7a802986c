// ServingRequest: a prompt and how it is continued.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/sampling/sampling_settings.h"
#include "engine/sampling/stop_automaton.h"
#include "engine/serving/texts/prompt_reader.h"
#include "engine/serving/texts/served_answer.h"
#include "engine/serving/texts/structured_text.h"

namespace tessera {

struct ServingRequest {
  std::vector<int32_t> prompt;
  std::shared_ptr<const SamplingSettings> sampling;
  uint64_t seed = 0;
  int32_t priority = 0;                                          // the higher, the earlier
  int64_t adapter = -1;                                          // of ServingCore::load_adapter; -1: none
  // Requests of the same adapter share pages where this is the same: a number for the model's version.
  uint64_t root = 0;
  std::shared_ptr<const StopAutomaton> stops = nullptr;          // of sampling->stop; null: none
  std::optional<StructuredText> structured = std::nullopt;       // of each text; none: any text
  // The text goes on that began in the prompt, at this token; -1: it begins behind the prompt.
  int64_t text_begin = -1;
  std::shared_ptr<const AnswerReading> answer = nullptr;  // texts are taken apart by it; null: as they are
  std::optional<PromptTask> task = std::nullopt;  // nothing is generated, and this is computed of the prompt
  bool changes_logits = false;  // the caller answers with logits for each token
  bool keeps_sequence = false;  // the sequences can be had once their texts have ended
};

}  // namespace tessera
