// sample: the tokens of one sequence are read in pieces by all threads (the largest logit, the weights); one thread
// then draws (graph/base/token_draw.h).
#include <algorithm>
#include <cmath>

#include "graph/base/token_draw.h"
#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

using sampling::Largest, sampling::Logits;

constexpr int64_t kPieceTokens = 8192;  // of a sequence, a task

}  // namespace

// logits [B, V], temperature, top_k, top_p, seed [], start, length [B] -> token [B].
Result<PreparedKernel> prepare_sample(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t B = spec.input_dims(0)[0], V = spec.input_dims(0)[1];
    const int64_t pieces = std::max<int64_t>(1, (V + kPieceTokens - 1) / kPieceTokens);
    const FactorIndex b_index(spec.factor('b'));
    auto launch = [=](const LaunchArgs& args) {
      const double temperature = double(*args.in<T>(1)), top_p = double(*args.in<T>(3));
      const int64_t top_k = *args.in<int32_t>(2);
      const uint64_t seed = static_cast<uint64_t>(*args.in<int64_t>(4));
      const int32_t *start = args.in<int32_t>(5), *length = args.in<int32_t>(6);
      int32_t* token = args.out<int32_t>(0);
      if (V == 0) {
        std::fill_n(token, B, 0);
        return;
      }
      double* weights = static_cast<double*>(args.workspace);              // [B, V]
      Largest* largest = reinterpret_cast<Largest*>(weights + B * V);      // [B, pieces]
      int32_t* orders = reinterpret_cast<int32_t*>(largest + B * pieces);  // [B, V]
      const auto logits_of = [&](int64_t b) { return Logits<T>{args.in<T>(0) + b * V, V}; };
      const auto for_pieces = [&](const auto& body) {  // body(b, piece, begin, end)
        args.pool.parallel_for(B * pieces, [&](int64_t task) {
          const int64_t begin = task % pieces * kPieceTokens;
          body(task / pieces, task, begin, std::min(V, begin + kPieceTokens));
        });
      };
      for_pieces([&](int64_t b, int64_t piece, int64_t begin, int64_t end) {
        largest[piece] = find_largest(logits_of(b), begin, end);
      });
      for (int64_t b = 0; b < B; ++b) {
        Largest& top = largest[b * pieces];
        for (int64_t piece = 1; piece < pieces; ++piece)
          if (largest[b * pieces + piece].logit > top.logit) top = largest[b * pieces + piece];
        token[b] = top.token;
      }
      if (!(temperature > 0)) return;
      const sampling::Choice options{temperature, top_k, top_p, 0};
      if (!options.is_cut(V))
        for_pieces([&](int64_t b, int64_t, int64_t begin, int64_t end) {
          const Logits<T> logits = logits_of(b);
          const double top = largest[b * pieces].logit;
          for (int64_t v = begin; v < end; ++v)
            weights[b * V + v] = sampling::weight_of(top - logits.logit(v), temperature);
        });
      args.pool.parallel_for(B, [&](int64_t b) {
        const uint64_t position = static_cast<uint64_t>(int64_t{start[b]} + length[b]);
        sampling::Choice choice = options;
        choice.uniform = sampling::draw_uniform(seed, position, static_cast<uint64_t>(b_index.to_global(b)));
        token[b] =
            sampling::draw_token(logits_of(b), largest[b * pieces], choice, weights + b * V, orders + b * V);
      });
    };
    return reference_kernel(
        spec, make_kernel(launch), 5.0 * double(B * V),
        B * V * int64_t{sizeof(double) + sizeof(int32_t)} + B * pieces * int64_t{sizeof(Largest)});
  });
}

}  // namespace tessera::cpu
