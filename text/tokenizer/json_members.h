// JsonMembers: reads members of a tokenizer file's object; errors name object, member and what was wanted.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "graph/base/quote.h"
#include "graph/base/result.h"
#include "graph/base/text.h"
#include "text/tokenizer/character.h"

namespace tessera {

class JsonMembers {
 public:
  // `what`: name in messages, "pre_tokenizer Split".
  JsonMembers(const nlohmann::json& object, std::string what) : object_(object), what_(std::move(what)) {}

  const std::string& what() const { return what_; }
  // Null if missing.
  const nlohmann::json& at(const char* name) const {
    static const nlohmann::json kNull;
    if (!object_.is_object()) return kNull;
    const auto found = object_.find(name);
    return found == object_.end() ? kNull : *found;
  }

  Result<bool> flag(const char* name, bool fallback) const {
    const nlohmann::json& value = at(name);
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) return wrong(name, "true or false");
    return value.get<bool>();
  }
  Result<int64_t> integer(const char* name, std::optional<int64_t> fallback = {}) const {
    const nlohmann::json& value = at(name);
    if (value.is_null() && fallback) return *fallback;
    if (!value.is_number_integer()) return wrong(name, "a whole number");
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
      return wrong(name, "a smaller number");
    return value.get<int64_t>();
  }
  Result<std::string> text(const char* name, std::optional<std::string> fallback = {}) const {
    const nlohmann::json& value = at(name);
    if (value.is_null() && fallback) return *fallback;
    if (!value.is_string()) return wrong(name, "a text");
    return value.get<std::string>();
  }
  // A text of one character.
  Result<std::string> character(const char* name, std::optional<std::string> fallback = {}) const {
    TSR_ASSIGN_OR_RETURN(std::string value, text(name, std::move(fallback)));
    if (value.empty() || character_at(value, 0).size != value.size()) return wrong(name, "one character");
    return value;
  }

  Status wrong(const char* name, std::string_view wanted) const {
    return Status(
        StatusCode::kInvalidArgument,
        format(
            "{}: '{}' is {}, wanted {}", what_, name,
            quote(std::string_view(at(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))),
            wanted));
  }

 private:
  const nlohmann::json& object_;
  std::string what_;
};

// The "type" of a description, or kInvalidArgument.
inline Result<std::string> type_of(const nlohmann::json& description, std::string_view what) {
  return JsonMembers(description, std::string(what)).text("type");
}

inline Status unknown_type(std::string_view what, std::string_view type, std::string_view known) {
  return Status(StatusCode::kUnsupported,
                format("the tokenizer's {} '{}' is not known; known: {}", what, quote(type, 64), known));
}

}  // namespace tessera
