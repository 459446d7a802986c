// ScanShape: sizes and options of a scan of tokens with a state for each value head.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

enum class ScanRule : uint8_t { kAdd, kDelta, kGeneral };

struct ScanShape {
  int64_t B, T, G, K, H, V;
  bool decays_by_channel;
  ScanRule rule;
  double scale;  // of q

  // q is operand `q`, followed by k, v, log_decay, and beta or with rule general a, b.
  ScanShape(const KernelSpec& spec, int q)
      : B(spec.input_dims(q)[0]),
        T(spec.input_dims(q)[1]),
        G(spec.input_dims(q)[2]),
        K(spec.input_dims(q)[3]),
        H(spec.input_dims(q + 2)[2]),
        V(spec.input_dims(q + 2)[3]),
        decays_by_channel(spec.input_dims(q + 3).size() == 4),
        rule(spec.string("rule") == "general" ? ScanRule::kGeneral
             : spec.string("rule") == "delta" ? ScanRule::kDelta
                                              : ScanRule::kAdd),
        scale(spec.f64("scale") != 0 ? spec.f64("scale") : 1 / std::sqrt(double(std::max<int64_t>(K, 1)))) {}

  int64_t group() const { return G > 0 ? H / G : 0; }  // value heads of a key head
  int64_t decays() const { return decays_by_channel ? K : 1; }
  bool is_general() const { return rule == ScanRule::kGeneral; }
  int operand_count() const { return is_general() ? 6 : 5; }
  // Rows of operands for token `token` of B * T: of q and k by key head, of the others by value head.
  int64_t key_row(int64_t token, int64_t g) const { return token * G + g; }
  int64_t value_row(int64_t token, int64_t h) const { return token * H + h; }

  double state_elements() const { return double(B * T * H) * double(K * V); }
  double flops() const { return state_elements() * (is_general() ? 9 : rule == ScanRule::kDelta ? 7 : 5); }
  double grad_flops() const { return 2 * flops() + state_elements() * (is_general() ? 21 : 15); }
};

// Whether the state is zero before token t of a row: the first one, also of a segment. `segments` [T] may be null.
inline bool starts_segment(const int32_t* segments, int64_t t) {
  return t == 0 || (segments != nullptr && segments[t] != segments[t - 1]);
}

}  // namespace tessera::cpu
