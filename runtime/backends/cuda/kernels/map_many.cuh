// An element-wise function on many tensors in one launch, for optimizers: most parameters of a model are too
// small to fill a GPU, or even to pay for a launch. The tensors' addresses are the kernel's parameters:
// nothing is copied to the device before it, and a captured graph holds them.
#pragma once

#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/operand_ranges.h"

namespace tessera::cuda {

// Parameters of a kernel may have 32764 bytes in all on sm_70 and later (CUDA 12.1).
inline constexpr int kFewTensors = 48, kManyTensors = 400, kTableBytes = 32000;

// `Own` holds the function's data for one tensor, in addition to its operands.
template <int kIn, int kOut, class Own, int kMost>
struct MapTable {
  MapOperands<kIn, kOut> operands[kMost];
  int64_t count[kMost];
  Own own[kMost];
  int32_t first_chunk[kMost + 1];  // chunks number through the tensors in order; [tensors] is the total
  int32_t tensors;
  bool packed[kMost];
};

inline constexpr int64_t kMapChunk = 8192;  // elements; a multiple of every pack

// A block takes every gridDim.x-th chunk. The same function on the same elements as map_kernel.
template <class F, class T, int kIn, int kWideIn, int kOut, int kWideOut, int kMost>
__global__ void __launch_bounds__(256) map_many_kernel(
    F f, const __grid_constant__ MapTable<kIn + kWideIn, kOut + kWideOut, typename F::Own, kMost> table) {
  constexpr int kVec = 16 / sizeof(T);
  f.begin();
  const int32_t chunks = table.first_chunk[table.tensors];
  for (int32_t chunk = static_cast<int32_t>(blockIdx.x); chunk < chunks;
       chunk += static_cast<int32_t>(gridDim.x)) {
    int low = 0, high = table.tensors;  // first_chunk[low] <= chunk < first_chunk[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (table.first_chunk[middle] <= chunk ? low : high) = middle;
    }
    f.take(table.own[low]);
    const int64_t begin = (chunk - table.first_chunk[low]) * kMapChunk;
    const int64_t left = table.count[low] - begin, end = begin + (left < kMapChunk ? left : kMapChunk);
    int64_t single = begin;
    if (table.packed[low]) {
      single = end / kVec * kVec;
      map_packs<F, T, kIn, kWideIn, kOut, kWideOut, kVec>(f, table.operands[low], begin / kVec + threadIdx.x,
                                                          end / kVec, blockDim.x);
    }
    map_singles<F, T, kIn, kWideIn, kOut, kWideOut>(f, table.operands[low], single + threadIdx.x, end,
                                                    blockDim.x);
  }
}

// A kernel of one tensor that joins launches of the same function on others. In addition to a map's functor,
// F has `void bind(const LaunchArgs&)`, which takes what all elements of all tensors share, and compares; and
// `void take(const Own&)`, which takes the tensor's own data, and does not compare.
template <class T, int kIn, int kOut, int kWideIn, int kWideOut, class F>
class MapOfMany final : public Kernel {
 public:
  using Operands = MapOperands<kIn + kWideIn, kOut + kWideOut>;
  using Own = typename F::Own;
  MapOfMany(int64_t count, const F& f, const Own& own = {}) : count_(count), f_(f), own_(own) {}

  Status launch(const LaunchArgs& args) const override {
    F f = bound(args);
    f.take(own_);
    launch_map<T, kIn, kOut, kWideIn, kWideOut>(args.stream, count_, f, operands(args));
    return {};
  }
  bool fuses() const override { return true; }
  double launch_share() const override { return kShareOfMany; }
  Fused fuse(std::span<const ComingLaunch> coming) const override {
    OperandRanges before;
    const F f = bound(coming[0].args);
    size_t members = 0;
    for (; members < coming.size() && members < kMany; ++members) {
      const auto* kernel = dynamic_cast<const MapOfMany*>(coming[members].kernel);
      if (kernel == nullptr || !(kernel->bound(coming[members].args) == f)) break;
      const std::vector<OperandRange> ranges = kernel->ranges(coming[members].args);
      bool depends = false;
      for (const OperandRange& range : ranges) depends |= before.depends(range);
      if (depends) break;
      for (const OperandRange& range : ranges) before.add(range);
    }
    if (members < 2) return {};
    const auto taken = coming.first(members);
    return {members <= kFewTensors ? many<kFewTensors>(f, taken) : many<kMany>(f, taken),
            static_cast<int32_t>(members)};
  }

 private:
  static constexpr int kTensorBytes =
      static_cast<int>(sizeof(Operands) + sizeof(int64_t) + sizeof(Own) + sizeof(int32_t) + sizeof(bool));
  static constexpr int kFit = (kTableBytes - static_cast<int>(sizeof(F)) - 64) / kTensorBytes;
  static constexpr int kMany = kFit < kManyTensors ? kFit : kManyTensors;

  F bound(const LaunchArgs& args) const {
    F f = f_;
    f.bind(args);
    return f;
  }
  static Operands operands(const LaunchArgs& args) {
    Operands operands;
    for (int i = 0; i < kIn + kWideIn; ++i) operands.in[i] = args.inputs[i];
    for (int o = 0; o < kOut + kWideOut; ++o) operands.out[o] = args.outputs[o];
    return operands;
  }
  std::vector<OperandRange> ranges(const LaunchArgs& args) const {
    const auto bytes = [&](bool wide) {
      return count_ * static_cast<int64_t>(wide ? sizeof(Wide<T>) : sizeof(T));
    };
    std::vector<OperandRange> ranges;
    for (int i = 0; i < kIn + kWideIn; ++i)
      ranges.push_back(OperandRange{args.inputs[i], bytes(i >= kIn), false});
    for (int o = 0; o < kOut + kWideOut; ++o)
      ranges.push_back(OperandRange{args.outputs[o], bytes(o >= kOut), true});
    return ranges;
  }

  template <int kMost>
  static std::unique_ptr<Kernel> many(const F& f, std::span<const ComingLaunch> members) {
    using Table = MapTable<kIn + kWideIn, kOut + kWideOut, Own, kMost>;
    static_assert(sizeof(Table) + sizeof(F) <= kTableBytes);
    auto table = std::make_shared<Table>();
    for (const ComingLaunch& member : members) {
      const auto& kernel = static_cast<const MapOfMany&>(*member.kernel);
      const int64_t count = kernel.count_;
      const int at = table->tensors++;
      table->operands[at] = operands(member.args);
      table->count[at] = count;
      table->own[at] = kernel.own_;
      table->packed[at] = table->operands[at].are_aligned();
      table->first_chunk[at + 1] =
          table->first_chunk[at] + static_cast<int32_t>((count + kMapChunk - 1) / kMapChunk);
    }
    return make_kernel([f, table](const LaunchArgs& args) {
      const int chunks = table->first_chunk[table->tensors];
      if (chunks == 0) return;
      map_many_kernel<F, T, kIn, kWideIn, kOut, kWideOut, kMost>
          <<<grid_for(chunks, 1), 256, 0, args.stream>>>(f, *table);
    });
  }

  int64_t count_;
  F f_;
  Own own_;
};

}  // namespace tessera::cuda
