// RequestBuilder: builds requests from prompts, conversations and
// options. It caches recent grammars and chat templates. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "engine/sampling/chat.h"
#include "engine/serving/texts/answer_start.h"
#include "engine/serving/texts/engine_settings.h"
#include "engine/serving/texts/kept_sequence.h"
#include "engine/serving/texts/serving_request.h"
#include "text/grammar/mask_cache.h"

namespace tessera {

class RequestBuilder {
 public:
  // `defaults`: settings of requests without options of their own.
  RequestBuilder(std::shared_ptr<SharedModel> model, SamplingSettings defaults);

  // kFailedPrecondition: a tokenizer is needed but absent. kInvalidArgument: wrong options.
  Result<ServingRequest> from_text(std::string_view prompt, const Options& options);
  Result<ServingRequest> from_tokens(std::vector<int32_t> prompt, const Options& options);
  Result<ServingRequest> from_messages(std::string_view messages, const Options& options);
  // The sequence, then these tokens. Without tokens, the sequence's constrained
  // text continues under its grammar, if the options state the same one.
  Result<ServingRequest> from_sequence(const KeptSequence& sequence, std::span<const int32_t> more,
                                     const Options& options);

 private:
  using Compile = std::function<Result<grammar::Grammar::Shared>()>;
  // `compile_calls`: the grammar of source kind kCalls.
  Result<ServingRequest> make(std::vector<int32_t> prompt, RequestSettings settings, AnswerStart start = {},
                              const Compile& compile_calls = {});
  Result<grammar::Constraint> constraint(const GrammarSource& source, const Compile& compile_calls);
  Result<std::shared_ptr<const Chat>> chat(const Options& options);

  const std::shared_ptr<SharedModel> model_;
  const std::shared_ptr<const Tokenizer> tokenizer_;  // may be null
  const SamplingSettings defaults_;
  const EmbeddingForm form_;  // form of the model's vectors
  std::mutex mutex_;  // guards the caches
  std::shared_ptr<const grammar::TokenBytes> token_bytes_;
  std::list<std::pair<GrammarSource, std::shared_ptr<grammar::MaskCache>>> grammars_;  // latest first
  std::list<std::pair<Options, std::shared_ptr<const Chat>>> chats_;                   // likewise
};

}  // namespace tessera
