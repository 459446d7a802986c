// Formats of strings in JSON schema as regular expressions of the whole string.
#pragma once

#include <string>
#include <string_view>

namespace tessera::grammar {

// What a format's texts are. Those of formats without a pattern are any texts: the format is an annotation.
struct StringFormat {
  std::string pattern;
  std::string unbounded;  // a part of the same texts by fewer states, which other limits can be held together with
};

// The format 'uri' where the text's scheme is http or https.
inline constexpr std::string_view kWebFormat = "uri of the web";

// A format that is an annotation has no pattern.
StringFormat format_of(std::string_view name);

}  // namespace tessera::grammar
