// Decoders of tokenizer files: tokens become text, one after another. The steps are immutable and shared; their state is
// that of one text.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// A token on its way through the steps, or a part of one: steps that join tokens give their text in parts.
struct DecodedPart {
  std::string text;
  bool begins = true, ends = true;  // of the token that it is a part of
};

// DecoderStep: one step's state for one text. One thread.
class DecoderStep {
 public:
  using Next = std::function<void(DecodedPart)>;
  virtual ~DecoderStep() = default;
  virtual void add(DecodedPart part, const Next& next) = 0;
  virtual void finish(const Next& next) { (void)next; }
};
using MakeDecoderStep = std::function<std::unique_ptr<DecoderStep>()>;

// From a "decoder" of tokenizer.json. Null puts a space between tokens.
Result<std::vector<MakeDecoderStep>> make_decoder_steps(const nlohmann::json& description);

}  // namespace tessera
