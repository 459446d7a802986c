// Pre-tokenizers: how tokenizer files split a normalized text into the pieces that the model sees, one step after
// another. Immutable; any thread.
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

// A part of a normalized text.
struct PreToken {
  std::string_view text;
  const size_t* origins = nullptr;  // by byte of text, as NormalizedText has them; null: not wanted
  bool first = false;               // begins where the whole text does
};

// PreTokenSink: a borrowed function that takes the pieces of a step, in order.
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
  // Gives `next` the pieces of a piece that is not empty; empty ones among them are skipped by the caller.
  virtual Status split(const PreToken& piece, PreTokenSink next) const = 0;
};
using PreTokenizers = std::vector<std::unique_ptr<const PreTokenizer>>;

// The steps of a "pre_tokenizer" of tokenizer.json, none for null.
struct PreTokenizerSteps {
  PreTokenizers steps;
  bool bytes_last = false;  // after them, bytes are written as characters (see byte_characters.h)
};
Result<PreTokenizerSteps> make_pre_tokenizers(const nlohmann::json& description);

}  // namespace tessera
