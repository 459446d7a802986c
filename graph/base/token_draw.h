// Draws of one token from a row of logits without sorting the vocabulary; the op "sample" of
// CPU devices and the host's Sampler share it, so that both draw the same token from the same
// bits. top_k keeps the likeliest tokens so far during one scan; top_p sums the weights in
// buckets of logits and sorts only the bucket in which the head, or the drawn number, ends.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "graph/base/philox.h"

namespace tessera::sampling {

inline constexpr double kNoLogit = -std::numeric_limits<double>::infinity();

// The logits of one sequence; NaN counts as never chosen.
template <class T>
struct Logits {
  const T* values;
  int64_t V;

  double logit(int64_t token) const {
    const double value = double(values[token]);
    return std::isnan(value) ? kNoLogit : value;
  }
  // Order of tokens: likelier first, the lower token on a tie. A total order, so that sorting has one result.
  bool before(int32_t a, int32_t b) const { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); }
};

// The first token with the largest logit.
struct Largest {
  double logit = kNoLogit;
  int32_t token = 0;
};

// Finds the largest logit among tokens [begin, end) and its token.
template <class T>
Largest find_largest(Logits<T> logits, int64_t begin, int64_t end) {
  constexpr int64_t kChains = 16;  // independent, so that none waits for another
  T most[kChains];
  std::fill_n(most, kChains, -std::numeric_limits<T>::infinity());
  int64_t token = begin;
  for (; token + kChains <= end; token += kChains)
    for (int64_t i = 0; i < kChains; ++i) {
      const T value = logits.values[token + i];
      most[i] = value > most[i] ? value : most[i];  // skips NaN
    }
  for (; token < end; ++token) most[0] = logits.values[token] > most[0] ? logits.values[token] : most[0];
  const T top = *std::max_element(most, most + kChains);
  if (double(top) == kNoLogit) return {kNoLogit, static_cast<int32_t>(begin)};
  token = begin;
  while (logits.values[token] != top) ++token;
  return {double(top), static_cast<int32_t>(token)};
}

struct Choice {
  double temperature;
  int64_t top_k;  // 0: all
  double top_p;   // >= 1: all
  double uniform;

  bool is_cut(int64_t V) const { return top_k > 0 && top_k < V; }
};

// Returns the number in [0, 1) with which sequence `sequence` draws its token at `position`.
inline double draw_uniform(uint64_t seed, uint64_t position, uint64_t sequence) {
  const auto bits = philox_bits(seed, position, sequence);
  return uniform_from_bits(bits[0], bits[1]);
}

// Returns the weight of a token whose logit is `below` under the largest; 0 for a token that is never chosen.
inline double weight_of(double below, double temperature) {
  return std::isinf(below) ? 0 : std::exp(-below / temperature);
}

// Finds the `k` < V likeliest tokens, likeliest first, at the front of `order` [V].
template <class T>
std::span<int32_t> select_likeliest(Logits<T> logits, int64_t k, int32_t* order) {
  const auto before = [logits](int32_t a, int32_t b) { return logits.before(a, b); };
  // Beyond twice as many, only the likeliest k stay; later tokens must exceed the last of them.
  const int64_t room = std::min(logits.V, 2 * k + 64);
  int64_t count = 0;
  bool is_cut = false;
  double bar = kNoLogit;
  const auto keep_likeliest = [&] {
    std::nth_element(order, order + (k - 1), order + count, before);
    count = k;
    is_cut = true;
    bar = logits.logit(order[k - 1]);
  };
  for (int64_t token = 0; token < logits.V; ++token) {
    if (is_cut && !(double(logits.values[token]) > bar)) continue;
    order[count++] = static_cast<int32_t>(token);
    if (count == room) keep_likeliest();
  }
  if (count > k) keep_likeliest();
  std::sort(order, order + k, before);
  return {order, static_cast<size_t>(k)};
}

// Draws from the top_k likeliest. `order` [V] and `weight` [V] are scratch.
template <class T>
int32_t draw_of_likeliest(Logits<T> logits, double top, const Choice& choice, int32_t* order_space,
                          double* weight) {
  const std::span<int32_t> order = select_likeliest(logits, choice.top_k, order_space);
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i)
    total += weight[i] = weight_of(top - logits.logit(order[i]), choice.temperature);
  size_t count = order.size();
  if (choice.top_p < 1) {
    double head = 0;
    count = 0;
    while (count < order.size() && (count == 0 || head < choice.top_p * total)) head += weight[count++];
    total = head;
  }
  double left = choice.uniform * total;
  for (size_t i = 0; i < count; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  // Rounding may leave a remainder: then the last token that has any probability is drawn.
  while (count > 1 && weight[count - 1] == 0) --count;
  return order[count - 1];
}

// Draws from all tokens.
inline int32_t draw_of_all(std::span<const double> weight, double uniform) {
  double total = 0;
  for (const double w : weight) total += w;
  double left = uniform * total;
  for (size_t token = 0; token < weight.size(); ++token)
    if ((left -= weight[token]) < 0) return static_cast<int32_t>(token);
  size_t last = weight.size() - 1;
  while (last > 0 && weight[last] == 0) --last;
  return static_cast<int32_t>(last);
}

// Buckets: the weights of all tokens by logit, likeliest first. The
// tokens of a bucket are sorted when one of them is searched for.
template <class T>
class Buckets {
 public:
  // `weight` [V]; `order` [V] is scratch.
  Buckets(Logits<T> logits, double top, double temperature, const double* weight, int32_t* order)
      : logits_(logits), top_(top), weight_(weight), order_(order) {
    double lowest = top;
    for (int64_t token = 0; token < logits.V; ++token)
      if (weight[token] > 0) lowest = std::min(lowest, double(logits.values[token]));
    // A token 64 temperatures below the largest logit has 1e-28 of its weight: the last bucket.
    const double range = std::min(top - lowest, 64 * temperature);
    scale_ = range > 0 ? double(kBuckets) / range : 0;
    for (int64_t token = 0; token < logits.V; ++token) {
      if (weight[token] == 0) continue;
      const size_t bucket = bucket_of(token);
      last_ = std::max(last_, bucket);
      sums_[bucket] += weight[token];
      total_ += weight[token];
    }
  }

  double total() const { return total_; }
  size_t last() const { return last_; }  // bucket

  struct Place {
    size_t bucket;
    int32_t token;
    double weight;  // cumulative, likeliest token first
  };
  // Finds the first token, likeliest first, whose cumulative weight
  // passes; the last token of the buckets up to `last` if none does.
  template <class Passes>
  Place find(size_t last, const Passes& passes) {
    Place at{0, 0, 0};
    for (; at.bucket < last && !passes(at.weight + sums_[at.bucket]); ++at.bucket)
      at.weight += sums_[at.bucket];
    for (const int32_t token : ordered(at.bucket)) {
      at.token = token;
      at.weight += weight_[token];
      if (passes(at.weight)) break;
    }
    return at;
  }

 private:
  static constexpr size_t kBuckets = 1024;

  size_t bucket_of(int64_t token) const {  // for a token with a nonzero weight
    const double below = top_ - double(logits_.values[token]);
    return std::min(kBuckets - 1, static_cast<size_t>(below * scale_));
  }
  std::span<const int32_t> ordered(size_t bucket) {
    if (bucket == ordered_) return {order_, count_};
    count_ = 0;
    for (int64_t token = 0; token < logits_.V; ++token)
      if (weight_[token] > 0 && bucket_of(token) == bucket) order_[count_++] = static_cast<int32_t>(token);
    std::sort(order_, order_ + count_, [this](int32_t a, int32_t b) { return logits_.before(a, b); });
    ordered_ = bucket;
    return {order_, count_};
  }

  const Logits<T> logits_;
  const double top_;
  const double* weight_;
  int32_t* order_;
  double scale_ = 0, total_ = 0;
  std::array<double, kBuckets> sums_{};
  size_t last_ = 0, ordered_ = kBuckets, count_ = 0;
};

// Draws from the shortest head that has a share top_p of the weight.
template <class T>
int32_t draw_of_head(Logits<T> logits, double top, const Choice& choice, const double* weight,
                     int32_t* order) {
  Buckets<T> buckets(logits, top, choice.temperature, weight, order);
  const double wanted = choice.top_p * buckets.total();
  const auto head = buckets.find(buckets.last(), [&](double reached) { return reached >= wanted; });
  const double drawn = choice.uniform * head.weight;
  return buckets.find(head.bucket, [&](double reached) { return reached > drawn || reached >= head.weight; })
      .token;
}

// Draws one token by `choice`. `weight` [V]: weight_of every token, overwritten by a choice that cuts
// to top_k (is_cut); `order` [V] is scratch. Returns the largest token if that has no finite logit.
template <class T>
int32_t draw_token(Logits<T> logits, const Largest& top, const Choice& choice, double* weight,
                   int32_t* order) {
  if (std::isinf(top.logit)) return top.token;
  if (choice.is_cut(logits.V)) return draw_of_likeliest(logits, top.logit, choice, order, weight);
  if (choice.top_p < 1) return draw_of_head(logits, top.logit, choice, weight, order);
  return draw_of_all({weight, static_cast<size_t>(logits.V)}, choice.uniform);
}

}  // namespace tessera::sampling
