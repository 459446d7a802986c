#include <cstddef>
#include <cstring>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kPart = 1 << 18;  // bytes of a task

// States of `count` slots, moved as bytes.
struct Slots {
  int64_t count, bytes;  // bytes of one

  explicit Slots(const KernelSpec& spec) : count(spec.input_dims(0)[0]) {
    int64_t elements = 1;
    const auto dims = spec.input_dims(0);
    for (size_t i = 1; i < dims.size(); ++i) elements *= dims[i];
    bytes = dtype_bytes(spec.input_dtype(0), elements);
  }
};

PreparedKernel moves_one(const KernelSpec& spec, const Slots& slots, std::unique_ptr<Kernel> kernel) {
  PreparedKernel prepared = reference_kernel(spec, std::move(kernel), 0);
  prepared.bytes = 2 * static_cast<double>(slots.bytes);
  return prepared;
}

}  // namespace

// state [S, ...], slot [] -> [1, ...]. `slot` is untrusted: one that is not there gives 0.
Result<PreparedKernel> prepare_take_slot(const KernelSpec& spec) {
  const Slots slots(spec);
  return moves_one(spec, slots, make_kernel([=](const LaunchArgs& args) {
                     const int64_t slot = *args.in<int32_t>(1);
                     const bool is_there = slot >= 0 && slot < slots.count;
                     args.pool.parallel_ranges(slots.bytes, kPart, [&](int64_t begin, int64_t end) {
                       std::byte* const to = args.out<std::byte>(0) + begin;
                       const auto size = static_cast<size_t>(end - begin);
                       if (is_there)
                         std::memcpy(to, args.in<std::byte>(0) + slot * slots.bytes + begin, size);
                       else
                         std::memset(to, 0, size);
                     });
                   }));
}

// state [S, ...], value [1, ...], slot [] -> state. `slot` is untrusted: one that is not there changes nothing.
Result<PreparedKernel> prepare_put_slot(const KernelSpec& spec) {
  const Slots slots(spec);
  return moves_one(spec, slots, make_kernel([=](const LaunchArgs& args) {
                     const auto* const state = args.in<std::byte>(0);
                     auto* const out = args.out<std::byte>(0);
                     const int64_t slot = *args.in<int32_t>(2), all = slots.count * slots.bytes;
                     if (out != state && all > 0) std::memcpy(out, state, static_cast<size_t>(all));
                     if (slot < 0 || slot >= slots.count) return;
                     args.pool.parallel_ranges(slots.bytes, kPart, [&](int64_t begin, int64_t end) {
                       std::memcpy(out + slot * slots.bytes + begin, args.in<std::byte>(1) + begin,
                                   static_cast<size_t>(end - begin));
                     });
                   }));
}

}  // namespace tessera::cpu
