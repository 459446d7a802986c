// TrainingRow: one JSON object of a file of training data, as its kind says: TRL's and OpenAI's formats.
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
  Json prompt;           // null where the kind has none
  Json completion;       // also: the text, all messages, the chosen answer
  Json rejected;
  bool label = true;  // of kUnpaired: whether the completion is wanted
  // For the chat template; null: none.
  Json tools, documents, variables;
  // Messages, counted over prompt and completion, with a weight other than 1; 0: nothing of it is learnt.
  struct MessageWeight {
    size_t message;
    float weight;
  };
  std::vector<MessageWeight> weights;
  bool has_text_arguments = false;   // calls of tools came with them as JSON text; they are objects here
  std::vector<std::string> ignored;  // fields that change nothing
};

// The row that an object is. Without `wanted` its fields tell its kind. kInvalidArgument says which field is missing or
// wrong, what it holds, and what was wanted; so does a field that would change what is learnt and is not known here.
Result<TrainingRow> parse_row(const Json& object, std::optional<RowKind> wanted);

// The same messages with the arguments of calls as text, for templates that want them so.
Json with_text_arguments(const Json& messages);

}  // namespace tessera
