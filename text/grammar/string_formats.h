// String formats of JSON schema as regular expressions of the whole string.
#pragma once

#include <string>
#include <string_view>

namespace tessera::grammar {

// StringFormat: the texts of a format. Without a pattern the format is an annotation and allows any text.
struct StringFormat {
  std::string pattern;
  std::string unbounded;  // a subset with fewer states, for combination with other limits
};

// The format 'uri' with scheme http or https.
inline constexpr std::string_view kWebFormat = "uri of the web";

// An annotation has no pattern.
StringFormat format_of(std::string_view name);

}  // namespace tessera::grammar
