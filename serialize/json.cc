#include "serialize/json.h"

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

// The place where `text` first nests deeper than kMostJsonDepth; npos for none. Brackets in strings do not
// count.
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

// Without the library's own "[json.exception.parse_error.101] ".
std::string reason_of(const Json::exception& error) {
  const std::string_view text = error.what();
  const size_t bracket = text.starts_with("[json.exception") ? text.find("] ") : std::string_view::npos;
  return quote(bracket == std::string_view::npos ? text : text.substr(bracket + 2));
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, size_t most_bytes) {
  if (text.size() > most_bytes)
    return Status(StatusCode::kCorrupt,
                  format("{}: {} bytes of JSON, wanted at most {}", what, text.size(), most_bytes));
  if (const size_t at = first_too_deep(text); at != std::string_view::npos)
    return Status(StatusCode::kCorrupt,
                  format("{}: its JSON nests deeper than {} at byte {}", what, kMostJsonDepth, at));
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    return Status(StatusCode::kCorrupt, format("{}: the text is not JSON: {}", what, reason_of(error)));
  }
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string quote_json(const Json& value, size_t most) { return quote(std::string_view(dump(value)), most); }

}  // namespace tessera
