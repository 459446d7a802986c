#include "graph/base/blocks/fitting_type.h"

#include <algorithm>
#include <iterator>

namespace tessera {
namespace {

using enum DType;

struct Fallback {
  DType wanted, type;
};
constexpr Fallback kFallbacks[] = {
    {kIQ4_XS, kIQ4_NL}, {kQ2_K, kQ4_0},  {kQ3_K, kQ4_0},  {kTQ1_0, kQ4_0}, {kTQ2_0, kQ4_0}, {kQ1_0, kQ4_0},
    {kQ2_0, kQ4_0},     {kNVFP4, kQ4_0}, {kNF4, kIQ4_NL}, {kQ4_K, kQ5_0},  {kQ5_K, kQ5_1},  {kQ6_K, kQ8_0},
};

}  // namespace

std::optional<DType> find_fitting_type(DType wanted, int64_t width) {
  const auto fits = [&](DType type) { return width % info(type).block_elements == 0; };
  if (fits(wanted)) return wanted;
  const auto fallback = std::ranges::find(kFallbacks, wanted, &Fallback::wanted);
  if (fallback == std::end(kFallbacks) || !fits(fallback->type)) return std::nullopt;
  return fallback->type;
}

}  // namespace tessera
