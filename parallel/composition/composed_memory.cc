#include "parallel/composition/composed_memory.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "parallel/pipeline/pipeline_line.h"

namespace tessera {

namespace {

// Micro-batches per device that fill any pipeline except gpipe's, which holds all: zb-h2 holds the most, almost 2.
constexpr int32_t kFilling = 4;

int64_t total(int64_t bytes) { return bytes; }
int64_t total(const BytesByCause& bytes) { return bytes.device(); }

// Amount: bytes, or bytes by cause.
template <class Amount>
constexpr bool kByCause = std::is_same_v<Amount, BytesByCause>;

// Device: one device that carries out its actions.
template <class Amount>
class Device {
 public:
  Device(std::span<const StepProfile> variants, const ComposedStages& stages)
      : variants_(variants), stages_(stages), has_gone_(stages.blocks.size()) {}

  void hold_copies(const std::vector<StageBlock>& blocks) {
    for (const StageBlock block : blocks)
      live_ += copies_of(variants_[static_cast<size_t>(block.variant)])[static_cast<size_t>(block.block)];
    note(live_);
  }

  // Consecutive messages are one exchange: sent bytes stay until all have arrived.
  void send(bool forward) { leaving_ += message(forward); }
  // A received value not saved for backward counts as communication until a block reads it.
  void receive(bool forward) {
    Amount arriving = message(forward);
    if constexpr (kByCause<Amount>)
      arriving.of(MemoryCause::kCommunication) += std::exchange(arriving.of(MemoryCause::kTransient), 0);
    note(live_ += arriving);
    unread_ += message(forward) - arriving;
  }

  void act(const PipelineAction& action) {
    live_ -= std::exchange(leaving_, Amount{});
    const auto s = static_cast<size_t>(action.stage);
    const bool splits = stages_.shape.splits_backward();
    if (action.work == PipelineWork::kForward) return forward(s, turn_of(has_gone_[s].forward));
    if (action.work != PipelineWork::kBackwardWeight)
      backward(s, BlockPass::kBackward, turn_of(has_gone_[s].backward));
    if (splits && action.work != PipelineWork::kBackwardInput)
      backward(s, BlockPass::kWeight, turn_of(has_gone_[s].weight));
  }

  // `leads`: the next block's pass follows at once.
  void forward(size_t stage, Turn turn, bool leads = false) {
    const std::vector<StageBlock>& blocks = stages_.blocks[stage];
    for (size_t i = 0; i < blocks.size(); ++i)
      pass(blocks[i], turn, BlockPass::kForward, leads || i + 1 < blocks.size());
  }
  void backward(size_t stage, BlockPass which, Turn turn) {
    const std::vector<StageBlock>& blocks = stages_.blocks[stage];
    for (size_t i = blocks.size(); i-- > 0;) pass(blocks[i], turn, which, i > 0);
  }
  void update(size_t stage) {
    for (const StageBlock block : stages_.blocks[stage]) pass(block, Turn::kLast, BlockPass::kUpdate, true);
  }

  // The peak since the last call.
  Amount take_most() { return std::exchange(most_, live_); }

 private:
  struct Gone {
    bool forward = false, backward = false, weight = false;
  };

  static Turn turn_of(bool& has_gone) { return std::exchange(has_gone, true) ? Turn::kSteady : Turn::kFirst; }

  void pass(StageBlock block, Turn turn, BlockPass pass, bool leads) {
    const auto& bytes = cost_of(variants_[static_cast<size_t>(block.variant)], block.block, turn, pass);
    note(live_ + (leads && total(bytes.peak_ahead) > total(bytes.peak) ? bytes.peak_ahead : bytes.peak));
    live_ += std::exchange(unread_, Amount{});
    note(live_ += bytes.left);
  }

  static const auto& copies_of(const StepProfile& profile) {
    if constexpr (kByCause<Amount>)
      return profile.breakdown.copies;
    else
      return profile.copies;
  }
  static const auto& cost_of(const StepProfile& profile, int32_t block, Turn turn, BlockPass pass) {
    if constexpr (kByCause<Amount>)
      return profile.causes(block, turn, pass);
    else
      return profile.cost(block, turn, pass);
  }
  const Amount& message(bool forward) const {
    if constexpr (kByCause<Amount>)
      return variants_[0].breakdown.messages[forward ? 0 : 1];
    else
      return forward ? variants_[0].forward_message : variants_[0].backward_message;
  }

  void note(const Amount& bytes) {
    if (total(bytes) > total(most_)) most_ = bytes;
  }

  std::span<const StepProfile> variants_;
  const ComposedStages& stages_;
  std::vector<Gone> has_gone_;  // by stage
  Amount live_{}, most_{}, leaving_{}, unread_{};
};

// Micro-batches in order, with the updates in the last one's backward. Visits the peak of every action, as the functions below.
template <class Amount, class Visit>
void run_without_pipeline(std::span<const StepProfile> variants, const ComposedStages& stages, Visit visit) {
  Device<Amount> device(variants, stages);
  device.hold_copies(stages.blocks[0]);
  for (int32_t m = 0; m < stages.shape.micro_batches; ++m) {
    const Turn turn = m + 1 == stages.shape.micro_batches ? Turn::kLast
                      : m == 0                            ? Turn::kFirst
                                                          : Turn::kSteady;
    device.forward(0, turn, true);
    visit(0, {PipelineWork::kForward, 0, m}, false, device.take_most());
    device.backward(0, BlockPass::kBackward, turn);
    visit(0, {PipelineWork::kBackward, 0, m}, false, device.take_most());
  }
  device.update(0);
  visit(0, {}, true, device.take_most());
}

template <class Amount, class Visit>
void run_pipeline(std::span<const StepProfile> variants, const ComposedStages& stages,
                  std::span<const PipelineAction> line, Visit visit) {
  const PipelineShape& shape = stages.shape;
  std::vector<Device<Amount>> devices(static_cast<size_t>(shape.devices), Device<Amount>(variants, stages));
  const auto of = [&](int32_t stage) -> Device<Amount>& {
    return devices[static_cast<size_t>(shape.device_of(stage))];
  };
  for (int32_t s = 0; s < shape.stages(); ++s) of(s).hold_copies(stages.blocks[static_cast<size_t>(s)]);
  for (const PipelineAction& action : line) {
    const bool forward = action.work == PipelineWork::kForward;
    const int32_t from = forward ? action.stage - 1 : action.stage + 1;
    if (action.work != PipelineWork::kBackwardWeight && from >= 0 && from < shape.stages() &&
        shape.device_of(from) != shape.device_of(action.stage)) {
      of(from).send(forward);
      of(action.stage).receive(forward);
    }
    of(action.stage).act(action);
    visit(static_cast<size_t>(shape.device_of(action.stage)), action, false, of(action.stage).take_most());
  }
  for (int32_t s = 0; s < shape.stages(); ++s) of(s).update(static_cast<size_t>(s));
  for (size_t d = 0; d < devices.size(); ++d) visit(d, {}, true, devices[d].take_most());
}

// Blocks with blocks of their own count that many times; others once if any of their blocks is present.
int64_t times(const PersistentBytes& it, const std::vector<int64_t>& counts) {
  int64_t count = 0;
  for (const int32_t block : it.blocks) count += counts[static_cast<size_t>(block)];
  return it.blocks.size() == 1 ? count : std::min<int64_t>(count, 1);
}

// Number of each profile block on a device.
std::vector<int64_t> block_counts(std::span<const StepProfile> variants, const ComposedStages& stages,
                                  int32_t device) {
  std::vector<int64_t> counts(variants[0].copies.size(), 0);
  for (int32_t s = 0; s < stages.shape.stages(); ++s)
    if (stages.shape.device_of(s) == device)
      for (const StageBlock block : stages.blocks[static_cast<size_t>(s)])
        ++counts[static_cast<size_t>(block.block)];
  return counts;
}

int64_t bytes_of(const PersistentBytes& it, const std::vector<int64_t>& counts,
                 const ComposedStages& stages) {
  return times(it, counts) * it.bytes * (it.by_batch ? stages.shape.micro_batches : 1);
}

void add_persistent(std::span<const StepProfile> variants, const ComposedStages& stages,
                    std::vector<DeviceBytes>& devices) {
  for (int32_t d = 0; d < stages.shape.devices; ++d) {
    const std::vector<int64_t> counts = block_counts(variants, stages, d);
    DeviceBytes& device = devices[static_cast<size_t>(d)];
    for (const PersistentBytes& it : variants[0].persistent)
      (it.kind == SlotKind::kParameter ? device.parameters
       : it.kind == SlotKind::kState   ? device.state
                                       : device.inputs) += bytes_of(it, counts, stages);
  }
}

}  // namespace

int32_t filling_micro_batches(const PipelineShape& shape) {
  if (shape.devices == 1 || shape.kind == ScheduleKind::kGpipe) return shape.micro_batches;
  return std::min(shape.micro_batches, kFilling * shape.devices);
}

ComposedStages filling_stages(ComposedStages stages) {
  constexpr int32_t kTurnsOfOne = 3;  // the first micro-batch, a steady one, the last
  stages.shape.micro_batches = stages.shape.devices == 1 ? std::min(kTurnsOfOne, stages.shape.micro_batches)
                                                         : filling_micro_batches(stages.shape);
  return stages;
}

Result<std::vector<DeviceBytes>> composed_memory(std::span<const StepProfile> variants,
                                                 const ComposedStages& stages, ScheduleCache* schedules) {
  if (variants.empty() || static_cast<int32_t>(stages.blocks.size()) != stages.shape.stages())
    return Status(StatusCode::kInvalidArgument,
                  "a profile, and as many lists of blocks as stages, are wanted");
  std::vector<DeviceBytes> devices(static_cast<size_t>(stages.shape.devices));
  add_persistent(variants, stages, devices);
  const auto visit = [&](size_t device, const PipelineAction&, bool, int64_t most) {
    devices[device].run = std::max(devices[device].run, most);
  };
  const ComposedStages filling = filling_stages(stages);
  if (stages.shape.devices == 1) {
    run_without_pipeline<int64_t>(variants, filling, visit);
    return devices;
  }
  ScheduleCache own;
  TSR_ASSIGN_OR_RETURN(const std::vector<PipelineAction>* const line,
                       (schedules != nullptr ? *schedules : own).line(filling.shape));
  run_pipeline<int64_t>(variants, filling, *line, visit);
  return devices;
}

Result<std::vector<MemoryPoint>> composed_memory_points(std::span<const StepProfile> variants,
                                                        const ComposedStages& stages,
                                                        const PipelineSchedule& schedule, int32_t device) {
  std::vector<MemoryPoint> points;
  const auto visit = [&](size_t d, const PipelineAction& action, bool updates, const BytesByCause& most) {
    if (std::cmp_equal(d, device)) points.push_back({action, updates, most});
  };
  if (stages.shape.devices == 1) {
    run_without_pipeline<BytesByCause>(variants, stages, visit);
    return points;
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<PipelineAction> line, pipeline_line(schedule));
  run_pipeline<BytesByCause>(variants, stages, line, visit);
  return points;
}

BytesByCause persistent_elsewhere(std::span<const StepProfile> variants, const ComposedStages& stages,
                                  int32_t device) {
  const std::vector<int64_t> counts = block_counts(variants, stages, device);
  BytesByCause bytes;
  for (const PersistentBytes& it : variants[0].breakdown.elsewhere)
    bytes.at[BytesByCause::place_of(it.tier)] += bytes_of(it, counts, stages);
  return bytes;
}

}  // namespace tessera
