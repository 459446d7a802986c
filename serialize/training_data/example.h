// TokenExample: token ids, and which of them are trained. ExampleMaker makes them
// from rows, with a model's tokenizer and chat template. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serialize/training_data/row.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/word_cache.h"
#include "text/tokenizer/written_control.h"

namespace tessera {

// Stored in files of tokens: append, never renumber.
enum class ExampleRole : uint8_t {
  kPlain = 0,
  kChosen = 1,
  kRejected = 2,
  kWanted = 3,
  kUnwanted = 4,
  kPrompt = 5
};
inline constexpr int kExampleRoles = 6;
std::string_view name_of(ExampleRole role);

struct TokenExample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // by token: 1 if trained
  uint32_t prompt = 0;           // number of first tokens that are the prompt; equal for both of a pair
  ExampleRole role = ExampleRole::kPlain;
  std::vector<float> weights = {};  // loss weights by token; empty: all 1

  int64_t trained_tokens() const;  // without the first token, which nothing predicts
};

// TrainedPart: the trained tokens. kDefault: all of a text, the assistant's of messages, the completion of a prompt.
enum class TrainedPart : uint8_t { kDefault, kAssistant, kCompletion, kAll };
// Truncation: treatment of examples longer than max_length; kSplit leaves them to packing.
enum class Truncation : uint8_t { kKeepStart, kKeepEnd, kDrop, kError, kSplit };

struct ExampleOptions {
  TrainedPart part = TrainedPart::kDefault;
  int64_t max_length = 0;  // in tokens; 0: unlimited
  Truncation truncation = Truncation::kKeepStart;
  bool special = false;  // written-out control tokens in texts are encoded as such; never in messages
  bool append_end =
      true;  // texts and completions end with EOS; templates end messages themselves
  bool refuses_untrained = false;  // an example without trained tokens is an error
  int64_t now_s = 0;               // for templates that print the date
};

// RowExamples: a row's examples: one, or two of a preference; none if dropped.
struct RowExamples {
  enum class Dropped : uint8_t { kNo, kLong, kUntrained };
  std::vector<TokenExample> examples;
  Dropped dropped = Dropped::kNo;
  std::string reason;     // why it was dropped
  int64_t truncated = 0;  // shortened examples
  TokenNameCounts written_control = {};  // control tokens in the row's texts read as letters
};

// ExampleMaker: makes examples from rows. One thread; other threads use a copy.
class ExampleMaker {
 public:
  // `chat_template` may be empty: messages are then refused.
  static Result<ExampleMaker> create(std::shared_ptr<const Tokenizer> tokenizer,
                                     std::string_view chat_template, const ExampleOptions& options);
  // kInvalidArgument if the template refuses the row, options do not
  // fit its kind, or Truncation::kError or refuses_untrained applies.
  Result<RowExamples> make(const TrainingRow& row);

 private:
  ExampleMaker() = default;
  Result<std::vector<TokenExample>> make_whole(const TrainingRow& row);
  Result<TokenExample> make_text(const TrainingRow& row);
  Result<TokenExample> make_messages(const TrainingRow& row, TrainedPart part);
  // Tokens of the prompt, and of prompt and completion.
  Result<std::vector<int32_t>> encode_prompt(const TrainingRow& row);
  Result<TokenExample> encode_completed(const TrainingRow& row, const Json& completion, TrainedPart part);
  void mark_turns(TokenExample& example, const TrainingRow& row, const RenderedChat& chat,
                  const Encoding& encoding) const;
  Result<RenderedChat> render(const TrainingRow& row, Json messages, bool add_generation_prompt,
                              bool with_spans) const;
  Result<Encoding> encode_chat(const RenderedChat& chat);
  Result<std::vector<int32_t>> encode_text(std::string_view text, bool is_whole);
  void limit(RowExamples& made, Status& refused) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;  // null: none
  ExampleOptions options_;
  WordCache words_;
  std::shared_ptr<const WrittenControlTokens> control_;
  TokenNameCounts written_control_;  // of the present row
};

}  // namespace tessera
