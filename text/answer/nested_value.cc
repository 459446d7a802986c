#include "text/answer/nested_value.h"

#include <string>
#include <utility>
#include <vector>

#include "text/answer/argument_value.h"
#include "text/answer/marker.h"
#include "text/answer/payload_scanner.h"

namespace tessera::answer {
namespace {

constexpr size_t kNone = std::string_view::npos;

// The `close` that matches the `open` before byte `at`.
size_t find_close(std::string_view text, size_t at, std::string_view open, std::string_view close) {
  for (int depth = 1;;) {
    const size_t end = text.find(close, at);
    if (end == kNone) return kNone;
    const std::string_view inside = text.substr(0, end);
    for (size_t inner = inside.find(open, at); inner != kNone; inner = inside.find(open, inner + open.size()))
      ++depth;
    if (--depth == 0) return end;
    at = end + close.size();
  }
}

}  // namespace

std::optional<Json> parse_nested_value(std::string_view text, const ParameterForm& form,
                                       const ArgumentSchema& schema, int depth) {
  if (depth == kMostJsonDepth) return std::nullopt;
  std::vector<std::pair<std::string, Json>> parts;
  bool is_list = true;
  for (size_t at = skip_space(text, 0); at < text.size(); at = skip_space(text, at)) {
    const Matched begun = match_marker(form.open, text, at);
    const size_t middle = begun.match == Match::kYes ? text.find(form.middle, begun.end) : kNone;
    if (middle == kNone) return std::nullopt;
    std::string key(text.substr(begun.end, middle - begun.end)), close = form.close;
    close.replace(close.find('\1'), 1, key);
    const size_t begin = middle + form.middle.size();
    const size_t end = find_close(text, begin, text.substr(at, begin - at), close);
    if (end == kNone) return std::nullopt;
    const std::string_view raw = text.substr(begin, end - begin);
    const bool is_item = key == "item" && schema.allows_type_of(Json::array());
    const ArgumentSchema own = is_item ? schema.item(parts.size()) : schema.property(key);
    const bool is_nested = raw.starts_with(form.open) && !is_declared_text(raw, own);
    std::optional<Json> value = is_nested ? parse_nested_value(raw, form, own, depth + 1)
                                          : std::optional<Json>(argument_value(raw, own));
    if (!value) return std::nullopt;
    is_list = is_list && key == "item";
    parts.emplace_back(std::move(key), std::move(*value));
    at = end + close.size();
  }
  if (parts.empty() || (!is_list && parts.size() > size_t{kMostMembers})) return std::nullopt;
  Json made = is_list ? Json::array() : Json::object();
  for (auto& [key, value] : parts) {
    if (is_list)
      made.push_back(std::move(value));
    else
      made[key] = std::move(value);
  }
  return made;
}

}  // namespace tessera::answer
