// KernelDescription: an op on local operands in the form that crosses the plugin ABI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/op_def.h"
#include "runtime/backend_abi.h"

namespace tessera {

// Borrows names and strings of `op` and `view`, which must outlive it; the table points into this object.
class KernelDescription {
 public:
  // Empty `variant`: the backend chooses.
  KernelDescription(const OpDef& op, const OpView& view, std::string variant);
  KernelDescription(const KernelDescription&) = delete;
  KernelDescription& operator=(const KernelDescription&) = delete;

  const tsr_abi_kernel_desc& abi() const { return desc_; }

 private:
  std::string variant_;
  std::vector<tsr_abi_attr> attrs_;
  std::vector<tsr_abi_tensor> inputs_, outputs_;
  std::vector<tsr_abi_factor> factors_;
  tsr_abi_kernel_desc desc_{};
};

// The query as a byte string: equal for equal queries, different if the answer may differ.
std::string question_key(const OpDef& op, const OpView& view);
// The query as one line of text, for files: "matmul f32[8, 64], f32[64, 32] -> f32[8, 32] #0123456789abcdef".
std::string question_text(const OpDef& op, const OpView& view);

}  // namespace tessera
