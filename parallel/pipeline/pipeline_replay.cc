#include "parallel/pipeline/pipeline_replay.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

double duration(const PipelineCosts& costs, PipelineWork work) {
  switch (work) {
    case PipelineWork::kForward: return costs.forward;
    case PipelineWork::kBackwardInput: return costs.backward_input;
    case PipelineWork::kBackwardWeight: return costs.backward_weight;
    case PipelineWork::kBackward: return costs.backward_input + costs.backward_weight;
  }
  return 0;
}

class Replay {
 public:
  Replay(const PipelineSchedule& schedule, std::span<const PipelineCosts> costs)
      : schedule_(schedule), shape_(schedule.shape), costs_(costs) {
    const size_t cells = static_cast<size_t>(shape_.stages()) * static_cast<size_t>(shape_.micro_batches);
    forward_.assign(cells, kNotYet);
    backward_.assign(cells, kNotYet);
    weight_.assign(cells, kNotYet);
  }

  Result<PipelineTiming> run() {
    const size_t devices = schedule_.devices.size();
    if (devices != static_cast<size_t>(shape_.devices))
      return Status(StatusCode::kInvalidArgument,
                    format("the schedule lists {} devices, its shape {}", devices, shape_.devices));
    timing_.begin.resize(devices);
    timing_.end.resize(devices);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t d = 0; d < devices; ++d) {
        TSR_ASSIGN_OR_RETURN(const bool advanced, advance(d));
        moved = moved || advanced;
      }
    }
    for (size_t d = 0; d < devices; ++d)
      if (timing_.end[d].size() < schedule_.devices[d].size())
        return Status(StatusCode::kInvalidArgument,
                      format("device {} waits for ever before {}", d,
                             to_text(schedule_.devices[d][timing_.end[d].size()])));
    if (std::ranges::find(weight_, kNotYet) != weight_.end())
      return Status(StatusCode::kInvalidArgument, "a micro-batch is missing in a stage");
    measure();
    return std::move(timing_);
  }

 private:
  static constexpr double kNotYet = -1;

  size_t cell(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(shape_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }

  // When the output of stage `from` reaches stage `to`.
  double arrival(const std::vector<double>& made, int32_t from, int32_t to, int32_t micro_batch) const {
    const double at = made[cell(from, micro_batch)];
    if (at == kNotYet) return kNotYet;
    if (shape_.device_of(from) == shape_.device_of(to)) return at;
    return at + costs_[static_cast<size_t>(std::min(from, to))].comm;
  }

  // kNotYet if an input has not been made.
  double ready(const PipelineAction& a) const {
    const double own = forward_[cell(a.stage, a.micro_batch)];
    if (a.work == PipelineWork::kForward)
      return a.stage == 0 ? 0 : arrival(forward_, a.stage - 1, a.stage, a.micro_batch);
    if (a.work == PipelineWork::kBackwardWeight) return backward_[cell(a.stage, a.micro_batch)];
    if (own == kNotYet || a.stage + 1 == shape_.stages()) return own;
    const double above = arrival(backward_, a.stage + 1, a.stage, a.micro_batch);
    return above == kNotYet ? kNotYet : std::max(own, above);
  }

  Status check(size_t device, const PipelineAction& a) const {
    const auto refuse = [&](std::string_view what) {
      return Status(StatusCode::kInvalidArgument, format("device {}: {} {}", device, to_text(a), what));
    };
    if (a.stage < 0 || a.stage >= shape_.stages() || a.micro_batch < 0 ||
        a.micro_batch >= shape_.micro_batches)
      return refuse("is outside the pipeline");
    if (static_cast<size_t>(shape_.device_of(a.stage)) != device) return refuse("is another device's");
    const size_t at = cell(a.stage, a.micro_batch);
    const std::vector<double>& done = a.work == PipelineWork::kForward          ? forward_
                                      : a.work == PipelineWork::kBackwardWeight ? weight_
                                                                                : backward_;
    return done[at] == kNotYet ? Status() : refuse("is done twice");
  }

  Result<bool> advance(size_t device) {
    const std::vector<PipelineAction>& actions = schedule_.devices[device];
    std::vector<double>&begin = timing_.begin[device], &end = timing_.end[device];
    const size_t before = end.size();
    while (end.size() < actions.size()) {
      const PipelineAction& a = actions[end.size()];
      TSR_RETURN_IF_ERROR(check(device, a));
      const double at = ready(a);
      if (at == kNotYet) break;
      begin.push_back(std::max(at, end.empty() ? 0 : end.back()));
      end.push_back(begin.back() + duration(costs_[static_cast<size_t>(a.stage)], a.work));
      const size_t done = cell(a.stage, a.micro_batch);
      if (a.work == PipelineWork::kForward) forward_[done] = end.back();
      if (a.work == PipelineWork::kBackwardInput || a.work == PipelineWork::kBackward)
        backward_[done] = end.back();
      if (a.work == PipelineWork::kBackwardWeight || a.work == PipelineWork::kBackward)
        weight_[done] = end.back();
    }
    return end.size() > before;
  }

  void measure() {
    double most_work = 0;
    for (size_t d = 0; d < schedule_.devices.size(); ++d) {
      const std::vector<PipelineAction>& actions = schedule_.devices[d];
      double work = 0;
      int32_t live = 0, peak = 0;
      for (const PipelineAction& a : actions) {
        work += duration(costs_[static_cast<size_t>(a.stage)], a.work);
        if (a.work == PipelineWork::kForward) peak = std::max(peak, ++live);
        if (a.work == PipelineWork::kBackward || a.work == PipelineWork::kBackwardWeight) --live;
      }
      timing_.peak_live.push_back(peak);
      most_work = std::max(most_work, work);
      timing_.longest_device =
          std::max(timing_.longest_device, timing_.end[d].back() - timing_.begin[d].front());
    }
    timing_.bubble = timing_.longest_device > 0 ? 1 - most_work / timing_.longest_device : 0;
  }

  const PipelineSchedule& schedule_;
  const PipelineShape& shape_;
  std::span<const PipelineCosts> costs_;
  std::vector<double> forward_, backward_, weight_;  // by stage and micro-batch: end
  PipelineTiming timing_;
};

}  // namespace

Result<PipelineTiming> replay(const PipelineSchedule& schedule, std::span<const PipelineCosts> stage_costs) {
  if (stage_costs.size() != static_cast<size_t>(schedule.shape.stages()))
    return Status(StatusCode::kInvalidArgument,
                  format("{} stages and costs of {}", schedule.shape.stages(), stage_costs.size()));
  return Replay(schedule, stage_costs).run();
}

Result<PipelineTiming> replay(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  const std::vector<PipelineCosts> all(static_cast<size_t>(schedule.shape.stages()), costs);
  return replay(schedule, all);
}

}  // namespace tessera
