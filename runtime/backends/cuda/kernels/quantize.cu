#include "runtime/backends/cuda/kernels/fp8.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr int64_t kChunk = 16384;  // elements of a partial maximum; a multiple of every pack

// fp8_scale (graph/base/fp8.h) of the largest magnitude, NaN if that is NaN.
struct ScaleOf {
  double largest_fraction;  // of the format's largest number
  int largest_exponent;
  template <class W>
  __device__ W operator()(W amax) const {
    if (!(amax <= std::numeric_limits<W>::max())) return static_cast<W>(INFINITY);
    if (amax == 0) return static_cast<W>(ldexp(1.0, -126));
    int exponent = 0;
    const double fraction = frexp(static_cast<double>(amax), &exponent);
    const int power = exponent - largest_exponent + (fraction > largest_fraction ? 1 : 0);
    return static_cast<W>(ldexp(1.0, power < -126 ? -126 : power > 126 ? 126 : power));
  }
};

// Finds the largest magnitude of a chunk, kVec elements at a time; stores the scale if there is only one
// chunk.
template <class T, int kVec>
struct ChunkLargest {
  const T* x;
  Wide<T>* out;
  int64_t count;
  bool is_all;
  ScaleOf scale_of;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t chunk) const {
    const int64_t begin = chunk * kChunk, left = count - begin, length = left < kChunk ? left : kChunk;
    const int64_t packed = length / kVec * kVec;
    Wide<T> amax = 0;
    const auto take = [&](Wide<T> value) { amax = Larger{}(amax, value < 0 ? -value : value); };
    team.template packs<kVec>(packed, [&](int64_t i) {
      Wide<T> values[kVec];
      load_pack(x + begin + i, values);
#pragma unroll
      for (int v = 0; v < kVec; ++v) take(values[v]);
    });
    team.each(length - packed, [&](int64_t i) { take(widen(x[begin + packed + i])); });
    amax = team.max(amax);
    if (team.rank == 0) out[chunk] = is_all ? scale_of(amax) : amax;
  }
};

template <class W>
struct LargestOfChunks {
  const W* partial;
  W* out;
  int64_t chunks;
  ScaleOf scale_of;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t) const {
    W amax = 0;
    team.each(chunks, [&](int64_t i) { amax = Larger{}(amax, partial[i]); });
    amax = team.max(amax);
    if (team.rank == 0) *out = scale_of(amax);
  }
};

// Codes 16 i to 16 i + 15. The scale is a power of two, so multiplying by its inverse rounds nothing.
template <class T>
struct Quantize {
  static constexpr int kCodes = 16;
  const T* x;
  const Wide<T>* scale;
  uint8_t* codes;
  int64_t count;
  __nv_fp8_interpretation_t format;
  bool aligned;
  __device__ void operator()(int64_t i) const {
    const Wide<T> inverse = 1 / *scale;
    const int64_t begin = i * kCodes;
    if (!aligned || begin + kCodes > count) {
      for (int64_t at = begin; at < count && at < begin + kCodes; ++at)
        codes[at] = fp8_code(widen(x[at]) * inverse, format);
      return;
    }
    constexpr int kVec = 16 / static_cast<int>(sizeof(T));
    Pack<uint8_t, kCodes> made;
#pragma unroll
    for (int first = 0; first < kCodes; first += kVec) {
      Wide<T> values[kVec];
      load_pack(x + begin + first, values);
#pragma unroll
      for (int v = 0; v < kVec; ++v) made.value[first + v] = fp8_code(values[v] * inverse, format);
    }
    store_whole(reinterpret_cast<Pack<uint8_t, kCodes>*>(codes + begin), made);
  }
};

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

Result<PreparedKernel> prepare_quantize_scale(const KernelSpec& spec) {
  const Fp8Format& format = fp8_format(*dtype_from_name(spec.string("dtype")));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    constexpr int kVec = 16 / static_cast<int>(sizeof(T));
    const int64_t count = spec.input_elements(0), chunks = count == 0 ? 1 : (count + kChunk - 1) / kChunk;
    ScaleOf scale_of{};
    scale_of.largest_fraction = std::frexp(format.largest_value, &scale_of.largest_exponent);
    const int64_t workspace = chunks == 1 ? 0 : chunks * static_cast<int64_t>(sizeof(W));
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          const T* x = args.in<T>(0);
          W* out = args.out<W>(0);
          W* partial = chunks == 1 ? out : static_cast<W*>(args.workspace);
          if (is_aligned(x))
            launch_rows(args.stream, chunks, kChunk / kVec,
                        ChunkLargest<T, kVec>{x, partial, count, chunks == 1, scale_of});
          else
            launch_rows(args.stream, chunks, kChunk / 2,
                        ChunkLargest<T, 1>{x, partial, count, chunks == 1, scale_of});
          if (chunks > 1)
            launch_rows(args.stream, 1, chunks, LargestOfChunks<W>{partial, out, chunks, scale_of});
        }),
        workspace);
  });
}

Result<PreparedKernel> prepare_quantize(const KernelSpec& spec) {
  const __nv_fp8_interpretation_t format = fp8_interpretation(spec.output_dtype(0));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          const T* x = args.in<T>(0);
                          auto* codes = args.out<uint8_t>(0);
                          launch_each(args.stream, (count + Quantize<T>::kCodes - 1) / Quantize<T>::kCodes,
                                      Quantize<T>{x, args.in<Wide<T>>(1), codes, count, format,
                                                  is_aligned(x) && is_aligned(codes)});
                        }));
  });
}

}  // namespace tessera::cuda
