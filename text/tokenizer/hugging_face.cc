#include "text/tokenizer/hugging_face.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/side_files.h"

namespace tessera {
namespace {

using nlohmann::json;

json member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? json() : *found;
}

Status corrupt(std::string message) {
  return Status(StatusCode::kCorrupt, "tokenizer.json: " + std::move(message));
}

// PipelineData: builds a pipeline's data from a description.
class PipelineData {
 public:
  PipelineData(TokenizerJson& from, const json& config) : from_(from), config_(config) {
    data_.kind = TokenizerKind::kPipeline;
    data_.add_space_prefix = false;
  }

  Status make() {
    name_model_type();
    TSR_RETURN_IF_ERROR(put_vocabulary());
    TSR_RETURN_IF_ERROR(take_added_from_config());
    TSR_RETURN_IF_ERROR(put_added());
    TSR_RETURN_IF_ERROR(put_merges());
    TSR_RETURN_IF_ERROR(put_special());
    put_pipeline();
    return {};
  }
  TokenizerData take() { return std::move(data_); }

 private:
  // Older files omit the type.
  void name_model_type() {
    json& model = from_.rest["model"];
    if (!model.is_object() || model.contains("type")) return;
    model["type"] = !from_.log_probabilities.empty()             ? "Unigram"
                    : !from_.merges.empty()                      ? "BPE"
                    : model.contains("max_input_chars_per_word") ? "WordPiece"
                                                                 : "WordLevel";
  }

  Status put_vocabulary() {
    const int64_t count = static_cast<int64_t>(from_.vocabulary.size());
    int64_t most = 0;
    for (const auto& [token, id] : from_.vocabulary) most = std::max(most, id < INT64_MAX ? id + 1 : id);
    if (most > 4 * count + 65536)
      return corrupt(
          format("model.vocab has {} tokens with ids up to {}, farther apart than any vocabulary's", count,
                 most - 1));
    data_.tokens.resize(static_cast<size_t>(most));
    data_.types.assign(static_cast<size_t>(most), TokenType::kUnused);
    const bool scored = !from_.log_probabilities.empty();
    if (scored) data_.log_probabilities = std::move(from_.log_probabilities);
    ids_.reserve(from_.vocabulary.size());
    const bool repeats = scored;  // the last of equal tokens counts
    for (auto& [token, id] : from_.vocabulary) {
      const auto index = static_cast<size_t>(id);
      if (data_.types[index] != TokenType::kUnused)
        return corrupt(format("model.vocab: {} and {} have the id {}", quote(data_.tokens[index], 64),
                              quote(token, 64), id));
      const auto [place, fresh] = ids_.try_emplace(token, static_cast<int32_t>(id));
      if (!fresh) {
        if (!repeats) return corrupt(format("model.vocab has {} twice", quote(token, 64)));
        place->second = static_cast<int32_t>(id);
      }
      data_.types[index] = byte_of_token(token) >= 0 ? TokenType::kByte : TokenType::kNormal;
      data_.tokens[index] = std::move(token);
    }
    from_.vocabulary.clear();
    return {};
  }

  // Tokens added by tokenizer_config.json, as transformers adds them.
  Status take_added_from_config() {
    std::unordered_set<std::string> known;
    for (const AddedToken& token : from_.added) known.insert(token.content);
    TSR_ASSIGN_OR_RETURN(auto further, decoder_tokens(config_));
    for (auto& [id, token] : further)
      if (known.insert(token.content).second) from_.added.push_back(std::move(token));
    for (AddedToken& token : named_tokens(config_))
      if (known.insert(token.content).second) from_.added.push_back(std::move(token));
    return {};
  }

  Status put_added() {
    std::vector<AddedToken> added;
    std::unordered_map<std::string, size_t> places;  // index in `added`
    std::erase_if(from_.added, [](const AddedToken& token) { return token.content.empty(); });
    for (AddedToken& token : from_.added) {
      const auto found = ids_.find(token.content);
      const auto next = static_cast<int32_t>(data_.tokens.size());
      const int32_t wanted = found == ids_.end() ? next : found->second;
      if (token.id < 0) token.id = wanted;
      const bool free = found == ids_.end() && token.id > wanted && token.id <= wanted + 65536;
      if (token.id != wanted && !free)
        return corrupt(format("the added token {} has id {}; the vocabulary gives it {}",
                              quote(token.content, 64), token.id, wanted));
      if (found == ids_.end()) {
        data_.tokens.resize(static_cast<size_t>(token.id));
        data_.types.resize(static_cast<size_t>(token.id), TokenType::kUnused);
        data_.tokens.push_back(token.content);
        data_.types.push_back(TokenType::kUserDefined);
        if (!data_.log_probabilities.empty()) data_.log_probabilities.resize(data_.tokens.size());
        ids_.emplace(token.content, token.id);
        added_ids_.insert(token.id);
      }
      token.in_model = found != ids_.end() && !added_ids_.contains(token.id);
      if (token.special) data_.types[static_cast<size_t>(token.id)] = TokenType::kControl;
      const auto [place, fresh] = places.try_emplace(token.content, added.size());
      if (fresh) {
        added.push_back(std::move(token));
      } else {
        token.special = token.special || added[place->second].special;
        token.in_model = added[place->second].in_model;
        added[place->second] = std::move(token);
      }
    }
    from_.added = std::move(added);
    return {};
  }

  Status put_merges() {
    data_.merge_ids.reserve(2 * from_.merges.size());
    for (const auto& [left, right] : from_.merges) {
      for (const std::string& token : {left, right}) {
        const auto found = ids_.find(token);
        if (found == ids_.end())
          return corrupt(format("model.merges: {} is no token of model.vocab", quote(token, 64)));
        data_.merge_ids.push_back(found->second);
      }
    }
    from_.merges.clear();
    return {};
  }

  // A special token of tokenizer_config.json: a text, or an object with its content. -1: none.
  int32_t special_id(const char* name) const {
    json value = member(config_, name);
    if (value.is_object()) value = member(value, "content");
    if (!value.is_string()) return -1;
    const auto found = ids_.find(value.get<std::string>());
    return found == ids_.end() ? -1 : found->second;
  }

  Status put_special() {
    TSR_ASSIGN_OR_RETURN(SurroundingTokens around, read_post_processor(member(from_.rest, "post_processor")));
    data_.bos = special_id("bos_token");
    data_.eos = special_id("eos_token");
    data_.pad = special_id("pad_token");
    data_.unknown = special_id("unk_token");
    if (data_.unknown < 0) data_.unknown = model_unknown();
    const auto apply = [&](const char* name, int32_t id, std::vector<int32_t>& place) {
      const json value = member(config_, name);
      if (!value.is_boolean()) return;
      if (!value.get<bool>()) {
        if (place.size() == 1 && place[0] == id) place.clear();
      } else if (place.empty() && id >= 0) {
        place = {id};
      }
    };
    apply("add_bos_token", data_.bos, around.before);
    apply("add_eos_token", data_.eos, around.after);
    data_.add_bos = around.before.size() == 1;
    data_.add_eos = around.after.size() == 1;
    if (data_.add_bos) data_.bos = around.before[0];
    if (data_.add_eos && data_.eos < 0) data_.eos = around.after[0];
    for (int32_t id : around.before)
      if (static_cast<size_t>(id) >= data_.tokens.size()) return outside(id);
    for (int32_t id : around.after)
      if (static_cast<size_t>(id) >= data_.tokens.size()) return outside(id);
    before_ = std::move(around.before);
    after_ = std::move(around.after);
    return {};
  }

  Status outside(int32_t id) const {
    return corrupt(format("post_processor has the token {}; the vocabulary has {}", id, data_.tokens.size()));
  }

  int32_t model_unknown() const {
    const json model = member(from_.rest, "model");
    const json token = model.is_object() ? member(model, "unk_token") : json();
    if (token.is_string()) {
      const auto found = ids_.find(token.get<std::string>());
      return found == ids_.end() ? -1 : found->second;
    }
    const json id = model.is_object() ? member(model, "unk_id") : json();
    const bool inside = id.is_number_unsigned() && id.get<uint64_t>() < data_.tokens.size();
    return inside ? id.get<int32_t>() : -1;
  }

  void put_pipeline() {
    json pipeline = json::object();
    for (const char* name : {"normalizer", "pre_tokenizer", "model", "decoder"})
      pipeline[name] = member(from_.rest, name);
    // transformers also accepts it in tokenizer_config.json.
    json& splitter = pipeline["pre_tokenizer"];
    const json space = member(config_, "add_prefix_space");
    if (splitter.is_object() && member(splitter, "type") == "ByteLevel" && space.is_boolean())
      splitter["add_prefix_space"] = space;
    pipeline["before"] = before_;
    pipeline["after"] = after_;
    json& list = pipeline["added_tokens"] = json::array();
    for (const AddedToken& token : from_.added)
      list.push_back({{"content", token.content},
                      {"id", token.id},
                      {"single_word", token.single_word},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special},
                      {"in_model", token.in_model}});
    // Invalid UTF-8 becomes U+FFFD.
    data_.pipeline = pipeline.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  TokenizerJson& from_;
  const json& config_;
  TokenizerData data_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_set<int32_t> added_ids_;  // of tokens outside the model
  std::vector<int32_t> before_, after_;
};

Result<json> read_config(std::string_view text) {
  if (text.empty()) return json::object();
  TSR_ASSIGN_OR_RETURN(TokenizerJson read, read_tokenizer_json(text, "tokenizer_config.json"));
  return std::move(read.rest);
}

}  // namespace

Result<TokenizerData> pipeline_data(TokenizerJson description, const json& config,
                                    std::vector<int32_t> end_ids) {
  PipelineData made(description, config);
  TSR_RETURN_IF_ERROR(made.make());
  TokenizerData data = made.take();
  put_end_ids(std::move(end_ids), 0, data);
  return data;
}

void put_end_ids(std::vector<int32_t> ids, int64_t table_rows, TokenizerData& data) {
  constexpr int64_t kMostPadding = 65536;
  const auto size = std::ssize(data.tokens), rows = std::min(table_rows, size + kMostPadding);
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= std::max(size, rows); });
  const int64_t wanted = ids.empty() ? 0 : int64_t{*std::ranges::max_element(ids)} + 1;
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  while (std::ssize(data.tokens) < wanted) {
    // Pipelines may have unused ids; other kinds need distinct tokens.
    const bool is_hole = data.kind == TokenizerKind::kPipeline;
    data.tokens.push_back(is_hole ? std::string() : format("[PAD{}]", std::ssize(data.tokens)));
    data.types.push_back(TokenType::kUnused);
    if (!data.scores.empty()) data.scores.push_back(0);
    if (!data.log_probabilities.empty()) data.log_probabilities.push_back(0);
  }
  if (data.eos < 0 && !ids.empty()) data.eos = ids.front();
  data.end_ids = std::move(ids);
}

Result<TokenizerData> hf_tokenizer(const HuggingFaceTexts& texts) {
  TSR_ASSIGN_OR_RETURN(TokenizerJson description, read_tokenizer_json(texts.tokenizer, "tokenizer.json"));
  // tokenizer.json determines the tokens around a text; transformers uses
  // add_bos_token and add_eos_token only for tokenizers converted from other files.
  TSR_ASSIGN_OR_RETURN(json config, read_config(texts.tokenizer_config));
  config.erase("add_bos_token");
  config.erase("add_eos_token");
  return pipeline_data(std::move(description), config, texts.end_ids);
}

}  // namespace tessera
