// Rows of logits as sampling's launches see them (sample.cu): operands, workspace, and the part of a row that
// a block reads.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/sampling_bins.cuh"
#include "runtime/backends/cuda/kernels/sampling_block.cuh"
#include "runtime/backends/cuda/kernels/sampling_choice.cuh"

namespace tessera::cuda::sampling {

// Bits that order as the values do, and back.
template <class W>
using BitsOf = std::conditional_t<sizeof(W) == 8, uint64_t, uint32_t>;
template <class W>
constexpr BitsOf<W> kSignBit = BitsOf<W>{1} << (sizeof(W) * 8 - 1);
template <class W>
__device__ BitsOf<W> order_bits(W x) {
  BitsOf<W> bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & kSignBit<W>) != 0 ? ~bits : bits | kSignBit<W>;
}
template <class W>
__device__ W from_order_bits(BitsOf<W> bits) {
  bits = (bits & kSignBit<W>) != 0 ? bits ^ kSignBit<W> : ~bits;
  W x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// A place in the order: likelier tokens higher, of equals the lower token.
template <class W>
struct PlaceOf {
  using type = uint64_t;
};
template <>
struct PlaceOf<double> {
  using type = unsigned __int128;
};

template <class T>
struct Sample {
  using W = Wide<T>;
  using Place = typename PlaceOf<W>::type;
  static constexpr int kValueBits = static_cast<int>(sizeof(W)) * 8;

  const T* logits;
  const W *temperature, *top_p;
  const int32_t* top_k;
  const int64_t* seed;
  const int32_t *start, *length;
  int32_t* token;
  int64_t B, V;
  int32_t parts;  // of a row
  int token_bits;
  FactorIndex b_index;
  // In the workspace.
  Place* places;      // [B, V], gathered
  Bin* bins;          // [B, kBins]
  double* sum_of;     // [B, parts]
  W* top_of;          // [B, parts]
  int32_t* first_of;  // [B, parts], the token that has it

  static int64_t workspace_bytes(int64_t B, int64_t V, int64_t parts) {
    return B * (V * static_cast<int64_t>(sizeof(Place)) + kBins * static_cast<int64_t>(sizeof(Bin)) +
                parts * static_cast<int64_t>(sizeof(double) + sizeof(W) + sizeof(int32_t)));
  }
  void lay_out(void* workspace) {
    places = static_cast<Place*>(workspace);
    bins = reinterpret_cast<Bin*>(places + B * V);
    sum_of = reinterpret_cast<double*>(bins + B * kBins);
    top_of = reinterpret_cast<W*>(sum_of + B * parts);
    first_of = reinterpret_cast<int32_t*>(top_of + B * parts);
  }

  // NaN counts as never chosen. + 0: the two zeros are one value.
  __device__ W value(int64_t b, int64_t at) const {
    const W value = widen(logits[b * V + at]);
    return value != value ? minus_infinity<W>() : value + W(0);
  }
  __device__ Place place(W value, int64_t at) const {
    return static_cast<Place>(order_bits(value)) << token_bits | static_cast<Place>(V - 1 - at);
  }
  __device__ W value_at(Place place) const {
    return from_order_bits<W>(static_cast<BitsOf<W>>(place >> token_bits));
  }
  __device__ int32_t token_at(Place place) const {
    return static_cast<int32_t>(V - 1 - static_cast<int64_t>(place & ((Place{1} << token_bits) - 1)));
  }

  // From what all parts of the row have found.
  __device__ Choice<W> choice(const Block& team, int64_t b) const {
    Choice<W> choice;
    choice.temperature = *temperature;
    choice.top_p = *top_p;
    choice.top_k = *top_k;
    W own = minus_infinity<W>();
    int32_t first = INT32_MAX;
#pragma unroll 1
    for (int64_t part = b * parts + team.rank; part < (b + 1) * parts; part += kThreads)
      if (const W top = top_of[part]; first == INT32_MAX || top > own) {
        own = top;
        first = first_of[part];
      }
    choice.top = team.max(own);
    choice.likeliest = sampling::first_of(team, own == choice.top ? first : INT32_MAX);
    choice.cut = choice.top_k > 0 && choice.top_k < V;
    choice.greedy = !(choice.temperature > 0) || isinf(choice.top);
    choice.by_likelihood = choice.cut || choice.top_p < 1;
    return choice;
  }
};

// The row and the part of it that a block reads.
template <class T>
struct PartOfRow {
  int64_t b, part;
  __device__ explicit PartOfRow(const Sample<T>& s)
      : b(blockIdx.x / static_cast<unsigned>(s.parts)), part(blockIdx.x % static_cast<unsigned>(s.parts)) {}
  // f(j, token) for the tokens of this thread.
  template <class F>
  __device__ void each(const Sample<T>& s, F f) const {
#pragma unroll
    for (int j = 0; j < kOwnTokens; ++j) {
      const int64_t at = part * kPart + j * kThreads + threadIdx.x;
      if (at < s.V) f(j, at);
    }
  }
};

}  // namespace tessera::cuda::sampling
