#include "parallel/composition/composed_time.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/pricing/cost_model.h"
#include "parallel/pricing/program_time.h"

namespace tessera {

namespace {

double seconds(std::span<const StepProfile> variants, const std::vector<StageBlock>& blocks, Turn turn,
               BlockPass pass) {
  double sum = 0;
  for (const StageBlock block : blocks)
    sum += variants[static_cast<size_t>(block.variant)].cost(block.block, turn, pass).seconds;
  return sum;
}

double copying_seconds(std::span<const StepProfile> variants, const std::vector<StageBlock>& blocks) {
  double sum = 0;
  for (const StageBlock block : blocks)
    sum += variants[static_cast<size_t>(block.variant)].copying_s[static_cast<size_t>(block.block)];
  return sum;
}

// Message time from the first device of one place to that of another.
double message_seconds(const StepProfile& profile, int64_t bytes, int32_t from, int32_t to,
                       const Cluster& cluster) {
  if (bytes == 0) return 0;
  SendInst send;
  send.bytes = bytes;
  send.peer = to * profile.devices;
  return seconds_at(price_of(RankProgram(), send, cluster, from * profile.devices), cluster, 1);
}

// Parameters shared by both ends of a model: the last stage's gradient goes to the first, and the sum comes back.
double exchange_seconds(const StepProfile& profile, const ComposedStages& stages, const Cluster& cluster) {
  const int32_t first = 0, last = stages.shape.device_of(stages.shape.stages() - 1);
  if (first == last) return 0;
  double sum = 0;
  for (const PersistentBytes& it : profile.persistent)
    if (it.kind == SlotKind::kParameter && it.blocks.front() == 0 && it.blocks.back() == profile.map.after())
      sum += 2 * message_seconds(profile, it.bytes, first, last, cluster);
  return sum;
}

Turn turn_of(const PipelineShape& shape, int32_t micro_batch) {
  if (shape.devices > 1) return shape.micro_batches > 1 ? Turn::kSteady : Turn::kFirst;
  return micro_batch + 1 == shape.micro_batches ? Turn::kLast
         : micro_batch == 0                     ? Turn::kFirst
                                                : Turn::kSteady;
}

// The passes of an action.
std::vector<BlockPass> passes_of(const PipelineAction& action, const PipelineShape& shape) {
  if (action.work == PipelineWork::kForward) return {BlockPass::kForward};
  if (action.work == PipelineWork::kBackwardInput || !shape.splits_backward()) return {BlockPass::kBackward};
  if (action.work == PipelineWork::kBackwardWeight) return {BlockPass::kWeight};
  return {BlockPass::kBackward, BlockPass::kWeight};
}

// Whether its result is sent to another device.
bool sends(const PipelineAction& action, const PipelineShape& shape) {
  const int32_t to = action.stage + (action.work == PipelineWork::kForward ? 1 : -1);
  return action.work != PipelineWork::kBackwardWeight && to >= 0 && to < shape.stages() &&
         shape.device_of(to) != shape.device_of(action.stage);
}

double without_pipeline(std::span<const StepProfile> variants, const ComposedStages& stages) {
  double sum = copying_seconds(variants, stages.blocks[0]);
  const int32_t count = stages.shape.micro_batches;
  for (const auto& [turn, times] :
       {std::pair(Turn::kFirst, count > 1 ? 1 : 0), std::pair(Turn::kSteady, std::max(0, count - 2)),
        std::pair(Turn::kLast, 1)})
    for (const BlockPass pass : {BlockPass::kForward, BlockPass::kBackward})
      sum += times * seconds(variants, stages.blocks[0], turn, pass);
  return sum;
}

// The actions of one device, in sequence.
PipelineTiming timing_of_one(std::span<const StepProfile> variants, const ComposedStages& stages,
                             const PipelineSchedule& schedule) {
  PipelineTiming timing;
  timing.begin.resize(1), timing.end.resize(1);
  double now = copying_seconds(variants, stages.blocks[0]);
  std::map<std::pair<Turn, BlockPass>, double> known;
  for (const PipelineAction& action : schedule.devices[0]) {
    const std::pair at(turn_of(stages.shape, action.micro_batch), passes_of(action, stages.shape)[0]);
    const auto [cost, is_new] = known.emplace(at, 0);
    if (is_new) cost->second = seconds(variants, stages.blocks[0], at.first, at.second);
    timing.begin[0].push_back(now);
    timing.end[0].push_back(now += cost->second);
  }
  return timing;
}

}  // namespace

Result<ComposedTime> composed_time(std::span<const StepProfile> variants, const ComposedStages& stages,
                                   const Cluster& cluster, ScheduleCache* schedules) {
  if (stages.shape.devices == 1) {
    ComposedTime time;
    time.passes_s = without_pipeline(variants, stages);
    time.update_s = seconds(variants, stages.blocks[0], Turn::kLast, BlockPass::kUpdate);
    time.step_s = time.passes_s + time.update_s;
    return time;
  }
  ScheduleCache own;
  TSR_ASSIGN_OR_RETURN(const PipelineSchedule* const schedule,
                       (schedules != nullptr ? *schedules : own).schedule(stages.shape));
  TSR_ASSIGN_OR_RETURN(const ComposedRun run, composed_run(variants, stages, *schedule, cluster));
  return run.time;
}

Result<ComposedRun> composed_run(std::span<const StepProfile> variants, const ComposedStages& stages,
                                 const PipelineSchedule& schedule, const Cluster& cluster) {
  ComposedRun run;
  if (stages.shape.devices == 1) {
    run.timing = timing_of_one(variants, stages, schedule);
  } else {
    const Turn turn = turn_of(stages.shape, 0);
    std::vector<PipelineCosts> costs;
    const int64_t message = std::max(variants[0].forward_message, variants[0].backward_message);
    for (int32_t s = 0; s < stages.shape.stages(); ++s) {
      const std::vector<StageBlock>& blocks = stages.blocks[static_cast<size_t>(s)];
      const int32_t next = std::min(s + 1, stages.shape.stages() - 1);
      costs.push_back({.forward = seconds(variants, blocks, turn, BlockPass::kForward),
                       .backward_input = seconds(variants, blocks, turn, BlockPass::kBackward),
                       .backward_weight = seconds(variants, blocks, turn, BlockPass::kWeight),
                       .comm = message_seconds(variants[0], message, stages.shape.device_of(s),
                                               stages.shape.device_of(next), cluster)});
      run.message_s = std::max(run.message_s, costs.back().comm);
    }
    TSR_ASSIGN_OR_RETURN(run.timing, replay(schedule, costs));
    // The extra time of the first micro-batch (gathers of weights) overlaps with the wait for it.
    for (size_t d = 0; d < run.timing.end.size(); ++d) {
      if (run.timing.end[d].empty()) continue;
      const std::vector<StageBlock>& first = stages.blocks[static_cast<size_t>(schedule.devices[d][0].stage)];
      run.late_s = std::max(run.late_s, seconds(variants, first, Turn::kFirst, BlockPass::kForward) -
                                            seconds(variants, first, turn, BlockPass::kForward) -
                                            run.timing.begin[d][0]);
    }
    run.exchange_s = exchange_seconds(variants[0], stages, cluster);
    std::vector<double> passes(static_cast<size_t>(stages.shape.devices), 0);
    for (int32_t s = 0; s < stages.shape.stages(); ++s) {
      const PipelineCosts& it = costs[static_cast<size_t>(s)];
      passes[static_cast<size_t>(stages.shape.device_of(s))] +=
          it.forward + it.backward_input + it.backward_weight;
    }
    run.time.slowest = static_cast<int32_t>(std::ranges::max_element(passes) - passes.begin());
  }
  run.updates.assign(static_cast<size_t>(stages.shape.devices), 0);
  run.copying = run.updates;
  for (int32_t s = 0; s < stages.shape.stages(); ++s) {
    const auto device = static_cast<size_t>(stages.shape.device_of(s));
    run.updates[device] +=
        seconds(variants, stages.blocks[static_cast<size_t>(s)], Turn::kLast, BlockPass::kUpdate);
    run.copying[device] += copying_seconds(variants, stages.blocks[static_cast<size_t>(s)]);
  }
  for (const std::vector<double>& ends : run.timing.end)
    if (!ends.empty()) run.time.passes_s = std::max(run.time.passes_s, ends.back());
  if (stages.shape.devices > 1) run.time.passes_s += run.late_s + std::ranges::max(run.copying);
  const auto longest = std::ranges::max_element(run.updates);
  run.critical = static_cast<int32_t>(longest - run.updates.begin());
  run.time.update_s = *longest + run.exchange_s;
  run.time.step_s = run.time.passes_s + run.time.update_s;
  return run;
}

std::vector<TimeShare> composed_time_shares(std::span<const StepProfile> variants,
                                            const ComposedStages& stages, const PipelineSchedule& schedule,
                                            const ComposedRun& run) {
  const PipelineShape& shape = stages.shape;
  const auto d = static_cast<size_t>(run.critical);
  std::vector<TimeShare> shares;
  std::map<std::tuple<int32_t, Turn, BlockPass>, int64_t> counts;  // by stage
  double now = 0, exposed_s = 0, bubble_s = 0, messages_s = 0;
  bool has_sent = false;
  const auto wait = [&](double until, bool receives) {
    const double sending = run.message_s * ((has_sent ? 1 : 0) + (receives ? 1 : 0));
    const double exposed = std::min(until - now, sending);
    exposed_s += exposed, bubble_s += until - now - exposed;
  };
  for (size_t a = 0; a < schedule.devices[d].size() && shape.devices > 1; ++a) {
    const PipelineAction& action = schedule.devices[d][a];
    wait(run.timing.begin[d][a], true);
    now = run.timing.end[d][a], has_sent = sends(action, shape);
    messages_s += has_sent ? 2 * run.message_s : 0;  // about as many arrive
  }
  if (shape.devices > 1) wait(run.time.passes_s - run.copying[d], false);
  bubble_s += run.time.update_s - run.exchange_s - run.updates[d];
  exposed_s += run.exchange_s, messages_s += run.exchange_s;
  for (const PipelineAction& action : schedule.devices[d])
    for (const BlockPass pass : passes_of(action, shape))
      ++counts[{action.stage, turn_of(shape, action.micro_batch), pass}];
  for (int32_t s = 0; s < shape.stages(); ++s)
    if (shape.device_of(s) == run.critical) counts[{s, Turn::kLast, BlockPass::kUpdate}] = 1;
  for (const auto& [at, times] : counts)
    for (const StageBlock block : stages.blocks[static_cast<size_t>(std::get<0>(at))])
      for (const TimeShare& share : variants[static_cast<size_t>(block.variant)]
                                        .causes(block.block, std::get<1>(at), std::get<2>(at))
                                        .time)
        add_share(shares, share, static_cast<double>(times));
  for (int32_t s = 0; s < shape.stages(); ++s)
    if (shape.device_of(s) == run.critical)
      for (const StageBlock block : stages.blocks[static_cast<size_t>(s)])
        for (const TimeShare& share :
             variants[static_cast<size_t>(block.variant)].breakdown.copying[static_cast<size_t>(block.block)])
          add_share(shares, share, 1);
  if (messages_s > 0)
    add_share(shares, {"communication", "pp", exposed_s, std::max(0.0, messages_s - exposed_s)}, 1);
  if (bubble_s > 0) add_share(shares, {"bubble", "", bubble_s, 0}, 1);
  sort_shares(shares);
  return shares;
}

}  // namespace tessera
