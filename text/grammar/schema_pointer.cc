#include "text/grammar/schema_pointer.h"

#include <algorithm>
#include <string_view>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/schema_keywords.h"

namespace tessera::grammar {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Unescapes a part of a reference: %XX of URIs, then ~0 and ~1 of pointers.
std::string unescaped_part(std::string_view part) {
  std::string bytes, name;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '%' && i + 2 < part.size() && hex_digit(part[i + 1]) >= 0 && hex_digit(part[i + 2]) >= 0) {
      bytes += static_cast<char>(hex_digit(part[i + 1]) * 16 + hex_digit(part[i + 2]));
      i += 2;
    } else {
      bytes += part[i];
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '~' && i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1'))
      name += bytes[++i] == '0' ? '~' : '/';
    else
      name += bytes[i];
  }
  return name;
}

}  // namespace

std::string pointer_part(const std::string& name) {
  std::string part = "/";
  for (const char c : name) {
    if (c == '~')
      part += "~0";
    else if (c == '/')
      part += "~1";
    else
      part += c;
  }
  return part;
}

Result<const Json*> find_schema(const Json& root, const std::string& reference, const std::string& where,
                                std::string& pointer) {
  if (!reference.starts_with("#") || (reference.size() > 1 && reference[1] != '/'))
    return schema_error(
        StatusCode::kUnsupported, where,
        format("'$ref' is '{}', wanted one within the schema such as '#/$defs/a'", quote(reference)));
  const Json* at = &root;
  pointer.assign(1, '#');  // assigning the text triggers a false overlap warning in g++ 12
  size_t begin = 1;
  while (begin < reference.size()) {
    const size_t end = std::min(reference.find('/', begin + 1), reference.size());
    const std::string name = unescaped_part(std::string_view(reference).substr(begin + 1, end - begin - 1));
    const Json* next = nullptr;
    if (at->is_object()) {
      if (const auto found = at->find(name); found != at->end()) next = &*found;
    } else if (at->is_array()) {
      if (const auto index = parse_i64(name);
          index && *index >= 0 && static_cast<size_t>(*index) < at->size())
        next = &(*at)[static_cast<size_t>(*index)];
    }
    if (next == nullptr)
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'$ref' is '{}', but the schema has nothing there", quote(reference)));
    at = next;
    pointer += pointer_part(name);
    begin = end;
  }
  return at;
}

}  // namespace tessera::grammar
