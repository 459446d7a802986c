// The first vocabulary found decides: tokenizer.json, tokenizer.model, vocab.json, other names of SentencePiece files,
// vocab.txt. Side files and the model's configuration add special and end tokens.
#include "serialize/import/tokenizer_folder.h"

#include <algorithm>
#include <filesystem>

#include "graph/base/text.h"
#include "serialize/model.h"
#include "serialize/plain_file.h"
#include "text/python_json.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/hugging_face.h"
#include "text/tokenizer/hugging_face_sentencepiece.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/side_files.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr int64_t kMostFileBytes = int64_t{256} << 20;

// Names of SentencePiece's file in transformers' classes.
constexpr std::string_view kSentencePieceNames[] = {"spiece.model", "sentencepiece.bpe.model", "spm.model",
                                                    "sentencepiece.model"};
// ModelClass: tokenizer classes of models whose ids differ from the file's, if no file names the class.
struct ModelClass {
  std::string_view model_type, tokenizer_class;
};
constexpr ModelClass kModelClasses[] = {{"albert", "AlbertTokenizer"},
                                        {"big_bird", "BigBirdTokenizer"},
                                        {"bigbird_pegasus", "PegasusTokenizer"},
                                        {"camembert", "CamembertTokenizer"},
                                        {"deberta-v2", "DebertaV2Tokenizer"},
                                        {"fnet", "FNetTokenizer"},
                                        {"layoutxlm", "LayoutXLMTokenizer"},
                                        {"m2m_100", "M2M100Tokenizer"},
                                        {"marian", "MarianTokenizer"},
                                        {"mbart", "MBartTokenizer"},
                                        {"mluke", "MLukeTokenizer"},
                                        {"mt5", "MT5Tokenizer"},
                                        {"nllb-moe", "NllbTokenizer"},
                                        {"pegasus", "PegasusTokenizer"},
                                        {"plbart", "PLBartTokenizer"},
                                        {"reformer", "ReformerTokenizer"},
                                        {"rembert", "RemBertTokenizer"},
                                        {"seamless_m4t", "SeamlessM4TTokenizer"},
                                        {"siglip", "SiglipTokenizer"},
                                        {"speech_to_text", "Speech2TextTokenizer"},
                                        {"t5", "T5Tokenizer"},
                                        {"udop", "UdopTokenizer"},
                                        {"umt5", "UMT5Tokenizer"},
                                        {"xglm", "XGLMTokenizer"},
                                        {"xlm-roberta", "XLMRobertaTokenizer"},
                                        {"xlm-roberta-xl", "XLMRobertaTokenizer"},
                                        {"xlnet", "XLNetTokenizer"}};

// Lines without line ends; the last may lack one.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

// eos_token_id: a number or a list.
std::vector<int32_t> read_end_ids(const json& config) {
  std::vector<int32_t> ids;
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return ids;
  const auto add = [&](const json& value) {
    if (value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT32_MAX})
      ids.push_back(value.get<int32_t>());
  };
  if (found->is_array()) {
    for (const json& value : *found) add(value);
  } else {
    add(*found);
  }
  return ids;
}

class Folder {
 public:
  explicit Folder(const ReadFolderFile& read) : read_(read) {}

  Result<std::optional<TokenizerData>> tokenizer() {
    TSR_RETURN_IF_ERROR(read_configs());
    TSR_ASSIGN_OR_RETURN(std::optional<TokenizerData> data, read_vocabulary());
    if (data) put_end_ids(std::move(end_ids_), table_rows_, *data);
    return data;
  }

 private:
  Status read_configs() {
    SideFileTexts texts;
    TSR_ASSIGN_OR_RETURN(texts.tokenizer_config, read_("tokenizer_config.json"));
    TSR_ASSIGN_OR_RETURN(texts.special_tokens_map, read_("special_tokens_map.json"));
    TSR_ASSIGN_OR_RETURN(texts.added_tokens, read_("added_tokens.json"));
    has_side_files_ = texts.tokenizer_config || texts.special_tokens_map || texts.added_tokens;
    TSR_ASSIGN_OR_RETURN(config_, merge_side_files(texts));
    for (const char* name : {"generation_config.json", "config.json"}) {
      TSR_ASSIGN_OR_RETURN(const std::optional<std::string> text, read_(name));
      if (!text) continue;
      TSR_ASSIGN_OR_RETURN(const TokenizerJson read, read_tokenizer_json(strict_json(*text), name));
      if (end_ids_.empty()) end_ids_ = read_end_ids(read.rest);
      if (const auto rows = read.rest.find("vocab_size"); rows != read.rest.end() && rows->is_number_unsigned())
        table_rows_ = static_cast<int64_t>(std::min(rows->get<uint64_t>(), uint64_t{INT32_MAX}));
      if (const auto type = read.rest.find("model_type"); type != read.rest.end() && type->is_string())
        model_type_ = type->get<std::string>();
    }
    return {};
  }

  Result<std::optional<TokenizerData>> read_vocabulary() {
    TSR_ASSIGN_OR_RETURN(const std::optional<std::string> whole, read_("tokenizer.json"));
    if (whole) {
      const std::string config = config_.dump(-1, ' ', false, json::error_handler_t::replace);
      return some(hf_tokenizer({*whole, config, {}}));
    }
    TSR_ASSIGN_OR_RETURN(const std::optional<std::string> sentencepiece, read_("tokenizer.model"));
    if (sentencepiece) return some(pieces(*sentencepiece));
    TSR_ASSIGN_OR_RETURN(const std::optional<std::string> vocabulary, read_("vocab.json"));
    if (vocabulary) return some(byte_level(*vocabulary));
    for (const std::string_view name : kSentencePieceNames) {
      TSR_ASSIGN_OR_RETURN(const std::optional<std::string> file, read_(std::string(name)));
      if (file) return some(pieces(*file));
    }
    TSR_ASSIGN_OR_RETURN(const std::optional<std::string> words, read_("vocab.txt"));
    if (words) return some(wordpiece(*words));
    TSR_ASSIGN_OR_RETURN(const std::optional<std::string> ranks, read_("tiktoken.model"));
    if (!ranks) return std::optional<TokenizerData>();
    return Status(StatusCode::kUnsupported,
                  "the folder has tiktoken.model, whose pattern is in the model's own code; wanted tokenizer.json: save it from "
                  "transformers (AutoTokenizer, then save_pretrained), or take that of a conversion, or use a GGUF file of the model");
  }

  static Result<std::optional<TokenizerData>> some(Result<TokenizerData> data) {
    if (!data.ok()) return data.status();
    return std::optional<TokenizerData>(std::move(data).value());
  }

  // SentencePiece's file, read as the tokenizer class of the folder or the model does.
  Result<TokenizerData> pieces(const std::string& file) {
    const auto* by_model = std::ranges::find(kModelClasses, model_type_, &ModelClass::model_type);
    if (by_model != std::end(kModelClasses) && !config_.contains("tokenizer_class")) {
      config_["tokenizer_class"] = by_model->tokenizer_class;
      has_side_files_ = true;
    }
    const auto type = config_.find("tokenizer_class");
    if (type != config_.end() && (*type == "XLMRobertaTokenizer" || *type == "XLMRobertaTokenizerFast"))
      return xlm_roberta(file);
    return has_side_files_ ? hf_sentencepiece_model(file, config_, model_type_, {})
                           : sentencepiece_model(file, {});
  }

  // fairseq's order: <s>, <pad>, </s>, <unk>, the file's pieces after its <unk>, <s> and </s>, and <mask>.
  Result<TokenizerData> xlm_roberta(const std::string& file) {
    TSR_ASSIGN_OR_RETURN(const SentencePieceModel model, read_sentencepiece_model(file));
    constexpr std::string_view kFirst[] = {"<unk>", "<s>", "</s>"};
    const std::vector<std::string>& tokens = model.data.tokens;
    if (model.settings.algorithm != SentencePieceAlgorithm::kUnigram || tokens.size() < std::size(kFirst) ||
        !std::equal(std::begin(kFirst), std::end(kFirst), tokens.begin()))
      return Status(
          StatusCode::kUnsupported,
          "the SentencePiece file of a XLMRobertaTokenizer is no Unigram model whose first pieces are <unk>, "
          "<s> and </s>; save the tokenizer with transformers (save_pretrained), which writes "
          "tokenizer.json");
    TokenizerJson description;
    const auto put = [&](const std::string& token, double score) {
      description.vocabulary.emplace_back(token, static_cast<int64_t>(description.vocabulary.size()));
      description.log_probabilities.push_back(score);
    };
    constexpr std::pair<const char*, const char*> kNames[] = {{"bos_token", "<s>"},
                                                              {"pad_token", "<pad>"},
                                                              {"eos_token", "</s>"},
                                                              {"unk_token", "<unk>"},
                                                              {"mask_token", "<mask>"}};
    std::vector<std::string> names;
    for (const auto& [name, initial] : kNames) {
      const json given = config_.value(name, json(initial));
      const json content = given.is_object() ? given.value("content", json(initial)) : given;
      names.push_back(content.is_string() ? content.get<std::string>() : initial);
      config_[name] = names.back();
    }
    // The class has these names too, and always puts <s> and </s> around texts.
    for (const auto& [name, initial] : {std::pair("cls_token", "<s>"), std::pair("sep_token", "</s>")})
      if (!config_.contains(name)) config_[name] = initial;
    config_.erase("add_bos_token");
    config_.erase("add_eos_token");
    for (size_t i = 0; i < 4; ++i) put(names[i], 0);
    for (size_t i = std::size(kFirst); i < tokens.size(); ++i) put(tokens[i], model.data.scores[i]);
    put(names[4], 0);
    const JsonMembers members(config_, "tokenizer_config.json");
    TSR_ASSIGN_OR_RETURN(const bool prefix, members.flag("add_prefix_space", true));
    const json metaspace = {{"type", "Metaspace"},
                            {"replacement", "▁"},
                            {"prepend_scheme", prefix ? "always" : "never"},
                            {"split", true}};
    json& rest = description.rest;
    rest["model"] = {{"type", "Unigram"}, {"unk_id", 3}, {"byte_fallback", false}};
    if (!model.settings.charsmap.empty())
      rest["normalizer"] = {{"type", "Precompiled"},
                            {"precompiled_charsmap", encode_base64(model.settings.charsmap)}};
    rest["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}};
    rest["decoder"] = metaspace;
    TSR_RETURN_IF_ERROR(surround(description, names[0], names[2]));
    for (const std::string& name : names) add_special(description, name);
    mark_special(config_, description);
    return pipeline_data(std::move(description), config_, {});
  }

  // vocab.json and merges.txt: byte-level BPE of GPT-2, or Qwen 2.
  Result<TokenizerData> byte_level(const std::string& vocabulary) {
    TSR_ASSIGN_OR_RETURN(const std::optional<std::string> merges, read_("merges.txt"));
    if (!merges)
      return Status(StatusCode::kNotFound,
                    "the folder has vocab.json, but neither tokenizer.json nor merges.txt");
    TSR_ASSIGN_OR_RETURN(TokenizerJson description,
                         read_tokenizer_json("{\"model\":{\"vocab\":" + vocabulary + "}}", "vocab.json"));
    for (const std::string_view line : lines_of(*merges)) {
      if (line.empty() || line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space == std::string_view::npos)
        return Status(
            StatusCode::kCorrupt,
            format("merges.txt: '{}' is not two tokens with a space between them", line.substr(0, 64)));
      description.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    const std::string type = config_.value("tokenizer_class", json("GPT2Tokenizer"))
                                 .dump(-1, ' ', false, json::error_handler_t::replace);
    json& rest = description.rest;
    rest["model"]["type"] = "BPE";
    rest["decoder"] = {{"type", "ByteLevel"}};
    rest["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    if (type.find("Qwen2") != std::string::npos) {
      constexpr std::string_view kQwen2 =
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
      rest["normalizer"] = {{"type", "NFC"}};
      const json split = {{"type", "Split"}, {"pattern", {{"Regex", kQwen2}}}, {"behavior", "Isolated"}};
      const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
      rest["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
    } else if (type.find("Roberta") != std::string::npos || type.find("Bart") != std::string::npos) {
      TSR_RETURN_IF_ERROR(surround(description, "<s>", "</s>"));
    } else if (type.find("GPT2") == std::string::npos) {
      return Status(StatusCode::kUnsupported,
                    format("the folder has vocab.json and merges.txt of {}; without tokenizer.json those of "
                           "GPT2Tokenizer, "
                           "Qwen2Tokenizer, RobertaTokenizer and BartTokenizer are known",
                           type));
    }
    // Default names of the classes.
    const bool is_gpt2 = type.find("GPT2") != std::string::npos, is_qwen2 = type.find("Qwen2") != std::string::npos;
    if ((is_gpt2 || is_qwen2) && id_of(description, "<|endoftext|>"))
      for (const char* name : {"unk_token", "eos_token", is_gpt2 ? "bos_token" : "pad_token"})
        if (!config_.contains(name)) config_[name] = "<|endoftext|>";
    mark_special(config_, description);
    return pipeline_data(std::move(description), config_, {});
  }

  // vocab.txt: BERT's vocabulary, a token per line.
  Result<TokenizerData> wordpiece(const std::string& words) {
    TokenizerJson description;
    for (const std::string_view line : lines_of(words))
      description.vocabulary.emplace_back(line, static_cast<int64_t>(description.vocabulary.size()));
    const JsonMembers members(config_, "tokenizer_config.json");
    TSR_ASSIGN_OR_RETURN(const bool lower, members.flag("do_lower_case", true));
    TSR_ASSIGN_OR_RETURN(const bool chinese, members.flag("tokenize_chinese_chars", true));
    json& rest = description.rest;
    rest["normalizer"] = {
        {"type", "BertNormalizer"}, {"lowercase", lower}, {"handle_chinese_chars", chinese}};
    if (const json& accents = members.at("strip_accents"); accents.is_boolean())
      rest["normalizer"]["strip_accents"] = accents;
    rest["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
    rest["decoder"] = {{"type", "WordPiece"}};
    rest["model"] = {{"type", "WordPiece"}, {"unk_token", "[UNK]"}};
    TSR_RETURN_IF_ERROR(surround(description, "[CLS]", "[SEP]"));
    for (const char* token : {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}) add_special(description, token);
    mark_special(config_, description);
    return pipeline_data(std::move(description), config_, {});
  }

  static std::optional<int64_t> id_of(const TokenizerJson& description, std::string_view token) {
    for (const auto& [text, id] : description.vocabulary)
      if (text == token) return id;
    return {};
  }

  static Status surround(TokenizerJson& description, std::string_view before, std::string_view after) {
    const auto first = id_of(description, before), last = id_of(description, after);
    if (!first || !last)
      return Status(StatusCode::kCorrupt,
                    format("the vocabulary lacks {} or {}, which stand around a text", before, after));
    description.rest["post_processor"] = {
        {"type", "BertProcessing"}, {"cls", {before, *first}}, {"sep", {after, *last}}};
    return {};
  }

  static void add_special(TokenizerJson& description, const std::string& token) {
    const auto id = id_of(description, token);
    if (!id) return;
    AddedToken added;
    added.content = token;
    added.id = static_cast<int32_t>(*id);
    added.normalized = false;
    added.special = true;
    description.added.push_back(std::move(added));
  }

  // Marks the special tokens named in tokenizer_config.json.
  static void mark_special(const json& config, TokenizerJson& description) {
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token", "mask_token"}) {
      const auto found = config.find(name);
      if (found == config.end()) continue;
      const json content = found->is_object() ? found->value("content", json()) : *found;
      if (content.is_string()) add_special(description, content.get<std::string>());
    }
  }

  const ReadFolderFile& read_;
  json config_;                  // merged side files
  bool has_side_files_ = false;  // a tokenizer.model alone is read as SentencePiece does
  std::string model_type_;
  int64_t table_rows_ = 0;  // 0: unknown
  std::vector<int32_t> end_ids_;
};

}  // namespace

Result<std::optional<TokenizerData>> hf_folder_tokenizer(const ReadFolderFile& read) {
  return Folder(read).tokenizer();
}

Result<std::optional<TokenizerData>> hf_folder_tokenizer(const std::string& path) {
  const std::filesystem::path given(path);
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(given, error);
  return hf_folder_tokenizer([&](const std::string& name) -> Result<std::optional<std::string>> {
    std::filesystem::path wanted = (is_folder ? given : given.parent_path()) / name;
    if (!is_folder && name == "tokenizer.json") wanted = given;
    TSR_ASSIGN_OR_RETURN(const bool is_there, has_plain_file(wanted.string()));
    if (!is_there) return std::optional<std::string>();
    TSR_ASSIGN_OR_RETURN(const auto file, open_file(wanted.string()));
    if (file->size() > kMostFileBytes)
      return Status(StatusCode::kUnsupported, format("{} has {} bytes, at most {} are read", wanted.string(),
                                                     file->size(), kMostFileBytes));
    std::string text(static_cast<size_t>(file->size()), '\0');
    TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
    return std::optional<std::string>(std::move(text));
  });
}

}  // namespace tessera
