#include "engine/sampling/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "graph/base/token_draw.h"

namespace tessera {

PositionLogProbabilities log_probabilities(std::span<const float> logits, int32_t token, int64_t likeliest,
                                           std::vector<int32_t>& order) {
  const sampling::Logits<float> row{logits.data(), std::ssize(logits)};
  const double top = sampling::find_largest(row, 0, row.V).logit;
  double total = 0;
  if (std::isfinite(top))
    for (int64_t v = 0; v < row.V; ++v) total += sampling::weight_of(top - row.logit(v), 1);
  const double log_total = std::log(total);
  const auto log_probability = [&](int32_t of) -> TokenLogProbability {
    const double logit = row.logit(of);
    if (std::isfinite(top)) return {of, logit - top - log_total};
    return {of, logit == top && top > 0 ? 0 : sampling::kNoLogit};
  };
  PositionLogProbabilities position{log_probability(token), {}};
  const int64_t count = std::min(likeliest, row.V);
  if (count <= 0) return position;
  order.resize(logits.size());
  for (const int32_t of : sampling::select_likeliest(row, count, order.data()))
    position.likeliest.push_back(log_probability(of));
  return position;
}

}  // namespace tessera
