// Tokenizer: text <-> token ids. Immutable after creation; any thread. Kinds: SentencePiece BPE with
// byte fallback (Llama), byte-level BPE with a pre-tokenizer pattern (GPT-2), WordPiece (BERT),
// plain bytes (256 tokens), longest byte strings (RWKV), pipelines of normalizers, pre-tokenizers, a
// model and decoders (tokenizer.json), and SentencePiece models with all settings (tokenizer.model).
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

// TokenizerData: everything a tokenizer is made from; stored in the model file.
struct TokenizerData {
  TokenizerKind kind = TokenizerKind::kBytes;
  std::vector<std::string> tokens;  // by id; as in vocabulary files ("▁the", "Ġthe", "<0x0A>")
  std::vector<float> scores;        // SentencePiece; empty otherwise
  std::vector<TokenType> types;     // empty: all normal
  std::vector<std::string> merges;  // byte-level BPE: "Ġ t", best first
  std::string pre_tokenizer;        // name of the split pattern: "gpt-2"
  int32_t bos = -1, eos = -1, unknown = -1, pad = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = true;
  // All tokens that end generation (end of turn, message or text); Tokenizer::create adds eos and sorts.
  std::vector<int32_t> end_ids;
  // Pipelines: tokenizer.json without its vocabulary (hugging_face.h), two ids per merge, best first,
  // and Unigram scores by id. SentencePiece models: their settings (sentencepiece_settings.h).
  std::string pipeline;
  std::vector<int32_t> merge_ids;
  std::vector<double> log_probabilities;
  // Control and user-defined tokens that absorb white space before, and after them. Not for pipelines.
  std::vector<int32_t> lstrip_ids, rstrip_ids;
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
};

struct EncodeOptions {
  bool parse_special = false;  // recognises written-out control tokens ("<s>")
  // Ascending and disjoint: no control, user-defined or added token that overlaps one is recognised,
  // so literal user text never becomes a control token; the encoding is otherwise unchanged.
  std::span<const TextRange> literal = {};
  WordCache* words =
      nullptr;  // kept by the caller between texts; null: private to this text
};

// Encoding: token ids, and the first byte of each in the text.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<size_t> begins;
};

// TokenSink: receives a text's tokens in order. Reports progress and passes cancellation points.
class TokenSink {
 public:
  TokenSink(bool with_begins, size_t text_bytes) : with_begins_(with_begins), text_bytes_(text_bytes) {}
  bool with_begins() const { return with_begins_; }
  // begin: the token's offset in the text; approximate if only used for progress.
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

// TextDecoder: decodes ids incrementally. One thread; the tokenizer must outlive it.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // Returns the bytes decided by this token, possibly
  // an incomplete character. Unknown ids have none.
  virtual std::string add(int32_t id) = 0;
  // Returns the held bytes. Call once, after the last token.
  virtual std::string finish() { return {}; }
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerData data);
  virtual ~Tokenizer() = default;

  // Without BOS and EOS. kInvalidArgument for invalid literal
  // ranges, and if a pattern takes too many steps on this text.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  Result<Encoding> encode_with_begins(std::string_view text, const EncodeOptions& options = {}) const;

  virtual std::unique_ptr<TextDecoder> decoder() const;
  std::string decode(std::span<const int32_t> ids) const;  // decodes all ids
  // Tokens before a text: BOS by add_bos, or a pipeline's.
  virtual std::span<const int32_t> before_text() const;
  virtual std::span<const int32_t> after_text() const;
  // Prepends before_text() unless `ids` begin with it, as for texts that contain it written out.
  std::vector<int32_t> with_before_text(std::vector<int32_t> ids) const;
  // Whether the token ends generation: one of end_ids, or BOS.
  bool ends_text(int32_t id) const;
  // The letters of a token hidden by decoding; empty for others and unknown ids.
  std::string_view hidden_text(int32_t id) const;
  const TokenizerData& data() const { return data_; }
  int32_t vocabulary_size() const { return static_cast<int32_t>(data_.tokens.size()); }

 protected:
  explicit Tokenizer(TokenizerData data) : data_(std::move(data)) {}
  virtual Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const = 0;
  // For kinds in which a token's bytes depend only on the previous token. `previous`:
  // -1 at the start; a leading dummy space is dropped there and after BOS.
  virtual std::string decode_one(int32_t id, int32_t previous) const;
  TokenizerData data_;

 private:
  friend class PreviousTokenDecoder;
  Result<Encoding> encode(std::string_view text, const EncodeOptions& options, bool with_begins) const;
};

}  // namespace tessera
