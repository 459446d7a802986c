#include "engine/sampling/token_candidates.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/sampling/approximate_draw.h"

namespace tessera {

void CandidateSpace::grow_to(int64_t vocabulary) {
  const size_t V = static_cast<size_t>(vocabulary);
  if (tokens.size() >= V) return;
  tokens.resize(V);
  order.resize(V);
  weights.resize(V);
}

TokenCandidates::TokenCandidates(sampling::Logits<float> logits, double top, const CandidateRules& rules,
                                 CandidateSpace& space)
    : logits_(logits), top_(top), rules_(rules), space_(space) {
  space_.grow_to(logits.V);
  if (select_by_sums()) return;
  // Without typical_p and top_p, weights of tokens below min_p are not needed.
  select(rules_.typical_p >= 1 && rules_.top_p >= 1 ? least_likely() : sampling::kNoLogit);
  if (rules_.typical_p < 1) keep_typical();
  // top_p counts all remaining tokens, but both rules keep the likeliest, so the cheaper min_p goes first.
  const double wanted = rules_.top_p < 1 ? rules_.top_p * total() : 0;
  keep_likely();
  if (rules_.top_p < 1) keep_head(wanted, 0);
}

// With top_p and min_p alone, tokens below min_p count only in the total,
// which may be approximate while the end of the prefix is certain.
bool TokenCandidates::select_by_sums() {
  if (is_cut() || rules_.typical_p < 1 || rules_.top_p >= 1 || rules_.min_p == 0) return false;
  if (rules_.temperature < kMinTemperature) return false;
  const WeightSums sums = sum_weights(logits_, top_, rules_.temperature, space_.blocks);
  select(least_likely());
  keep_likely();
  if (keep_head(rules_.top_p * sums.total, sums.error)) return true;
  count_ = 0;
  return false;
}

// A logit below those of all tokens kept by min_p.
double TokenCandidates::least_likely() const {
  return rules_.min_p > 0 ? top_ - rules_.temperature * (1e-6 - std::log(rules_.min_p)) : sampling::kNoLogit;
}

// Keeps the top_k likeliest, or all with a weight and a logit of at least `least`.
void TokenCandidates::select(double least) {
  const auto add = [&](int32_t token) {
    const double weight = sampling::weight_of(top_ - logits_.logit(token), rules_.temperature);
    if (weight == 0) return;
    space_.tokens[count_] = token;
    space_.weights[count_++] = weight;
  };
  if (is_cut()) {
    for (const int32_t token : sampling::select_likeliest(logits_, rules_.top_k, space_.order.data()))
      add(token);
    return;
  }
  for (int64_t token = 0; token < logits_.V; ++token)
    if (double(logits_.values[token]) >= least) add(static_cast<int32_t>(token));
}

double TokenCandidates::total() const {
  double sum = 0;
  for (const double weight : weights()) sum += weight;
  return sum;
}

void TokenCandidates::keep_typical() {
  const double all = total(), log_all = std::log(all);
  double entropy = 0;
  for (size_t i = 0; i < count_; ++i)
    entropy += space_.weights[i] / all * (depth(space_.tokens[i]) + log_all);
  keep_nearest([&](int32_t token) { return std::abs(depth(token) + log_all - entropy); },
               rules_.typical_p * all, 0);
}

bool TokenCandidates::keep_head(double wanted, double margin) {
  return keep_nearest([&](int32_t token) { return depth(token); }, wanted, margin);
}

void TokenCandidates::keep_likely() {
  if (rules_.min_p == 0) return;
  const double least = rules_.min_p * *std::ranges::max_element(weights());
  keep_if([&](size_t i) { return space_.weights[i] >= least; });
}

// Keeps the nearest tokens, likelier first on ties, until their weight reaches `wanted`; all if it
// never does. Weights are summed in buckets of distance, and only the last token's bucket is sorted.
// False, with nothing changed, if an error of `margin` in `wanted` could change the last token.
template <class Distance>
bool TokenCandidates::keep_nearest(const Distance& distance, double wanted, double margin) {
  constexpr size_t kBuckets = 1024;
  double farthest = 0;
  for (const int32_t token : tokens()) farthest = std::max(farthest, distance(token));
  const double scale = farthest > 0 ? double(kBuckets) / farthest : 0;
  const size_t last_bucket = farthest > 0 ? kBuckets - 1 : 0;  // bucket of the farthest token
  const auto bucket_of = [&](int32_t token) {
    return std::min(last_bucket, static_cast<size_t>(distance(token) * scale));
  };
  std::array<double, kBuckets> sums{};
  for (size_t i = 0; i < count_; ++i) sums[bucket_of(space_.tokens[i])] += space_.weights[i];
  size_t bucket = 0;
  double before = 0;
  while (bucket < last_bucket && (sums[bucket] == 0 || before + sums[bucket] < wanted))
    before += sums[bucket++];

  const auto order = space_.order.begin();  // candidates of the bucket
  ptrdiff_t count = 0;
  for (size_t i = 0; i < count_; ++i)
    if (bucket_of(space_.tokens[i]) == bucket) order[count++] = static_cast<int32_t>(i);
  const auto is_nearer = [&](int32_t a, int32_t b) {
    const double to_a = distance(a), to_b = distance(b);
    return to_a < to_b || (to_a == to_b && logits_.before(a, b));
  };
  std::sort(order, order + count, [&](int32_t a, int32_t b) {
    return is_nearer(space_.tokens[static_cast<size_t>(a)], space_.tokens[static_cast<size_t>(b)]);
  });
  double reached = before;
  ptrdiff_t last = -1;
  while (last + 1 < count && (last < 0 || reached < wanted)) {
    before = reached;
    reached += space_.weights[static_cast<size_t>(order[++last])];
  }
  if (margin > 0 && (std::abs(wanted - before) <= margin || std::abs(wanted - reached) <= margin))
    return false;
  const int32_t limit = space_.tokens[static_cast<size_t>(order[last])];
  keep_if([&](size_t i) { return !is_nearer(limit, space_.tokens[i]); });
  return true;
}

template <class Keeps>
void TokenCandidates::keep_if(const Keeps& keeps) {
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (!keeps(i)) continue;
    space_.tokens[kept] = space_.tokens[i];
    space_.weights[kept++] = space_.weights[i];
  }
  count_ = kept;
}

}  // namespace tessera
