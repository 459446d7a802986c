#include "parallel/analytic/zero_bubble_replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <queue>

namespace tessera {

namespace {

enum class Work : uint8_t { kForward, kInput, kWeight };

// One way to choose among what is ready; the rules are those of parallel/pipeline/pipeline_search that matter
// here.
struct Rule {
  // Urgencies, least first: forward of the first chunk, of the second, input gradient of the first, the
  // second.
  std::array<int32_t, 4> urgency = {2, 1, 0, 0};
  bool alternate = false;  // input gradients and forwards take turns
  double patience = 0;     // shares of a weight gradient that a device waits for something more urgent
  // Shares of a forward pass that a device waits for an input gradient under way, for its first so many:
  // the first ones come back through all devices, and would wait for a forward pass on each.
  double courtesy = 0;
  int64_t courteous = 0;
};

constexpr int64_t kAll = INT64_MAX;

// Chosen by what they add to each other on random pipelines, the best first.
constexpr Rule kOneChunk[] = {
    {{2, 1, 0, 0}, true, 0.5, 1, 1},    {{1, 0, 2, 2}, true, 0, 0.5, 2},    {{2, 1, 0, 0}, true, 0.5, 0, 0},
    {{1, 0, 2, 2}, true, 0, 1, 1},      {{2, 1, 0, 0}, true, 0.5, 0.5, 1},  {{1, 0, 2, 2}, true, 0, 0, 0},
    {{2, 1, 0, 0}, false, 0.5, 1, 1},   {{2, 1, 0, 0}, true, 0.5, 1, kAll}, {{2, 1, 0, 0}, true, 0.5, 0.5, 2},
    {{2, 1, 0, 0}, false, 0.5, 0.5, 2}, {{2, 1, 0, 0}, false, 0.5, 0.5, 1}, {{1, 0, 2, 2}, true, 0, 1, 2},
};
constexpr Rule kTwoChunks[] = {
    {{2, 1, 0, 0}, false, 0.5, 0, 0},      {{2, 1, 0, 0}, true, 0.5, 1, kAll},
    {{1, 0, 2, 2}, false, 0, 0, 0},        {{2, 1, 0, 0}, true, 0.5, 0.5, 2},
    {{0, 1, 2, 2}, false, 0.5, 0, 0},      {{2, 1, 0, 0}, false, 0.5, 0.5, 2},
    {{2, 1, 0, 0}, false, 0.5, 0.5, kAll}, {{1, 0, 2, 2}, true, 0, 1, 1},
    {{1, 0, 2, 2}, true, 0, 0, 0},         {{2, 1, 0, 0}, false, 0, 0, 0},
    {{2, 1, 0, 0}, true, 0.5, 0, 0},       {{0, 1, 2, 2}, true, 0.5, 0, 0},
};

class Greedy {
 public:
  Greedy(ForeignSchedule schedule, int32_t devices, int64_t m, std::span<const StageTime> times, double hop,
         Rule rule, double most_s, std::vector<ReplayedPass>* passes)
      : p_(devices),
        chunks_(schedule == ForeignSchedule::kZbV ? 2 : 1),
        m_(m),
        limit_(zero_bubble_limit(schedule, devices)),
        times_(times),
        hop_(devices > 1 ? hop : 0),
        rule_(rule),
        most_s_(most_s),
        passes_(passes),
        stages_(static_cast<size_t>(devices * chunks_)),
        devices_(static_cast<size_t>(devices)) {
    for (int32_t stage = 0; stage < p_ * chunks_; ++stage) {
      const StageTime& time = times_[static_cast<size_t>(stage)];
      devices_[static_cast<size_t>(device_of(stage))].left +=
          static_cast<double>(m) * (time.forward_s + time.backward_s);
    }
    double there = 0, back = 0, longest = 0;
    for (size_t stage = 0; stage < times_.size(); ++stage) {
      const double input = times_[stage].backward_s - times_[stage].weight_s;
      back += input, longest = std::max(longest, input);
      back_.push_back({back, longest});
    }
    there_.resize(times_.size());
    for (size_t stage = times_.size(); stage-- > 0;) {
      there += times_[stage].forward_s, longest = std::max(longest, times_[stage].forward_s);
      there_[stage] = {there + back, longest};
    }
  }

  ReplayedPipeline run() {
    for (int32_t stage = 0; stage < p_ * chunks_; ++stage) {
      at(stage).forward_ready.assign(static_cast<size_t>(m_), stage == 0 ? 0 : INFINITY);
      at(stage).input_ready.assign(static_cast<size_t>(m_), INFINITY);
    }
    for (int32_t device = 0; device < p_; ++device) wake(0, device);
    while (!events_.empty() && !over_) {
      const auto [time, device] = events_.top();
      events_.pop();
      step(device, time);
    }
    ReplayedPipeline replay;
    if (over_) replay.makespan_s = INFINITY;
    for (const Device& device : devices_) {
      replay.makespan_s = std::max(replay.makespan_s, device.end - device.begin);
      replay.busy_s.push_back(device.busy);
      replay.peak_live.push_back(device.peak);
    }
    return replay;
  }

 private:
  static constexpr int32_t kNone = 100;
  // From a stage on: the way of a micro-batch back to the first stage, and the longest pass on it.
  struct Way {
    double seconds = 0, longest = 0;
  };
  struct Stage {
    std::vector<double> forward_ready, input_ready;  // by micro-batch
    int64_t forwards = 0, inputs = 0, weights = 0;   // done
  };
  struct Device {
    double free = 0, begin = INFINITY, end = 0, busy = 0;
    double left = 0;  // to do
    int64_t live = 0, peak = 0;
    bool was_forward = false;
  };

  Stage& at(int32_t stage) { return stages_[static_cast<size_t>(stage)]; }
  int32_t device_of(int32_t stage) const { return stage < p_ ? stage : 2 * p_ - 1 - stage; }
  void wake(double time, int32_t device) { events_.push({time, device}); }

  // Virtual stages of a device, the later first.
  std::pair<int32_t, int32_t> stages_of(int32_t device) const {
    return chunks_ == 2 ? std::pair{2 * p_ - 1 - device, device} : std::pair{device, -1};
  }

  void step(int32_t d, double now) {
    Device& device = devices_[static_cast<size_t>(d)];
    if (device.free > now) return;  // woken again when it is
    const auto [late, early] = stages_of(d);
    int32_t best = kNone, at_stage = -1, weight = -1;
    Work work = Work::kForward;
    double soonest = INFINITY;  // of what is more urgent than a weight gradient
    bool blocked = false;       // a forward is ready and finds no room: weight gradients go first
    const auto offer = [&](int32_t stage, Work what, double when, int32_t urgency) {
      if (when > now) {
        soonest = std::min(soonest, when);
      } else if (urgency < best) {
        best = urgency, at_stage = stage, work = what;
      }
    };
    // Once all are through the first chunk forwards come first: the last micro-batch has the longest way
    // left.
    const bool through = at(chunks_ == 2 ? early : late).forwards == m_;
    const std::array<int32_t, 4> urgency = through ? std::array<int32_t, 4>{0, 1, 2, 2} : rule_.urgency;
    for (const int32_t stage : {late, early}) {
      if (stage < 0) continue;
      const Stage& self = at(stage);
      const bool second = chunks_ == 2 && stage == late;
      if (self.forwards < m_) {
        const double when = self.forward_ready[static_cast<size_t>(self.forwards)];
        // The second chunk keeps room for one, so that what is under way can always reach the end.
        const int64_t room = chunks_ == 2 && !second && live(late) == 0 ? 1 : 0;
        if (device.live + room < limit_)
          offer(stage, Work::kForward, when,
                urgency[second] + (rule_.alternate && device.was_forward ? 4 : 0));
        else
          blocked = blocked || when <= now;
      }
      if (self.inputs < m_)
        offer(stage, Work::kInput, self.input_ready[static_cast<size_t>(self.inputs)],
              urgency[second ? 3 : 2] + (rule_.alternate && !device.was_forward ? 4 : 0));
      if (self.weights < self.inputs) weight = stage;
    }
    if (best < kNone && work == Work::kForward && rule_.courtesy > 0) {
      double comes = INFINITY;
      for (const int32_t stage : {late, early})
        if (stage >= 0 && at(stage).inputs < std::min(m_, rule_.courteous))
          comes = std::min(comes, at(stage).input_ready[static_cast<size_t>(at(stage).inputs)]);
      if (comes > now && comes <= now + rule_.courtesy * times_[static_cast<size_t>(at_stage)].forward_s) {
        if (weight >= 0 && comes - now > 0.5 * times_[static_cast<size_t>(weight)].weight_s)
          start(d, weight, Work::kWeight, now);
        return;  // woken again when it is there
      }
    }
    if (weight >= 0 && blocked) return start(d, weight, Work::kWeight, now);
    if (best < kNone) return start(d, at_stage, work, now);
    if (weight < 0) return;
    if (soonest <= now + rule_.patience * times_[static_cast<size_t>(weight)].weight_s) return;
    start(d, weight, Work::kWeight, now);
  }

  int64_t live(int32_t stage) { return at(stage).forwards - at(stage).weights; }

  void start(int32_t d, int32_t stage, Work work, double now) {
    Device& device = devices_[static_cast<size_t>(d)];
    Stage& self = at(stage);
    const StageTime& time = times_[static_cast<size_t>(stage)];
    const double busy = work == Work::kForward  ? time.forward_s
                        : work == Work::kWeight ? time.weight_s
                                                : time.backward_s - time.weight_s;
    const double end = now + busy;
    int64_t micro_batch = 0;
    if (work == Work::kForward) {
      micro_batch = self.forwards++;
      device.peak = std::max(device.peak, ++device.live);
      const auto next = static_cast<size_t>(micro_batch);
      if (stage + 1 < p_ * chunks_)
        arrive(at(stage + 1).forward_ready[next], d, stage + 1, end);
      else
        self.input_ready[next] = end;
    } else if (work == Work::kInput) {
      micro_batch = self.inputs++;
      if (stage > 0) arrive(at(stage - 1).input_ready[static_cast<size_t>(micro_batch)], d, stage - 1, end);
    } else {
      micro_batch = self.weights++;
      --device.live;
    }
    if (work != Work::kWeight) device.was_forward = work == Work::kForward;
    device.begin = std::min(device.begin, now);
    device.free = device.end = end;
    device.busy += busy;
    device.left -= busy;
    // What is left takes as long in any order.
    over_ = over_ || (end - device.begin + device.left) * (1 - 1e-12) >= most_s_;
    // All later micro-batches come to the longest pass left one after another, and go on from there; the
    // first device, which began at once, waits for the last of them.
    if (work != Work::kWeight) {
      const Way& way = (work == Work::kForward ? there_ : back_)[static_cast<size_t>(stage)];
      const double last = now + way.seconds + static_cast<double>(m_ - 1 - micro_batch) * way.longest;
      over_ = over_ || last * (1 - 1e-12) >= most_s_;
    }
    wake(end, d);
    if (passes_ != nullptr)
      passes_->push_back({d, stage, micro_batch, work != Work::kForward, work == Work::kWeight, now, end});
  }

  void arrive(double& ready, int32_t from, int32_t stage, double end) {
    const int32_t to = device_of(stage);
    ready = end + (to == from ? 0 : hop_);
    if (to != from) wake(ready, to);
  }

  const int32_t p_, chunks_;
  const int64_t m_, limit_;
  const std::span<const StageTime> times_;
  const double hop_;
  const Rule rule_;
  const double most_s_;
  bool over_ = false;  // takes `most_s_` or more
  std::vector<ReplayedPass>* passes_;
  std::vector<Way> there_, back_;  // by stage: before its forward pass, before its input gradient
  std::vector<Stage> stages_;
  std::vector<Device> devices_;
  using Event = std::pair<double, int32_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

int64_t zero_bubble_limit(ForeignSchedule schedule, int32_t devices) {
  return schedule == ForeignSchedule::kZbH1   ? devices
         : schedule == ForeignSchedule::kZbH2 ? 2 * devices - 1
                                              : 2 * devices;
}

double zero_bubble_bound(ForeignSchedule schedule, int32_t devices, int64_t micro_batches,
                         std::span<const StageTime> times) {
  const auto m = static_cast<double>(micro_batches);
  const bool two = schedule == ForeignSchedule::kZbV;
  const int64_t held = zero_bubble_limit(schedule, devices);
  const auto ahead = static_cast<double>(std::min(micro_batches, two ? held - 1 : held));
  const auto late = static_cast<double>(std::max<int64_t>(0, micro_batches * (two ? 2 : 1) - held));
  const auto input = [](const StageTime& time) { return time.backward_s - time.weight_s; };
  // Of the stages after a device's first one: forward passes, input gradients, the longest pass; forward
  // passes between its two chunks.
  double forward = 0, back = 0, longest = 0, inside = 0;
  if (two)
    for (size_t stage = static_cast<size_t>(devices); stage < times.size(); ++stage) {
      forward += times[stage].forward_s, back += input(times[stage]);
      longest = std::max({longest, times[stage].forward_s, input(times[stage])});
    }
  double least = 0;
  // Of a device from this one on: what it does between its first forward pass and its last input gradient,
  // with the way there and back from this one.
  double between = 0;
  for (int32_t d = devices; d-- > 0;) {
    const StageTime& first = times[static_cast<size_t>(d)];
    const StageTime none, &last = two ? times[static_cast<size_t>(2 * devices - 1 - d)] : none;
    const double both = first.forward_s + first.backward_s + last.forward_s + last.backward_s;
    least = std::max(least, m * both);
    // Its second chunk, or its first input gradient, waits for the way there (and back).
    const double waits = two ? inside : forward + back;
    least = std::max(least, first.forward_s + waits - ahead * first.forward_s + m * both);
    inside += first.forward_s + last.forward_s;
    forward += first.forward_s, back += input(first);
    longest = std::max({longest, first.forward_s, input(first)});
    // The last micro-batch comes to the longest pass after all others, and goes on from there.
    least = std::max(least, forward + back + (m - 1) * longest + first.weight_s);
    const double weight = two ? std::min(first.weight_s, last.weight_s) : first.weight_s;
    const double own = m * (both - first.weight_s - last.weight_s) + late * weight;
    between = std::max(between + first.forward_s + input(first), own);
    least = std::max(least, between + first.weight_s);
  }
  return least;
}

ReplayedPipeline replay_zero_bubble(ForeignSchedule schedule, int32_t devices, int64_t m,
                                    std::span<const StageTime> times, double transfer_s,
                                    std::vector<ReplayedPass>* passes, double most_s) {
  const double least = zero_bubble_bound(schedule, devices, m, times);
  ReplayedPipeline best;
  best.makespan_s = INFINITY;
  if (least * (1 - 1e-9) >= most_s) return best;
  const std::span<const Rule> rules =
      schedule == ForeignSchedule::kZbV ? std::span<const Rule>(kTwoChunks) : kOneChunk;
  // Long pipelines try fewer: there the rules differ least, and take longest.
  constexpr int64_t kMostPasses = 1'000'000;
  const int64_t passes_each = 3 * m * static_cast<int64_t>(times.size());
  const auto tried = static_cast<size_t>(std::clamp<int64_t>(kMostPasses / passes_each, 2, 12));
  Rule chosen;
  for (const Rule& rule : rules.first(std::min(tried, rules.size()))) {
    ReplayedPipeline one =
        Greedy(schedule, devices, m, times, transfer_s, rule, std::min(most_s, best.makespan_s), nullptr)
            .run();
    if (one.makespan_s >= best.makespan_s) continue;
    best = std::move(one), chosen = rule;
    if (best.makespan_s <= least * (1 + 1e-9)) break;  // nothing is shorter
  }
  if (passes != nullptr && std::isfinite(best.makespan_s))
    Greedy(schedule, devices, m, times, transfer_s, chosen, INFINITY, passes).run();
  return best;
}

}  // namespace tessera
