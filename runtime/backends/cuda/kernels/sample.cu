// sample: the next token of every sequence, drawn as the CPU backend draws it: the same random bits, weights
// in double, and the tokens in the same order. Many blocks read a row of logits, in four launches:
//   top      the largest logit of each part of a row
//   weigh    weights e^(-(top - x) / temperature). Drawing by token needs their sum for each part; drawing by
//            likelihood needs the number and sum of the tokens in each of 1024 bins by top - x. Sums are of
//            whole numbers, 2^-59 each, so that their order does not matter
//   gather   for a draw by likelihood, the tokens of the bins that may be kept, bin by bin
//   draw     a block a sequence: the limits of top_k and top_p and the draw fall into one bin each, whose few
//            tokens are sorted, or into one part
// The host does not know temperature, top_k and top_p: a launch that is not needed ends at once. A bin of
// more tokens than a block sorts (thousands within 1/32 of a logit) is searched three bits at a time.
#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/overlap.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/sampling.cuh"

namespace tessera::cuda {

using namespace sampling;

namespace {

// Finds the largest logit of the part. Also clears the bins of the row.
template <class T>
__global__ void __launch_bounds__(kThreads) top_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using W = Wide<T>;
  const Block team{static_cast<int>(threadIdx.x)};
  const PartOfRow<T> own(s);
  for (int64_t i = own.part * kThreads + team.rank; i < kBins; i += int64_t{s.parts} * kThreads)
    s.bins[own.b * kBins + i] = Bin{};
  W own_top = minus_infinity<W>();
  auto first = static_cast<int32_t>(own.part * kPart + team.rank);
  own.each(s, [&](int, int64_t at) {
    const W value = s.value(own.b, at);
    if (value > own_top) first = static_cast<int32_t>(at);
    own_top = Larger{}(own_top, value);
  });
  const W top = team.max(own_top);
  first = first_of(team, own_top == top ? first : INT32_MAX);
  if (team.rank != 0) return;
  s.top_of[blockIdx.x] = top;
  s.first_of[blockIdx.x] = first;
}

template <class T>
__global__ void __launch_bounds__(kThreads) weigh_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using W = Wide<T>;
  // Sums of 1024 numbers of 20 bits need 30 bits, so 32 suffice.
  constexpr uint32_t kLimb = (1u << 20) - 1;
  __shared__ uint32_t low[kBins], middle[kBins], high[kBins], count[kBins];
  const Block team{static_cast<int>(threadIdx.x)};
  const PartOfRow<T> own(s);
  const Choice<W> choice = s.choice(team, own.b);
  if (choice.greedy) return;
  if (!choice.by_likelihood) {
    double sum = 0;
    own.each(s, [&](int, int64_t at) { sum += choice.weight(s.value(own.b, at)); });
    sum = team.sum(sum);
    if (team.rank == 0) s.sum_of[blockIdx.x] = sum;
    return;
  }
  for (int bin = team.rank; bin < kBins; bin += kThreads) low[bin] = middle[bin] = high[bin] = count[bin] = 0;
  __syncthreads();
  own.each(s, [&](int, int64_t at) {
    const W value = s.value(own.b, at);
    const int32_t bin = choice.bin(value);
    const auto weight = static_cast<uint64_t>(choice.weight(value) * 0x1p59 + 0.5);
    atomicAdd(&count[bin], 1u);
    if (weight == 0) return;
    atomicAdd(&low[bin], static_cast<uint32_t>(weight) & kLimb);
    atomicAdd(&middle[bin], static_cast<uint32_t>(weight >> 20) & kLimb);
    atomicAdd(&high[bin], static_cast<uint32_t>(weight >> 40));
  });
  __syncthreads();
  for (int bin = team.rank; bin < kBins; bin += kThreads)
    if (count[bin] != 0) {
      Bin& sum = s.bins[own.b * kBins + bin];
      const unsigned long long below = (static_cast<unsigned long long>(middle[bin]) << 20) + low[bin];
      atomicAdd(&sum.count, static_cast<int32_t>(count[bin]));
      atomicAdd(&sum.high, (static_cast<unsigned long long>(high[bin]) << 10) + (below >> 30));
      atomicAdd(&sum.low, below & ((1ull << 30) - 1));
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads) gather_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using W = Wide<T>;
  __shared__ BinPrefix before;
  __shared__ int32_t count[kBins];  // tokens of this block, then where they begin
  const Block team{static_cast<int>(threadIdx.x)};
  const PartOfRow<T> own(s);
  const Choice<W> choice = s.choice(team, own.b);
  if (choice.greedy || !choice.by_likelihood) return;
  Bin* const bins = s.bins + own.b * kBins;
  before.add_up(team, bins);
  const int32_t last = before.last_kept(team, choice);
  for (int bin = team.rank; bin <= last; bin += kThreads) count[bin] = 0;
  __syncthreads();
  int32_t bin_of[kOwnTokens], rank[kOwnTokens];
  own.each(s, [&](int j, int64_t at) {
    bin_of[j] = choice.bin(s.value(own.b, at));
    if (bin_of[j] <= last) rank[j] = atomicAdd(&count[bin_of[j]], 1);
  });
  __syncthreads();
  for (int bin = team.rank; bin <= last; bin += kThreads)
    if (count[bin] != 0) count[bin] = before.count[bin] + atomicAdd(&bins[bin].gathered, count[bin]);
  __syncthreads();
  own.each(s, [&](int j, int64_t at) {
    if (bin_of[j] <= last)
      s.places[own.b * s.V + count[bin_of[j]] + rank[j]] = s.place(s.value(own.b, at), at);
  });
}

// Draws by token, from the sums of the parts.
template <class T>
__device__ int32_t draw_by_token(const Sample<T>& s, const Block& team, const Choice<Wide<T>>& choice,
                                 int64_t b, double uniform) {
  const double* sums = s.sum_of + b * s.parts;
  const int32_t each = (s.parts + kThreads - 1) / kThreads, begin = min(s.parts, team.rank * each);
  const int32_t end = min(s.parts, begin + each);
  double own = 0, total;
  for (int32_t part = begin; part < end; ++part) own += sums[part];
  double before = sum_before(team, own, total);
  double left = uniform * total, left_in_part = -1;
  int32_t found = INT32_MAX, any = -1;
  for (int32_t part = begin; part < end; ++part) {
    if (sums[part] > 0) any = part;
    if (found == INT32_MAX && before + sums[part] > left) {
      found = part;
      left_in_part = left - before;
    }
    before += sums[part];
  }
  int32_t part = first_of(team, found);
  // Rounding may leave a remainder: then the last part with any probability is drawn.
  left = part == INT32_MAX ? INFINITY : team.max(part == found ? left_in_part : -1.0);
  if (part == INT32_MAX) part = last_of(team, any);

  double weight[kOwnTokens];
  const int64_t first = int64_t{part} * kPart + team.rank * kOwnTokens;
  own = 0;
#pragma unroll
  for (int j = 0; j < kOwnTokens; ++j)
    own += weight[j] = first + j < s.V ? choice.weight(s.value(b, first + j)) : 0;
  before = sum_before(team, own, total);
  found = INT32_MAX;
  any = -1;
#pragma unroll
  for (int j = 0; j < kOwnTokens; ++j) {
    before += weight[j];
    if (weight[j] > 0) any = static_cast<int32_t>(first + j);
    if (found == INT32_MAX && weight[j] > 0 && before > left) found = static_cast<int32_t>(first + j);
  }
  found = first_of(team, found);
  return found == INT32_MAX ? last_of(team, any) : found;
}

template <class T>
__global__ void __launch_bounds__(kThreads) draw_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using Memory = typename LikelihoodDraw<T>::Memory;
  __shared__ Memory memory;
  const Block team{static_cast<int>(threadIdx.x)};
  const int64_t b = blockIdx.x;
  const Choice<Wide<T>> choice = s.choice(team, b);
  int32_t drawn = choice.likeliest;
  if (!choice.greedy) {
    const auto position = static_cast<uint64_t>(int64_t{s.start[b]} + s.length[b]);
    const PhiloxBits random =
        philox_bits(static_cast<uint64_t>(*s.seed), position, static_cast<uint64_t>(s.b_index.to_global(b)));
    const double uniform = uniform_from_bits(random.word[0], random.word[1]);
    if (choice.by_likelihood) {
      memory.before.add_up(team, s.bins + b * kBins);
      drawn = LikelihoodDraw<T>{s, team, choice, s.places + b * s.V, memory}.draw(uniform);
    } else {
      drawn = draw_by_token(s, team, choice, b, uniform);
    }
  }
  if (team.rank == 0) s.token[b] = drawn;
}

}  // namespace

// logits [B, V], temperature, top_k, top_p, seed [], start, length [B] -> token [B]
Result<PreparedKernel> prepare_sample(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    Sample<T> shape{};
    shape.B = spec.input_dims(0)[0];
    shape.V = spec.input_dims(0)[1];
    if (shape.V > INT32_MAX) return Status(StatusCode::kUnsupported, format("{} tokens", shape.V));
    shape.parts = shape.V == 0 ? 1 : static_cast<int32_t>((shape.V + kPart - 1) / kPart);
    shape.token_bits = 1;
    while (int64_t{1} << shape.token_bits < shape.V) ++shape.token_bits;
    shape.b_index = FactorIndex(spec.factor('b'));
    const auto launch = [shape](const LaunchArgs& args) {
      using W = Wide<T>;
      Sample<T> s = shape;
      if (s.B == 0) return;
      s.logits = args.in<T>(0);
      s.temperature = args.in<W>(1);
      s.top_k = args.in<int32_t>(2);
      s.top_p = args.in<W>(3);
      s.seed = args.in<int64_t>(4);
      s.start = args.in<int32_t>(5);
      s.length = args.in<int32_t>(6);
      s.token = args.out<int32_t>(0);
      s.lay_out(args.workspace);
      const auto all_parts = static_cast<unsigned>(s.B * s.parts);
      launch_overlapping(top_kernel<T>, all_parts, kThreads, 0, args, s);
      launch_overlapping(weigh_kernel<T>, all_parts, kThreads, 0, args, s);
      launch_overlapping(gather_kernel<T>, all_parts, kThreads, 0, args, s);
      launch_overlapping(draw_kernel<T>, static_cast<unsigned>(s.B), kThreads, 0, args, s);
    };
    return memory_bound(spec, make_kernel(launch), Sample<T>::workspace_bytes(shape.B, shape.V, shape.parts));
  });
}

}  // namespace tessera::cuda
