// Pre-tokenizers of tokenizer files: split a normalized text
// into the model's pieces, step by step. Immutable; any thread.
#pragma once

#include <concepts>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// PreToken: a part of a normalized text.
struct PreToken {
  std::string_view text;
  const size_t* origins = nullptr;  // by byte, as in NormalizedText; null: not requested
  bool first = false;               // at the start of the whole text
};

// PreTokenSink: a borrowed function that receives a step's pieces in order.
class PreTokenSink {
 public:
  template <class Take>
  requires(!std::same_as<std::remove_cvref_t<Take>, PreTokenSink>)
      PreTokenSink(Take&& take)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&take))),
        call_([](void* object, const PreToken& piece) -> Status {
          return (*static_cast<std::remove_reference_t<Take>*>(object))(piece);
        }) {}
  Status operator()(const PreToken& piece) const { return call_(object_, piece); }

 private:
  void* object_;
  Status (*call_)(void*, const PreToken&);
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Splits a non-empty piece and passes the results to `next`; the caller skips empty ones.
  virtual Status split(const PreToken& piece, PreTokenSink next) const = 0;
};
using PreTokenizers = std::vector<std::unique_ptr<const PreTokenizer>>;

// PreTokenizerSteps: the steps of tokenizer.json's "pre_tokenizer"; empty for null.
struct PreTokenizerSteps {
  PreTokenizers steps;
  bool bytes_last = false;  // finally maps bytes to characters (byte_characters.h)
};
Result<PreTokenizerSteps> make_pre_tokenizers(const nlohmann::json& description);

}  // namespace tessera
