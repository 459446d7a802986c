#include "text/grammar/string_formats.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

// Valid days of months, February by year. Excludes year 0000, which many readers refuse.
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
// HostForm: labels of hosts. The last is no number, and none looks encoded ("xn--").
struct HostForm {
  std::string_view label, last;
};
constexpr HostForm kHost = {"[A-Za-z0-9]{1,30}(?:-[A-Za-z0-9]{1,10}){0,3}",
                            "[A-Za-z][A-Za-z0-9]{0,29}(?:-[A-Za-z0-9]{1,10}){0,3}"};
constexpr HostForm kShortHost = {"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*", "[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*"};

std::string ipv4() { return format("{}\\.{}\\.{}\\.{}", kOctet, kOctet, kOctet, kOctet); }
std::string host(const HostForm& form, std::string_view more) {
  return format("(?:{}\\.){}{}", form.label, more, form.last);
}

// Two to twelve letters except these words, in either case.
std::string letters_except(std::span<const std::string_view> words) {
  std::set<std::string> prefixes;
  for (const std::string_view word : words)
    for (size_t size = 0; size < word.size(); ++size) prefixes.emplace(word.substr(0, size));
  const auto is_word = [&](const std::string& text) { return std::ranges::find(words, text) != words.end(); };
  std::string all;
  for (const std::string& prefix : prefixes) {
    std::string begin, others;
    for (const char letter : prefix) begin += format("[{}{}]", std::string(1, letter), std::string(1, letter - 32));
    for (char letter = 'a'; letter <= 'z'; ++letter)
      if (const std::string longer = prefix + letter; !prefixes.contains(longer) && !is_word(longer))
        others += {letter, static_cast<char>(letter - 32)};
    const size_t rest = 12 - prefix.size() - 1;
    all += format("{}{}[{}][A-Za-z]{{},{}}", all.empty() ? "" : "|", begin, others, prefix.empty() ? 1 : 0, rest);
    if (prefix.size() >= 2 && !is_word(prefix)) all += "|" + begin;
  }
  return "(?:" + all + ")";
}

// RFC 5321's mailbox, without the top-level domains reserved
// by RFC 2606, 6761 and 6762, which validators refuse.
std::string email(bool is_bounded) {
  constexpr std::string_view kReserved[] = {"arpa", "example", "invalid", "local", "localhost", "onion", "test"};
  const std::string_view atom = is_bounded ? "[A-Za-z0-9_+-]{1,25}" : "[A-Za-z0-9_+-]+";
  const std::string_view more = is_bounded ? "(?:\\.[A-Za-z0-9_+-]{1,12}){0,3}" : "(?:\\.[A-Za-z0-9_+-]+)*";
  const HostForm& form = is_bounded ? kHost : kShortHost;
  return format("{}{}@(?:{}\\.){}{}", atom, more, form.label, is_bounded ? "{1,3}" : "+",
                letters_except(kReserved));
}

std::string uri(std::string_view scheme, bool is_bounded) {
  const std::string_view count = is_bounded ? "{0,500}" : "*";
  const std::string path =
      format("(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f][0-9A-Fa-f]){}", count);
  return format("{}://(?:{}|{})(?::[1-9]\\d{0,3})?(?:/{})?(?:\\?{})?(?:#{})?", scheme, ipv4(),
                host(is_bounded ? kHost : kShortHost, is_bounded ? "{0,5}" : "*"), path, path, path);
}

// Any scheme with a host, and the usual schemes without.
std::string any_uri(bool is_bounded) {
  const std::string_view count = is_bounded ? "{1,500}" : "+";
  return format("(?:{}|mailto:{}|file:///[A-Za-z0-9._~/-]{}|urn:[A-Za-z0-9]{2,20}:[A-Za-z0-9._~:/-]{})",
                uri("[A-Za-z][A-Za-z0-9+.-]{0,15}", is_bounded), email(is_bounded), count, count);
}

// Expressions accepted by every reader: characters, classes and groups, repeated.
std::string regex() {
  const std::string repetition = "(?:[*+?]\\??|\\{\\d{1,2},?\\}|\\{[01],[1-9]\\d?\\})?";
  const std::string item = "(?:a-z|A-Z|0-9|[A-Za-z0-9_ .,:;@/+]|\\\\[dwsDWS.-])";
  const std::string atom =
      format("(?:(?:[A-Za-z0-9 _,:;=@~/<>!#%&\"'-]|\\.|\\\\[dDwWsS.^$*+?()|/\\\\-]|\\[\\^?{}+-?\\]){})", item,
             repetition);
  const std::string choice = format("{}*(?:\\|{}+)*", atom, atom);
  const std::string group = format("(?:\\((?:\\?:)?{}\\){})", choice, repetition);
  const std::string part = format("(?:{}|{})", atom, group);
  const std::string outer = format("(?:{}|\\((?:\\?:)?{}*(?:\\|{}+)*\\){})", part, part, part, repetition);
  return format("\\^?{}*(?:\\|{}+)*\\$?", outer, outer);
}

std::string relative_uri(bool is_bounded) {
  const std::string_view count = is_bounded ? "{0,500}" : "*";
  const std::string path = format("(?:[A-Za-z0-9._~!$&'()*+,;=@/-]|%[0-9A-Fa-f][0-9A-Fa-f]){}", count);
  return format("(?:{}|/(?:[A-Za-z0-9._~-]{})?(?:/[A-Za-z0-9._~-]{})*(?:\\?{})?(?:#{})?)",
                uri("[A-Za-z][A-Za-z0-9+.-]{0,15}", is_bounded), is_bounded ? "{1,100}" : "+",
                is_bounded ? "{0,100}" : "*", path, path);
}

std::string uuid(std::string_view version) {
  const std::string hex = "[0-9A-Fa-f]";
  if (version.empty()) return format("{}{8}-{}{4}-{}{4}-{}{4}-{}{12}", hex, hex, hex, hex, hex);
  return format("{}{8}-{}{4}-{}{}{3}-[89ABab]{}{3}-{}{12}", hex, hex, version, hex, hex, hex);
}

// RFC 4291 without embedded IPv4: eight groups, or "::" in place of some.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string all = format("(?:{}:){7}{}|(?:{}:){1,7}:", group, group, group);
  for (int before = 1; before <= 6; ++before)
    all += format("|(?:{}:){1,{}}(?::{}){1,{}}", group, before, group, 7 - before);
  return format("(?:{}|:(?::{}){1,7}|::)", all, group);
}

// Appendix A of RFC 3339.
std::string duration() {
  const std::string n = "\\d{1,3}";
  const std::string time = format("T(?:{}H(?:{}M(?:{}S)?)?|{}M(?:{}S)?|{}S)", n, n, n, n, n, n);
  return format("P(?:(?:{}Y(?:{}M(?:{}D)?)?|{}M(?:{}D)?|{}D)(?:{})?|{}|{}W)", n, n, n, n, n, n, time, time, n);
}

// Networks without host bits.
std::string ipv4_network() {
  return format("(?:{}(?:/32)?|{}\\.0\\.0\\.0/8|{}\\.{}\\.0\\.0/16|{}\\.{}\\.{}\\.0/24)", ipv4(), kOctet, kOctet,
                kOctet, kOctet, kOctet, kOctet);
}

constexpr std::string_view kBase64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
constexpr std::string_view kBase64Url = "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?";

}  // namespace

StringFormat format_of(std::string_view name) {
  const auto alone = [](std::string pattern) { return StringFormat{pattern, pattern}; };
  if (name == "date") return alone(date());
  if (name == "time") return alone(std::string(kTime));
  if (name == "date-time") return alone(date() + "T" + std::string(kTime));
  if (name == "duration") return alone(duration());
  if (name == "uuid" || name == "guid") return alone(uuid(""));
  if (name.size() == 5 && name.starts_with("uuid") && name[4] >= '1' && name[4] <= '8')
    return alone(uuid(name.substr(4)));
  if (name == "email" || name == "idn-email") return {email(true), email(false)};
  if (name == "hostname" || name == "idn-hostname") return {host(kHost, "{0,3}"), host(kShortHost, "*")};
  if (name == "ipv4") return alone(ipv4());
  if (name == "ipv6") return alone(ipv6());
  if (name == "ipvanyaddress") return alone(format("(?:{}|{})", ipv4(), ipv6()));
  if (name == "ipv4network" || name == "ipvanynetwork") return alone(ipv4_network());
  if (name == "ipv4interface" || name == "ipvanyinterface" || name == "cidrv4")
    return alone(format("{}/(?:[12]?\\d|3[0-2])", ipv4()));
  if (name == "ipv6network") return alone(format("{}(?:/128)?", ipv6()));
  if (name == "ipv6interface" || name == "cidrv6")
    return alone(format("{}/(?:[1-9]?\\d|1[01]\\d|12[0-8])", ipv6()));
  if (name == "uri" || name == "iri")
    return {any_uri(true), any_uri(false)};
  if (name == kWebFormat) return {uri("https?", true), uri("https?", false)};
  if (name == "uri-reference" || name == "iri-reference") return {relative_uri(true), relative_uri(false)};
  if (name == "uri-template") return alone("[A-Za-z0-9:/._~-]*(?:\\{[A-Za-z0-9_]{1,30}\\}[A-Za-z0-9:/._~-]*)*");
  if (name == "json-pointer") return alone("(?:/(?:[^/~]|~[01])*)*");
  if (name == "relative-json-pointer") return alone("(?:0|[1-9]\\d{0,8})(?:#|(?:/(?:[^/~]|~[01])*)*)");
  if (name == "fraction") return alone("-?(?:0|[1-9]\\d{0,8})(?:/[1-9]\\d{0,8})?");
  if (name == "base64") return alone(std::string(kBase64));
  if (name == "base64url") return alone(std::string(kBase64Url));
  if (name == "e164") return alone("\\+[1-9]\\d{6,14}");
  if (name == "ulid") return alone("[0-7][0-9A-HJKMNP-TV-Z]{25}");
  if (name == "nanoid") return alone("[A-Za-z0-9_-]{21}");
  if (name == "cuid") return alone("c[a-z0-9]{8,31}");
  if (name == "cuid2") return alone("[a-z][0-9a-z]{1,31}");
  if (name == "ksuid") return alone("[A-Za-z0-9]{27}");
  if (name == "xid") return alone("[0-9a-v]{20}");
  if (name == "regex") return alone(regex());
  return {};
}

}  // namespace tessera::grammar
