// Tokenizer: text <-> token ids. Immutable after creation, so any thread may use it. Four kinds:
// SentencePiece BPE with byte fallback (Llama), byte-level BPE with a pre-tokenizer pattern (GPT-2), WordPiece
// (BERT), plain bytes (256 tokens).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// Stored in model files: append, never renumber.
enum class TokenizerKind : uint8_t { kBytes = 0, kSentencePiece = 1, kByteLevelBpe = 2, kWordPiece = 3 };
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Everything a tokenizer is made of; stored in the model file.
struct TokenizerData {
  TokenizerKind kind = TokenizerKind::kBytes;
  std::vector<std::string> tokens;  // by id; as in the vocabulary file ("▁the", "Ġthe", "<0x0A>")
  std::vector<float> scores;        // SentencePiece; empty otherwise
  std::vector<TokenType> types;     // empty: all normal
  std::vector<std::string> merges;  // byte-level BPE: "Ġ t", best first
  std::string pre_tokenizer;        // name of the split pattern: "gpt-2"
  int32_t bos = -1, eos = -1, unknown = -1, pad = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = true;
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerData data);
  virtual ~Tokenizer() = default;

  // Without BOS and EOS. With `parse_special`, control tokens written out ("<s>") are recognised.
  virtual std::vector<int32_t> encode(std::string_view text, bool parse_special = false) const = 0;
  // The bytes of one token; `previous` is the id before it (a leading dummy space is dropped after BOS).
  virtual std::string decode_one(int32_t id, int32_t previous) const = 0;

  std::string decode(std::span<const int32_t> ids) const;
  const TokenizerData& data() const { return data_; }
  int32_t vocabulary_size() const { return static_cast<int32_t>(data_.tokens.size()); }

 protected:
  explicit Tokenizer(TokenizerData data) : data_(std::move(data)) {}
  TokenizerData data_;
};

}  // namespace tessera
