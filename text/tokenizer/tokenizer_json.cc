#include "text/tokenizer/tokenizer_json.h"

#include <map>
#include <set>
#include <unordered_map>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr size_t kMostValues = 200'000;  // of the small tree
constexpr size_t kMostBytes = size_t{256} << 20;

// Events of the JSON parser. The root has depth 1.
class Reader : public nlohmann::json_sax<json> {
 public:
  explicit Reader(TokenizerJson& to) : to_(to) {}
  const std::string& error() const { return error_; }

  bool null() override { return value(json()); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }
  bool binary(binary_t&) override { return fail("has binary values"); }
  bool start_object(size_t) override { return start(true); }
  bool start_array(size_t) override { return start(false); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool key(string_t& name) override {
    if (area_ == Area::kTree) {
      if (depth_ == 1) first_key_ = name;
      if (depth_ == 2) second_key_ = name;
      const bool is_list = depth_ == 1 && name == "added_tokens";
      if (is_list && !lists_.insert(name).second) return fail("has added_tokens twice");
      if (depth_ == 2 && first_key_ == "model" && (name == "vocab" || name == "merges") && !lists_.insert(name).second)
        return fail(format("has model.{} twice", name));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();
    const size_t bracket = text.find("] ");
    return fail("the text is not JSON: " +
                quote(bracket == std::string_view::npos ? text : text.substr(bracket + 2)));
  }

 private:
  enum class Area { kTree, kVocabulary, kMerges, kAdded };

  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  bool start(bool object) {
    if (++depth_ > kMostJsonDepth) return fail(format("nests deeper than {}", kMostJsonDepth));
    if (area_ == Area::kTree) {
      const bool in_model = depth_ == 3 && first_key_ == "model";
      if (in_model && second_key_ == "vocab") return enter(Area::kVocabulary);
      if (in_model && second_key_ == "merges" && !object) return enter(Area::kMerges);
      if (depth_ == 2 && first_key_ == "added_tokens" && !object) return enter(Area::kAdded);
      json* made = add(object ? json::object() : json::array());
      if (made == nullptr) return false;
      containers_.push_back(made);
      return true;
    }
    if (depth_ != area_depth_ + 1) return fail(format("model or added_tokens nest deeper than they should"));
    parts_ = 0;
    if (area_ == Area::kAdded) to_.added.emplace_back(), added_keys_.clear();
    if (area_ == Area::kMerges) to_.merges.emplace_back();
    return true;
  }

  bool enter(Area area) {
    area_ = area;
    area_depth_ = depth_;
    return true;
  }

  bool end() {
    if (area_ == Area::kTree) {
      containers_.pop_back();
    } else if (depth_ == area_depth_) {
      area_ = Area::kTree;
    } else if (area_ == Area::kVocabulary && parts_ != 2) {
      return fail("an entry of model.vocab is not a token and its score");
    } else if (area_ == Area::kMerges && parts_ != 2) {
      return fail("an entry of model.merges is not two tokens");
    }
    --depth_;
    return true;
  }

  json* add(json made) {
    if (++values_ > kMostValues) {
      fail(format("has more than {} values besides its vocabulary", kMostValues));
      return nullptr;
    }
    if (containers_.empty()) return &(to_.rest = std::move(made));
    json& container = *containers_.back();
    if (container.is_object()) {
      const auto [member, is_new] = container.emplace(key_, made);
      if (!is_new && (made.is_structured() || *member != made)) {
        fail(format("has the key '{}' twice in an object, with values that may differ: wanted it once",
                    quote(key_, 64)));
        return nullptr;
      }
      return &*member;
    }
    container.push_back(std::move(made));
    return &container.back();
  }

  bool value(json v) {
    switch (area_) {
      case Area::kTree: return add(std::move(v)) != nullptr;
      case Area::kVocabulary: return vocabulary_value(v);
      case Area::kMerges: return merges_value(v);
      case Area::kAdded: return added_value(v);
    }
    return true;
  }

  bool vocabulary_value(json& v) {
    if (depth_ == area_depth_) {  // {"token": id}
      if (!v.is_number_integer() || v.is_number_unsigned() != (v.get<int64_t>() >= 0) || v.get<int64_t>() < 0)
        return fail(format("model.vocab: the id of {} is {}", quote(key_, 64),
                           v.dump(-1, ' ', false, json::error_handler_t::replace)));
      const auto [known, is_new] = ids_.try_emplace(key_, v.get<int64_t>());
      if (!is_new && known->second != v.get<int64_t>())
        return fail(format("model.vocab: the token '{}' stands twice, first with the id {}, then with {}: wanted it once",
                           quote(key_, 64), known->second, v.get<int64_t>()));
      if (is_new) to_.vocabulary.emplace_back(std::move(key_), v.get<int64_t>());
      return true;
    }
    if (parts_ == 0 && v.is_string()) {  // ["token", log probability]
      to_.vocabulary.emplace_back(std::move(v.get_ref<std::string&>()),
                                  static_cast<int64_t>(to_.vocabulary.size()));
    } else if (parts_ == 1 && v.is_number()) {
      to_.log_probabilities.push_back(v.get<double>());
    } else {
      return fail("an entry of model.vocab is not a token and its score");
    }
    ++parts_;
    return true;
  }

  bool merges_value(json& v) {
    if (!v.is_string()) return fail("an entry of model.merges is not a text");
    std::string& text = v.get_ref<std::string&>();
    if (depth_ == area_depth_) {
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        return fail(format("model.merges: {} is not two tokens with a space between them", quote(text, 64)));
      to_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      return true;
    }
    if (parts_ > 1) return fail("an entry of model.merges is not two tokens");
    (parts_++ == 0 ? to_.merges.back().first : to_.merges.back().second) = std::move(text);
    return true;
  }

  bool added_value(json& v) {
    if (depth_ == area_depth_) return fail("an entry of added_tokens is no object");
    AddedToken& token = to_.added.back();
    const auto [known, is_new] = added_keys_.try_emplace(key_, v);
    if (!is_new && known->second != v)
      return fail(format("added_tokens: a token has '{}' twice, with {} and {}: wanted it once", quote(key_, 64),
                         known->second.dump(-1, ' ', false, json::error_handler_t::replace),
                         v.dump(-1, ' ', false, json::error_handler_t::replace)));
    const auto flag = [&](bool& to) {
      if (!v.is_boolean()) return fail(format("added_tokens: '{}' is not true or false", key_));
      to = v.get<bool>();
      return true;
    };
    if (key_ == "content") {
      if (!v.is_string()) return fail("added_tokens: a 'content' is no text");
      token.content = std::move(v.get_ref<std::string&>());
    } else if (key_ == "id") {
      if (!v.is_number_unsigned() || v.get<uint64_t>() > uint64_t{INT32_MAX})
        return fail("added_tokens: an 'id' is not one");
      token.id = v.get<int32_t>();
    } else if (key_ == "single_word") {
      return flag(token.single_word);
    } else if (key_ == "lstrip") {
      return flag(token.lstrip);
    } else if (key_ == "rstrip") {
      return flag(token.rstrip);
    } else if (key_ == "normalized") {
      return flag(token.normalized);
    } else if (key_ == "special") {
      return flag(token.special);
    } else if (key_ == "in_model") {
      return flag(token.in_model);
    }
    return true;
  }

  TokenizerJson& to_;
  std::string error_;
  Area area_ = Area::kTree;
  int depth_ = 0, area_depth_ = 0, parts_ = 0;
  size_t values_ = 0;
  std::string key_, first_key_, second_key_;
  std::unordered_map<std::string, int64_t> ids_;  // vocabulary
  std::map<std::string, json> added_keys_;        // of the present added token
  std::set<std::string> lists_;  // keys found so far that are not in the tree
  std::vector<json*> containers_;
};

}  // namespace

Result<TokenizerJson> read_tokenizer_json(std::string_view text, std::string_view what) {
  if (text.size() > kMostBytes)
    return Status(StatusCode::kCorrupt,
                  format("{}: {} bytes of JSON, wanted at most {}", what, text.size(), kMostBytes));
  TokenizerJson read;
  Reader reader(read);
  if (!json::sax_parse(text, &reader))
    return Status(StatusCode::kCorrupt, format("{}: {}", what, reader.error()));
  if (!read.rest.is_object()) return Status(StatusCode::kCorrupt, format("{}: the JSON is no object", what));
  if (!read.log_probabilities.empty() && read.log_probabilities.size() != read.vocabulary.size())
    return Status(StatusCode::kCorrupt, format("{}: model.vocab has {} tokens and {} scores", what,
                                               read.vocabulary.size(), read.log_probabilities.size()));
  return read;
}

}  // namespace tessera
