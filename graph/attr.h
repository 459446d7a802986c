// Attr: a named constant of a node. Attributes cross the plugin ABI and are stored in files as {name, type, value};
// none repeats the extent of a shardable factor (an extent is always read from the operands' local shapes).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

// The alternatives of AttrValue by index; stored in files and in the plugin ABI.
enum class AttrType : uint8_t { kI64 = 0, kF64 = 1, kString = 2, kI64List = 3 };

struct Attr {
  std::string name;
  AttrValue value;
  friend bool operator==(const Attr&, const Attr&) = default;
};

// An attribute that an op accepts. A missing one takes `default_value`; nullopt means that it must be given.
struct AttrSpec {
  std::string_view name;
  AttrType type;
  std::optional<AttrValue> default_value;
  std::string_view meaning;  // one line for messages and `docs`
  // Added after graphs without it were stored. Fingerprints leave it out while it
  // has its default, so that plans and choices made for such graphs stay valid.
  bool is_late = false;
};

// Accessors for ops. Graph::add_node has checked names and types and filled defaults, so these TSR_CHECK.
int64_t attr_i64(std::span<const Attr> attrs, std::string_view name);
double attr_f64(std::span<const Attr> attrs, std::string_view name);
const std::string& attr_string(std::span<const Attr> attrs, std::string_view name);
std::span<const int64_t> attr_i64_list(std::span<const Attr> attrs, std::string_view name);

// For an attribute that not every op has: `otherwise` where it is missing.
int64_t attr_i64_or(std::span<const Attr> attrs, std::string_view name, int64_t otherwise);
std::string_view attr_string_or(std::span<const Attr> attrs, std::string_view name,
                                std::string_view otherwise);

std::string to_text(const AttrValue& value);  // 1, 0.5, "text", [0, 2]

}  // namespace tessera
