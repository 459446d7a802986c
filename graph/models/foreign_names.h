// ForeignNames: the names of a model family's tensors in other projects' files, and the changes
// of their values. Tables of plain data in the family's file; importers and exporters read them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// The change from the foreign values to ours.
enum class ValueChange : uint8_t {
  kNone,
  kPlusOne,     // ours is one more: the stored weight of a norm is its difference from 1
  kTransposed,  // foreign: [K, N], of experts [E, K, N]
  kApart,       // foreign: [N, 1, K], ours [N, K]
  kByKeyHead,   // foreign rows of all parts are together for each of the layer's heads of keys
  kColumn,      // foreign: [N, 1], ours [N]
  kGroups,      // foreign: [G, N / G], ours [N], of layers with G heads of keys
  kLogNegated,  // ours is the logarithm of the stored vector's negative
  kLogNegatedColumn,  // and foreign is [N, 1]
  // Foreign rows alternate between two of our tensors: the even rows, or the odd ones.
  kEven,
  kOdd,
  kTransposedEven,  // the even columns of foreign [E, K, 2N]
  kTransposedOdd,
};

constexpr bool is_alternating(ValueChange change) {
  return change >= ValueChange::kEven && change <= ValueChange::kTransposedOdd;
}
// Values are computed from the stored ones, in f32.
constexpr bool is_computed(ValueChange change) {
  return change == ValueChange::kPlusOne || change == ValueChange::kLogNegated || change == ValueChange::kLogNegatedColumn;
}
constexpr bool is_odd(ValueChange change) {
  return change == ValueChange::kOdd || change == ValueChange::kTransposedOdd;
}
constexpr bool is_transposed(ValueChange change) {
  return change == ValueChange::kTransposed || change == ValueChange::kTransposedEven ||
         change == ValueChange::kTransposedOdd;
}

// The foreign name of one of ours. In `ours` the prefix "block.<i>." is written "block.#."; `theirs` has
// its number at '#', and at '@' that of an expert, where each expert is a separate tensor: ours stacks
// them. Several rules with one `theirs` are parts of it along its rows (of experts, along those of each), in the order of the rules.
struct NameRule {
  std::string_view ours, theirs;
  ValueChange change = ValueChange::kNone;
};

struct ForeignName {
  std::string tensor;  // with '@' where experts are separate tensors
  ValueChange change = ValueChange::kNone;
  // Parameters that share the tensor, this one included, in the order of their rows; empty: the whole tensor.
  std::array<std::string, 5> parts;
};

class ForeignNames {
 public:
  constexpr ForeignNames() = default;
  // Tables must outlive it; earlier ones take precedence.
  constexpr ForeignNames(std::span<const NameRule> own, std::span<const NameRule> common = {}, std::span<const NameRule> further = {})
      : tables_{own, common, further, {}, {}} {}

  // The same names, with the rules in `first` before all others.
  ForeignNames preceded_by(std::span<const NameRule> first) const {
    ForeignNames names = *this;
    names.tables_ = {first, tables_[0], tables_[1], tables_[2], tables_[3]};
    return names;
  }

  // The same names, with those of the draft block's layer ("draft.*" of ours), which is a layer's of this number, or begin so.
  ForeignNames with_draft_layer(int64_t number) const {
    ForeignNames names = *this;
    names.draft_layer_ = number;
    return names;
  }
  constexpr ForeignNames with_draft_beginning(std::string_view beginning) const {
    ForeignNames names = *this;
    names.draft_beginning_ = beginning;
    return names;
  }

  bool empty() const { return tables_[0].empty() && tables_[1].empty(); }
  // Returns nullopt for a parameter without a foreign name.
  std::optional<ForeignName> find(std::string_view parameter) const;

 private:
  std::optional<ForeignName> find_draft(std::string_view parameter) const;
  // `pattern`: a rule's name of ours; part_name: the parameter that a rule with the same tensor names.
  std::optional<ForeignName> find_rule(std::string_view pattern, const std::string& number,
                                       const std::function<std::string(std::string_view)>& part_name) const;

  std::array<std::span<const NameRule>, 5> tables_;
  std::optional<int64_t> draft_layer_;
  std::string_view draft_beginning_;  // empty: as of a layer
};

}  // namespace tessera
