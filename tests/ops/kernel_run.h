// Runs one kernel of the CPU table on one op instance, in guarded and poisoned memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/op_def.h"
#include "runtime/backends/cpu/cpu_kernel.h"
#include "tests/ops/array.h"
#include "tests/ops/foreign_backend.h"

namespace tessera::conformance {

// An op on concrete local operands. Attributes are complete.
struct OpInstance {
  const OpDef* op = nullptr;
  std::vector<Attr> attrs;
  std::vector<TensorType> inputs, outputs;
  std::vector<FactorView> factors;  // in the order of the rule

  OpView view() const { return {attrs, inputs, outputs, factors}; }
  ShardingRule rule() const { return op->sharding({attrs, inputs, outputs, {}}); }
  bool is_shape_only(int input) const;
};

// Given attributes in the op's order with defaults filled in, as Graph::add_node does.
Result<std::vector<Attr>> complete_attrs(const OpDef& op, std::vector<Attr> given);

// The whole op: infer, and every factor unsharded. An error when infer or the rule does not accept the
// operands.
Result<OpInstance> make_instance(const OpDef& op, std::vector<Attr> complete_attrs,
                                 std::vector<TensorType> inputs);

struct RunOptions {
  std::byte poison{0xa5};        // what results and workspace hold before
  bool last_task_first = false;  // order of the pool's tasks
  bool in_place = false;         // results take over buffers as OpDef::in_place allows
};

class PreparedKernel {
 public:
  // kUnsupported when the kernel declines.
  static Result<PreparedKernel> prepare(const cpu::KernelEntry& entry, const OpInstance& instance);

  // The results; an error when the kernel wrote outside of its buffers, or changed an operand out of place.
  Result<std::vector<Array>> run(std::span<const Array> inputs, const RunOptions& options = {}) const;

 private:
  OpInstance instance_;
  cpu::PreparedKernel prepared_;
  std::shared_ptr<const ForeignKernel> foreign_;  // in place of prepared_.kernel
};

// The rows of kernel_table() for `op`, after one without `prepare` for the backend of TESSERA_TEST_BACKEND
// where that is set, and the one named "reference" (null when there is none).
std::vector<cpu::KernelEntry> kernels_of(std::string_view op);
const cpu::KernelEntry* reference_of(std::span<const cpu::KernelEntry> kernels);

}  // namespace tessera::conformance
