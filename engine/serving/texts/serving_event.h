// ServingEvent: an event of one text of a request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/log_probabilities.h"
#include "engine/serving/texts/kept_sequence.h"
#include "engine/serving/texts/prompt_reader.h"
#include "graph/base/status.h"

namespace tessera {

// ServedUsage: statistics of a text at its end.
struct ServedUsage {
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  int64_t reasoning_tokens = 0;  // of `tokens`: those of a parsed answer's reasoning and its marks
  uint64_t seed = 0;
  double waited_s = 0, first_token_s = 0, total_s = 0;  // since submission
  bool has_log_probability = false;                     // whether it was requested:
  double log_probability = 0;                           // sum over the text's `tokens`
  int32_t stop_token = -1;  // the end token, not among `tokens`; -1: none
  std::optional<PositionLogProbabilities> stop;  // log probabilities of the end token, if requested
};

struct ServingEvent {
  // Values are those of TSR_EVENT_*.
  enum class Kind : int32_t {
    kToken = 0,
    kPending = 1,
    kEnd = 2,
    kPrompt = 3,
    kLogits = 4
  } kind = Kind::kPending;
  // Values are those of TSR_FINISH_*.
  enum class Finish : int32_t {
    kNone = 0,
    kLength = 1,
    kStop = 2,
    kCancelled = 3,
    kFailed = 4
  } finish = Finish::kNone;
  int64_t request = -1;
  int32_t index = 0;                                        // of the request's texts
  int32_t token = -1;                                       // of kToken; -1: text alone
  std::string text;                                         // of kToken: whole characters
  std::string reasoning;  // of kToken: reasoning of a parsed answer; `text` is its content
  std::string message;    // of kEnd: a parsed answer, as JSON
  std::vector<PositionLogProbabilities> log_probabilities;  // of kToken, if requested; of kPrompt
  int64_t first = 0;                 // of kPrompt: position of the first in the prompt
  std::optional<ServedUsage> usage;  // of kEnd
  Status failure;                    // of kFailed
  std::optional<KeptSequence> sequence;  // of kEnd, if kept
  std::optional<PromptResult> result;    // of kEnd with kStop, for requests that only read their prompt
};

}  // namespace tessera
