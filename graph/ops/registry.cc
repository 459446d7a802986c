// The table of ops: one declaration and one row an op.
#include <algorithm>

#include "graph/op_def.h"

namespace tessera {

// extern const OpDef kAdd;

namespace {
// Sorted by name.
std::span<const OpDef* const> table() {
  static const OpDef* const kOps[] = {
      nullptr,  // removed with the first op
  };
  return kOps;
}
}  // namespace

std::span<const OpDef* const> all_ops() { return table(); }

const OpDef* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto at = std::ranges::lower_bound(ops, name, {}, [](const OpDef* op) { return op->name; });
  return at != ops.end() && (*at)->name == name ? *at : nullptr;
}

}  // namespace tessera
