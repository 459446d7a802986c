// Tokenizer: text <-> token ids. Immutable after creation, so any thread may use it. Kinds: SentencePiece BPE with byte
// fallback (Llama), byte-level BPE with a pre-tokenizer pattern (GPT-2), WordPiece (BERT), plain bytes (256 tokens), the
// longest tokens of byte strings (RWKV), pipelines of normalizers, pre-tokenizers, a model and decoders (tokenizer.json),
// and SentencePiece's own models with all their settings (tokenizer.model).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

class WordCache;

// Stored in model files: append, never renumber.
enum class TokenizerKind : uint8_t {
  kBytes = 0,
  kSentencePiece = 1,
  kByteLevelBpe = 2,
  kWordPiece = 3,
  kPipeline = 4,
  kRwkv = 5,
  kSentencePieceModel = 6
};
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
  // Every token that ends generation (end of turn, of message, of text); Tokenizer::create adds eos and sorts.
  std::vector<int32_t> end_ids;
  // Of a pipeline: tokenizer.json without its vocabulary (see hugging_face.h), two ids for each merge, best first, and
  // scores of a Unigram model by id. Of a SentencePiece model: its settings (sentencepiece_settings.h).
  std::string pipeline;
  std::vector<int32_t> merge_ids;
  std::vector<double> log_probabilities;
  // Control and user-defined tokens that take the white space before them, and after them. Not of pipelines.
  std::vector<int32_t> lstrip_ids, rstrip_ids;
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
};

struct EncodeOptions {
  bool parse_special = false;  // control tokens written out in the text ("<s>") are recognised
  // Ascending and disjoint: no control, user-defined or added token is recognised where it overlaps one. Text of
  // a user given as literal never becomes a control token; otherwise the text is encoded as before.
  std::span<const TextRange> literal = {};
  WordCache* words =
      nullptr;  // the caller keeps it from text to text; null: this text has its own
};

// Token ids, and the byte of the text at which each begins.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<size_t> begins;
};

// Receives the tokens of a text in order. Reports progress and passes cancellation points.
class TokenSink {
 public:
  TokenSink(bool with_begins, size_t text_bytes) : with_begins_(with_begins), text_bytes_(text_bytes) {}
  bool with_begins() const { return with_begins_; }
  // begin: where in the text the token begins; about that, for progress, where it is not kept.
  void add(int32_t id, size_t begin) {
    encoding_.ids.push_back(id);
    if (with_begins_) encoding_.begins.push_back(begin);
    if (constexpr size_t kOften = 1 << 12; encoding_.ids.size() % kOften == 0) come_to(begin);
  }
  void come_to(size_t begin) const;
  size_t size() const { return encoding_.ids.size(); }
  int32_t last() const { return encoding_.ids.back(); }
  Encoding take() { return std::move(encoding_); }

 private:
  const bool with_begins_;
  const size_t text_bytes_;
  Encoding encoding_;
};

// TextDecoder: turns ids into text, one after another. One thread; valid while its tokenizer is.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // The bytes that became certain with this token. They may end within a character. Ids outside the vocabulary
  // have none.
  virtual std::string add(int32_t id) = 0;
  // The bytes that were held back. Only once, after the last token.
  virtual std::string finish() { return {}; }
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerData data);
  virtual ~Tokenizer() = default;

  // Without BOS and EOS. kInvalidArgument for literal ranges out of order or past the text, and where a pattern
  // of the vocabulary takes too many steps on this text.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  Result<Encoding> encode_with_begins(std::string_view text, const EncodeOptions& options = {}) const;

  virtual std::unique_ptr<TextDecoder> decoder() const;
  std::string decode(std::span<const int32_t> ids) const;  // what a decoder gives for all of them
  // What stands around a text: BOS and EOS where add_bos and add_eos say so, or what a pipeline names.
  virtual std::span<const int32_t> before_text() const;
  virtual std::span<const int32_t> after_text() const;
  // `ids` behind before_text(), unless they begin with it already, as those of a text do in which it is written out.
  std::vector<int32_t> with_before_text(std::vector<int32_t> ids) const;
  // Whether generation ends at this token: one of end_ids, or BOS.
  bool ends_text(int32_t id) const;
  // The letters of a token that decoding leaves out; empty for others, and for ids outside the vocabulary.
  std::string_view hidden_text(int32_t id) const;
  const TokenizerData& data() const { return data_; }
  int32_t vocabulary_size() const { return static_cast<int32_t>(data_.tokens.size()); }

 protected:
  explicit Tokenizer(TokenizerData data) : data_(std::move(data)) {}
  virtual Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const = 0;
  // For the decoder of kinds in which a token's bytes depend on the token before it alone. `previous` is -1 at the
  // beginning; a leading dummy space is dropped there and after BOS.
  virtual std::string decode_one(int32_t id, int32_t previous) const;
  TokenizerData data_;

 private:
  friend class PreviousTokenDecoder;
  Result<Encoding> encode(std::string_view text, const EncodeOptions& options, bool with_begins) const;
};

}  // namespace tessera
