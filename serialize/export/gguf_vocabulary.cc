#include "serialize/export/gguf_vocabulary.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "serialize/export/byte_level_vocabulary.h"
#include "serialize/export/raw_bpe_vocabulary.h"
#include "serialize/export/sentencepiece_file.h"
#include "serialize/export/wordpiece_vocabulary.h"
#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/sentencepiece_settings.h"

namespace tessera {
namespace {

constexpr int32_t kNone = -1;

Status check_tokens(const TokenizerData& data, int64_t tokens) {
  if (std::ssize(data.tokens) <= tokens) return {};
  return Status(StatusCode::kUnsupported,
                format("the tokenizer has {} tokens and the model {}, wanted no more", data.tokens.size(), tokens));
}

// Adds unused tokens without text.
void pad(TokenizerData& data, int64_t tokens) {
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  while (std::ssize(data.tokens) < tokens) {
    data.tokens.push_back(format("[PAD{}]", std::ssize(data.tokens)));
    data.types.push_back(TokenType::kUnused);
    if (!data.scores.empty()) data.scores.push_back(-10000);
  }
}

// Derives missing token types from special tokens.
void complete_types(TokenizerData& data) {
  if (!data.types.empty()) return;
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    if (data.kind == TokenizerKind::kSentencePiece && token.size() == 6 && token.starts_with("<0x") &&
        token.ends_with('>'))
      data.types[id] = TokenType::kByte;
  }
  for (const int32_t id : {data.bos, data.eos, data.pad})
    if (id >= 0) data.types[static_cast<size_t>(id)] = TokenType::kControl;
  if (data.unknown >= 0) data.types[static_cast<size_t>(data.unknown)] = TokenType::kUnknown;
}

// Adds byte tokens to byte-level BPE, without merges.
void spell_bytes(TokenizerData& data) {
  data.kind = TokenizerKind::kByteLevelBpe;
  data.pre_tokenizer = "gpt-2";
  constexpr size_t kBytes = 256;
  data.tokens.resize(std::max(data.tokens.size(), kBytes));
  for (size_t byte = 0; byte < kBytes; ++byte) data.tokens[byte] = byte_character(static_cast<uint8_t>(byte));
  data.types.resize(data.tokens.size(), TokenType::kControl);
  std::fill_n(data.types.begin(), kBytes, TokenType::kNormal);
}

void write_ids(const TokenizerData& data, bool has_defaults, GgufWriter& out) {
  const std::pair<const char*, int32_t> ids[] = {
      {"bos", data.bos}, {"eos", data.eos}, {"unknown", data.unknown}};
  for (const auto& [name, id] : ids)
    if (id != kNone || has_defaults) out.u32(format("tokenizer.ggml.{}_token_id", name), id);
  if (data.pad != kNone) out.u32("tokenizer.ggml.padding_token_id", data.pad);
  // Further end tokens; readers recognise the rest by text.
  size_t named = 0;
  constexpr const char* kNames[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  for (const int32_t id : data.end_ids)
    if (id != data.eos && named < std::size(kNames)) out.u32(kNames[named++], id);
}

void write_types(const TokenizerData& data, GgufWriter& out) {
  std::vector<int32_t> types;
  for (const TokenType type : data.types) types.push_back(static_cast<int32_t>(type));
  out.integers("tokenizer.ggml.token_type", types);
}

// Writes a BERT vocabulary.
Status write_wordpiece(WordPieceVocabulary vocabulary, int64_t tokens, GgufWriter& out) {
  TokenizerData& data = vocabulary.data;
  int32_t mask = kNone;
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (data.tokens[id] == "[MASK]") mask = static_cast<int32_t>(id);
  pad(data, tokens);
  out.text("tokenizer.ggml.model", "bert");
  out.text("tokenizer.ggml.pre", "default");
  out.texts("tokenizer.ggml.tokens", data.tokens);
  write_types(data, out);
  write_ids(data, false, out);
  out.u32("tokenizer.ggml.cls_token_id", data.bos);
  out.u32("tokenizer.ggml.seperator_token_id", data.eos);  // the format's spelling
  if (mask != kNone) out.u32("tokenizer.ggml.mask_token_id", mask);
  out.flag("tokenizer.ggml.add_bos_token", data.add_bos);
  out.flag("tokenizer.ggml.add_eos_token", data.add_eos);
  out.flag("tokenizer.ggml.add_sep_token", data.add_eos);
  if (!vocabulary.lowercase) out.flag("tokenizer.ggml.normalizer.lowercase", false);
  if (vocabulary.strip_accents != vocabulary.lowercase)
    out.flag("tokenizer.ggml.normalizer.strip_accents", vocabulary.strip_accents);
  return {};
}

// Writes a SentencePiece Unigram vocabulary.
Status write_unigram(TokenizerData data, int64_t tokens, GgufWriter& out) {
  TSR_RETURN_IF_ERROR(check_tokens(data, tokens));
  TSR_ASSIGN_OR_RETURN(const SentencePieceSettings settings, read_sentencepiece_settings(data.pipeline));
  pad(data, tokens);
  out.text("tokenizer.ggml.model", "t5");
  out.text("tokenizer.ggml.pre", "default");
  out.texts("tokenizer.ggml.tokens", data.tokens);
  out.floats("tokenizer.ggml.scores", data.scores);
  write_types(data, out);
  write_ids(data, true, out);
  out.flag("tokenizer.ggml.add_bos_token", data.add_bos);
  out.flag("tokenizer.ggml.add_eos_token", data.add_eos);
  out.flag("tokenizer.ggml.add_space_prefix", settings.add_dummy_prefix);
  out.flag("tokenizer.ggml.remove_extra_whitespaces", settings.remove_extra_whitespaces);
  if (!settings.charsmap.empty()) out.byte_array("tokenizer.ggml.precompiled_charsmap", settings.charsmap);
  return {};
}

// Writes a vocabulary that merges UTF-8 with ▁ for spaces.
Status write_raw_bpe(TokenizerData data, int64_t tokens, GgufWriter& out) {
  TSR_RETURN_IF_ERROR(check_tokens(data, tokens));
  pad(data, tokens);
  out.text("tokenizer.ggml.model", "gemma4");
  out.texts("tokenizer.ggml.tokens", data.tokens);
  write_types(data, out);
  out.texts("tokenizer.ggml.merges", data.merges);
  write_ids(data, false, out);
  out.flag("tokenizer.ggml.add_bos_token", data.add_bos);
  out.flag("tokenizer.ggml.add_eos_token", data.add_eos);
  out.flag("tokenizer.ggml.add_space_prefix", false);
  return {};
}

}  // namespace

Status write_gguf_vocabulary(const std::optional<TokenizerData>& tokenizer, int64_t tokens, GgufWriter& out) {
  if (!tokenizer) {
    out.text("tokenizer.ggml.model", "none");
    return {};
  }
  TokenizerData data = *tokenizer;
  if (data.kind == TokenizerKind::kBytes) spell_bytes(data);
  if (data.kind == TokenizerKind::kWordPiece ||
      (data.kind == TokenizerKind::kPipeline && is_wordpiece_pipeline(data))) {
    TSR_RETURN_IF_ERROR(check_tokens(data, tokens));
    if (data.kind == TokenizerKind::kWordPiece)
      return write_wordpiece({.data = std::move(data)}, tokens, out);
    TSR_ASSIGN_OR_RETURN(WordPieceVocabulary vocabulary, wordpiece_vocabulary(data));
    return write_wordpiece(std::move(vocabulary), tokens, out);
  }
  if (data.kind == TokenizerKind::kPipeline) {
    TSR_ASSIGN_OR_RETURN(std::optional<TokenizerData> raw, raw_bpe_vocabulary(data));
    if (raw) return write_raw_bpe(std::move(*raw), tokens, out);
    TSR_ASSIGN_OR_RETURN(data, byte_level_vocabulary(data));
  }
  if (data.kind == TokenizerKind::kSentencePieceModel) {
    TSR_ASSIGN_OR_RETURN(data, gguf_sentencepiece(data));
    if (data.kind == TokenizerKind::kSentencePieceModel) return write_unigram(std::move(data), tokens, out);
  }
  const bool sentencepiece = data.kind == TokenizerKind::kSentencePiece;
  if (!sentencepiece && data.kind != TokenizerKind::kByteLevelBpe)
    return Status(
        StatusCode::kUnsupported,
        "the model's tokenizer is neither byte-level BPE nor SentencePiece BPE, which is what GGUF files of "
        "such models have; leave it out (--no-tokenizer, option tokenizer = 0) to run it by token ids");
  complete_types(data);
  TSR_RETURN_IF_ERROR(check_tokens(data, tokens));
  pad(data, tokens);
  out.text("tokenizer.ggml.model", sentencepiece ? "llama" : "gpt2");
  out.text("tokenizer.ggml.pre",
           !data.pre_tokenizer.empty() ? std::string_view(data.pre_tokenizer) : std::string_view("default"));
  out.texts("tokenizer.ggml.tokens", data.tokens);
  if (sentencepiece) out.floats("tokenizer.ggml.scores", data.scores);
  write_types(data, out);
  if (!sentencepiece) out.texts("tokenizer.ggml.merges", data.merges);
  write_ids(data, sentencepiece, out);
  out.flag("tokenizer.ggml.add_bos_token", data.add_bos);
  out.flag("tokenizer.ggml.add_eos_token", data.add_eos);
  out.flag("tokenizer.ggml.add_space_prefix", data.add_space_prefix);
  return {};
}

}  // namespace tessera
