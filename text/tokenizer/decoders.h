// Decoders of tokenizer files: convert tokens to text incrementally.
// Steps are immutable and shared; their state belongs to one text.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// DecodedPart: a token, or a part of one, between steps; joining steps emit parts.
struct DecodedPart {
  std::string text;
  bool begins = true, ends = true;  // first and last part of its token
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

// From tokenizer.json's "decoder". Null joins tokens with spaces.
Result<std::vector<MakeDecoderStep>> make_decoder_steps(const nlohmann::json& description);

}  // namespace tessera
