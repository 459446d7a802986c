// ServingEvent: what a server has to say about one text of a request.
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

// What is told of a text when it has ended.
struct ServedUsage {
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  uint64_t seed = 0;
  double waited_s = 0, first_token_s = 0, total_s = 0;  // since the request came
  bool has_log_probability = false;                     // whether it was asked for:
  double log_probability = 0;                           // sum over the text's `tokens`
  int32_t stop_token = -1;  // the token that ended it, which is none of these; -1: none did
  std::optional<PositionLogProbabilities> stop;  // its log probabilities, where they were asked for
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
  std::string reasoning;  // of kToken, of answers that are taken apart; `text` is their content
  std::string message;    // of kEnd: such an answer, as JSON
  std::vector<PositionLogProbabilities> log_probabilities;  // of kToken, where asked for; of kPrompt
  int64_t first = 0;                 // of kPrompt: the place of the first in the prompt
  std::optional<ServedUsage> usage;  // of kEnd
  Status failure;                    // of kFailed
  std::optional<KeptSequence> sequence;  // of kEnd, where it is kept
  std::optional<PromptResult> result;    // of kEnd with kStop, of requests that compute of their prompt alone
};

}  // namespace tessera
