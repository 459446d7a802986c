#include "parallel/pipeline/pipeline_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/pipeline/pipeline_replay.h"

namespace tessera {

namespace {

// Equal costs: all passes take one unit, messages none.
constexpr PipelineCosts kEqual;

// Urgencies, lowest first, of: forward of the first chunk, forward of
// a later chunk, input gradient of the first chunk, of a later chunk.
using Urgencies = std::array<int32_t, 4>;

// Rule: one way to choose among ready actions.
struct Rule {
  Urgencies urgency = {2, 1, 0, 0};
  // Applies once all except `before` micro-batches have passed the first chunk of the
  // device, or of device 0. Forwards first: the last micro-batch has the longest way left.
  Urgencies late_urgency = {0, 1, 2, 2};
  int32_t before = 0;
  bool everywhere = false;
  // Alternates input gradients and forwards if both are ready.
  bool alternate = false;
  // Time, in shares of a weight gradient, that
  // a device waits for a more urgent action.
  double patience = 0;
  // The first chunk holds at most the bound minus this (at least what later chunks need to proceed).
  int32_t reserve = 0;
};

class ListScheduler {
 public:
  ListScheduler(const PipelineShape& shape, const Rule& rule) : shape_(shape), rule_(rule) {
    const auto stages = static_cast<size_t>(shape.stages());
    forward_.resize(stages);
    backward_.resize(stages);
    weight_.assign(stages, 0);
    const auto devices = static_cast<size_t>(shape.devices);
    free_.assign(devices, 0);
    live_.resize(devices, std::vector<int32_t>(static_cast<size_t>(shape.virtual_stages), 0));
    last_.assign(devices, PipelineWork::kBackwardInput);
    stages_of_.resize(devices);
    for (int32_t s = 0; s < shape.stages(); ++s)
      stages_of_[static_cast<size_t>(shape.device_of(s))].push_back(s);
    next_.resize(devices);
    idle_.assign(devices, 0);
    work_ = static_cast<double>(shape.micro_batches * shape.virtual_stages) *
            (kEqual.forward + kEqual.backward_input + kEqual.backward_weight);
    is_known_.assign(devices, false);
    out_.shape = shape;
    out_.devices.resize(devices);
  }

  // Nothing if the rule deadlocks, or if a device's span reaches `most`.
  std::optional<PipelineSchedule> run(double most) {
    const size_t total =
        (shape_.splits_backward() ? 3 : 2) * forward_.size() * static_cast<size_t>(shape_.micro_batches);
    for (size_t step = 0; step < total; ++step) {
      const std::optional<Candidate>* next = nullptr;
      for (int32_t d = 0; d < shape_.devices; ++d) {
        std::optional<Candidate>& own = next_[static_cast<size_t>(d)];
        if (!is_known_[static_cast<size_t>(d)]) own = choose(d), is_known_[static_cast<size_t>(d)] = true;
        if (own && (next == nullptr || own->begin < (*next)->begin)) next = &own;
      }
      if (next == nullptr) return std::nullopt;
      const Candidate chosen = **next;
      const auto device = static_cast<size_t>(shape_.device_of(chosen.action.stage));
      if (!out_.devices[device].empty()) idle_[device] += chosen.begin - free_[device];
      if (work_ + idle_[device] >= most) return std::nullopt;
      commit(chosen);
    }
    return std::move(out_);
  }

 private:
  struct Candidate {
    PipelineAction action;
    double begin = 0;
    int32_t urgency = 0;
  };

  int32_t count(const std::vector<double>& done) const { return static_cast<int32_t>(done.size()); }

  bool has_room(int32_t device, int32_t chunk) const {
    // Every later chunk reserves room for one, so that micro-batches under way can always finish.
    int32_t held = 0;
    for (const int32_t live : live_[static_cast<size_t>(device)]) held += live;
    int32_t missing = 0;
    for (int32_t c = chunk + 1; c < shape_.virtual_stages; ++c)
      missing += live_[static_cast<size_t>(device)][static_cast<size_t>(c)] == 0;
    if (chunk == 0 && shape_.virtual_stages > 1) missing = std::max(missing, rule_.reserve);
    return held + 1 + missing <= live_bound(shape_, device);
  }

  void offer(std::vector<Candidate>& all, int32_t device, PipelineWork work, int32_t stage, int32_t j,
             double ready, int32_t urgency) const {
    all.push_back({{work, stage, j}, std::max(ready, free_[static_cast<size_t>(device)]), urgency});
  }

  std::optional<Candidate> choose(int32_t device) {
    std::vector<Candidate>& all = offered_;
    all.clear();
    const bool was_forward = last_[static_cast<size_t>(device)] == PipelineWork::kForward;
    const auto first = static_cast<size_t>(rule_.everywhere ? 0 : device);
    const bool late = count(forward_[first]) >= shape_.micro_batches - rule_.before;
    const Urgencies& urgencies = late ? rule_.late_urgency : rule_.urgency;
    bool blocked = false;  // a forward is ready but lacks room: weight gradients go first
    for (const int32_t stage : stages_of_[static_cast<size_t>(device)]) {
      const auto s = static_cast<size_t>(stage);
      const int32_t chunk = shape_.chunk_of(stage);
      const int32_t f = count(forward_[s]), b = count(backward_[s]);
      if (f < shape_.micro_batches && (stage == 0 || count(forward_[s - 1]) > f)) {
        const double ready = stage == 0 ? 0 : forward_[s - 1][static_cast<size_t>(f)];
        const int32_t urgency = urgencies[chunk == 0 ? 0 : 1] + (rule_.alternate && was_forward ? 4 : 0);
        if (has_room(device, chunk))
          offer(all, device, PipelineWork::kForward, stage, f, ready, urgency);
        else
          blocked = blocked || ready <= free_[static_cast<size_t>(device)] + kEpsilon;
      }
      const bool last = stage + 1 == shape_.stages();
      if (b < f && (last || count(backward_[s + 1]) > b)) {
        double ready = forward_[s][static_cast<size_t>(b)];
        if (!last) ready = std::max(ready, backward_[s + 1][static_cast<size_t>(b)]);
        const int32_t urgency = urgencies[chunk == 0 ? 2 : 3] + (rule_.alternate && !was_forward ? 4 : 0);
        offer(all, device, shape_.splits_backward() ? PipelineWork::kBackwardInput : PipelineWork::kBackward,
              stage, b, ready, urgency);
      }
    }
    for (const int32_t stage : stages_of_[static_cast<size_t>(device)]) {
      const auto s = static_cast<size_t>(stage);
      const int32_t w = weight_[s];
      if (shape_.splits_backward() && w < count(backward_[s]))
        offer(all, device, PipelineWork::kBackwardWeight, stage, w, backward_[s][static_cast<size_t>(w)],
              blocked ? -1 : kLeastUrgent);
    }
    if (all.empty()) return std::nullopt;
    double earliest = all[0].begin, urgent = -1;
    for (const Candidate& c : all) {
      earliest = std::min(earliest, c.begin);
      if (c.urgency < kLeastUrgent) urgent = urgent < 0 ? c.begin : std::min(urgent, c.begin);
    }
    // Weight gradients yield to actions about to become ready.
    const double until =
        urgent >= 0 && urgent <= earliest + rule_.patience * kEqual.backward_weight ? urgent : earliest;
    const Candidate* best = nullptr;
    for (const Candidate& c : all)
      if (c.begin <= until + kEpsilon &&
          (best == nullptr || c.urgency < best->urgency ||
           (c.urgency == best->urgency && c.action.micro_batch < best->action.micro_batch)))
        best = &c;
    return *best;
  }

  void commit(const Candidate& c) {
    const auto device = static_cast<size_t>(shape_.device_of(c.action.stage));
    const auto stage = static_cast<size_t>(c.action.stage);
    const auto chunk = static_cast<size_t>(shape_.chunk_of(c.action.stage));
    double& now = free_[device];
    if (c.action.work == PipelineWork::kForward) {
      now = c.begin + kEqual.forward;
      forward_[stage].push_back(now);
      ++live_[device][chunk];
    } else if (c.action.work == PipelineWork::kBackwardInput) {
      now = c.begin + kEqual.backward_input;
      backward_[stage].push_back(now);
    } else if (c.action.work == PipelineWork::kBackward) {
      now = c.begin + kEqual.backward_input + kEqual.backward_weight;
      backward_[stage].push_back(now);
      --live_[device][chunk];
    } else {
      now = c.begin + kEqual.backward_weight;
      ++weight_[stage];
      --live_[device][chunk];
    }
    if (c.action.work != PipelineWork::kBackwardWeight) last_[device] = c.action.work;
    out_.devices[device].push_back(c.action);
    forget(c.action);
  }

  // Invalidates the choices of the stage's devices and its
  // neighbours'; if the first stage determines lateness, all choices.
  void forget(const PipelineAction& action) {
    if (rule_.everywhere && action.work == PipelineWork::kForward && action.stage == 0)
      return is_known_.assign(is_known_.size(), false);
    for (int32_t s = std::max(0, action.stage - 1); s <= std::min(shape_.stages() - 1, action.stage + 1); ++s)
      is_known_[static_cast<size_t>(shape_.device_of(s))] = false;
  }

  static constexpr double kEpsilon = 1e-9;
  static constexpr int32_t kLeastUrgent = 8;
  const PipelineShape& shape_;
  const Rule& rule_;
  std::vector<std::vector<double>> forward_, backward_;  // by stage and micro-batch: end
  std::vector<int32_t> weight_;                          // by stage: number done
  std::vector<double> free_;                             // by device
  std::vector<std::vector<int32_t>> live_;               // by device and chunk
  std::vector<PipelineWork> last_;
  std::vector<std::vector<int32_t>> stages_of_;  // by device
  std::vector<std::optional<Candidate>> next_;   // by device, if known
  std::vector<bool> is_known_;
  std::vector<double> idle_;  // by device, since its first action
  double work_ = 0;           // per device
  std::vector<Candidate> offered_;
  PipelineSchedule out_;
};

// These cover the best of some thousand combinations on all shapes tested.
constexpr std::array<Rule, 33> kRules = [] {
  constexpr Urgencies kLate = {0, 1, 2, 2};
  std::array<Rule, 33> all;
  size_t at = 0;
  for (const Urgencies& urgency :
       {Urgencies{1, 0, 2, 2}, Urgencies{0, 1, 2, 2}, Urgencies{2, 1, 0, 0}, Urgencies{1, 2, 0, 0}})
    for (const bool alternate : {true, false})
      for (const double patience : {0.0, 0.5})
        for (const int32_t reserve : {0, 1})
          all[at++] = {urgency, kLate, 0, false, alternate, patience, reserve};
  all[at] = {{3, 1, 0, 2}, {3, 2, 1, 0}, 2, true, true, 0, 0};
  return all;
}();

}  // namespace

Result<PipelineSchedule> search_pipeline_schedule(const PipelineShape& shape) {
  std::optional<PipelineSchedule> best;
  double shortest = 0;
  const double bound = static_cast<double>(shape.micro_batches * shape.virtual_stages) *
                       (kEqual.forward + kEqual.backward_input + kEqual.backward_weight);
  const auto is_shorter = [](double a, double b) { return a < b * (1 - 1e-9); };
  // Actions times devices that one rule may examine: minutes of work.
  constexpr int64_t kMostSteps = int64_t{1} << 28;
  if (int64_t{shape.stages()} * shape.micro_batches * shape.devices > kMostSteps)
    return Status(StatusCode::kUnsupported, format("a schedule of {} stages and {} micro-batches takes too "
                                                   "long to find; use 1f1b, a larger mb or fewer stages",
                                                   shape.stages(), shape.micro_batches));
  for (const Rule& rule : kRules) {
    cancellation_point();
    std::optional<PipelineSchedule> candidate =
        ListScheduler(shape, rule).run(best ? shortest * (1 - 1e-9) : INFINITY);
    if (!candidate) continue;
    TSR_ASSIGN_OR_RETURN(const PipelineTiming timing, replay(*candidate, kEqual));
    if (best && !is_shorter(timing.longest_device, shortest)) continue;
    best = std::move(candidate);
    shortest = timing.longest_device;
    if (!is_shorter(bound, shortest)) break;
  }
  if (!best) return Status(StatusCode::kInternal, "no rule finds a pipeline schedule");
  return std::move(*best);
}

}  // namespace tessera
