// The tokenizer of a GGUF file, by llama.cpp's keys and defaults. Kinds that TokenizerData lacks become pipelines in the
// form of tokenizer.json.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <unordered_set>

#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"
#include "text/tokenizer/hugging_face.h"
#include "text/tokenizer/sentencepiece_settings.h"

namespace tessera {
namespace {

// Defaults: values of missing keys, as in llama.cpp.
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
    {"t5", TokenizerKind::kPipeline, -1, 1, 2, false, true, true},
    {"gemma4", TokenizerKind::kPipeline, -1, -1, -1, true, false, false},
    {"rwkv", TokenizerKind::kRwkv, -1, -1, -1, false, false, false},
};
// Named byte-level, but merged as UTF-8 with ▁ for spaces.
constexpr std::string_view kRawPreTokenizers[] = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"};
constexpr std::string_view kBosPreTokenizers[] = {"llama-bpe",    "llama3",  "llama-v3", "falcon3",
                                                  "falcon-h1",    "pixtral", "midm-2.0", "lfm2",
                                                  "jina-v5-nano", "tekken",  "chameleon"};
constexpr std::string_view kEosPreTokenizers[] = {"jina-v1-en", "jina-v2-code", "roberta-bpe"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Result<int32_t> token_id(const GgufFile& file, std::string_view name, int32_t fallback, size_t count) {
  const std::string key = format("tokenizer.ggml.{}_token_id", name);
  TSR_ASSIGN_OR_RETURN(int64_t id, file.integer(key, fallback));
  if (id == 0xffffffff || id == -1) return -1;  // both mean "none"
  if (id >= 0 && id < static_cast<int64_t>(count)) return static_cast<int32_t>(id);
  if (!file.has(key)) return -1;  // vocabulary too small for the default
  return Status(StatusCode::kCorrupt, format("{} is {}, the vocabulary has {} tokens", key, id, count));
}

// Texts of tokens that end a turn, a message or a text; files name only some by keys.
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
// Texts of infill tokens that separate files and repositories.
constexpr std::string_view kInfillEndTexts[] = {"<|fim_pad|>", "<fim-pad>",    "<fim_pad>",     "<PAD>",
                                                "[PAD]",       "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                                "<REPO>",      "<reponame>",   "<|file_sep|>"};

// Sets end_ids as llama.cpp does: by keys, and by token texts, which become control tokens.
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
  // Exceptions: formats in which a message's end is not the turn's, and one with </s> as text.
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

// Reads the parts of a vocabulary common to all kinds.
Result<TokenizerData> read_vocabulary(const GgufFile& file, const Defaults& defaults) {
  TokenizerData data;
  data.kind = defaults.kind;
  TSR_ASSIGN_OR_RETURN(data.tokens, file.texts("tokenizer.ggml.tokens"));
  TSR_ASSIGN_OR_RETURN(data.pre_tokenizer, file.text("tokenizer.ggml.pre", ""));
  TSR_ASSIGN_OR_RETURN(std::vector<int64_t> types, file.integers("tokenizer.ggml.token_type"));
  for (int64_t type : types) {
    if (type < 0 || type > 6) {
      return Status(StatusCode::kCorrupt,
                    format("tokenizer.ggml.token_type has a {}; types are 0 to 6", type));
    }
    data.types.push_back(type == 0 ? TokenType::kNormal : static_cast<TokenType>(type));
  }
  const size_t count = data.tokens.size();
  TSR_ASSIGN_OR_RETURN(data.bos, token_id(file, "bos", defaults.bos, count));
  TSR_ASSIGN_OR_RETURN(data.eos, token_id(file, "eos", defaults.eos, count));
  TSR_ASSIGN_OR_RETURN(data.unknown, token_id(file, "unknown", defaults.unknown, count));
  TSR_ASSIGN_OR_RETURN(data.pad, token_id(file, "padding", -1, count));
  const bool bert = defaults.model == "bert";
  if (bert || is_one_of(kEosPreTokenizers, data.pre_tokenizer)) {
    if (bert) {
      TSR_ASSIGN_OR_RETURN(data.bos, token_id(file, "cls", data.bos, count));
    }
    TSR_ASSIGN_OR_RETURN(data.eos, token_id(file, "seperator", data.eos, count));  // the format's spelling
  }
  TSR_RETURN_IF_ERROR(find_end_ids(file, data));
  const bool add_bos = defaults.add_bos || is_one_of(kBosPreTokenizers, data.pre_tokenizer);
  const bool add_eos = defaults.add_eos || is_one_of(kEosPreTokenizers, data.pre_tokenizer);
  TSR_ASSIGN_OR_RETURN(data.add_bos, file.flag("tokenizer.ggml.add_bos_token", add_bos));
  TSR_ASSIGN_OR_RETURN(data.add_eos, file.flag("tokenizer.ggml.add_eos_token", add_eos));
  if (bert) {
    TSR_ASSIGN_OR_RETURN(data.add_eos, file.flag("tokenizer.ggml.add_sep_token", data.add_eos));
  }
  TSR_ASSIGN_OR_RETURN(data.add_space_prefix,
                       file.flag("tokenizer.ggml.add_space_prefix", defaults.add_space_prefix));
  return data;
}

// Which tokens strip the spaces around them is not in the file; it depends on model names.
Status find_stripping_tokens(const GgufFile& file, TokenizerData& data) {
  TSR_ASSIGN_OR_RETURN(std::string name, file.text("general.name", ""));
  TSR_ASSIGN_OR_RETURN(const std::string family, file.text("general.architecture", ""));
  for (char& letter : name)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter | 32);
  const std::string_view pre = data.pre_tokenizer;
  const bool jina = pre.starts_with("jina-v2-") || family == "nomic-bert-moe" || family == "jina-bert-v3";
  const bool phi =
      !jina && (name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos);
  const std::string_view mask = jina                                            ? "<mask>"
                                : name.find("modern-bert") != std::string::npos ? "[MASK]"
                                                                                : "";
  for (size_t i = 0; i < data.tokens.size() && i < data.types.size(); ++i) {
    const std::string& token = data.tokens[i];
    const TokenType type = data.types[i];
    const bool special =
        type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
    if (!mask.empty() && token == mask) data.lstrip_ids.push_back(static_cast<int32_t>(i));
    const bool keeps = token == "<unk>" || token == "<s>" || token == "<|endoftext|>";
    if (phi && special && !keeps) data.rstrip_ids.push_back(static_cast<int32_t>(i));
  }
  return {};
}

// Tokens as a pipeline's description has them; `control` and user-defined tokens are added tokens.
TokenizerJson describe_tokens(const TokenizerData& data) {
  TokenizerJson description;
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const TokenType type = i < data.types.size() ? data.types[i] : TokenType::kNormal;
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    const auto id = static_cast<int32_t>(i);
    if (special || type == TokenType::kUserDefined) {
      AddedToken token;
      token.content = data.tokens[i];
      token.id = id;
      token.normalized = false;
      token.special = special;
      token.lstrip = std::ranges::find(data.lstrip_ids, id) != data.lstrip_ids.end();
      token.rstrip = std::ranges::find(data.rstrip_ids, id) != data.rstrip_ids.end();
      description.added.push_back(std::move(token));
    }
    // An empty token cannot occur.
    if (!data.tokens[i].empty()) description.vocabulary.emplace_back(data.tokens[i], id);
  }
  return description;
}

// Adds special tokens and settings of the vocabulary to the pipeline.
Result<TokenizerData> finish_pipeline(TokenizerJson description, const TokenizerData& vocabulary) {
  nlohmann::json single = nlohmann::json::array(), tokens = nlohmann::json::object();
  const auto add = [&](const char* name, int32_t id) {
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  if (vocabulary.add_bos && vocabulary.bos >= 0) add("bos", vocabulary.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (vocabulary.add_eos && vocabulary.eos >= 0) add("eos", vocabulary.eos);
  description.rest["post_processor"] = {
      {"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
  TSR_ASSIGN_OR_RETURN(TokenizerData data, pipeline_data(std::move(description), nlohmann::json::object(), vocabulary.end_ids));
  data.tokens.resize(vocabulary.tokens.size());
  data.types.resize(vocabulary.tokens.size(), TokenType::kUnused);
  data.bos = vocabulary.bos;
  data.eos = vocabulary.eos;
  data.unknown = vocabulary.unknown;
  data.pad = vocabulary.pad;
  return data;
}

// SentencePiece Unigram (T5, XLM-RoBERTa). Byte fallback is
// not in the file; it is assumed if every byte has a token.
Result<TokenizerData> unigram_model(const GgufFile& file, TokenizerData data) {
  TSR_ASSIGN_OR_RETURN(data.scores, file.floats("tokenizer.ggml.scores"));
  if (data.scores.size() != data.tokens.size())
    return Status(StatusCode::kCorrupt, format("tokenizer.ggml.scores has {} scores for {} tokens",
                                               data.scores.size(), data.tokens.size()));
  SentencePieceSettings settings;
  settings.add_dummy_prefix = data.add_space_prefix;
  TSR_ASSIGN_OR_RETURN(settings.remove_extra_whitespaces,
                       file.flag("tokenizer.ggml.remove_extra_whitespaces", false));
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> charsmap,
                       file.integers("tokenizer.ggml.precompiled_charsmap"));
  for (int64_t value : charsmap) settings.charsmap += static_cast<char>(value);
  constexpr std::ptrdiff_t kBytes = 256;
  settings.byte_fallback = std::ranges::count(data.types, TokenType::kByte) == kBytes;
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  if (data.unknown >= 0) data.types[static_cast<size_t>(data.unknown)] = TokenType::kUnknown;
  for (size_t id = 0; id < data.tokens.size(); ++id)  // as converters write them, with plain spaces
    if (data.types[id] == TokenType::kUserDefined)
      for (size_t at; (at = data.tokens[id].find(' ')) != std::string::npos;) data.tokens[id].replace(at, 1, "▁");
  data.kind = TokenizerKind::kSentencePieceModel;
  data.pipeline = to_json_text(settings);
  data.pre_tokenizer.clear();
  return data;
}

// BPE on UTF-8 with ▁ for spaces and byte tokens (Gemma 4).
Result<TokenizerData> raw_bpe_pipeline(const TokenizerData& vocabulary) {
  TokenizerJson description = describe_tokens(vocabulary);
  std::unordered_set<std::string_view> known;
  for (const auto& [token, id] : description.vocabulary) known.insert(token);
  std::string joined;
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.empty() ? std::string::npos : merge.find(' ', 1);
    if (space == std::string::npos)
      return Status(StatusCode::kCorrupt,
                    format("tokenizer.ggml.merges: '{}' is not two tokens with a space between them",
                           merge.substr(0, 64)));
    std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    joined = left + right;
    if (known.contains(left) && known.contains(right) && known.contains(joined))
      description.merges.emplace_back(std::move(left), std::move(right));
  }
  using nlohmann::json;
  description.rest = {{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}},
                      {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"fuse_unk", true}}},
                      {"decoder",
                       {{"type", "Sequence"},
                        {"decoders",
                         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                          {{"type", "ByteFallback"}}}}}}};
  return finish_pipeline(std::move(description), vocabulary);
}

// BERT vocabularies that keep case or accents, which kWordPiece lacks.
Result<TokenizerData> bert_pipeline(TokenizerData vocabulary, bool lowercase, bool strip_accents) {
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    std::string& token = vocabulary.tokens[i];
    const bool control = i < vocabulary.types.size() && vocabulary.types[i] != TokenType::kNormal;
    if (token.starts_with("▁"))
      token.erase(0, std::string_view("▁").size());
    else if (!control)
      token.insert(0, "##");
  }
  TokenizerJson description = describe_tokens(vocabulary);
  if (vocabulary.unknown < 0)
    return Status(StatusCode::kCorrupt, "a WordPiece vocabulary needs an unknown token; it has none");
  description.rest = {
      {"normalizer",
       {{"type", "BertNormalizer"}, {"lowercase", lowercase}, {"strip_accents", strip_accents}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"decoder", {{"type", "WordPiece"}, {"cleanup", false}}},
      {"model",
       {{"type", "WordPiece"}, {"unk_token", vocabulary.tokens[static_cast<size_t>(vocabulary.unknown)]}}}};
  return finish_pipeline(std::move(description), vocabulary);
}

Result<TokenizerData> read_tokenizer(const GgufFile& file, const Defaults& defaults) {
  TSR_ASSIGN_OR_RETURN(TokenizerData data, read_vocabulary(file, defaults));
  TSR_RETURN_IF_ERROR(find_stripping_tokens(file, data));
  if (defaults.model == "t5") return unigram_model(file, std::move(data));
  if (defaults.model == "gpt2" || defaults.model == "gemma4") {
    TSR_ASSIGN_OR_RETURN(data.merges, file.texts("tokenizer.ggml.merges"));
    if (defaults.model == "gemma4" || is_one_of(kRawPreTokenizers, data.pre_tokenizer))
      return raw_bpe_pipeline(data);
  }
  if (defaults.model == "llama") {
    TSR_ASSIGN_OR_RETURN(data.scores, file.floats("tokenizer.ggml.scores"));
    data.pre_tokenizer.clear();
  }
  if (defaults.model == "bert") {
    TSR_ASSIGN_OR_RETURN(const bool lowercase, file.flag("tokenizer.ggml.normalizer.lowercase", true));
    TSR_ASSIGN_OR_RETURN(const bool strips, file.flag("tokenizer.ggml.normalizer.strip_accents", lowercase));
    if (!lowercase || !strips) return bert_pipeline(std::move(data), lowercase, strips);
  }
  return data;
}

}  // namespace

Result<std::optional<TokenizerData>> gguf_tokenizer(const GgufFile& file) {
  TSR_ASSIGN_OR_RETURN(const std::string model, file.text("tokenizer.ggml.model", "none"));
  if (model == "none" || model == "no_vocab") return std::optional<TokenizerData>();
  const auto defaults = std::ranges::find(kDefaults, model, &Defaults::model);
  if (defaults == std::end(kDefaults)) {
    return Status(
        StatusCode::kUnsupported,
        format("tokenizer.ggml.model is '{}'; llama, gpt2, bert, t5, gemma4 and rwkv can be imported",
               model));
  }
  TSR_ASSIGN_OR_RETURN(TokenizerData data, read_tokenizer(file, *defaults));
  return std::optional<TokenizerData>(std::move(data));
}

}  // namespace tessera
