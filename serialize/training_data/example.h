// TokenExample: token ids, and which of them are learnt. ExampleMaker: makes them of rows, with a model's tokenizer and
// chat template. Immutable; any thread.
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
  std::vector<uint8_t> trained;  // by token: 1 where it is learnt
  uint32_t prompt = 0;           // first tokens, which are the prompt; of a pair the same in both
  ExampleRole role = ExampleRole::kPlain;
  std::vector<float> weights = {};  // by token, of its loss; empty: all 1

  int64_t trained_tokens() const;  // without the first token, which nothing foretells
};

// Which tokens are learnt. kDefault: of texts all, of messages the assistant's, of a prompt with a completion the latter.
enum class TrainedPart : uint8_t { kDefault, kAssistant, kCompletion, kAll };
// What becomes of an example with more than max_length tokens; kSplit leaves it whole, for packing to cut.
enum class Truncation : uint8_t { kKeepStart, kKeepEnd, kDrop, kError, kSplit };

struct ExampleOptions {
  TrainedPart part = TrainedPart::kDefault;
  int64_t max_length = 0;  // tokens; 0: any number
  Truncation truncation = Truncation::kKeepStart;
  bool special = false;  // control tokens written out in texts are recognised; never in messages
  bool append_end =
      true;  // the tokenizer's EOS ends texts and completions; templates end messages themselves
  bool refuses_untrained = false;  // an example of which nothing is learnt is an error
  int64_t now_s = 0;               // for templates that print the date
};

// The examples of a row: one, or two of a preference; none where it is dropped.
struct RowExamples {
  enum class Dropped : uint8_t { kNo, kLong, kUntrained };
  std::vector<TokenExample> examples;
  Dropped dropped = Dropped::kNo;
  std::string reason;     // of dropping
  int64_t truncated = 0;  // examples that were cut
  TokenNameCounts written_control = {};  // in the row's texts, where they are read as letters
};

// ExampleMaker: examples of rows. One thread; a copy serves another thread.
class ExampleMaker {
 public:
  // `chat_template` may be empty: then messages are refused.
  static Result<ExampleMaker> create(std::shared_ptr<const Tokenizer> tokenizer,
                                     std::string_view chat_template, const ExampleOptions& options);
  // kInvalidArgument where the template refuses the row, where the options do not fit its kind, and with
  // Truncation::kError or refuses_untrained where one applies.
  Result<RowExamples> make(const TrainingRow& row);

 private:
  ExampleMaker() = default;
  Result<std::vector<TokenExample>> make_whole(const TrainingRow& row);
  Result<TokenExample> make_text(const TrainingRow& row);
  Result<TokenExample> make_messages(const TrainingRow& row, TrainedPart part);
  // The prompt's tokens, and those of the prompt with a completion.
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
  TokenNameCounts written_control_;  // of the row that is made
};

}  // namespace tessera
