#include "text/tokenizer/hugging_face_sentencepiece.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/side_files.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr size_t kMostHoles = 65536;  // ids between the vocabulary and its last added token

// Classes with ids or texts other than the file's pieces (fairseq's order, further tokens, other normalizers).
constexpr std::array<std::string_view, 29> kOtherClasses = {
    "T5Tokenizer",          "MT5Tokenizer",     "UMT5Tokenizer",      "XLMRobertaTokenizer",
    "CamembertTokenizer",   "MBartTokenizer",   "MBart50Tokenizer",   "AlbertTokenizer",
    "XLNetTokenizer",       "BigBirdTokenizer", "PegasusTokenizer",   "NllbTokenizer",
    "ReformerTokenizer",    "RemBertTokenizer", "DebertaV2Tokenizer", "BarthezTokenizer",
    "SeamlessM4TTokenizer", "XGLMTokenizer",    "SiglipTokenizer",    "FNetTokenizer",
    "M2M100Tokenizer",      "MarianTokenizer",  "PLBartTokenizer",    "Speech2TextTokenizer",
    "LayoutXLMTokenizer",   "MLukeTokenizer",   "UdopTokenizer",      "ErnieMTokenizer",
    "CpmTokenizer"};
// Models whose files' settings transformers follows, whatever class a folder names.
constexpr std::array<std::string_view, 44> kGenericModels = {
    "arctic",      "aria",         "ernie4_5",     "ernie4_5_moe", "flex_olmo",   "fuyu",
    "glm",         "glm4",         "glm4_moe",     "gpt_bigcode",  "granite",     "granitemoe",
    "granitemoehybrid", "granitemoeshared", "h2ovl_chat", "hyperclovax", "internlm2", "internlm3",
    "jamba",       "kimi_linear",  "llava",        "llava_next",   "mimo_v2_flash", "minicpm3",
    "minicpmv",    "minimax_m2",   "ministral",    "ministral3",   "mistral",     "mistral3",
    "mixtral",     "molmo",        "nemotron",     "olmo2",        "olmo3",       "openvla",
    "persimmon",   "phi3",         "phi3_v",       "phimoe",       "pixtral",     "stablelm",
    "step3_vl",    "vipllava"};

std::string text_of(const json& config, const char* name) {
  const auto found = config.find(name);
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<bool> flag_of(const json& config, const char* name, bool otherwise) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return otherwise;
  if (!found->is_boolean())
    return Status(StatusCode::kInvalidArgument, format("tokenizer_config.json: '{}' is {}, wanted true or false",
                                                       name, quote(found->dump(), 64)));
  return found->get<bool>();
}

// The class without "Fast"; empty for one that follows the file.
std::string class_of(const json& config, const std::string& model_type) {
  std::string name = text_of(config, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return std::ranges::find(kGenericModels, model_type) == kGenericModels.end() ? name : std::string();
}

// Applies the class's normalization instead of the file's.
Status apply_class(const std::string& name, const json& config, SentencePieceSettings& settings,
                   TokenizerData& data) {
  if (std::ranges::find(kOtherClasses, name) != kOtherClasses.end())
    return Status(
        StatusCode::kUnsupported,
        format("a SentencePiece file with tokenizer_class '{}', whose tokens are not those of the file; "
               "save the tokenizer with transformers (save_pretrained), which writes tokenizer.json",
               name));
  const bool llama = name == "LlamaTokenizer", gemma = name == "GemmaTokenizer";
  TSR_ASSIGN_OR_RETURN(const bool legacy, flag_of(config, "legacy", !llama));
  settings.dummy_prefix = legacy ? DummyPrefix::kEachPart : DummyPrefix::kFirstPart;
  settings.prefix_unless_space = llama || !legacy;
  settings.unknown_surface.clear();
  if (!llama && !gemma) return {};
  TSR_ASSIGN_OR_RETURN(const bool prefix, flag_of(config, "add_prefix_space", true));
  settings.add_dummy_prefix = llama && prefix;
  settings.remove_extra_whitespaces = false;
  settings.escape_whitespaces = true;
  settings.charsmap.clear();
  // User-defined pieces are matched before spaces become ▁, and may be merged.
  for (size_t id = 0; id < data.types.size(); ++id) {
    if (data.types[id] != TokenType::kUserDefined) continue;
    data.types[id] = TokenType::kNormal;
    AddedToken token;
    token.content = data.tokens[id];
    token.id = static_cast<int32_t>(id);
    token.normalized = false;
    settings.added.push_back(std::move(token));
  }
  return {};
}

class AddedTokenWriter {
 public:
  AddedTokenWriter(TokenizerData& data, SentencePieceSettings& settings) : data_(data), settings_(settings) {
    for (size_t id = 0; id < data.tokens.size(); ++id) ids_.emplace(data.tokens[id], static_cast<int32_t>(id));
  }

  Status add(AddedToken token) {
    const auto found = ids_.find(token.content);
    const auto next = static_cast<int32_t>(data_.tokens.size());
    if (found != ids_.end()) {
      token.id = found->second;  // as in transformers, whatever id is named
    } else {
      if (token.id < 0) token.id = next;
      if (static_cast<size_t>(token.id) > data_.tokens.size() + kMostHoles)
        return Status(StatusCode::kCorrupt, format("the added token {} has id {}; the vocabulary has {} tokens",
                                                   quote(token.content, 64), token.id, next));
      while (static_cast<size_t>(token.id) >= data_.tokens.size()) pad();
      ids_.erase(data_.tokens[static_cast<size_t>(token.id)]);
      data_.tokens[static_cast<size_t>(token.id)] = token.content;  // a piece may be renamed
      ids_.emplace(token.content, token.id);
    }
    const auto id = static_cast<size_t>(token.id);
    if (token.special) {
      data_.types[id] = data_.types[id] == TokenType::kUnknown ? TokenType::kUnknown : TokenType::kControl;
    } else if (data_.types[id] == TokenType::kUnused) {
      data_.types[id] = TokenType::kUserDefined;
    }
    std::erase_if(settings_.added, [&](const AddedToken& it) { return it.id == token.id; });
    settings_.added.push_back(std::move(token));
    return {};
  }
  int32_t find(const std::string& content) const {
    const auto found = ids_.find(content);
    return found == ids_.end() ? -1 : found->second;
  }

 private:
  void pad() {
    data_.tokens.push_back(format("[PAD{}]", static_cast<uint64_t>(data_.tokens.size())));
    data_.types.push_back(TokenType::kUnused);
    data_.scores.push_back(0);
  }

  TokenizerData& data_;
  SentencePieceSettings& settings_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

Result<TokenizerData> hf_sentencepiece_model(std::string_view file, const json& config,
                                             const std::string& model_type, std::vector<int32_t> end_ids) {
  TSR_ASSIGN_OR_RETURN(SentencePieceModel model, read_sentencepiece_model(file));
  TokenizerData& data = model.data;
  SentencePieceSettings& settings = model.settings;
  settings.pieces = static_cast<int64_t>(data.tokens.size());
  TSR_RETURN_IF_ERROR(apply_class(class_of(config, model_type), config, settings, data));
  AddedTokenWriter writer(data, settings);
  TSR_ASSIGN_OR_RETURN(auto listed, decoder_tokens(config));
  std::unordered_map<std::string, bool> known;
  for (auto& [id, token] : listed) {
    known.emplace(token.content, true);
    if (!token.content.empty()) TSR_RETURN_IF_ERROR(writer.add(std::move(token)));
  }
  for (AddedToken& token : named_tokens(config))
    if (known.emplace(token.content, true).second) TSR_RETURN_IF_ERROR(writer.add(std::move(token)));
  const std::pair<const char*, int32_t*> names[] = {
      {"bos_token", &data.bos}, {"eos_token", &data.eos}, {"pad_token", &data.pad}};
  for (const auto& [name, id] : names) {
    const auto value = config.find(name);
    if (value == config.end()) continue;
    const json& content = value->is_object() && value->contains("content") ? (*value)["content"] : *value;
    *id = content.is_string() ? writer.find(content.get<std::string>()) : -1;
  }
  TSR_ASSIGN_OR_RETURN(data.add_bos, flag_of(config, "add_bos_token", false));
  TSR_ASSIGN_OR_RETURN(data.add_eos, flag_of(config, "add_eos_token", false));
  data.add_space_prefix = settings.add_dummy_prefix;
  data.kind = TokenizerKind::kSentencePieceModel;
  data.pipeline = to_json_text(settings);
  data.end_ids = std::move(end_ids);
  return std::move(data);
}

}  // namespace tessera
