#include "graph/attr.h"

#include "graph/base/status.h"
#include "graph/base/text.h"

namespace tessera {

namespace {
const AttrValue& find(std::span<const Attr> attrs, std::string_view name) {
  for (const Attr& attr : attrs)
    if (attr.name == name) return attr.value;
  throw InternalError(__FILE__, __LINE__, format("attribute '{}' is missing", name));
}
}  // namespace

int64_t attr_i64(std::span<const Attr> attrs, std::string_view name) {
  return std::get<int64_t>(find(attrs, name));
}
double attr_f64(std::span<const Attr> attrs, std::string_view name) {
  return std::get<double>(find(attrs, name));
}
const std::string& attr_string(std::span<const Attr> attrs, std::string_view name) {
  return std::get<std::string>(find(attrs, name));
}
std::span<const int64_t> attr_i64_list(std::span<const Attr> attrs, std::string_view name) {
  return std::get<std::vector<int64_t>>(find(attrs, name));
}

int64_t attr_i64_or(std::span<const Attr> attrs, std::string_view name, int64_t otherwise) {
  for (const Attr& attr : attrs)
    if (attr.name == name) return std::get<int64_t>(attr.value);
  return otherwise;
}
std::string_view attr_string_or(std::span<const Attr> attrs, std::string_view name,
                                std::string_view otherwise) {
  for (const Attr& attr : attrs)
    if (attr.name == name) return std::get<std::string>(attr.value);
  return otherwise;
}

std::string to_text(const AttrValue& value) {
  switch (static_cast<AttrType>(value.index())) {
    case AttrType::kI64: return to_text(std::get<int64_t>(value));
    case AttrType::kF64: {
      // A real always prints with a point or exponent, "1.0", so that reading it back gives the same
      // alternative.
      std::string text = to_text(std::get<double>(value));
      return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
    }
    case AttrType::kString: {
      std::string text = "\"";
      for (char c : std::get<std::string>(value)) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
      }
      text += '"';
      return text;
    }
    case AttrType::kI64List: {
      std::vector<std::string> parts;
      for (int64_t item : std::get<std::vector<int64_t>>(value)) parts.push_back(to_text(item));
      return format("[{}]", join(parts, ", "));
    }
  }
  return {};
}

}  // namespace tessera
