// Tokenizer kinds behind Tokenizer::create, which has checked `data`:
// sizes agree, ids are in range, `types` is complete, scores are numbers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

Result<std::shared_ptr<const Tokenizer>> create_byte_tokenizer(TokenizerData data);
Result<std::shared_ptr<const Tokenizer>> create_sentencepiece_tokenizer(TokenizerData data);
Result<std::shared_ptr<const Tokenizer>> create_byte_level_bpe_tokenizer(TokenizerData data);
Result<std::shared_ptr<const Tokenizer>> create_wordpiece_tokenizer(TokenizerData data);
Result<std::shared_ptr<const Tokenizer>> create_pipeline_tokenizer(TokenizerData data);
Result<std::shared_ptr<const Tokenizer>> create_rwkv_tokenizer(TokenizerData data);
Result<std::shared_ptr<const Tokenizer>> create_sentencepiece_model_tokenizer(TokenizerData data);

// Size of the first UTF-8 character of `text`, which is not empty. In invalid UTF-8 a lead byte
// takes only its continuation bytes, so that a broken character never swallows a valid one.
inline size_t first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t wanted = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 1;
  size_t size = 1;
  while (size < wanted && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80)
    ++size;
  return size;
}

// "<0x0A>" -> 10; -1 for any other token.
int byte_of_token(std::string_view token);

}  // namespace tessera
