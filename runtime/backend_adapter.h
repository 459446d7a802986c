// KernelSpec: a read-only C++ view of the kernel description that crosses the ABI, for backends. Header-only,
// includes only graph/base, so that a plugin links nothing of libtessera.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "graph/base/text.h"
#include "runtime/backend_abi.h"

namespace tessera {

// Borrowed for the duration of a prepare or query.
class KernelSpec {
 public:
  explicit KernelSpec(const tsr_abi_kernel_desc& desc) : desc_(desc) {}

  std::string_view variant() const {
    return desc_.variant == nullptr ? "" : desc_.variant;
  }  // asked for by name

  std::string_view op() const { return desc_.op; }
  int input_count() const { return desc_.input_count; }
  int output_count() const { return desc_.output_count; }
  const tsr_abi_tensor& input(int i) const { return desc_.inputs[i]; }
  const tsr_abi_tensor& output(int i) const { return desc_.outputs[i]; }
  DType input_dtype(int i) const { return static_cast<DType>(input(i).dtype); }
  DType output_dtype(int i) const { return static_cast<DType>(output(i).dtype); }
  std::span<const int64_t> input_dims(int i) const { return dims(input(i)); }
  std::span<const int64_t> output_dims(int i) const { return dims(output(i)); }
  int64_t input_elements(int i) const { return elements(input(i)); }
  int64_t output_elements(int i) const { return elements(output(i)); }

  // Attributes are complete and typed (by Graph::add_node); a missing one is a bug and throws.
  int64_t i64(std::string_view name) const { return attr(name).i64; }
  double f64(std::string_view name) const { return attr(name).f64; }
  std::string_view string(std::string_view name) const { return attr(name).string; }
  std::span<const int64_t> ints(std::string_view name) const {
    const tsr_abi_attr& a = attr(name);
    return {a.ints, static_cast<size_t>(a.count)};
  }

  // The shard's view of the factor. Null when the op has no such factor.
  const tsr_abi_factor* find_factor(char name) const {
    for (int i = 0; i < desc_.factor_count; ++i)
      if (desc_.factors[i].name == name) return &desc_.factors[i];
    return nullptr;
  }
  const tsr_abi_factor& factor(char name) const {
    const tsr_abi_factor* found = find_factor(name);
    TSR_CHECK(found != nullptr, "factor is missing from the kernel description");
    return *found;
  }
  const tsr_abi_kernel_desc& desc() const { return desc_; }

  static int64_t elements(const tsr_abi_tensor& t) {
    int64_t n = 1;
    for (int i = 0; i < t.rank; ++i) n *= t.dims[i];
    return n;
  }
  static std::span<const int64_t> dims(const tsr_abi_tensor& t) { return {t.dims, static_cast<size_t>(t.rank)}; }

 private:
  const tsr_abi_attr& attr(std::string_view name) const {
    for (int i = 0; i < desc_.attr_count; ++i)
      if (name == desc_.attrs[i].name) return desc_.attrs[i];
    throw InternalError(__FILE__, __LINE__, format("attribute '{}' is missing", name));
  }
  const tsr_abi_kernel_desc& desc_;
};

}  // namespace tessera
