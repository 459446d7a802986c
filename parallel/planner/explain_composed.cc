#include "parallel/planner/explain.h"

#include <algorithm>
#include <map>

#include "graph/base/text.h"
#include "parallel/composition/composed_time.h"
#include "parallel/strategy/strategy_description.h"

namespace tessera {

namespace {

// Names of a timeline's spans and causes.
constexpr std::string_view kPasses[] = {"forward", "backward", "weight gradients", "backward"};
constexpr int32_t kPassCause[] = {0, 1, 2, 1};
constexpr int32_t kUpdateCause = 3;

class ComposedExplainer {
 public:
  explicit ComposedExplainer(const ComposedExplanationInput& input)
      : in_(input), spec_(*input.spec), stages_(*input.stages), shape_(input.stages->shape) {}

  Result<Explanation> run() {
    TSR_ASSIGN_OR_RETURN(schedule_, schedule_of(shape_));
    TSR_ASSIGN_OR_RETURN(run_, composed_run(in_.variants, stages_, schedule_, *in_.cluster));
    out_.lowered = false;
    out_.strategy = to_text(spec_);
    out_.mesh = mesh();
    out_.devices = spec_.devices();
    out_.global_batch = in_.global_batch;
    out_.micro_batches = shape_.micro_batches;
    out_.step_s = run_.time.step_s;
    out_.bound_s = in_.bound_s, out_.gap = in_.gap;
    out_.words = describe_strategy(spec_, in_.global_batch, shape_.micro_batches);
    out_.time = composed_time_shares(in_.variants, stages_, schedule_, run_);
    out_.critical = device_name(run_.critical);
    TSR_RETURN_IF_ERROR(explain_memory());
    explain_stages();
    list_tensors();
    out_.runners_up = in_.runners_up;
    for (RunnerUp& other : out_.runners_up)
      if (other.step_s > 0) other.loses_s = other.step_s - out_.step_s;
    out_.reasons = in_.reasons;
    add_reasons(out_);
    if (in_.drawings.wanted) draw_timeline();
    return std::move(out_);
  }

 private:
  Result<PipelineSchedule> schedule_of(PipelineShape shape) {
    if (shape.devices == 1) shape.kind = ScheduleKind::k1F1B;
    TSR_ASSIGN_OR_RETURN(const PipelineSchedule* const schedule, schedules_.schedule(shape));
    return *schedule;
  }

  std::string mesh() const {
    std::vector<std::string> axes;
    for (const auto& [name, size] :
         {std::pair("pp", spec_.pp), std::pair("dp", spec_.dp), std::pair("ep", spec_.ep),
          std::pair("cp", spec_.cp), std::pair("tp", spec_.tp)})
      if (size > 1) axes.push_back(format("{}={}", name, size));
    return join(axes, ", ");
  }

  std::string device_name(int32_t device) const { return stage_name(device, shape_.devices); }

  Status explain_memory() {
    TSR_ASSIGN_OR_RETURN(const std::vector<DeviceBytes> devices,
                         composed_memory(in_.variants, stages_, &schedules_));
    std::vector<int64_t> bytes_by_device;
    for (const DeviceBytes& device : devices) bytes_by_device.push_back(device.total() + in_.reserved_bytes);
    const auto fullest = static_cast<int32_t>(set_device_bytes(out_, std::move(bytes_by_device), in_.memory_limit));
    const ComposedStages filling = filling_stages(stages_);
    TSR_ASSIGN_OR_RETURN(const PipelineSchedule filled, schedule_of(filling.shape));
    TSR_ASSIGN_OR_RETURN(std::vector<MemoryPoint> points,
                         composed_memory_points(in_.variants, filling, filled, fullest));
    BytesByCause always = persistent_elsewhere(in_.variants, stages_, fullest);
    const DeviceBytes& device = devices[static_cast<size_t>(fullest)];
    always.of(MemoryCause::kParameters) = device.parameters;
    always.of(MemoryCause::kOptimizer) = device.state;
    always.of(MemoryCause::kInputs) = device.inputs;
    const auto peak =
        std::ranges::max_element(points, {}, [](const MemoryPoint& it) { return it.bytes.device(); });
    add_shares(always + peak->bytes);
    for (const Tier tier : {Tier::kHost, Tier::kFile}) {
      int64_t bytes = 0;
      for (const MemoryPoint& point : points)
        bytes = std::max(bytes, (always + point.bytes).at[BytesByCause::place_of(tier)]);
      add_memory(out_, "offloaded", bytes, tier);
    }
    describe_peak(*peak, fullest, peak - points.begin(), std::ssize(points));
    if (!in_.drawings.wanted) return {};
    TSR_ASSIGN_OR_RETURN(points, composed_memory_points(in_.variants, stages_, schedule_, fullest));
    draw_curve(points, always, static_cast<size_t>(fullest));
    return {};
  }

  void add_shares(const BytesByCause& bytes) {
    for (size_t cause = 0; cause < kMemoryCauses; ++cause)
      add_memory(out_, to_text(static_cast<MemoryCause>(cause)), bytes.at[cause]);
    add_memory(out_, "reserved", in_.reserved_bytes);
  }

  void describe_peak(const MemoryPoint& peak, int32_t device, int64_t at, int64_t count) {
    out_.peak.device = device_name(device);
    out_.peak.entry = "train_step";
    out_.peak.instruction = at, out_.peak.instructions = count;
    out_.peak.what = peak.updates
                         ? std::string("update")
                         : format("{} pass of micro-batch {}", kPasses[static_cast<size_t>(peak.action.work)],
                                  peak.action.micro_batch);
    if (!peak.updates && shape_.virtual_stages > 1)
      out_.peak.what += format(" in virtual stage {}", peak.action.stage);
    finish_peak(out_);
  }

  // StageCounts: blocks of a stage, without the model's ends.
  struct StageCounts {
    int64_t blocks = 0, recomputed = 0;
    friend bool operator==(const StageCounts&, const StageCounts&) = default;
  };

  StageCounts counts_of(const std::vector<StageBlock>& blocks) const {
    StageCounts counts;
    for (const StageBlock block : blocks) {
      if (block.is_end) continue;
      ++counts.blocks;
      if (block.variant > 0 || (in_.variants.size() == 1 && spec_.recompute == RecomputeForm::kFull))
        ++counts.recomputed;
    }
    return counts;
  }

  // Consecutive stages with equal counts are one decision.
  void explain_stages() {
    int64_t first = 0;
    for (size_t s = 0, end = 0; s < stages_.blocks.size(); s = end) {
      const StageCounts each = counts_of(stages_.blocks[s]);
      for (end = s + 1; end < stages_.blocks.size() && counts_of(stages_.blocks[end]) == each;) ++end;
      const auto stages = static_cast<int64_t>(end - s);
      BlockDecision& it = out_.blocks.emplace_back();
      it.stage = static_cast<int32_t>(s);
      it.count = stages * each.blocks;
      const std::string where = stages_.blocks.size() == 1 ? std::string()
                                : stages == 1              ? format("stage {}: ", s)
                                                           : format("stages {} to {}: ", s, end - 1);
      const std::string what = it.count == 0   ? std::string("no block")
                               : it.count == 1 ? format("block.{}", first)
                                               : format("block.{} to {}", first, first + it.count - 1);
      it.name = format("{}{}{}", where, what,
                       stages > 1 && it.count > 0 ? format(", {} each", each.blocks) : std::string());
      it.recomputed = stages * each.recomputed;
      it.recompute = each.recomputed == 0 ? std::string("none")
                     : each.recomputed == each.blocks
                         ? std::string("full")
                         : format("{} of {} blocks", each.recomputed, each.blocks);
      it.chunks = spec_.chunks;
      it.parameters = stored();
      first += it.count;
    }
  }

  std::vector<std::pair<std::string, std::string>> stored() const {
    const auto is = [&](bool spreads, Tier tier) {
      std::string text = spreads && spec_.dp > 1 ? "over dp" : "whole";
      if (spec_.tp > 1) text = spreads && spec_.dp > 1 ? "over dp and tp" : "over tp";
      return tier == Tier::kDevice ? text : text + (tier == Tier::kHost ? ", on the host" : ", in files");
    };
    std::vector<std::pair<std::string, std::string>> all = {
        {"weights", is(spec_.zero >= 3, spec_.offload.params)},
        {"gradients", is(spec_.zero >= 2, spec_.offload.grads)},
        {"optimizer state", is(spec_.zero >= 1, spec_.offload.optimizer)}};
    if (const Tier tier = spec_.offload.activations; tier != Tier::kDevice)
      all.emplace_back("activations kept for backward", tier == Tier::kHost ? "on the host" : "in files");
    return all;
  }

  // Persistent tensors; equal blocks are represented by one.
  void list_tensors() {
    constexpr std::string_view kKinds[] = {"parameter", "optimizer", "constant", "input", "output"};
    std::map<int32_t, std::vector<int32_t>> stages_of;  // by block of the profile: its stages
    for (size_t s = 0; s < stages_.blocks.size(); ++s)
      for (const StageBlock block : stages_.blocks[s])
        stages_of[block.block].push_back(static_cast<int32_t>(s));
    const StepProfile& profile = in_.variants[0];
    for (const auto* list : {&profile.persistent, &profile.breakdown.elsewhere})
      for (const PersistentBytes& it : *list) {
        std::vector<int32_t> holders;
        for (const int32_t block : it.blocks)
          holders.insert(holders.end(), stages_of[block].begin(), stages_of[block].end());
        if (it.name.empty() || holders.empty()) continue;
        const auto [first, last] = std::ranges::minmax(holders);
        ExplainedTensor& tensor = out_.tensors.emplace_back();
        tensor.name = it.name, tensor.type = it.type, tensor.sharding = it.sharding;
        tensor.kind = kKinds[static_cast<size_t>(it.kind)], tensor.tier = tier_name(it.tier);
        tensor.stage = first == last ? first : -1;
        tensor.bytes = it.bytes;
        if (it.by_batch) tensor.note = "of one micro-batch";
        tensor.count = it.blocks.size() == 1 ? std::ssize(holders) : 1;
      }
  }

  void draw_timeline() {
    Timeline& timeline = out_.timeline;
    timeline.causes = {"forward", "backward", "weight gradients", "update"};
    for (size_t s = 0; s < stages_.blocks.size(); ++s) {
      const int64_t blocks = counts_of(stages_.blocks[s]).blocks;
      for (const char* pass : {"forward", "backward", "weight gradients"})
        timeline.labels.push_back(
            format("{}, {} blocks{}", pass, blocks,
                   shape_.virtual_stages > 1 ? format(" (virtual stage {})", s) : std::string()));
    }
    timeline.labels.emplace_back("update");
    const auto update_label = static_cast<int32_t>(timeline.labels.size()) - 1;
    for (int32_t device = 0; device < shape_.devices; ++device) {
      const auto d = static_cast<size_t>(device);
      const std::vector<PipelineAction>& actions = schedule_.devices[d];
      const size_t room = in_.drawings.most_spans / static_cast<size_t>(shape_.devices);
      timeline.rows.emplace_back(format("stage {}", device), "compute");
      for (size_t a = 0; a < std::min(actions.size(), room); ++a) {
        const PipelineAction& it = actions[a];
        const int32_t cause = kPassCause[static_cast<size_t>(it.work)];
        timeline.spans.push_back({device, cause, 3 * it.stage + cause, it.micro_batch,
                                  nanoseconds(run_.timing.begin[d][a]), nanoseconds(run_.timing.end[d][a])});
      }
      timeline.complete = timeline.complete && actions.size() <= room;
      timeline.spans.push_back({device, kUpdateCause, update_label, 0, nanoseconds(run_.time.passes_s),
                                nanoseconds(run_.time.passes_s + run_.updates[d])});
    }
  }

  void draw_curve(const std::vector<MemoryPoint>& points, const BytesByCause& always, size_t device) {
    MemoryOverTime memory;
    for (const MemoryPoint& point : points) {
      const BytesByCause held = always + point.bytes;
      std::ranges::copy_n(held.at.begin(), kMemoryCauses, memory.at.emplace_back().begin());
      memory.total.push_back(held.device());
    }
    MemoryCurve& curve = out_.curve = memory_curve(memory, in_.drawings.most_points);
    curve.in_time = true;
    for (int64_t& at : curve.position) {
      const auto a = static_cast<size_t>(at);
      at = nanoseconds(points[a].updates ? run_.time.passes_s : run_.timing.begin[device][a]);
    }
    if (in_.reserved_bytes == 0) return;
    curve.causes.emplace_back("reserved");
    curve.bytes.emplace_back(curve.position.size(), in_.reserved_bytes);
  }

  const ComposedExplanationInput& in_;
  const StrategySpec& spec_;
  const ComposedStages& stages_;
  const PipelineShape& shape_;
  ScheduleCache schedules_;
  PipelineSchedule schedule_;
  ComposedRun run_;
  Explanation out_;
};

}  // namespace

Result<Explanation> explain_composed(const ComposedExplanationInput& input) {
  if (input.variants.empty() || std::ssize(input.stages->blocks) != input.stages->shape.stages())
    return Status(StatusCode::kInvalidArgument,
                  format("{} profiles and {} lists of blocks for {} stages", input.variants.size(),
                         input.stages->blocks.size(), input.stages->shape.stages()));
  for (const StepProfile& profile : input.variants)
    if (!profile.breakdown.is_complete)
      return Status(StatusCode::kInvalidArgument,
                    "profiles without a breakdown explain nothing: make them with one");
  return ComposedExplainer(input).run();
}

std::vector<std::pair<std::string, double>> step_seconds(std::span<const TimeShare> shares) {
  std::vector<std::pair<std::string, double>> seconds;
  for (const char* name :
       {"compute", "recompute", "communication", "offload", "bubble", "gradients", "update"})
    seconds.emplace_back(name, 0);
  for (const TimeShare& share : shares) {
    const bool copies = share.cause == "communication" && share.axis.find("dp") != std::string::npos;
    const std::string name = copies ? "gradients" : share.cause == "waiting" ? "bubble" : share.cause;
    for (auto& [known, sum] : seconds)
      if (known == name) sum += share.seconds;
  }
  return seconds;
}

}  // namespace tessera
