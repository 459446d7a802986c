// TrainingRow: one JSON object of training data in TRL's or OpenAI's formats, by kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

// Stored in files of tokens: append, never renumber.
enum class RowKind : uint8_t {
  kText = 0,
  kPrompt = 1,
  kPromptCompletion = 2,
  kMessages = 3,
  kPreference = 4,
  kUnpaired = 5,
};
inline constexpr int kRowKinds = 6;

std::string_view name_of(RowKind kind);  // "prompt_completion"
std::optional<RowKind> row_kind_of(std::string_view name);

struct TrainingRow {
  RowKind kind = RowKind::kText;
  bool is_chat = false;  // prompt, completion and rejected are lists of messages; else texts
  Json prompt;           // null if the kind has none
  Json completion;       // also: the text, all messages, the chosen answer
  Json rejected;
  bool label = true;  // of kUnpaired: whether the completion is desirable
  // For the chat template; null: none.
  Json tools, documents, variables;
  // MessageWeight: a message with a weight other than 1, counted over prompt and completion; 0: not trained.
  struct MessageWeight {
    size_t message;
    float weight;
  };
  std::vector<MessageWeight> weights;
  bool has_text_arguments = false;   // tool calls had arguments as JSON text; here they are objects
  std::vector<std::string> ignored;  // fields without effect
};

// Parses an object. Without `wanted` its fields determine the kind. kInvalidArgument names the missing
// or wrong field, its value and what was wanted, also for an unknown field that would change training.
Result<TrainingRow> parse_row(const Json& object, std::optional<RowKind> wanted);

// The messages with call arguments as text, for templates that expect it.
Json with_text_arguments(const Json& messages);

}  // namespace tessera
