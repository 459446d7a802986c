// AdamW with moments in 8 bits (graph/ops/adamw8.cc): a warp a block of moments.
#include "graph/base/dynamic_map.h"
#include "runtime/backends/cuda/kernels/optimizer_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/stochastic_rounding.cuh"

namespace tessera::cuda {

namespace {

struct Adamw8Maps {
  float first[256], second[256];
};

// The place in `values` of the number nearest to `value`, as DynamicMap has it.
__device__ unsigned char nearest_code(const float* values, float value) {
  int low = 0, high = 255;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (values[middle] <= value ? low : high) = middle;
  }
  return static_cast<unsigned char>(value - values[low] <= values[high] - value ? low : high);
}

// P: the parameter's type, T: the gradient's. The maps are the kernel's parameters.
template <class P, class T, class Rounding>
struct Adamw8 {
  using W = Wide<T>;
  static constexpr int kEach = 8;  // moments a lane: blocks have at most 256
  const P* p;
  const T* g;
  const unsigned char *m, *v;
  const W *m_absmax, *v_absmax, *lr, *step, *gscale;
  P* p_out;
  unsigned char *m_out, *v_out;
  W *m_absmax_out, *v_absmax_out;
  int64_t width;
  double planned_beta1, planned_beta2;
  W planned_eps, planned_decay, lr_scale;
  const double *beta1_at, *beta2_at, *eps_at, *decay_at;  // of the step; null: the planned ones
  Adamw8Maps maps;
  mutable Rounding rounding;

  template <class Team>
  __device__ void operator()(const Team& team, int64_t block) const {
    const W scale = *gscale;
    const int64_t at = block * width;
    const W m_most = m_absmax[block], v_most = v_absmax[block];
    if (scale == W(0)) {
      team.each(width, [&](int64_t i) {
        p_out[at + i] = p[at + i];
        m_out[at + i] = m[at + i];
        v_out[at + i] = v[at + i];
      });
      (void)team.max(m_most);  // all have read it
      if (team.rank == 0) {
        m_absmax_out[block] = m_most;
        v_absmax_out[block] = v_most;
      }
      return;
    }
    rounding.begin();
    const double beta1_f64 = beta1_at != nullptr ? *beta1_at : planned_beta1;
    const double beta2_f64 = beta2_at != nullptr ? *beta2_at : planned_beta2;
    const W eps = eps_at != nullptr ? static_cast<W>(*eps_at) : planned_eps;
    const W weight_decay = decay_at != nullptr ? static_cast<W>(*decay_at) : planned_decay;
    const W beta1 = W(beta1_f64), beta2 = W(beta2_f64), rate = *lr * lr_scale;
    const W m_unbias = static_cast<W>(1 / (1 - pow(beta1_f64, static_cast<double>(*step))));
    const W v_unbias = static_cast<W>(1 / (1 - pow(beta2_f64, static_cast<double>(*step))));
    W new_m[kEach], new_v[kEach], m_max = 0, v_max = 0;
    int count = 0;
    team.each(width, [&](int64_t i) {
      const W gradient = scale * widen(g[at + i]), value = widen(p[at + i]);
      const W mean = beta1 * m_most * W(maps.first[m[at + i]]) + W(1 - beta1_f64) * gradient;
      const W square = beta2 * v_most * W(maps.second[v[at + i]]) + W(1 - beta2_f64) * gradient * gradient;
      const W direction = mean * m_unbias / (sqrt(square * v_unbias) + eps) + weight_decay * value;
      p_out[at + i] = narrow<P>(rounding(at + i, value - rate * direction));
      m_max = Larger{}(m_max, mean < W(0) ? -mean : mean);
      v_max = Larger{}(v_max, square);
      new_m[count] = mean;
      new_v[count++] = square;
    });
    m_max = team.max(m_max);
    v_max = team.max(v_max);
    count = 0;
    team.each(width, [&](int64_t i) {
      m_out[at + i] = nearest_code(maps.first, m_max > W(0) ? static_cast<float>(new_m[count] / m_max) : 0.0f);
      v_out[at + i] =
          nearest_code(maps.second, v_max > W(0) ? static_cast<float>(new_v[count] / v_max) : 0.0f);
      ++count;
    });
    if (team.rank == 0) {
      m_absmax_out[block] = m_max;
      v_absmax_out[block] = v_max;
    }
  }
};

template <class P, class T, class Rounding>
Result<PreparedKernel> adamw8_update(const KernelSpec& spec, const Rounding& rounding) {
  using F = Adamw8<P, T, Rounding>;
  using W = Wide<T>;
  const int64_t blocks = spec.output_elements(3);
  const int64_t width = blocks == 0 ? 0 : spec.output_elements(0) / blocks;
  if (width > 32 * F::kEach)
    return Status(StatusCode::kUnsupported,
                  format("blocks of {} elements: wanted at most {}", width, 32 * F::kEach));
  Adamw8Maps maps;
  const DynamicMap first(true), second(false);
  for (int i = 0; i < 256; ++i) {
    maps.first[i] = first.value(static_cast<uint8_t>(i));
    maps.second[i] = second.value(static_cast<uint8_t>(i));
  }
  const double beta1 = spec.f64("beta1"), beta2 = spec.f64("beta2");
  const W eps = W(spec.f64("eps")), weight_decay = W(spec.f64("weight_decay"));
  const W lr_scale = W(spec.f64("lr_scale"));
  constexpr int kFirst = 9, kSettings = 4;
  const bool by_step = spec.input_count() >= kFirst + kSettings;
  const bool decays_by_step = by_step && spec.i64("fixed_decay") == 0;
  return memory_bound(
      spec, make_kernel([=](const LaunchArgs& args) {
        Rounding mine = rounding;
        if constexpr (Rounding::kHasSeed) mine.bind(args.inputs[kFirst + (by_step ? kSettings : 0)]);
        const auto setting = [&](int i, bool given) { return given ? args.in<double>(kFirst + i) : nullptr; };
        launch_teams<32>(
            args.stream, blocks,
            F{args.in<P>(0), args.in<T>(1), args.in<unsigned char>(2), args.in<unsigned char>(3),
              args.in<W>(4), args.in<W>(5), args.in<W>(6), args.in<W>(7), args.in<W>(8), args.out<P>(0),
              args.out<unsigned char>(1), args.out<unsigned char>(2), args.out<W>(3), args.out<W>(4), width,
              beta1, beta2, eps, weight_decay, lr_scale, setting(0, by_step), setting(1, by_step),
              setting(2, by_step), setting(3, decays_by_step), maps, mine});
      }));
}

}  // namespace

// p, g, m, v, ma, va, lr, step, gscale, (settings) -> p, m, v, ma, va
Result<PreparedKernel> prepare_adamw8_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return adamw8_update<T, T>(spec, NearestRounding{});
  });
}

// p bf16, g, m, v, ma, va, lr, step, gscale, (settings), seed -> p, m, v, ma, va
Result<PreparedKernel> prepare_adamw8_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticRounding rounding, stochastic_rounding(spec));
  return adamw8_update<__nv_bfloat16, float>(spec, rounding);
}

}  // namespace tessera::cuda
