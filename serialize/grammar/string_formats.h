// Formats of JSON schema as regular expressions.
#pragma once

#include <string>
#include <string_view>

namespace tessera::grammar {

// Empty for a format that is not known. Each allows a part of what its standard does.
std::string pattern_of_format(std::string_view format);
inline constexpr std::string_view kKnownFormats = "date, time, date-time, uuid, email, hostname, ipv4, uri";

}  // namespace tessera::grammar
