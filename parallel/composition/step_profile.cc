#include "parallel/composition/step_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "graph/analysis/instructions.h"
#include "parallel/composition/solo_run.h"
#include "parallel/pricing/program_time.h"
#include "parallel/pricing/step_phases.h"

namespace tessera {

namespace {

struct PassKey {
  int32_t micro_batch = 0;
  BlockPass pass = BlockPass::kForward;
  int32_t block = 0;
  bool is_parameter_copy = false;  // made once, before the first pass
  friend auto operator<=>(const PassKey&, const PassKey&) = default;
};

// Keeps the breakdown with the larger total of a device.
void raise(BytesByCause& most, const BytesByCause& bytes) {
  if (bytes.device() > most.device()) most = bytes;
}

class Profiler {
 public:
  Profiler(const EntryLayout& layout, const RankProgram& rank, const Cluster& cluster, bool splits_backward,
           bool updates_last, bool breakdown, const SoftwareTraits& traits)
      : layout_(layout),
        rank_(rank),
        cluster_(cluster),
        code_(rank.entries[0].code),
        splits_backward_(splits_backward),
        updates_last_(updates_last),
        breakdown_(breakdown),
        traits_(traits) {
    profile_.devices = static_cast<int32_t>(layout.places[0].devices.size());
    profile_.map = find_blocks(layout.graph);
    const auto count = static_cast<size_t>(profile_.map.after()) + 1;
    profile_.passes.resize(count);
    profile_.copies.assign(count, 0);
    profile_.copying_s.assign(count, 0);
    profile_.breakdown.copying.resize(count);
    profile_.breakdown.is_complete = breakdown_;
    profile_.breakdown.passes.resize(count);
    profile_.breakdown.copies.resize(count);
  }

  StepProfile run() {
    find_keys();
    if (breakdown_) live_ranges_ = find_live_ranges(rank_, 0, layout_, phases_);
    find_bytes();
    find_seconds();
    find_persistent();
    find_messages();
    return std::move(profile_);
  }

 private:
  const Node* node_at(const Instruction& instruction) const {
    const NodeId id = node_of(instruction);
    return id == kNoNode || index(id) >= layout_.graph.nodes().size() ? nullptr : &layout_.graph.node(id);
  }

  // By instruction: the pass that it belongs to, and the pass
  // during which it runs, which may differ for prefetched gathers.
  void find_keys() {
    phases_ = find_step_phases(rank_.entries[0], layout_.graph);
    // The last kernel that is no update; updates before it are counted in the backward pass that surrounds them.
    size_t last_pass = 0;
    for (size_t i = 0; i < code_.size(); ++i)
      if (const Node* node = node_at(code_[i]);
          node != nullptr && node->phase != Phase::kUpdate && std::holds_alternative<KernelInst>(code_[i]))
        last_pass = i;
    PassKey now;
    for (size_t i = 0; i < code_.size(); ++i) {
      PassKey own = now;
      if (const Node* node = node_at(code_[i])) {
        const auto n = static_cast<size_t>(node - layout_.graph.nodes().data());
        own = {micro_batch_of(code_[i]), pass_of(*node, phases_[i]), profile_.map.of_node[n],
               layout_.once[n]};
        if (own.pass == BlockPass::kUpdate && i < last_pass)
          own = {own.micro_batch, BlockPass::kBackward, now.block, false};
      }
      if (std::holds_alternative<KernelInst>(code_[i])) now = own;
      owns_.push_back(own);
      runs_in_.push_back(now);
    }
    // Instructions before the first kernel run in its pass.
    size_t begun = 0;
    while (begun < code_.size() && !std::holds_alternative<KernelInst>(code_[begun])) ++begun;
    for (size_t i = 0; i < begun && begun < code_.size(); ++i) runs_in_[i] = runs_in_[begun];
  }

  BlockPass pass_of(const Node& node, StepPhase phase) const {
    if (node.phase == Phase::kUpdate) return BlockPass::kUpdate;
    if (node.phase == Phase::kForward)
      return phase == StepPhase::kRecompute ? BlockPass::kBackward : BlockPass::kForward;
    return splits_backward_ && node.phase == Phase::kBackwardWeight ? BlockPass::kWeight : BlockPass::kBackward;
  }

  Turn turn_of(int32_t micro_batch) const {
    if (!updates_last_ && micro_batch + 1 == layout_.micro_batches) return Turn::kLast;
    return micro_batch == 0 ? Turn::kFirst : Turn::kSteady;
  }

  template <class Cost>
  Cost& at(std::vector<ByPass<Cost>>& passes, const PassKey& key) const {
    const Turn turn = key.pass == BlockPass::kUpdate ? Turn::kLast : turn_of(key.micro_batch);
    return passes[static_cast<size_t>(key.block)][static_cast<size_t>(turn)][static_cast<size_t>(key.pass)];
  }
  PassCost& cost_of(const PassKey& key) { return at(profile_.passes, key); }
  PassCauses& causes_of(const PassKey& key) { return at(profile_.breakdown.passes, key); }

  // In pipelines, skips the last of the three profiled micro-batches: it frees the parameter copies, which no micro-batch of
  // a pipeline does.
  bool frees_parameter_copies(const PassKey& key) const {
    return updates_last_ && key.pass != BlockPass::kUpdate && key.micro_batch > 1 && key.micro_batch + 1 == layout_.micro_batches;
  }

  void find_bytes() {
    std::map<PassKey, int32_t> order;
    for (const PassKey& key : runs_in_) order.try_emplace(key, static_cast<int32_t>(order.size()));
    for (const PassKey& key : owns_) order.try_emplace(key, static_cast<int32_t>(order.size()));
    std::vector<size_t> sorted(code_.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::stable_sort(sorted, {}, [&](size_t i) { return order.at(owns_[i]); });
    std::vector<size_t> in_order_indices(code_.size());
    std::iota(in_order_indices.begin(), in_order_indices.end(), 0);
    const LiveBytes by_pass(rank_, sorted, live_ranges_), in_order(rank_, in_order_indices, live_ranges_);
    std::map<PassKey, size_t> began;
    for (size_t from = 0, to = 0; from < sorted.size(); from = to) {
      const PassKey key = owns_[sorted[from]];
      while (to < sorted.size() && owns_[sorted[to]] == key) ++to;
      began[key] = from;
      if (key.is_parameter_copy)
        profile_.breakdown.copies[static_cast<size_t>(key.block)] += by_pass.before(to) - by_pass.before(from);
      if (key.is_parameter_copy || frees_parameter_copies(key)) continue;
      PassCauses& bytes = causes_of(key);
      bytes.left = by_pass.before(to) - by_pass.before(from);
      for (size_t m = from; m < to; ++m) raise(bytes.peak, by_pass.during(m) - by_pass.before(from));
    }
    for (size_t i = 0; i < code_.size(); ++i) {
      const auto at = began.find(runs_in_[i]);
      if (at == began.end() || runs_in_[i].is_parameter_copy || frees_parameter_copies(runs_in_[i]) ||
          runs_in_[i].micro_batch != owns_[i].micro_batch)
        continue;
      raise(causes_of(runs_in_[i]).peak_ahead, in_order.during(i) - by_pass.before(at->second));
    }
    fill_totals();
  }

  // Device totals of the bytes by cause.
  void fill_totals() {
    for (size_t block = 0; block < profile_.passes.size(); ++block) {
      profile_.copies[block] = profile_.breakdown.copies[block].device();
      for (size_t turn = 0; turn < kTurns; ++turn)
        for (size_t pass = 0; pass < kBlockPasses; ++pass) {
          const PassCauses& bytes = profile_.breakdown.passes[block][turn][pass];
          profile_.passes[block][turn][pass] = {bytes.peak.device(), bytes.peak_ahead.device(),
                                                bytes.left.device()};
        }
    }
  }

  // A pass lasts from its first kernel to the next pass's first.
  void find_seconds() {
    const std::vector<InstructionPrice> prices = solo_prices(rank_, cluster_, traits_);
    const SoloRun run = run_solo(rank_, cluster_, prices, traits_.one_stream);
    if (breakdown_) find_intervals(run);
    PassKey now;
    double began = 0;
    bool has_begun = false;
    const auto end = [&](double at) {
      if (!has_begun || (!now.is_parameter_copy && frees_parameter_copies(now))) return;
      const auto block = static_cast<size_t>(now.block);
      (now.is_parameter_copy ? profile_.copying_s[block] : cost_of(now).seconds) += at - began;
      if (breakdown_) add_time(now.is_parameter_copy ? profile_.breakdown.copying[block] : causes_of(now).time, began, at);
    };
    for (size_t i = 0; i < code_.size(); ++i) {
      if (!std::holds_alternative<KernelInst>(code_[i]) || (has_begun && runs_in_[i] == now)) continue;
      end(run.begins[i]);
      now = runs_in_[i], began = has_begun ? run.begins[i] : 0, has_begun = true;
    }
    end(run.end_s);
    wait_for_host(prices);
  }

  // The host may run ahead from a block's forward into its backward pass, but not across blocks: a pass shorter than its
  // issue time, minus that lead, waits for the host.
  void wait_for_host(const std::vector<InstructionPrice>& prices) {
    std::map<const PassCost*, double> issued;
    for (size_t i = 0; i < code_.size(); ++i)
      if (!runs_in_[i].is_parameter_copy && !frees_parameter_copies(runs_in_[i])) issued[&cost_of(runs_in_[i])] += prices[i].issue_s;
    for (size_t block = 0; block < profile_.passes.size(); ++block)
      for (size_t turn = 0; turn < kTurns; ++turn) {
        double lead_s = 0;
        for (size_t pass = 0; pass < kBlockPasses; ++pass) {  // forward first
          PassCost& cost = profile_.passes[block][turn][pass];
          const double host_s = issued[&cost] - lead_s, waits_s = std::max(0.0, host_s - cost.seconds);
          lead_s = pass == 0 ? std::max(0.0, -host_s + cost.seconds) : 0;
          cost.seconds += waits_s;
          if (breakdown_ && waits_s > 0)
            add_share(profile_.breakdown.passes[block][turn][pass].time, {"compute", "", waits_s, 0}, 1);
        }
      }
  }

  void find_intervals(const SoloRun& run) {
    for (size_t i = 0; i < code_.size(); ++i) {
      CauseOfTime cause = cause_of(rank_, 0, code_[i], phases_[i], layout_);
      const int priority = priority_of(cause, code_[i]);
      intervals_.push_back({std::llround(run.begins[i] / kTick), std::llround(run.ends[i] / kTick),
                            std::move(cause), priority});
    }
  }

  void add_time(std::vector<TimeShare>& time, double from, double to) const {
    const int64_t begin = std::llround(from / kTick), end = std::llround(to / kTick);
    if (begin == end) return;
    // Corrects rounding, so that shares add up.
    const double whole = (to - from) / (static_cast<double>(end - begin) * kTick);
    for (const TimeShare& share : time_shares(intervals_, begin, end, kTick)) add_share(time, share, whole);
  }

  void find_persistent() {
    std::map<std::string_view, TensorId> names;
    for (size_t t = 0; t < layout_.graph.tensors().size(); ++t)
      names.emplace(layout_.graph.tensors()[t].name, TensorId{static_cast<uint32_t>(t)});
    std::map<TensorId, std::set<int32_t>> readers;
    for (size_t n = 0; n < layout_.graph.nodes().size(); ++n) {
      const Node& node = layout_.graph.nodes()[n];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (reads_input(node, i) && layout_.is_persistent(node.inputs[i])) readers[node.inputs[i]].insert(profile_.map.of_node[n]);
    }
    for (const Slot& slot : rank_.slots) {
      if (slot.kind == SlotKind::kTransient || slot.kind == SlotKind::kWorkspace) continue;
      if (slot.tier != Tier::kDevice && !breakdown_) continue;
      PersistentBytes it{
          .kind = slot.kind, .tier = slot.tier, .bytes = slot.bytes, .blocks = {profile_.map.after()}};
      if (const auto named = names.find(slot.name); named != names.end() && slot.kind != SlotKind::kOutput) {
        const std::set<int32_t>& blocks = readers[named->second];
        if (!blocks.empty()) it.blocks.assign(blocks.begin(), blocks.end());
        it.by_batch = slot.kind == SlotKind::kInput && layout_.batch_dim[index(named->second)] >= 0;
        if (it.by_batch) it.bytes /= layout_.micro_batches;
        if (breakdown_) {
          it.name = slot.name;
          it.type = to_text(layout_.tensor(named->second).type);
          it.sharding = to_text(layout_.spec[index(named->second)], layout_.mesh);
        }
      }
      (it.tier == Tier::kDevice ? profile_.persistent : profile_.breakdown.elsewhere)
          .push_back(std::move(it));
    }
  }

  // Measured at block 2 -> 3 (1 -> 2 with two blocks): blocks next to the model's ends are not typical.
  void find_messages() {
    if (profile_.map.blocks < 2) return;
    const int32_t from = profile_.map.blocks > 2 ? 2 : 1;
    std::set<TensorId> seen;
    for (size_t n = 0; n < layout_.graph.nodes().size(); ++n) {
      const Node& node = layout_.graph.nodes()[n];
      if (node.phase == Phase::kUpdate) continue;
      const int32_t to = profile_.map.of_node[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const TensorId input = node.inputs[i];
        const NodeId producer = layout_.tensor(input).producer;
        if (producer == kNoNode || !reads_input(node, i) || seen.contains(input)) continue;
        const Phase made = layout_.graph.node(producer).phase;
        const int32_t maker = profile_.map.of_node[index(producer)];
        const bool sends_forward =
            made == Phase::kForward && node.phase == Phase::kForward && maker == from && to == from + 1;
        const bool sends_backward = made != Phase::kForward && maker == from && to == from - 1;
        if (!sends_forward && !sends_backward) continue;
        seen.insert(input);
        if (sends_forward) add_message(input, profile_.forward_message, profile_.breakdown.messages[0]);
        if (sends_backward) add_message(input, profile_.backward_message, profile_.breakdown.messages[1]);
      }
    }
  }

  void add_message(TensorId id, int64_t& bytes, BytesByCause& by_cause) const {
    const auto at = std::ranges::find(live_ranges_, id, &LiveRange::tensor);
    bytes += local_bytes(id);
    by_cause.of(at == live_ranges_.end() ? MemoryCause::kTransient : at->cause) += local_bytes(id);
  }

  // Bytes of the largest part.
  int64_t local_bytes(TensorId id) const {
    const ShardingSpec& spec = layout_.spec[index(id)];
    TensorType type = layout_.tensor(id).type;
    for (int dim = 0; dim < type.shape.rank(); ++dim) {
      const std::vector<Range> parts =
          split_ranges(type.shape[dim], spec.dims[static_cast<size_t>(dim)], layout_.mesh);
      type.shape.set(dim, std::ranges::max(parts, {}, &Range::size).size());
    }
    return bytes(type);
  }

  const EntryLayout& layout_;
  const RankProgram& rank_;
  const Cluster& cluster_;
  const std::vector<Instruction>& code_;
  const bool splits_backward_, updates_last_, breakdown_;
  const SoftwareTraits& traits_;
  StepProfile profile_;
  std::vector<StepPhase> phases_;        // by instruction
  std::vector<PassKey> owns_, runs_in_;  // by instruction
  static constexpr double kTick = 1e-12;   // of intervals, in seconds
  std::vector<CausedInterval> intervals_;  // with a breakdown, as live_ranges_
  std::vector<LiveRange> live_ranges_;
};

}  // namespace

Result<StepProfile> profile_step(const EntryLayout& layout, const RankProgram& rank, const Cluster& cluster,
                                 bool splits_backward, bool updates_last, bool breakdown,
                                 const SoftwareTraits& traits) {
  if (layout.places.size() != 1 || rank.entries.size() != 1)
    return Status(StatusCode::kInvalidArgument, "a step is profiled without a pipeline, as the one entry of its program");
  return Profiler(layout, rank, cluster, splits_backward, updates_last, breakdown, traits).run();
}

}  // namespace tessera
