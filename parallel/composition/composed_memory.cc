#include "parallel/composition/composed_memory.h"

#include <algorithm>

#include "parallel/pipeline/pipeline_line.h"

namespace tessera {

namespace {

// Micro-batches a device that fill any pipeline but gpipe's, which holds all: zb-h2 holds the most, not quite 2.
constexpr int32_t kFilling = 4;

// One device while it carries out its actions.
class Device {
 public:
  Device(std::span<const StepProfile> variants, const ComposedStages& stages)
      : variants_(variants), stages_(stages), has_gone_(stages.blocks.size()) {}

  void hold(int64_t bytes) { note(live_ += bytes); }

  // Messages that follow each other are one exchange: what leaves stays until all have arrived.
  void send(int64_t bytes) { leaving_ += bytes; }
  void receive(int64_t bytes) { note(live_ += bytes); }

  void act(const PipelineAction& action) {
    live_ -= std::exchange(leaving_, 0);
    const auto s = static_cast<size_t>(action.stage);
    const bool splits = stages_.shape.splits_backward();
    if (action.work == PipelineWork::kForward) {
      const Turn turn = turn_of(has_gone_[s].forward);
      const std::vector<StageBlock>& blocks = stages_.blocks[s];
      for (size_t i = 0; i < blocks.size(); ++i) pass(blocks[i], turn, BlockPass::kForward, i + 1 < blocks.size());
      return;
    }
    if (action.work != PipelineWork::kBackwardWeight) backward(s, BlockPass::kBackward, has_gone_[s].backward);
    if (splits && action.work != PipelineWork::kBackwardInput) backward(s, BlockPass::kWeight, has_gone_[s].weight);
  }

  // `leads`: to another block's pass.
  void pass(StageBlock block, Turn turn, BlockPass pass, bool leads) {
    const PassCost& bytes = variants_[static_cast<size_t>(block.variant)].cost(block.block, turn, pass);
    note(live_ + (leads ? std::max(bytes.peak, bytes.peak_ahead) : bytes.peak));
    note(live_ += bytes.left);
  }

  int64_t most() const { return most_; }

 private:
  struct Gone {
    bool forward = false, backward = false, weight = false;
  };

  static Turn turn_of(bool& has_gone) { return std::exchange(has_gone, true) ? Turn::kSteady : Turn::kFirst; }

  void backward(size_t stage, BlockPass which, bool& has_gone) {
    const Turn turn = turn_of(has_gone);
    const std::vector<StageBlock>& blocks = stages_.blocks[stage];
    for (size_t i = blocks.size(); i-- > 0;) pass(blocks[i], turn, which, i > 0);
  }

  void note(int64_t bytes) { most_ = std::max(most_, bytes); }

  std::span<const StepProfile> variants_;
  const ComposedStages& stages_;
  std::vector<Gone> has_gone_;  // by stage
  int64_t live_ = 0, most_ = 0, leaving_ = 0;
};

int64_t copies_of(std::span<const StepProfile> variants, const std::vector<StageBlock>& blocks) {
  int64_t bytes = 0;
  for (const StageBlock block : blocks)
    bytes += variants[static_cast<size_t>(block.variant)].copies[static_cast<size_t>(block.block)];
  return bytes;
}

// Micro-batches one after another, with the updates in the last one's backward.
int64_t most_without_pipeline(std::span<const StepProfile> variants, const ComposedStages& stages) {
  Device device(variants, stages);
  const std::vector<StageBlock>& blocks = stages.blocks[0];
  device.hold(copies_of(variants, blocks));
  const int32_t count = stages.shape.micro_batches;
  for (const Turn turn : {Turn::kFirst, Turn::kSteady, Turn::kLast}) {
    if ((turn == Turn::kFirst && count < 2) || (turn == Turn::kSteady && count < 3)) continue;
    for (const StageBlock block : blocks) device.pass(block, turn, BlockPass::kForward, true);
    for (size_t i = blocks.size(); i-- > 0;) device.pass(blocks[i], turn, BlockPass::kBackward, i > 0);
  }
  for (const StageBlock block : blocks) device.pass(block, Turn::kLast, BlockPass::kUpdate, true);
  return device.most();
}

Result<std::vector<int64_t>> most_of_pipeline(std::span<const StepProfile> variants,
                                              const ComposedStages& stages) {
  PipelineShape shape = stages.shape;
  shape.micro_batches = filling_micro_batches(shape);
  TSR_ASSIGN_OR_RETURN(const PipelineSchedule schedule, make_pipeline_schedule(shape));
  TSR_ASSIGN_OR_RETURN(const std::vector<PipelineAction> line, pipeline_line(schedule));
  std::vector<Device> devices(static_cast<size_t>(shape.devices), Device(variants, stages));
  const auto of = [&](int32_t stage) -> Device& { return devices[static_cast<size_t>(shape.device_of(stage))]; };
  for (int32_t s = 0; s < shape.stages(); ++s)
    of(s).hold(copies_of(variants, stages.blocks[static_cast<size_t>(s)]));
  for (const PipelineAction& action : line) {
    const bool forward = action.work == PipelineWork::kForward;
    const int32_t from = forward ? action.stage - 1 : action.stage + 1;
    if (action.work != PipelineWork::kBackwardWeight && from >= 0 && from < shape.stages() &&
        shape.device_of(from) != shape.device_of(action.stage)) {
      const int64_t bytes = forward ? variants[0].forward_message : variants[0].backward_message;
      of(from).send(bytes);
      of(action.stage).receive(bytes);
    }
    of(action.stage).act(action);
  }
  std::vector<int64_t> most;
  for (int32_t s = 0; s < shape.stages(); ++s)
    for (const StageBlock block : stages.blocks[static_cast<size_t>(s)])
      of(s).pass(block, Turn::kLast, BlockPass::kUpdate, true);
  for (const Device& device : devices) most.push_back(device.most());
  return most;
}

// Of those with blocks of their own so many times, of the others once where any of their blocks is there.
int64_t times(const PersistentBytes& it, const std::vector<int64_t>& counts) {
  int64_t count = 0;
  for (const int32_t block : it.blocks) count += counts[static_cast<size_t>(block)];
  return it.blocks.size() == 1 ? count : std::min<int64_t>(count, 1);
}

void add_persistent(std::span<const StepProfile> variants, const ComposedStages& stages,
                    std::vector<DeviceBytes>& devices) {
  for (int32_t d = 0; d < stages.shape.devices; ++d) {
    std::vector<int64_t> counts(variants[0].copies.size(), 0);
    for (int32_t s = 0; s < stages.shape.stages(); ++s)
      if (stages.shape.device_of(s) == d)
        for (const StageBlock block : stages.blocks[static_cast<size_t>(s)])
          ++counts[static_cast<size_t>(block.block)];
    DeviceBytes& device = devices[static_cast<size_t>(d)];
    for (const PersistentBytes& it : variants[0].persistent) {
      const int64_t bytes = times(it, counts) * it.bytes * (it.by_batch ? stages.shape.micro_batches : 1);
      (it.kind == SlotKind::kParameter ? device.parameters : it.kind == SlotKind::kState ? device.state : device.inputs) += bytes;
    }
  }
}

}  // namespace

int32_t filling_micro_batches(const PipelineShape& shape) {
  if (shape.devices == 1 || shape.kind == ScheduleKind::kGpipe) return shape.micro_batches;
  return std::min(shape.micro_batches, kFilling * shape.devices);
}

Result<std::vector<DeviceBytes>> composed_memory(std::span<const StepProfile> variants,
                                                 const ComposedStages& stages) {
  if (variants.empty() || static_cast<int32_t>(stages.blocks.size()) != stages.shape.stages())
    return Status(StatusCode::kInvalidArgument,
                  "a profile, and as many lists of blocks as stages, are wanted");
  std::vector<DeviceBytes> devices(static_cast<size_t>(stages.shape.devices));
  add_persistent(variants, stages, devices);
  if (stages.shape.devices == 1) {
    devices[0].run = most_without_pipeline(variants, stages);
    return devices;
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> most, most_of_pipeline(variants, stages));
  for (size_t d = 0; d < devices.size(); ++d) devices[d].run = most[d];
  return devices;
}

}  // namespace tessera
