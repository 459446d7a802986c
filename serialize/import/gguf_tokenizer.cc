#include <algorithm>
#include <map>
#include <set>

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

// Texts of tokens that end a turn, a message or a text. Files name some of them by keys, seldom all.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~[",
                                          "<|content_model_end_sampling|>"};
// Of texts to be filled in: what separates files and repositories.
constexpr std::string_view kInfillEndTexts[] = {"<|fim_pad|>", "<fim-pad>",    "<fim_pad>",     "<PAD>",
                                                "[PAD]",       "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                                "<REPO>",      "<reponame>",   "<|file_sep|>"};

// Sets end_ids as llama.cpp does: tokens named by keys, and those whose text says so, which become control tokens.
Status find_end_ids(const GgufFile& file, TokenizerData& data) {
  std::set<int32_t> ends;
  for (std::string_view name : {"eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
    TSR_ASSIGN_OR_RETURN(const int32_t id, token_id(file, name, -1, data.tokens.size()));
    if (id >= 0) ends.insert(id);
  }
  std::map<std::string_view, int32_t> found;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    const bool ending = std::ranges::find(kEndTexts, token) != std::end(kEndTexts);
    if (!ending && std::ranges::find(kInfillEndTexts, token) == std::end(kInfillEndTexts)) continue;
    const bool control = id < data.types.size() && data.types[id] == TokenType::kControl;
    if (!ending && !control) continue;
    ends.insert(static_cast<int32_t>(id));
    found[token] = static_cast<int32_t>(id);
    if (id < data.types.size()) data.types[id] = TokenType::kControl;
  }
  // Of formats in which a message's end is not the turn's, and of one that has </s> as text.
  const auto has = [&](std::string_view text) { return found.contains(text); };
  const auto keep = [&](std::string_view text, TokenType type) {
    if (!has(text) || found[text] == data.eos) return;
    ends.erase(found[text]);
    if (!data.types.empty()) data.types[static_cast<size_t>(found[text])] = type;
  };
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>"))) keep("<|end|>", TokenType::kUserDefined);
  if (has("<|tool_response>")) keep("</s>", TokenType::kNormal);
  data.end_ids.assign(ends.begin(), ends.end());
  return {};
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
  TSR_RETURN_IF_ERROR(find_end_ids(file, data));
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
