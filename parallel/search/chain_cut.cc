#include "parallel/search/chain_cut.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

class ChainCutter {
 public:
  ChainCutter(std::span<const double> costs, ChainEnds ends, int32_t stages)
      : count_(static_cast<int64_t>(costs.size())), stages_(stages), sums_(costs.size() + 1, 0) {
    for (size_t i = 0; i < costs.size(); ++i) sums_[i + 1] = sums_[i] + costs[i] + (i == 0 ? ends.first : 0);
    if (!costs.empty()) sums_.back() += ends.last;
  }

  std::vector<int64_t> run() {
    if (stages_ < 1 || stages_ > count_) return {};
    find_least_cap();
    find_earliest(cap_);
    std::vector<int64_t> counts;
    int64_t begin = 0;
    for (int32_t s = 0; s < stages_; ++s) {
      const int64_t end = end_of(s, begin);
      counts.push_back(end - begin);
      begin = end;
    }
    return counts;
  }

 private:
  double cost(int64_t begin, int64_t end) const {
    return sums_[static_cast<size_t>(end)] - sums_[static_cast<size_t>(begin)];
  }

  // By stage: the first block from which it and later stages hold all blocks within the cap. False if impossible.
  bool find_earliest(double cap) {
    earliest_.assign(static_cast<size_t>(stages_) + 1, count_);
    for (int32_t s = stages_ - 1; s >= 0; --s) {
      const int64_t end = earliest_[static_cast<size_t>(s) + 1];
      int64_t begin = end - 1;
      if (begin < s || cost(begin, end) > cap) return false;
      while (begin > s && cost(begin - 1, end) <= cap) --begin;
      earliest_[static_cast<size_t>(s)] = begin;
    }
    return earliest_[0] == 0;
  }

  void find_least_cap() {
    double low = 0, high = cost(0, count_);
    for (int64_t b = 0; b < count_; ++b) low = std::max(low, cost(b, b + 1));
    low = std::max(low, high / stages_) * (1 - 1e-12);
    cap_ = high;
    constexpr int kHalvings = 60;
    for (int i = 0; i < kHalvings && low < high * (1 - 1e-9); ++i) {
      const double middle = (low + high) / 2;
      (find_earliest(middle) ? high : low) = middle;
    }
    cap_ = high * (1 + 1e-12);
  }

  // As close as possible to equal stages.
  int64_t end_of(int32_t s, int64_t begin) const {
    if (s + 1 == stages_) return count_;
    const int64_t least = std::max(begin + 1, earliest_[static_cast<size_t>(s) + 1]);
    const int64_t most = count_ - (stages_ - s - 1);
    const double fair = sums_.back() * (s + 1) / stages_;
    int64_t end = least;
    while (end < most && cost(begin, end + 1) <= cap_ &&
           std::abs(sums_[static_cast<size_t>(end) + 1] - fair) <=
               std::abs(sums_[static_cast<size_t>(end)] - fair))
      ++end;
    return end;
  }

  const int64_t count_;
  const int32_t stages_;
  std::vector<double> sums_;       // prefix sums over blocks, with ends
  std::vector<int64_t> earliest_;  // see find_earliest
  double cap_ = 0;
};

}  // namespace

std::vector<int64_t> cut_chain(std::span<const double> costs, ChainEnds ends, int32_t stages) {
  return ChainCutter(costs, ends, stages).run();
}

}  // namespace tessera
