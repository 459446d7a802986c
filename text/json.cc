#include "text/json.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/repeated_keys.h"

namespace tessera {

namespace {

// The first place where `text` exceeds kMostJsonDepth;
// npos: none. Brackets in strings do not count.
size_t first_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else
        in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostJsonDepth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

// Removes the library's prefix "[json.exception.parse_error.101] ".
std::string reason_of(const nlohmann::detail::exception& error) {
  const std::string_view text = error.what();
  const size_t bracket = text.starts_with("[json.exception") ? text.find("] ") : std::string_view::npos;
  return quote(bracket == std::string_view::npos ? text : text.substr(bracket + 2));
}

enum class RepeatedKeys : uint8_t { kMustAgree, kLastCounts };

// Builder: builds the value. Looks up an object's keys by hash, so that many of them take linear time.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(RepeatedKeys repeated) : repeated_(repeated) {}
  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = "the text is not JSON: " + reason_of(error);
    return false;
  }

 private:
  struct Container {
    Json value;
    std::string key;                                // of the next member
    std::unordered_map<std::string, size_t> places;  // of an object's members
  };

  bool open(Json value) {
    open_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(value));
  }
  bool put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Container& to = open_.back();
    if (to.value.is_array()) {
      to.value.push_back(std::move(value));
      return true;
    }
    auto& members = to.value.get_ref<Json::object_t&>();
    const auto [place, is_new] = to.places.try_emplace(to.key, members.size());
    if (is_new) {
      members.push_back({std::move(to.key), std::move(value)});
      return true;
    }
    Json& first = (members.begin() + static_cast<std::ptrdiff_t>(place->second))->second;
    if (repeated_ == RepeatedKeys::kMustAgree && first != value) {
      error_ = format("the key '{}'{} stands twice, first with {}, then with {}: wanted it once", quote(to.key, 64),
                      place_text(), quote_json(first, 40), quote_json(value, 40));
      return false;
    }
    first = std::move(value);
    return true;
  }
  // " of 'rope_scaling'": the objects that contain the key.
  std::string place_text() const {
    std::string names;
    for (size_t i = 0; i + 1 < open_.size(); ++i)
      if (open_[i].value.is_object()) names += (names.empty() ? "" : ".") + quote(open_[i].key, 64);
    return names.empty() ? "" : " of '" + names + "'";
  }

  const RepeatedKeys repeated_;
  std::string error_;
  Json root_;
  std::vector<Container> open_;
};

Result<Json> parse(std::string_view text, std::string_view what, size_t most_bytes, RepeatedKeys repeated) {
  if (text.size() > most_bytes)
    return Status(StatusCode::kCorrupt,
                  format("{}: {} bytes of JSON, wanted at most {}", what, text.size(), most_bytes));
  if (const size_t at = first_too_deep(text); at != std::string_view::npos)
    return Status(StatusCode::kCorrupt,
                  format("{}: its JSON nests deeper than {} at byte {}", what, kMostJsonDepth, at));
  Builder builder(repeated);
  if (!Json::sax_parse(text, &builder)) return Status(StatusCode::kCorrupt, format("{}: {}", what, builder.error()));
  return builder.take();
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, size_t most_bytes) {
  return parse(text, what, most_bytes, RepeatedKeys::kMustAgree);
}

Result<Json> parse_json_with_last_keys(std::string_view text, std::string_view what) {
  return parse(text, what, kMostJsonBytes, RepeatedKeys::kLastCounts);
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string quote_json(const Json& value, size_t most) { return quote(std::string_view(dump(value)), most); }

}  // namespace tessera
