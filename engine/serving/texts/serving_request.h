// ServingRequest: a prompt and the settings of its texts, the completions that are generated for it.
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
  // Requests share pages with equal roots only: it differs by adapter, by version of the weights, and by long rope.
  uint64_t root = 0;
  std::shared_ptr<const StopAutomaton> stops = nullptr;          // automaton of sampling->stop; null: none
  std::optional<StructuredText> structured = std::nullopt;       // constraint of each text; none: unconstrained
  // Index in the prompt where the text begins, for a text that is continued; -1: it begins after the prompt.
  int64_t text_begin = -1;
  std::shared_ptr<const AnswerReading> answer = nullptr;  // parser of the texts; null: not parsed
  std::optional<PromptTask> task = std::nullopt;  // reads the prompt instead of generating
  bool changes_logits = false;  // the caller supplies the logits of each token
  bool keeps_sequence = false;  // Engine::take_sequence returns them after the texts' end
};

}  // namespace tessera
