#include "capi/engine/token_candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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
  select();
  if (rules_.typical_p < 1) keep_typical();
  // Both rules keep the likeliest, so that the cheaper one may go first: top_p is of all that are left before it.
  const double wanted = rules_.top_p < 1 ? rules_.top_p * total() : 0;
  if (rules_.min_p > 0) keep_likely();
  if (rules_.top_p < 1) keep_head(wanted);
}

// The top_k likeliest, or all that have a weight.
void TokenCandidates::select() {
  const auto add = [&](int32_t token) {
    const double weight = sampling::weight_of(top_ - logits_.logit(token), rules_.temperature);
    if (weight == 0) return;
    space_.tokens[count_] = token;
    space_.weights[count_++] = weight;
  };
  if (rules_.top_k > 0 && rules_.top_k < logits_.V) {
    for (const int32_t token : sampling::select_likeliest(logits_, rules_.top_k, space_.order.data()))
      add(token);
    return;
  }
  // Where no rule adds probabilities up, weights of tokens that min_p drops are not needed.
  double least = sampling::kNoLogit;
  if (rules_.min_p > 0 && rules_.typical_p >= 1 && rules_.top_p >= 1)
    least = top_ - rules_.temperature * (1e-6 - std::log(rules_.min_p));
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
  const auto distance = [&](int32_t token) { return std::abs(depth(token) + log_all - entropy); };
  keep_first(
      [&](int32_t a, int32_t b) {
        const double to_a = distance(a), to_b = distance(b);
        return to_a < to_b || (to_a == to_b && logits_.before(a, b));
      },
      rules_.typical_p * all);
}

void TokenCandidates::keep_head(double wanted) {
  keep_first([&](int32_t a, int32_t b) { return logits_.before(a, b); }, wanted);
}

void TokenCandidates::keep_likely() {
  const double least = rules_.min_p * *std::ranges::max_element(weights());
  keep_if([&](size_t i) { return space_.weights[i] >= least; });
}

// Keeps the shortest head, in the order of `before` of tokens, whose weight reaches `wanted`; all if none does.
template <class Before>
void TokenCandidates::keep_first(const Before& before, double wanted) {
  const auto by_candidate = [&](int32_t a, int32_t b) {
    return before(space_.tokens[static_cast<size_t>(a)], space_.tokens[static_cast<size_t>(b)]);
  };
  const auto order = space_.order.begin();
  std::iota(order, order + static_cast<ptrdiff_t>(count_), 0);
  // The head's last candidate is in [begin, end) of the order; those before it are in front, and weigh `weight`.
  ptrdiff_t begin = 0, end = static_cast<ptrdiff_t>(count_);
  double weight = 0;
  while (end - begin > 1) {
    const ptrdiff_t middle = begin + (end - begin) / 2;
    std::nth_element(order + begin, order + middle, order + end, by_candidate);
    double reached = weight;
    for (ptrdiff_t i = begin; i < middle; ++i) reached += space_.weights[static_cast<size_t>(order[i])];
    if (reached >= wanted) {
      end = middle;
    } else {
      begin = middle;
      weight = reached;
    }
  }
  const int32_t last = space_.tokens[static_cast<size_t>(order[begin])];
  keep_if([&](size_t i) { return !before(last, space_.tokens[i]); });
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
