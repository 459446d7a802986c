#include "serialize/grammar/string_formats.h"

#include <utility>

#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

// Days that months have, February by year. The year 0000 is left out, as many readers refuse it.
std::string date() {
  const std::string year = "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d\\d\\d)";
  const std::string fourth = "(?:0[48]|[2468][048]|[13579][26])";
  return "(?:" + year +
         "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|"
         "1\\d|2[0-8]))" +
         "|(?:\\d\\d" + fourth + "|" + fourth + "00)-02-29)";
}

// RFC 3339, without leap seconds.
constexpr std::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kOctet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
constexpr std::string_view kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?";

std::string ipv4() { return format("{}\\.{}\\.{}\\.{}", kOctet, kOctet, kOctet, kOctet); }
std::string host(std::string_view more) { return format("{}(?:\\.{}){}", kLabel, kLabel, more); }

std::string uri() {
  const std::string_view path = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f][0-9A-Fa-f])*";
  return "[A-Za-z][A-Za-z0-9+.-]{0,15}://(?:" + ipv4() + "|" + host("{0,3}") + ")(?::[1-9]\\d{0,3})?(?:/" +
         format("{})?(?:\\?{})?(?:#{})?", path, path, path);
}

}  // namespace

std::string pattern_of_format(std::string_view name) {
  if (name == "date") return date();
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return date() + "T" + std::string(kTime);
  if (name == "uuid") return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
  if (name == "email") return "[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30})?@" + host("{1,3}");
  if (name == "hostname") return host("{0,3}");
  if (name == "ipv4") return ipv4();
  if (name == "uri") return uri();
  return {};
}

}  // namespace tessera::grammar
