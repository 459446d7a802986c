// Text helpers: format with "{}" placeholders (g++ 12 has no <format>), joining, number parsing, nearest names.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera {

std::string to_text(double value);  // shortest text that reads back as the same double
std::string to_text(int64_t value);
std::string to_text(uint64_t value);
inline std::string to_text(bool value) { return value ? "true" : "false"; }
inline std::string to_text(std::string_view value) { return std::string(value); }
inline std::string to_text(const std::string& value) { return value; }
inline std::string to_text(const char* value) { return value; }
inline std::string to_text(char value) { return std::string(1, value); }
template <class T>
  requires std::signed_integral<T> && (!std::same_as<T, int64_t>)
std::string to_text(T value) { return to_text(static_cast<int64_t>(value)); }
template <class T>
  requires std::unsigned_integral<T> && (!std::same_as<T, uint64_t>) && (!std::same_as<T, bool>)
std::string to_text(T value) { return to_text(static_cast<uint64_t>(value)); }
inline std::string to_text(float value) { return to_text(static_cast<double>(value)); }

std::string format_pieces(std::string_view pattern, std::initializer_list<std::string> arguments);

// format("inner extents differ: {} vs {}", a, b). Any type with a `to_text` overload found by ADL works.
template <class... Args>
std::string format(std::string_view pattern, const Args&... arguments) {
  return format_pieces(pattern, {to_text(arguments)...});
}

std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

// The whole of `text` as a number; nullopt when anything is left over or it does not fit.
std::optional<int64_t> parse_i64(std::string_view text);
std::optional<double> parse_f64(std::string_view text);

// "2GiB", "512MiB", "1.5GB", "4096" -> bytes; nullopt when it is not a size.
std::optional<int64_t> parse_bytes(std::string_view text);
std::string bytes_text(int64_t bytes);  // 1536 -> "1.50 KiB"

// Up to three of `candidates` by edit distance of their first 256 bytes, nearest first; for "unknown option
// 'lr_rate'; nearest: lr".
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates);

}  // namespace tessera
