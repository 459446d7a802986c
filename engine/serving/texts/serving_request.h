// ServingRequest: a prompt and the settings of its texts.
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
  int32_t priority = 0;                                          // higher runs earlier
  int64_t adapter = -1;                                          // of ServingCore::load_adapter; -1: none
  // Separates page sharing between versions of the model; equal versions share.
  uint64_t root = 0;
  std::shared_ptr<const StopAutomaton> stops = nullptr;          // automaton of sampling->stop; null: none
  std::optional<StructuredText> structured = std::nullopt;       // constraint of each text; none: unconstrained
  // First token of a text that began in the prompt and continues; -1: the text begins after the prompt.
  int64_t text_begin = -1;
  std::shared_ptr<const AnswerReading> answer = nullptr;  // parser of the texts; null: not parsed
  std::optional<PromptTask> task = std::nullopt;  // reads the prompt instead of generating
  bool changes_logits = false;  // the caller answers with logits for each token
  bool keeps_sequence = false;  // sequences can be taken after their texts have ended
};

}  // namespace tessera
