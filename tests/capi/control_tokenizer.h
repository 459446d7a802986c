// A tokenizer of bytes with control tokens.
#pragma once

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <utility>

#include "c_api.h"
#include "capi/handles.h"
#include "text/tokenizer/tokenizer.h"

namespace capi_test {

constexpr int32_t kFirstControl = 259;  // behind <unk>, <s>, </s> and the bytes

// A token a byte, and the control tokens, of which the last ends texts.
inline Tokenizer control_tokenizer(std::span<const char* const> controls) {
  tessera::TokenizerData data;
  data.kind = tessera::TokenizerKind::kSentencePiece;
  data.tokens = {"<unk>", "<s>", "</s>"};
  data.types = {tessera::TokenType::kUnknown, tessera::TokenType::kControl, tessera::TokenType::kControl};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    data.tokens.push_back(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
    data.types.push_back(tessera::TokenType::kByte);
  }
  for (const char* control : controls) {
    data.tokens.emplace_back(control);
    data.types.push_back(tessera::TokenType::kControl);
  }
  data.scores.assign(data.tokens.size(), 0);
  data.unknown = 0;
  data.bos = 1;
  data.eos = 2;
  data.add_space_prefix = false;
  data.end_ids = {kFirstControl + static_cast<int32_t>(controls.size()) - 1};
  auto made = tessera::Tokenizer::create(std::move(data));
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  return Tokenizer(new tsr_tokenizer{std::move(made).value()});
}

}  // namespace capi_test
