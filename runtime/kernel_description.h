// KernelDescription: an op on local operands in the form that crosses the plugin ABI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/op_def.h"
#include "runtime/backend_abi.h"

namespace tessera {

// Borrows names and strings from `op` and `view`, which must outlive it; the table itself points into this
// object.
class KernelDescription {
 public:
  // `variant` empty: the backend's choice.
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

// Everything that an answer may depend on, as one byte string; equal for equal questions.
std::string question_key(const OpDef& op, const OpView& view);
// The same for files, on one line: "matmul f32[8, 64], f32[64, 32] -> f32[8, 32] #0123456789abcdef".
std::string question_text(const OpDef& op, const OpView& view);

}  // namespace tessera
