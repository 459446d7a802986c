#include "serialize/import/json_fields.h"

#include <cmath>

#include "graph/base/text.h"

namespace tessera {

void JsonFields::fail(StatusCode code, std::string message) {
  if (status_.ok()) status_ = Status(code, format("{}: {}", where_, message));
}

void JsonFields::wrong(std::string_view key, const Json& value, std::string_view wanted) {
  fail(StatusCode::kCorrupt, format("{} is {}, wanted {}", key, quote_json(value, 60), wanted));
}

void JsonFields::missing(std::string_view key, std::string_view wanted) {
  fail(StatusCode::kCorrupt, format("{} is missing, wanted {}", key, wanted));
}

const Json* JsonFields::find(std::string_view key) {
  if (!json_.is_object()) return nullptr;
  const auto at = json_.find(std::string(key));
  if (at == json_.end()) return nullptr;
  read_.emplace(key);
  return at->is_null() ? nullptr : &*at;
}

bool JsonFields::has(std::string_view key) { return find(key) != nullptr; }

int64_t JsonFields::integer(std::string_view key, std::optional<int64_t> otherwise, int64_t least,
                            int64_t most) {
  const int64_t fallback = otherwise.value_or(least);
  const Json* value = find(key);
  const std::string wanted = format("a whole number from {} to {}", least, most);
  if (value == nullptr) {
    if (!otherwise) missing(key, wanted);
    return fallback;
  }
  // Accepts integers written as 8.0.
  if (value->is_number_float()) {
    const auto real = value->get<double>();
    if (std::floor(real) == real && real >= static_cast<double>(least) && real < 0x1p63 &&
        real <= static_cast<double>(most))
      return static_cast<int64_t>(real);
  } else if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number <= static_cast<uint64_t>(most) && (least < 0 || number >= static_cast<uint64_t>(least)))
      return static_cast<int64_t>(number);
  } else if (value->is_number_integer()) {
    const auto number = value->get<int64_t>();
    if (number >= least && number <= most) return number;
  }
  wrong(key, *value, wanted);
  return fallback;
}

double JsonFields::real(std::string_view key, std::optional<double> otherwise) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!otherwise) missing(key, "a number");
    return otherwise.value_or(0);
  }
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  wrong(key, *value, "a finite number");
  return otherwise.value_or(0);
}

bool JsonFields::flag(std::string_view key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  wrong(key, *value, "true or false");
  return otherwise;
}

std::string JsonFields::text(std::string_view key, std::optional<std::string> otherwise) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!otherwise) missing(key, "a text");
    return otherwise.value_or("");
  }
  if (value->is_string()) return value->get<std::string>();
  wrong(key, *value, "a text");
  return otherwise.value_or("");
}

std::vector<double> JsonFields::reals(std::string_view key, size_t most) {
  const Json* value = find(key);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array() || value->size() > most) {
    wrong(key, *value, format("a list of at most {} numbers", most));
    return numbers;
  }
  for (const Json& item : *value) {
    if (!item.is_number() || !std::isfinite(item.get<double>())) {
      wrong(key, item, "finite numbers");
      return {};
    }
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<std::string> JsonFields::texts(std::string_view key, size_t most) {
  const Json* value = find(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (!value->is_array() || value->size() > most) {
    wrong(key, *value, format("a list of at most {} texts", most));
    return texts;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      wrong(key, item, "texts");
      return {};
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

const Json* JsonFields::object(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  wrong(key, *value, "an object");
  return nullptr;
}

const Json* JsonFields::any(std::string_view key) { return find(key); }

void JsonFields::wants(std::string_view key, const Json& value, std::string_view meaning) {
  const Json* found = find(key);
  if (found == nullptr || *found == value) return;
  fail(StatusCode::kUnsupported, format("{} is {}; only models with {} ({}) can be imported", key,
                                        quote_json(*found, 60), dump(value), meaning));
}

std::vector<std::pair<std::string, std::string>> JsonFields::list(bool was_read) const {
  std::vector<std::pair<std::string, std::string>> fields;
  if (!json_.is_object()) return fields;
  for (const auto& [key, value] : json_.items())
    if (read_.contains(key) == was_read) fields.emplace_back(key, quote_json(value, 100));
  return fields;
}

}  // namespace tessera
