#include "parallel/planner/explain.h"

#include <algorithm>
#include <unordered_map>

#include "graph/analysis/instructions.h"
#include "graph/base/text.h"
#include "parallel/lowering/entry_layout.h"
#include "parallel/planner/explained_layout.h"
#include "parallel/planner/explanation_parts.h"
#include "parallel/pricing/program_memory.h"
#include "parallel/pricing/program_time.h"
#include "parallel/strategy/strategy_description.h"

namespace tessera {

namespace {

std::string device_name(size_t rank) { return format("device {}", rank); }

std::string kind_of(const EntryLayout& layout, TensorId id) {
  switch (layout.tensor(id).kind) {
    case TensorKind::kInput: return "input";
    case TensorKind::kParameter: return "parameter";
    case TensorKind::kConstant: return "constant";
    case TensorKind::kState: return layout.graph.gradients().empty() ? "cache" : "optimizer";
    case TensorKind::kActivation: break;
  }
  for (const Gradient& gradient : layout.graph.gradients())
    if (gradient.gradient == id) return "gradient";
  return "activation";
}

class Explainer {
 public:
  Explainer(std::span<const EntrySpec> entries, const Program& program, const Simulation& simulation,
            const ExplainOptions& options)
      : entries_(entries), program_(program), simulation_(simulation), options_(options) {}

  Result<Explanation> run() {
    for (const EntrySpec& entry : entries_) {
      TSR_ASSIGN_OR_RETURN(EntryLayout layout, make_layout(entry));
      layouts_.push_back(std::move(layout));
    }
    const EntryLayout& layout = layouts_[simulation_.entry];
    for (const RankProgram& rank : program_.ranks)
      phases_.push_back(find_step_phases(rank.entries[simulation_.entry], layout.graph));

    const Plan& plan = *entries_[simulation_.entry].plan;
    out_.strategy = plan.strategy;
    out_.mesh = to_text(layout.mesh);
    out_.devices = static_cast<int64_t>(program_.ranks.size());
    out_.global_batch = plan.global_batch;
    out_.micro_batches = plan.micro_batches;
    out_.step_s = simulation_.seconds();
    if (!layout.graph.gradients().empty())
      out_.words = describe_strategy(plan.strategy, plan.global_batch, plan.micro_batches);
    out_.gap = plan.estimate.gap;
    if (out_.gap >= 0) out_.bound_s = out_.step_s * (1 - out_.gap);
    TimeByCause time = time_by_cause(program_, simulation_, layout, phases_);
    out_.time = std::move(time.shares);
    out_.critical = device_name(static_cast<size_t>(time.rank));
    explain_memory();
    out_.blocks = explain_blocks(layout);
    explain_candidates();
    add_reasons(out_);
    for (std::string& sentence : explain_unsplit_weights(layout)) out_.reasons.push_back(std::move(sentence));
    if (options_.drawings.wanted) draw_timeline(layout);
    return std::move(out_);
  }

 private:
  void explain_memory() {
    std::vector<int64_t> arenas;
    for (const RankProgram& rank : program_.ranks) arenas.push_back(rank.arena_bytes);
    const size_t fullest = set_device_bytes(out_, std::move(arenas), options_.memory_limit);
    const RankProgram& rank = program_.ranks[fullest];
    // The entry with the largest run; ties: the first.
    size_t entry = 0;
    std::vector<LiveRange> live_ranges;
    MemoryOverTime memory;
    for (size_t e = 0; e < layouts_.size(); ++e) {
      const std::vector<StepPhase> phases = find_step_phases(rank.entries[e], layouts_[e].graph);
      std::vector<LiveRange> found = find_live_ranges(rank, e, layouts_[e], phases);
      MemoryOverTime over = memory_over_time(rank, e, found, Tier::kDevice);
      if (e > 0 && over.total[over.peak] <= memory.total[memory.peak]) continue;
      entry = e, live_ranges = std::move(found), memory = std::move(over);
    }
    add_shares(memory, rank.arena_bytes, Tier::kDevice);
    for (const auto& [tier, bytes] :
         {std::pair(Tier::kHost, rank.host_arena_bytes), std::pair(Tier::kFile, rank.file_arena_bytes)})
      if (bytes > 0) add_shares(memory_over_time(rank, entry, live_ranges, tier), bytes, tier);
    describe_peak(rank, fullest, entry, live_ranges, memory.peak);
    list_tensors(rank, layouts_[entry], live_ranges);
    if (options_.drawings.wanted) out_.curve = memory_curve(memory, options_.drawings.most_points);
  }

  void add_shares(const MemoryOverTime& memory, int64_t arena_bytes, Tier tier) {
    for (size_t cause = 0; cause < kMemoryCauses; ++cause)
      add_memory(out_, to_text(static_cast<MemoryCause>(cause)), memory.at[memory.peak][cause], tier);
    add_memory(out_, "unused", arena_bytes - memory.total[memory.peak], tier);
  }

  void describe_peak(const RankProgram& rank, size_t index, size_t entry,
                     const std::vector<LiveRange>& live_ranges, size_t peak) {
    const EntryPoint& point = rank.entries[entry];
    out_.peak.device = device_name(index);
    out_.peak.entry = point.name;
    out_.peak.instruction = static_cast<int64_t>(peak);
    out_.peak.instructions = static_cast<int64_t>(point.code.size());
    if (peak < point.code.size()) out_.peak.what = instruction_label(rank, point.code[peak]);
    for (const LiveRange& it : live_ranges) {
      const Slot& slot = rank.slots[static_cast<size_t>(it.slot)];
      // The place in the model: the scope of its result.
      if (it.tensor != kNoTensor && it.first == static_cast<int32_t>(peak) &&
          out_.peak.what.find(" in ") == std::string::npos)
        if (const NodeId made = layouts_[entry].tensor(it.tensor).producer;
            made != kNoNode && !layouts_[entry].graph.node(made).scope.empty())
          out_.peak.what += format(" in {}", layouts_[entry].graph.node(made).scope);
      if (slot.tier != Tier::kDevice || it.first > static_cast<int32_t>(peak) ||
          it.last < static_cast<int32_t>(peak))
        continue;
      std::string name = slot.name;
      // A reused buffer is named after its present value.
      if (it.tensor != kNoTensor && name.find('(') == std::string::npos)
        name = layouts_[entry].tensor(it.tensor).name;
      if (it.tensor != kNoTensor && name.starts_with('%')) name += made_by(layouts_[entry], it.tensor);
      out_.peak.largest.push_back({std::move(name), std::string(to_text(it.cause)), slot.bytes});
    }
    finish_peak(out_);
  }

  // Description of a nameless value: " = gelu (block.0.ffn)".
  static std::string made_by(const EntryLayout& layout, TensorId id) {
    const Tensor& tensor = layout.tensor(id);
    if (tensor.producer == kNoNode) return {};
    const Node& node = layout.graph.node(tensor.producer);
    return node.scope.empty() ? format(" = {}", node.op->name)
                              : format(" = {} ({})", node.op->name, node.scope);
  }

  void list_tensors(const RankProgram& rank, const EntryLayout& layout,
                    const std::vector<LiveRange>& live_ranges) {
    struct Held {
      int64_t bytes = 0, first = -1, last = -1;
    };
    std::unordered_map<size_t, Held> held;
    for (const LiveRange& it : live_ranges) {
      if (it.tensor == kNoTensor) continue;
      const Slot& slot = rank.slots[static_cast<size_t>(it.slot)];
      Held& all = held[index(it.tensor)];
      const bool persistent = slot.kind != SlotKind::kTransient;
      if (all.bytes > 0 && all.first < 0) continue;  // persistent; copies for use do not count
      all.bytes = std::max(all.bytes, slot.bytes);
      if (persistent) {
        all = {slot.bytes, -1, -1};
        continue;
      }
      all.first = all.first < 0 ? it.first : std::min<int64_t>(all.first, it.first);
      all.last = std::max<int64_t>(all.last, it.last);
    }
    for (size_t t = 0; t < layout.graph.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      const Tensor& tensor = layout.tensor(id);
      ExplainedTensor& it = out_.tensors.emplace_back();
      it.name = tensor.name;
      it.kind = kind_of(layout, id);
      it.type = to_text(layout.whole_type(id));
      it.sharding = to_text(layout.spec[t], layout.mesh);
      it.tier = tier_name(layout.tier[t]);
      if (tensor.producer != kNoNode) it.stage = layout.nodes_plan(tensor.producer).stage;
      if (const StoredTensor* stored = layout.plan->find_stored(id)) it.stage = stored->placements[0].mesh;
      if (const auto at = held.find(t); at != held.end()) {
        it.bytes = at->second.bytes;
        it.first = at->second.first;
        it.last = at->second.last;
      }
      std::vector<std::string> notes;
      if (tensor.name.starts_with('%')) notes.push_back(made_by(layout, id).substr(3));
      if (layout.recompute[t]) notes.emplace_back("recomputed");
      if (layout.keep_gathered[t]) notes.emplace_back("kept gathered");
      if (layout.offload[t] != Tier::kDevice)
        notes.push_back(format("offloaded to {}", tier_name(layout.offload[t])));
      if (tensor.kind == TensorKind::kParameter && !tensor.trainable) notes.emplace_back("frozen");
      if (layout.lies_on[t].size() > 1) notes.push_back(format("on {} stages", layout.lies_on[t].size()));
      it.note = join(notes, ", ");
    }
  }

  void explain_candidates() {
    for (size_t i = 1; i < options_.candidates.size(); ++i) {
      if (out_.runners_up.size() == options_.runners_up) break;
      const Candidate &it = options_.candidates[i], &chosen = options_.candidates[0];
      RunnerUp& other = add_runner_up(out_, it.strategy, it.step_time_s, it.arena_bytes, it.rejected);
      // The candidates' own times: the explained step has all entries.
      if (it.step_time_s > 0) other.loses_s = it.step_time_s - chosen.step_time_s;
      if (it.measured_s > 0 && chosen.measured_s > 0) other.loses_s = it.measured_s - chosen.measured_s;
    }
  }

  void draw_timeline(const EntryLayout& layout) {
    Timeline& timeline = out_.timeline;
    TimelineNumbers numbers(timeline);
    for (size_t r = 0; r < program_.ranks.size(); ++r) {
      const RankProgram& rank = program_.ranks[r];
      const std::vector<Instruction>& code = rank.entries[simulation_.entry].code;
      if (r > 0 && timeline.spans.size() + code.size() > options_.drawings.most_spans) {
        timeline.complete = false;
        break;
      }
      for (const Stream& stream : simulation_.dependencies[r].streams) {
        if (stream.code.empty()) continue;
        const auto row = static_cast<int32_t>(timeline.rows.size());
        timeline.rows.emplace_back(device_name(r), to_text(stream.id));
        for (const int32_t at : stream.code) {
          const auto i = static_cast<size_t>(at);
          const ReplayedInterval& interval = simulation_.run.ranks[r][i];
          const CauseOfTime cause = cause_of(rank, static_cast<int32_t>(r), code[i], phases_[r][i], layout);
          std::string name = cause.axis.empty() ? cause.cause : format("{} {}", cause.cause, cause.axis);
          if (cause.cause == "compute") name = phases_[r][i] == StepPhase::kBackward ? "backward" : "forward";
          timeline.spans.push_back({row, numbers.cause(name), numbers.label(instruction_label(rank, code[i])),
                                    micro_batch_of(code[i]), interval.begin_ns, interval.end_ns});
        }
      }
    }
  }

  const std::span<const EntrySpec> entries_;
  const Program& program_;
  const Simulation& simulation_;
  const ExplainOptions& options_;
  std::vector<EntryLayout> layouts_;
  std::vector<std::vector<StepPhase>> phases_;  // by rank, of the simulated entry
  Explanation out_;
};

}  // namespace

Result<Explanation> explain_program(std::span<const EntrySpec> entries, const Program& program,
                                    const Simulation& simulation, const ExplainOptions& options) {
  if (program.ranks.empty() || entries.size() != program.ranks[0].entries.size())
    return Status(StatusCode::kInvalidArgument,
                  format("explaining: {} entries for a program of {} ranks and {} entries", entries.size(),
                         program.ranks.size(), program.ranks.empty() ? 0 : program.ranks[0].entries.size()));
  return Explainer(entries, program, simulation, options).run();
}

}  // namespace tessera
