// Kernels of another backend through the plugin ABI, in the op conformance suite: TESSERA_TEST_BACKEND=cuda
// puts a row named after the backend before the CPU's kernels of every op. TESSERA_PLUGIN_PATH is the folder
// of the plugin; without it, the build's. TESSERA_TEST_VARIANT=mma tests that variant where there is one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "runtime/backend_abi.h"

namespace tessera::conformance {

// The name in TESSERA_TEST_BACKEND, or empty: the CPU's kernels alone.
std::string_view foreign_backend_name();

// Whether that backend has kernels for elements of the type at all: a build may leave some out
// (TSR_FEW_TYPES).
bool foreign_backend_has(DType dtype);

// The kernel that the backend, or else the CPU's, picks for a description, or the variant asked for, on its first
// device.
class ForeignKernel {
 public:
  static Result<std::shared_ptr<const ForeignKernel>> prepare(const tsr_abi_kernel_desc& desc);
  ~ForeignKernel();
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // A range of host memory that stands for one of the device's: copied there, and back when the kernel is
  // done. Operands, results and workspace lie in such ranges, which begin at multiples of 64.
  struct Block {
    std::byte* begin;
    size_t bytes;
  };
  Status run(std::span<const Block> blocks, std::span<const void* const> inputs,
             std::span<void* const> outputs, void* workspace) const;

 private:
  ForeignKernel() = default;
  tsr_abi_kernel* kernel_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::conformance
