#include <algorithm>

#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"

namespace tessera {
namespace {

// Defaults for keys missing in the file, as in the format's reference reader.
struct Defaults {
  std::string_view model;
  TokenizerKind kind;
  int32_t bos, eos, unknown;
  bool add_bos, add_eos, add_space_prefix;
};
constexpr Defaults kDefaults[] = {
    {"llama", TokenizerKind::kSentencePiece, 1, 2, 0, true, false, true},
    {"gpt2", TokenizerKind::kByteLevelBpe, -1, -1, -1, false, false, false},
    {"bert", TokenizerKind::kWordPiece, 101, 102, 100, true, true, false},
};

Result<int32_t> token_id(const GgufFile& file, std::string_view name, int32_t fallback, size_t count) {
  const std::string key = format("tokenizer.ggml.{}_token_id", name);
  TSR_ASSIGN_OR_RETURN(int64_t id, file.integer(key, fallback));
  if (id == 0xffffffff || id == -1) return -1;  // both are in use for "none"
  if (id >= 0 && id < static_cast<int64_t>(count)) return static_cast<int32_t>(id);
  if (!file.has(key)) return -1;  // this vocabulary is too small for the default
  return Status(StatusCode::kCorrupt, format("{} is {}, the vocabulary has {} tokens", key, id, count));
}

}  // namespace

Result<std::optional<TokenizerData>> gguf_tokenizer(const GgufFile& file) {
  TSR_ASSIGN_OR_RETURN(std::string model, file.text("tokenizer.ggml.model", "none"));
  if (model == "none" || model == "no_vocab") return std::optional<TokenizerData>();
  auto defaults = std::ranges::find(kDefaults, model, &Defaults::model);
  if (defaults == std::end(kDefaults)) {
    return Status(StatusCode::kUnsupported,
                  format("tokenizer.ggml.model is '{}'; llama, gpt2 and bert can be imported", model));
  }
  TokenizerData data;
  data.kind = defaults->kind;
  TSR_ASSIGN_OR_RETURN(data.tokens, file.texts("tokenizer.ggml.tokens"));
  TSR_ASSIGN_OR_RETURN(data.pre_tokenizer, file.text("tokenizer.ggml.pre", ""));
  if (data.kind == TokenizerKind::kSentencePiece) {
    TSR_ASSIGN_OR_RETURN(data.scores, file.floats("tokenizer.ggml.scores"));
    data.pre_tokenizer.clear();
  }
  if (data.kind == TokenizerKind::kByteLevelBpe) {
    TSR_ASSIGN_OR_RETURN(data.merges, file.texts("tokenizer.ggml.merges"));
  }
  TSR_ASSIGN_OR_RETURN(std::vector<int64_t> types, file.integers("tokenizer.ggml.token_type"));
  for (int64_t type : types) {
    if (type < 0 || type > 6) {
      return Status(StatusCode::kCorrupt,
                    format("tokenizer.ggml.token_type has a {}; types are 0 to 6", type));
    }
    data.types.push_back(type == 0 ? TokenType::kNormal : static_cast<TokenType>(type));
  }
  const size_t count = data.tokens.size();
  TSR_ASSIGN_OR_RETURN(data.bos, token_id(file, "bos", defaults->bos, count));
  TSR_ASSIGN_OR_RETURN(data.eos, token_id(file, "eos", defaults->eos, count));
  TSR_ASSIGN_OR_RETURN(data.unknown, token_id(file, "unknown", defaults->unknown, count));
  TSR_ASSIGN_OR_RETURN(data.pad, token_id(file, "padding", -1, count));
  if (data.kind == TokenizerKind::kWordPiece) {
    TSR_ASSIGN_OR_RETURN(data.bos, token_id(file, "cls", data.bos, count));
    TSR_ASSIGN_OR_RETURN(data.eos, token_id(file, "seperator", data.eos, count));  // the format's spelling
  }
  const bool starts_with_bos = data.pre_tokenizer == "llama-bpe" || data.pre_tokenizer == "llama3" ||
                               data.pre_tokenizer == "llama-v3" || data.pre_tokenizer == "tekken";
  TSR_ASSIGN_OR_RETURN(data.add_bos,
                       file.flag("tokenizer.ggml.add_bos_token", defaults->add_bos || starts_with_bos));
  TSR_ASSIGN_OR_RETURN(data.add_eos, file.flag("tokenizer.ggml.add_eos_token", defaults->add_eos));
  TSR_ASSIGN_OR_RETURN(data.add_space_prefix,
                       file.flag("tokenizer.ggml.add_space_prefix", defaults->add_space_prefix));
  return std::optional<TokenizerData>(std::move(data));
}

}  // namespace tessera
