// TokenCandidates: the tokens left after top_k, typical_p, top_p and min_p, with
// weights proportional to probabilities. No rule sorts the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/token_draw.h"

namespace tessera {

// CandidateRules: applied in this order; steps 5 to 9 of sampler.h.
struct CandidateRules {
  double temperature = 1;  // above 0
  int64_t top_k = 0;       // 0: all
  double typical_p = 1;    // >= 1: all
  double top_p = 1;        // >= 1: all
  double min_p = 0;        // 0: all
};

// CandidateSpace: reusable memory for candidates, 16 bytes per token of the vocabulary.
struct CandidateSpace {
  std::vector<int32_t> tokens, order;
  std::vector<double> weights;
  std::vector<double> blocks;  // partial sums (WeightSums, approximate_draw.h)

  void grow_to(int64_t vocabulary);
};

class TokenCandidates {
 public:
  // `top`: the largest of `logits`, finite. `space` holds the candidates.
  TokenCandidates(sampling::Logits<float> logits, double top, const CandidateRules& rules,
                  CandidateSpace& space);

  // At least one token of positive weight; sorted by weight if top_k cut them, else by number.
  std::span<const int32_t> tokens() const { return {space_.tokens.data(), count_}; }
  std::span<const double> weights() const { return {space_.weights.data(), count_}; }

 private:
  bool select_by_sums();
  void select(double least);
  void keep_typical();
  bool keep_head(double wanted, double margin);
  void keep_likely();
  template <class Distance>
  bool keep_nearest(const Distance& distance, double wanted, double margin);
  template <class Keeps>
  void keep_if(const Keeps& keeps);
  bool is_cut() const { return rules_.top_k > 0 && rules_.top_k < logits_.V; }
  double least_likely() const;
  double total() const;
  // -ln of the weight: the logit's distance below the largest, divided by the temperature.
  double depth(int32_t token) const { return (top_ - logits_.logit(token)) / rules_.temperature; }

  const sampling::Logits<float> logits_;
  const double top_;
  const CandidateRules rules_;
  CandidateSpace& space_;
  size_t count_ = 0;
};

}  // namespace tessera
