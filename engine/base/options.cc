#include "engine/base/options.h"

#include <algorithm>
#include <cctype>

#include "engine/base/foreign_words.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const AttrValue* OptionReader::take(std::string_view key) {
  known_.emplace_back(key);
  const auto found = options_.find(key);
  return found == options_.end() ? nullptr : &found->second;
}

void OptionReader::accept(std::initializer_list<std::string_view> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

void OptionReader::fail(Status status) {
  if (first_error_.ok()) first_error_ = std::move(status);
}

void OptionReader::wrong_type(std::string_view key, std::string_view wanted, const AttrValue& found) {
  fail(Status(StatusCode::kInvalidArgument,
              format("{}: option '{}' is {}, wanted {}", consumer_, key, quote(to_text(found)), wanted)));
}

int64_t OptionReader::i64(std::string_view key, int64_t otherwise, int64_t low, int64_t high) {
  const AttrValue* value = take(key);
  if (!value) return otherwise;
  const int64_t* number = std::get_if<int64_t>(value);
  if (!number) {
    wrong_type(key, "an integer", *value);
    return otherwise;
  }
  if (*number < low || *number > high) {
    const std::string range =
        high == INT64_MAX ? format("at least {}", low) : format("between {} and {}", low, high);
    fail(Status(StatusCode::kInvalidArgument,
                format("{}: option '{}' is {}, wanted {}", consumer_, key, *number, range)));
  }
  return *number;
}

double OptionReader::f64(std::string_view key, double otherwise, double low, double high) {
  const AttrValue* value = take(key);
  if (!value) return otherwise;
  double number = otherwise;
  if (const double* real = std::get_if<double>(value)) {
    number = *real;
  } else if (const int64_t* integer = std::get_if<int64_t>(value)) {
    number = static_cast<double>(*integer);
  } else {
    wrong_type(key, "a number", *value);
    return otherwise;
  }
  if (!(number >= low && number <= high)) {  // NaN too
    const std::string range =
        high >= 1e300 ? format("at least {}", low) : format("between {} and {}", low, high);
    fail(Status(StatusCode::kInvalidArgument,
                format("{}: option '{}' is {}, wanted {}", consumer_, key, number, range)));
  }
  return number;
}

std::string OptionReader::text(std::string_view key, std::string otherwise) {
  const AttrValue* value = take(key);
  if (!value) return otherwise;
  if (const std::string* text = std::get_if<std::string>(value)) return *text;
  wrong_type(key, "a text", *value);
  return otherwise;
}

std::string OptionReader::word(std::string_view key, std::string otherwise) {
  return lower_case(text(key, std::move(otherwise)));
}

std::string OptionReader::choice(std::string_view key, std::string otherwise,
                                 std::span<const std::string_view> choices) {
  std::string found = text(key, std::move(otherwise));
  if (const std::string lower = lower_case(found);
      std::find(choices.begin(), choices.end(), lower) != choices.end())
    return lower;
  if (std::find(choices.begin(), choices.end(), found) == choices.end()) {
    const std::vector<std::string> names(choices.begin(), choices.end());
    const std::string ours = value_of(lower_case(found), names);
    fail(Status(StatusCode::kInvalidArgument,
                format("{}: option '{}' is '{}', wanted one of {}{}", consumer_, key, quote(found),
                       join(names, ", "), ours.empty() ? "" : format("; it is {} here", ours))));
  }
  return found;
}

int64_t OptionReader::bytes(std::string_view key, int64_t otherwise) {
  const AttrValue* value = take(key);
  if (!value) return otherwise;
  std::optional<int64_t> size;
  if (const int64_t* number = std::get_if<int64_t>(value)) size = *number;
  if (const std::string* text = std::get_if<std::string>(value)) size = parse_bytes(*text);
  if (size && *size >= 0 && *size <= kMostBytes) return *size;
  wrong_type(key, size > kMostBytes ? "a size of at most 1048576 TiB" : "a size such as 2147483648 or 2GiB",
             *value);
  return otherwise;
}

Status OptionReader::finish() {
  TSR_RETURN_IF_ERROR(first_error_);
  for (const auto& [key, value] : options_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string hint = unknown_option_hint(key, known_);
    if (const std::vector<std::string> near = nearest_names(key, known_); hint.empty() && !near.empty())
      hint = format("nearest: {}", join(near, ", "));
    if (hint.empty()) {
      std::vector<std::string> all = known_;
      std::ranges::sort(all);
      all.erase(std::unique(all.begin(), all.end()), all.end());
      hint = format("there are {}", quote(join(all, ", "), 600));
    }
    return Status(StatusCode::kInvalidArgument,
                  format("{}: unknown option '{}'; {}", consumer_, quote(key), hint));
  }
  return {};
}

Result<std::vector<std::pair<std::string, int64_t>>> parse_symbol_values(std::string_view text) {
  std::vector<std::pair<std::string, int64_t>> values;
  if (trim(text).empty()) return values;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::optional<int64_t> value = equals == std::string::npos
                                             ? std::nullopt
                                             : parse_i64(trim(std::string_view(part).substr(equals + 1)));
    const std::string name(trim(std::string_view(part).substr(0, std::min(equals, part.size()))));
    if (!value || *value < 1 || name.empty())
      return Status(
          StatusCode::kInvalidArgument,
          format("symbols: found '{}', wanted NAME=EXTENT with an extent of at least 1, as in T=128", part));
    values.emplace_back(name, *value);
  }
  return values;
}

}  // namespace tessera
