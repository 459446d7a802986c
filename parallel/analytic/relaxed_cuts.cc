// A device with n blocks holds fixed + n (state + g a), where a block keeps a bytes of each of g
// micro-batches in flight; what a way of saving costs, by the bytes that it saves of a block, is least with
// one of them, l. So beyond n0 = (limit - fixed) / (state + g a) blocks every one of them takes l (state / g
// + a) seconds more, at least. With t_s(n) that and the passes themselves, and W the passes of all stages and
// the ways between them, T >= m t_s for every stage s, and
//   1f1b   T >= W + (m - 1) t_s - (k_s - 1) f_s, with k_s micro-batches in flight, of forward passes f_s
//   gpipe  T >= W + (m - 1) t_s
//   zb     T >= m t_s - (k_s - 1) f_s and the forward passes and input gradients of all stages after s
//   chunks (interleaved) T >= m t_s and the first chunks of all devices before s
// Turned around, a stage has so many blocks in T seconds at most. All stages together must have the model's;
// and what memory makes of W, with no stage above its most, may leave them less in the next round.
#include "parallel/analytic/relaxed_cuts.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tessera {

namespace {

// Parts of what a device holds are rounded down one by one.
constexpr double kRounding = 16;

}  // namespace

RelaxedCuts::RelaxedCuts(const TransformerShape& model, const WideCuts& cuts, int64_t limit,
                         bool any_schedule)
    : m_(static_cast<double>(cuts.micro_batches())),
      blocks_(static_cast<double>(model.L)),
      least_(cuts.plan().virtual_stages) {
  const StageTimes& times = cuts.times();
  const ForeignPlan& plan = cuts.plan();
  const BlockWay& fast = cuts.ways().front();
  const StagePasses none = times.of({}, false, false), one = times.of(blocks_of(1, fast), false, false);
  block_s_ = seconds_of(one) - seconds_of(none), forward_s_ = one.forward_s - none.forward_s;
  work_s_ = seconds_of(times.of(blocks_of(model.L, fast), true, true));
  if (plan.pp > 1) work_s_ += 2 * (plan.pp - 1) * times.transfer_s();
  // Forward passes that wait for the host are not the fastest way's.
  const bool waits = std::ranges::any_of(cuts.ways(), [](const BlockWay& way) { return way.quarters > 0; });
  const bool one_by_one = plan.schedule == ForeignSchedule::k1F1B;
  drains_ = !any_schedule && ((one_by_one && !waits) || plan.schedule == ForeignSchedule::kGpipe);
  way_s_ = block_s_ - (one.weight_s - none.weight_s);
  splits_ = !any_schedule && !waits &&
            (plan.schedule == ForeignSchedule::kZbH1 || plan.schedule == ForeignSchedule::kZbH2);
  if (!any_schedule && plan.schedule == ForeignSchedule::kInterleaved) chunks_ = cuts.most_chunks();
  const auto bytes_of = [&](const BlockWay& way) {
    return static_cast<double>(times.activation_bytes(way.recompute) -
                               (way.quarters > 0 ? times.offloaded_bytes(way.quarters) : 0));
  };
  const double kept = bytes_of(fast);
  double least_kept = kept, price = INFINITY;
  for (const BlockWay& way : cuts.ways()) {
    const double bytes = bytes_of(way);
    least_kept = std::min(least_kept, bytes);
    if (bytes < kept) price = std::min(price, std::max(0.0, way.seconds - fast.seconds) / (kept - bytes));
  }
  // What does not depend on how many micro-batches are in flight, by what a device holds of the ends.
  struct Kind {
    double fixed = 0, state = 0;
    StagePasses ends;
  };
  std::optional<Kind> kinds[4];
  const auto kind_of = [&](int32_t d, double g) -> const Kind& {
    const bool first = d == 0, last = holds_head(plan, d);
    std::optional<Kind>& known = kinds[(first ? 2 : 0) + (last ? 1 : 0)];
    if (known) return *known;
    // Not less than straight: what is sharded by operator is so for the first blocks.
    const auto held = [&](int64_t n) {
      return static_cast<double>(cuts.memory(d, blocks_of(n, fast)).total()) -
             static_cast<double>(n) * kept * g - kRounding;
    };
    const double once = held(1), state = std::max(0.0, held(2) - once - kRounding);
    return known.emplace(Kind{once - state, state, cuts.passes(d, {})});
  };
  int64_t flights_before = -1;
  for (int32_t d = 0; d < plan.pp; ++d) {
    const int64_t flights = cuts.flights(d);
    if (d > 1 && d + 1 < plan.pp && flights == flights_before) {
      ++devices_.back().count;
      continue;
    }
    flights_before = flights;
    const double g = static_cast<double>(flights) / cuts.chunks(d);
    const Kind& kind = kind_of(d, g);
    const double room = static_cast<double>(limit) - kind.fixed;
    const auto most = [&](double each) {
      return room < 0 ? -1 : each > 0 ? std::min(blocks_, room / each) : blocks_;
    };
    Devices device;
    device.count = 1;
    device.free = most(kind.state + g * kept), device.most = most(kind.state + g * least_kept);
    device.over = g > 0 && std::isfinite(price) ? price * (kind.state / g + kept) : 0;
    device.begin_s = seconds_of(times.of({}, d == 0, false));
    device.ends_s = seconds_of(kind.ends), device.forward_s = kind.ends.forward_s;
    device.way_s = device.ends_s - kind.ends.weight_s;
    device.ahead = one_by_one || splits_ ? static_cast<double>(flights) - 1 : 0;
    devices_.push_back(device);
  }
}

// Blocks in so many seconds that take `each`, and `more` beyond those that are free.
double RelaxedCuts::within(const Devices& device, double seconds, double each, double more) {
  const double plain = seconds / each, free = std::max(device.free, 0.0);
  return plain <= free || more == 0 ? plain : free + (seconds - each * free) / (each + more);
}

// As a whole number; below the least where even that is too many. `before_s`: passes that the device waits
// for.
double RelaxedCuts::most_blocks(const Devices& device, double step_s, double work_s, double before_s) const {
  double most =
      std::min(device.most, within(device, (step_s - before_s) / m_ - device.ends_s, block_s_, device.over));
  if (drains_) {
    const double rest = step_s - work_s - (m_ - 1) * device.ends_s + device.ahead * device.forward_s;
    const double each = (m_ - 1) * block_s_ - device.ahead * forward_s_;
    if (each > 0)
      most = std::min(most, within(device, rest, each, (m_ - 1) * device.over));
    else if (each == 0 && rest < 0)
      most = -1;
  }
  return std::floor(most * (1 + 1e-9) + 1e-9);
}

// What saving takes at least, of a micro-batch, with no more than `most` blocks on the devices of each kind.
double RelaxedCuts::forced_seconds(const std::vector<double>& most) const {
  double left = blocks_;
  for (size_t i = 0; i < devices_.size(); ++i)
    left -= static_cast<double>(devices_[i].count) * std::clamp(devices_[i].free, 0.0, most[i]);
  std::vector<size_t> order(devices_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return devices_[i].over; });
  double seconds = 0;
  for (const size_t i : order) {
    if (left <= 0) break;
    const Devices& device = devices_[i];
    const double room = static_cast<double>(device.count) * (most[i] - std::clamp(device.free, 0.0, most[i]));
    const double taken = std::min(left, room);
    seconds += taken * device.over, left -= taken;
  }
  return seconds;
}

// Whether the devices have fewer than all blocks, each as many as it does between the first chunks of those
// before it. One block more before a device takes less from it than it adds. First chunks of a device with n
// blocks have n / v, rounded up; with no more than `most` blocks those of several devices have no fewer than
// the convex hull of that says for each with as many.
bool RelaxedCuts::too_few_between_chunks(double step_s, double most) const {
  const double even = std::floor(most / chunks_) * chunks_, rest = most - even;
  const auto first_chunk = [&](double n) {
    return n <= even || rest == 0 ? std::max(1.0, n / chunks_)
                                  : std::max(1.0, even / chunks_ + (n - even) / rest);
  };
  double begun = 0, others = 0, before = 0;
  for (const Devices& device : devices_)
    for (int64_t i = 0; i < device.count; ++i) {
      const double waits = before == 0 ? 0 : others + before * first_chunk(begun / before) * block_s_;
      begun += std::max(0.0, most_blocks(device, step_s, 0, kBoundSlack * waits));
      if (begun >= blocks_) return false;
      others += device.begin_s, ++before;
    }
  return true;
}

// Whether the devices from the last one on, each with the most blocks beside the ways of those after it, have
// fewer than all. A block moved to a later device adds no more to that one's way than it takes from its own
// device's time, so some cut has those blocks if any is fast enough.
bool RelaxedCuts::too_few_after_ways(double step_s) const {
  const double ahead = devices_.front().ahead;
  if (way_s_ > m_ * block_s_ - ahead * forward_s_) return false;
  double held = 0, ways = 0, before = 0;
  for (const Devices& device : devices_) before += static_cast<double>(device.count);
  for (size_t i = devices_.size(); i-- > 0;)
    for (int64_t k = 0; k < devices_[i].count; ++k) {
      const Devices& device = devices_[i];
      const double rest = step_s - kBoundSlack * (ways + held * way_s_) - m_ * device.ends_s +
                          device.ahead * device.forward_s;
      double most = most_blocks(device, step_s, 0, 0);
      most = std::min(
          most, std::floor(within(device, rest, m_ * block_s_ - device.ahead * forward_s_, m_ * device.over) *
                               (1 + 1e-9) +
                           1e-9));
      if (most < least_) return true;
      held += most, ways += device.way_s, --before;
      if (held + before * least_ >= blocks_) return false;
    }
  return true;
}

bool RelaxedCuts::none_below(double step_s) const {
  double work = kBoundSlack * work_s_;
  const double limit = step_s * (1 + 1e-9);
  std::vector<double> most(devices_.size());
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    double all = 0, largest = 0;
    for (size_t i = 0; i < devices_.size(); ++i) {
      most[i] = most_blocks(devices_[i], limit, work, 0);
      largest = std::max(largest, most[i]);
      if (most[i] < least_) return true;
      all += static_cast<double>(devices_[i].count) * most[i];
    }
    if (all < blocks_) return true;
    if (chunks_ > 1) return too_few_between_chunks(limit, largest);
    if (splits_) return too_few_after_ways(limit);
    if (!drains_) return false;
    const double forced = kBoundSlack * (work_s_ + forced_seconds(most));
    if (forced <= work * (1 + 1e-6)) return false;
    work = forced;
  }
  return false;
}

}  // namespace tessera
