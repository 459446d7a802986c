// ForeignNames: what the tensors of a model family are called in other projects' files, and how their values differ
// from ours. Tables of plain data in the family's file; importers and exporters read them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// From theirs to ours.
enum class ValueChange : uint8_t {
  kNone,
  kPlusOne,     // ours is one more: norms whose stored weight is the distance from 1
  kTransposed,  // theirs is [K, N], of experts [E, K, N]
  // Theirs holds two of ours whose rows alternate: this one's are its even rows, or its odd ones.
  kEven,
  kOdd,
  kTransposedEven,  // of theirs [E, K, 2N] the columns
  kTransposedOdd,
};

constexpr bool is_alternating(ValueChange change) {
  return change >= ValueChange::kEven && change <= ValueChange::kTransposedOdd;
}
constexpr bool is_odd(ValueChange change) {
  return change == ValueChange::kOdd || change == ValueChange::kTransposedOdd;
}
constexpr bool is_transposed(ValueChange change) {
  return change == ValueChange::kTransposed || change == ValueChange::kTransposedEven ||
         change == ValueChange::kTransposedOdd;
}

// One name for one name. In `ours` the prefix "block.<i>." is written "block.#."; `theirs` has its number at '#', and
// at '@' that of an expert, where each expert is a tensor of its own: ours stacks them. Several rules with one
// `theirs` are parts of it along its rows, in the order of the rules.
struct NameRule {
  std::string_view ours, theirs;
  ValueChange change = ValueChange::kNone;
};

struct ForeignName {
  std::string tensor;  // with '@' where experts have tensors of their own
  ValueChange change = ValueChange::kNone;
  // Parameters that share the tensor, this one included, in the order of their rows; empty: it is whole.
  std::array<std::string, 3> parts;
};

class ForeignNames {
 public:
  constexpr ForeignNames() = default;
  // Tables outlive it; earlier ones count first.
  constexpr ForeignNames(std::span<const NameRule> own, std::span<const NameRule> common = {})
      : tables_{own, common, {}} {}

  // The same names, of which those in `first` count before all.
  ForeignNames preceded_by(std::span<const NameRule> first) const {
    ForeignNames names = *this;
    names.tables_ = {first, tables_[0], tables_[1]};
    return names;
  }

  bool empty() const { return tables_[0].empty() && tables_[1].empty(); }
  // nullopt for a parameter without a name there.
  std::optional<ForeignName> find(std::string_view parameter) const;

 private:
  std::array<std::span<const NameRule>, 3> tables_;
};

}  // namespace tessera
