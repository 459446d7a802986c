// ModuleSchemes: how the weights of a quantised model's modules are stored, group by group, as compressed-tensors and modelopt say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serialize/import/module_pattern.h"

namespace tessera {

// WeightScheme: the tensors of a weight X.weight [N, K].
struct WeightScheme {
  enum class Layout : uint8_t {
    kPlain,           // X.weight, floats
    kPackedIntegers,  // X.weight_packed i32 [N, K * bits / 32]
    kIntegers,        // X.weight i8
    kFp8,             // X.weight f8_e4m3
    kMxfp8,           // the same, with scales that are exponents
    kNvfp4,           // `codes` u8 [N, K / 2], scales f8_e4m3, one factor of all scales in `factor`
    kMxfp4,           // the same without a factor, with scales that are exponents
  } layout = Layout::kPlain;
  int64_t bits = 8;
  bool has_zeros = false;
  int64_t block_rows = 0, block_columns = 0;  // elements of one scale; 0: all of a column, of a row
  std::string_view codes = ".weight", factor;
  bool divides = false;  // by the factor

  friend bool operator==(const WeightScheme&, const WeightScheme&) = default;
};

struct ModuleGroup {
  std::string name;  // of the configuration: "config_groups.group_0"
  WeightScheme scheme;
  std::vector<ModulePattern> targets;
};

struct ModuleSchemes {
  std::vector<ModuleGroup> groups;
  std::vector<ModulePattern> ignored;  // modules that are not quantised
  bool wants_matches = true;           // a target without a module, and a group without a weight, are errors
  std::vector<std::string> left_out;   // parts of the configuration without use here
};

}  // namespace tessera
