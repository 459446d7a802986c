#include "graph/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

namespace tessera {

std::string to_text(double value) {
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return std::string(buffer.data(), end);
}

std::string to_text(int64_t value) { return std::to_string(value); }
std::string to_text(uint64_t value) { return std::to_string(value); }

std::string format_pieces(std::string_view pattern, std::initializer_list<std::string> arguments) {
  std::string out;
  auto argument = arguments.begin();
  size_t from = 0;
  for (size_t at = pattern.find("{}"); at != std::string_view::npos && argument != arguments.end();
       at = pattern.find("{}", from)) {
    out += pattern.substr(from, at - from);
    out += *argument++;
    from = at + 2;
  }
  out += pattern.substr(from);
  return out;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t from = 0;;) {
    const size_t at = text.find(separator, from);
    parts.emplace_back(text.substr(from, at - from));
    if (at == std::string_view::npos) return parts;
    from = at + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t from = text.find_first_not_of(kSpace);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kSpace) - from + 1);
}

namespace {
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
}  // namespace

std::optional<int64_t> parse_i64(std::string_view text) { return parse_number<int64_t>(text); }
std::optional<double> parse_f64(std::string_view text) { return parse_number<double>(text); }

std::optional<int64_t> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view suffix;
    double bytes;
  };
  static constexpr Unit kUnits[] = {
      {"KiB", 1024.}, {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 1099511627776.},
      {"kB", 1e3},    {"KB", 1e3},       {"MB", 1e6},          {"GB", 1e9},
      {"TB", 1e12},   {"K", 1024.},      {"M", 1048576.},      {"G", 1073741824.},
      {"B", 1.}};
  double scale = 1;
  text = trim(text);
  for (const Unit& unit : kUnits) {
    if (text.size() > unit.suffix.size() && text.ends_with(unit.suffix)) {
      scale = unit.bytes;
      text.remove_suffix(unit.suffix.size());
      break;
    }
  }
  const std::optional<double> value = parse_f64(trim(text));
  if (!value || !(*value >= 0) || *value * scale > 9e18) return std::nullopt;
  return static_cast<int64_t>(*value * scale);
}

std::string bytes_text(int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  // to_chars, not printf, whose decimal point depends on the host application's locale.
  std::array<char, 40> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                        std::chars_format::fixed, unit == 0 ? 0 : 2)
                              .ptr;
  return format("{} {}", std::string_view(digits.data(), end), kUnits[unit]);
}

namespace {
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}
}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates) {
  // Real names are shorter; those of files and callers may be megabytes long.
  constexpr size_t kCompared = 256, kMost = 3;
  std::vector<std::pair<size_t, std::string_view>> scored;
  for (const std::string_view candidate : candidates) {
    const std::string_view a = name.substr(0, kCompared), b = candidate.substr(0, kCompared);
    const size_t distance = edit_distance(a, b), longer = std::max(a.size(), b.size());
    // Names are near within two letters, or a quarter of a long name, and less than half of the letters.
    if (distance <= std::max<size_t>(2, longer / 4) && distance * 2 <= longer) scored.emplace_back(distance, candidate);
  }
  std::sort(scored.begin(), scored.end());
  std::vector<std::string> nearest;
  for (const auto& [distance, candidate] : scored)
    if (nearest.size() < kMost && std::ranges::find(nearest, candidate) == nearest.end()) nearest.emplace_back(candidate);
  return nearest;
}

}  // namespace tessera
