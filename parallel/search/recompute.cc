// Chains. With kept values k1 < k2 < ..., while backward is between two kept neighbours i < j there are held:
// what is kept up to i, and all of (i, j]. A label at i is (bytes kept up to i, seconds computed again so
// far); from it any j is reached whose segment fits. Labels that another one beats in both are dropped, and
// those whose bound - the rest as a fractional knapsack - is no better than a set already known.
#include "parallel/search/recompute.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

bool is_chain(std::span<const Activation> values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (i == 0 ? !values[i].inputs.empty()
               : values[i].inputs.size() != 1 || values[i].inputs[0] != static_cast<int32_t>(i) - 1)
      return false;
  return true;
}

class Chain {
 public:
  Chain(std::span<const Activation> values, int64_t budget) : n_(values.size()), budget_(budget) {
    bytes_.assign(n_ + 1, 0);
    seconds_.assign(n_ + 1, 0);
    for (size_t i = 0; i < n_; ++i) {
      bytes_[i + 1] = bytes_[i] + values[i].bytes;
      seconds_[i + 1] = seconds_[i] + values[i].seconds;
    }
    values_ = values;
  }

  // Keeping the fewest bytes up to any value is best for the rest, so one number a value decides.
  static int64_t least_budget(std::span<const Activation> values) {
    int64_t low = 0, high = 0;
    for (const Activation& value : values) low = std::max(low, value.bytes), high += value.bytes;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      (Chain(values, middle).fits() ? high : low) = middle + (Chain(values, middle).fits() ? 0 : 1);
    }
    return low;
  }

  bool fits() const {
    // held[p]: fewest bytes kept among the first p values when value p - 1 is kept (p = 0: nothing yet).
    std::vector<int64_t> held(n_ + 1, INT64_MAX);
    held[0] = 0;
    for (size_t p = 0; p <= n_; ++p) {
      if (held[p] == INT64_MAX) continue;
      if (held[p] + bytes_[n_] - bytes_[p] <= budget_) return true;
      for (size_t q = p + 1; q <= n_ && held[p] + bytes_[q] - bytes_[p] <= budget_; ++q)
        held[q] = std::min(held[q], held[p] + values_[q - 1].bytes);
    }
    return false;
  }

  // Labels of equal size class are merged to the fastest when `classes` > 0: fast, not exact.
  bool solve(size_t classes, size_t most_labels, double known, std::vector<bool>& kept, double& best,
             bool& exact) {
    prepare_bounds();
    std::vector<std::vector<Label>> labels(n_ + 1);
    labels[0].push_back({0, 0, 0, 0});
    best = known;
    size_t end_at = 0, end_label = 0;
    bool found = false;
    exact = classes == 0;
    for (size_t p = 0; p <= n_; ++p) {
      cancellation_point();
      prune(labels[p], classes, most_labels, p, best, exact);
      for (size_t l = 0; l < labels[p].size(); ++l) {
        const Label label = labels[p][l];
        const int64_t room = budget_ - label.held;
        if (bytes_[n_] - bytes_[p] <= room) {  // nothing later is kept
          const double total = label.seconds + seconds_[n_] - seconds_[p];
          if (total < best) best = total, end_at = p, end_label = l, found = true;
        }
        for (size_t q = p + 1; q <= n_ && bytes_[q] - bytes_[p] <= room; ++q)
          labels[q].push_back(
              {label.held + values_[q - 1].bytes, label.seconds + seconds_[q - 1] - seconds_[p], p, l});
      }
    }
    if (!found) return false;
    kept.assign(n_, false);
    for (size_t p = end_at, l = end_label; p > 0;) {
      kept[p - 1] = true;
      const Label label = labels[p][l];
      p = label.from, l = label.from_label;
    }
    return true;
  }

 private:
  struct Label {
    int64_t held;
    double seconds;
    size_t from, from_label;
  };

  // order_[p]: the values from p on, most seconds a byte first.
  void prepare_bounds() {
    if (!order_.empty()) return;
    order_.resize(n_);
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, [&](size_t a, size_t b) {
      return values_[a].seconds * static_cast<double>(values_[b].bytes) >
             values_[b].seconds * static_cast<double>(values_[a].bytes);
    });
  }

  // For values p.. with `room` bytes to keep in: seconds that are computed again at the very least.
  double bound(size_t p, int64_t room) const {
    double saved = 0;
    for (const size_t i : order_) {
      if (i < p) continue;
      if (values_[i].bytes <= room) {
        saved += values_[i].seconds;
        room -= values_[i].bytes;
      } else {
        saved += values_[i].seconds * static_cast<double>(room) / static_cast<double>(values_[i].bytes);
        break;
      }
    }
    return std::max(0.0, seconds_[n_] - seconds_[p] - saved);
  }

  void prune(std::vector<Label>& labels, size_t classes, size_t most, size_t p, double best,
             bool& exact) const {
    std::ranges::stable_sort(labels, [](const Label& a, const Label& b) {
      return a.held != b.held ? a.held < b.held : a.seconds < b.seconds;
    });
    std::vector<Label> kept;
    for (const Label& label : labels) {
      if (!kept.empty() && label.seconds >= kept.back().seconds) continue;
      if (label.seconds >= best) continue;
      kept.push_back(label);
    }
    if (std::isfinite(best))
      std::erase_if(
          kept, [&](const Label& label) { return label.seconds + bound(p, budget_ - label.held) >= best; });
    if (classes > 0 || kept.size() > most) {
      if (classes == 0) exact = false;
      const size_t wanted = classes > 0 ? std::min(classes, most) : most;
      if (kept.size() > wanted) {
        // The smallest always stays: it can go on where the others cannot.
        std::vector<Label> some;
        for (size_t i = 0; i < wanted; ++i)
          some.push_back(kept[i * (kept.size() - 1) / std::max<size_t>(1, wanted - 1)]);
        kept.swap(some);
      }
    }
    labels.swap(kept);
  }

  const size_t n_;
  const int64_t budget_;
  std::span<const Activation> values_;
  std::vector<int64_t> bytes_;  // prefix sums
  std::vector<double> seconds_;
  std::vector<size_t> order_;
};

Result<RecomputeSet> solve_chain(std::span<const Activation> values, int64_t budget) {
  Chain chain(values, budget);
  if (!chain.fits()) {
    const int64_t least = Chain::least_budget(values);
    return Status(StatusCode::kOutOfMemory,
                  format("recomputation cannot bring the activations below {} ({} bytes); {} bytes are given",
                         bytes_text(least), least, budget));
  }
  std::vector<bool> kept, better;
  double seconds = 0, improved = 0;
  bool exact = false;
  if (!chain.solve(24, 24, INFINITY, kept, seconds, exact))
    return Status(StatusCode::kInternal, "recompute: a chain that fits has no solution");
  const size_t most = std::max<size_t>(64, 20'000 / std::max<size_t>(1, values.size()));
  if (chain.solve(0, most, seconds, better, improved, exact)) kept = better;
  RecomputeSet result = evaluate_recompute(values, std::move(kept));
  result.proved = exact;
  return result;
}

// General graphs: what frees most bytes at the peak for a second goes first; then whatever fits again comes
// back.
Result<RecomputeSet> solve_graph(std::span<const Activation> values, int64_t budget) {
  const size_t n = values.size();
  RecomputeSet now = evaluate_recompute(values, std::vector<bool>(n, true));
  RecomputeSet least = now;
  const auto excess = [&](const RecomputeSet& set) { return std::max<int64_t>(0, set.peak_bytes - budget); };
  // Drop one after another while the peak is too high; each time the one with the best bytes for its seconds.
  while (excess(now) > 0) {
    double best_ratio = -1;
    RecomputeSet best;
    for (size_t i = 0; i < n; ++i) {
      if (!now.kept[i]) continue;
      std::vector<bool> without = now.kept;
      without[i] = false;
      RecomputeSet candidate = evaluate_recompute(values, std::move(without));
      const double gain = static_cast<double>(now.peak_bytes - candidate.peak_bytes) +
                          1e-3 * static_cast<double>(values[i].bytes);
      const double ratio = gain / (values[i].seconds + 1e-30);
      if (ratio > best_ratio) best_ratio = ratio, best = std::move(candidate);
    }
    if (best_ratio < 0) break;
    now = std::move(best);
    if (now.peak_bytes < least.peak_bytes) least = now;
  }
  if (excess(now) > 0) now = least;
  if (excess(now) > 0)
    return Status(StatusCode::kOutOfMemory,
                  format("the smallest peak found is {} ({} bytes); {} bytes are given",
                         bytes_text(now.peak_bytes), now.peak_bytes, budget));
  // Back again: alone, or in exchange for a cheaper one, until nothing helps.
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t i = 0; i < n; ++i) {
      if (now.kept[i]) continue;
      std::vector<bool> with = now.kept;
      with[i] = true;
      RecomputeSet candidate = evaluate_recompute(values, with);
      if (candidate.peak_bytes <= budget && candidate.seconds < now.seconds) {
        now = std::move(candidate), improved = true;
        continue;
      }
      for (size_t j = 0; j < n && n <= 64; ++j) {
        if (!now.kept[j] || values[j].seconds >= values[i].seconds) continue;
        std::vector<bool> swapped = with;
        swapped[j] = false;
        RecomputeSet exchange = evaluate_recompute(values, std::move(swapped));
        if (exchange.peak_bytes > budget || exchange.seconds >= now.seconds) continue;
        now = std::move(exchange), improved = true;
        break;
      }
    }
  }
  now.proved = now.seconds == 0;
  return now;
}

}  // namespace

RecomputeSet evaluate_recompute(std::span<const Activation> values, std::vector<bool> kept) {
  RecomputeSet set;
  std::vector<bool> held = kept;
  int64_t live = 0;
  for (size_t i = 0; i < values.size(); ++i)
    if (kept[i]) live += values[i].bytes;
  set.peak_bytes = live;
  std::vector<size_t> stack;
  // Computes `wanted` again, after its operands; done when the stack is empty.
  const auto bring = [&](size_t wanted) {
    if (held[wanted]) return;
    stack.assign(1, wanted);
    while (!stack.empty()) {
      const size_t value = stack.back();
      bool ready = true;
      for (const int32_t input : values[value].inputs)
        if (!held[static_cast<size_t>(input)]) stack.push_back(static_cast<size_t>(input)), ready = false;
      if (!ready) continue;
      stack.pop_back();
      if (held[value]) continue;  // another operand's operand, too
      held[value] = true;
      live += values[value].bytes;
      set.seconds += values[value].seconds;
      set.peak_bytes = std::max(set.peak_bytes, live);
    }
  };
  for (size_t value = values.size(); value-- > 0;) {
    bring(value);
    for (const int32_t input : values[value].inputs) bring(static_cast<size_t>(input));
    held[value] = false;
    live -= values[value].bytes;
  }
  set.kept = std::move(kept);
  return set;
}

Result<RecomputeSet> choose_recompute(std::span<const Activation> values, int64_t budget) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i].seconds >= 0) || values[i].bytes < 0)
      return Status(StatusCode::kInvalidArgument,
                    format("value {}: {} seconds and {} bytes, wanted neither negative", i, values[i].seconds,
                           values[i].bytes));
    for (const int32_t input : values[i].inputs)
      if (input < 0 || static_cast<size_t>(input) >= i)
        return Status(StatusCode::kInvalidArgument,
                      format("value {} reads value {}, wanted an earlier one", i, input));
  }
  return is_chain(values) ? solve_chain(values, budget) : solve_graph(values, budget);
}

std::vector<Activation> activation_chain(std::span<const double> seconds, std::span<const int64_t> bytes) {
  std::vector<Activation> values;
  for (size_t i = 0; i < seconds.size(); ++i) {
    values.push_back({seconds[i], bytes[i], {}});
    if (i > 0) values.back().inputs.push_back(static_cast<int32_t>(i) - 1);
  }
  return values;
}

}  // namespace tessera
