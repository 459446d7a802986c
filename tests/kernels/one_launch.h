// One launch of a fast kernel by itself, and numbers for it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "graph/base/dtype.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "tests/kernels/kernel_host.h"

namespace tessera::cpu {

inline uint32_t next(uint32_t& seed) { return seed = seed * 1664525u + 1013904223u; }

inline std::vector<float> spread(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(next(seed) >> 8) / 8388608.0f - 1.0f;
  return values;
}

inline tsr_abi_tensor tensor(DType dtype, std::vector<int64_t> dims) {
  tsr_abi_tensor made = {};
  made.dtype = static_cast<int32_t>(dtype);
  made.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), made.dims);
  return made;
}

inline std::vector<tsr_abi_attr> attention_attrs(int64_t window, int64_t value_width = 0) {
  std::vector<tsr_abi_attr> attrs(4);
  attrs[0].name = "scale";
  attrs[1].name = "softcap";
  attrs[0].type = attrs[1].type = 1;
  attrs[2].name = "window";
  attrs[2].i64 = window;
  attrs[3].name = "value_width";
  attrs[3].i64 = value_width;
  return attrs;
}

struct Launched {
  const char* op;
  PrepareFn prepare;
  std::vector<tsr_abi_tensor> in;
  tsr_abi_tensor out;
  std::vector<tsr_abi_attr> attrs = {};
  std::vector<tsr_abi_factor> factors = {};
};

// Its workspace holds no numbers before.
inline void launch(const Launched& it, const std::vector<const void*>& inputs, void* output, int threads) {
  tsr_abi_kernel_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.op = it.op;
  desc.op_version = 1;
  desc.attr_count = static_cast<int32_t>(it.attrs.size());
  desc.attrs = it.attrs.data();
  desc.input_count = static_cast<int32_t>(it.in.size());
  desc.inputs = it.in.data();
  desc.output_count = 1;
  desc.outputs = &it.out;
  desc.factor_count = static_cast<int32_t>(it.factors.size());
  desc.factors = it.factors.data();
  auto prepared = it.prepare(KernelSpec(desc));
  REQUIRE_MESSAGE(prepared.ok(), prepared.status().to_string());
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(64, static_cast<size_t>(prepared->workspace_bytes + 63) / 64 * 64), &std::free);
  std::memset(workspace.get(), 0xff, static_cast<size_t>(prepared->workspace_bytes));
  const tsr_host_api host = host_with_threads(threads);
  prepared->kernel->launch(LaunchArgs{inputs.data(), &output, workspace.get(), Pool(host)});
}

}  // namespace tessera::cpu
