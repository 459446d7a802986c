// AdamW with moments in 8 bits (graph/ops/adamw8.cc), computed in double, a block at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/base/dynamic_map.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/optimizer_kernels.h"
#include "runtime/backends/cpu/kernels/step_setting.h"
#include "runtime/backends/cpu/kernels/stochastic_rounding.h"

namespace tessera::cpu {

namespace {

// The new codes of a block of `count` moments, and their largest absolute value.
template <class T>
void encode(const DynamicMap& map, const double* values, int64_t count, uint8_t* codes, T* absmax) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
  *absmax = static_cast<T>(most);
  for (int64_t i = 0; i < count; ++i)
    codes[i] = map.code(most > 0 ? static_cast<float>(values[i] / most) : 0.0f);
}

template <class T, class Rounding>
PreparedKernel adamw8_update(const KernelSpec& spec, const Rounding& rounding) {
  using P = typename Rounding::Element;
  constexpr int64_t kMostBlock = 256;
  const int64_t count = spec.output_elements(0), blocks = spec.output_elements(3);
  const int64_t width = blocks == 0 ? 0 : count / blocks;
  const auto settings = step_settings<4>(spec, 9, {"beta1", "beta2", "eps", "weight_decay"});
  const double lr_scale = spec.f64("lr_scale");
  const DynamicMap first(true), second(false);
  return reference_kernel(
      spec, 60 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T* g_in = args.in<T>(1);
        P* p_out = args.out<P>(0);
        const double lr = lr_scale * static_cast<double>(*args.in<T>(6));
        const double step = static_cast<double>(*args.in<T>(7));
        const double gscale = static_cast<double>(*args.in<T>(8));
        if (gscale == 0) {
          const size_t sizes[] = {sizeof(P), 1, 1, sizeof(T), sizeof(T)};
          for (int o = 0; o < 5; ++o) {
            const void* from = args.inputs[o == 0 ? 0 : o + 1];
            if (from != args.outputs[o])
              std::memcpy(args.outputs[o], from, sizes[o] * static_cast<size_t>(o < 3 ? count : blocks));
          }
          return;
        }
        const double beta1 = settings[0].value(args), beta2 = settings[1].value(args);
        const double eps = settings[2].value(args), weight_decay = settings[3].value(args);
        const double m_unbias = 1 / (1 - std::pow(beta1, step)), v_unbias = 1 / (1 - std::pow(beta2, step));
        const int64_t grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, width));
        args.pool.parallel_ranges(blocks, grain, [&](int64_t begin, int64_t end) {
          Rounding mine = rounding;
          mine.bind(args);
          double m[kMostBlock], v[kMostBlock];
          for (int64_t block = begin; block < end; ++block) {
            const int64_t at = block * width;
            const double m_absmax = static_cast<double>(args.in<T>(4)[block]);
            const double v_absmax = static_cast<double>(args.in<T>(5)[block]);
            for (int64_t i = 0; i < width; ++i) {
              const double g = static_cast<double>(g_in[at + i]) * gscale, p = mine.value(p_in[at + i]);
              m[i] = beta1 * m_absmax * static_cast<double>(first.value(args.in<uint8_t>(2)[at + i])) +
                     (1 - beta1) * g;
              v[i] = beta2 * v_absmax * static_cast<double>(second.value(args.in<uint8_t>(3)[at + i])) +
                     (1 - beta2) * g * g;
              const double direction =
                  m[i] * m_unbias / (std::sqrt(v[i] * v_unbias) + eps) + weight_decay * p;
              p_out[at + i] = mine.rounded(p - lr * direction, at + i);
            }
            encode(first, m, width, args.out<uint8_t>(1) + at, args.out<T>(3) + block);
            encode(second, v, width, args.out<uint8_t>(2) + at, args.out<T>(4) + block);
          }
        });
      }));
}

// Blocks fit a task's stack.
Status check_block(const KernelSpec& spec) {
  const int64_t blocks = spec.output_elements(3);
  if (blocks == 0 || spec.output_elements(0) / blocks <= 256) return {};
  return Status(StatusCode::kUnsupported,
                format("blocks of {} elements: wanted at most 256", spec.output_elements(0) / blocks));
}

}  // namespace

// p, g, m, v, ma, va, lr, step, gscale, (settings) -> p, m, v, ma, va
Result<PreparedKernel> prepare_adamw8_update(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_block(spec));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return adamw8_update<T>(spec, NearestRounding<T>{});
  });
}

// p bf16, g, m, v, ma, va, lr, step, gscale, (settings), seed -> p, m, v, ma, va
Result<PreparedKernel> prepare_adamw8_update_stochastic(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_block(spec));
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return adamw8_update<decltype(zero)>(spec, StochasticRounding(spec));
  });
}

}  // namespace tessera::cpu
