#include "parallel/composition/step_profile.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "graph/analysis/instructions.h"
#include "parallel/composition/solo_run.h"
#include "parallel/lowering/touched_slots.h"
#include "parallel/pricing/step_phases.h"

namespace tessera {

namespace {

struct PassKey {
  int32_t micro_batch = 0;
  BlockPass pass = BlockPass::kForward;
  int32_t block = 0;
  bool once = false;  // copies of parameters, before everything else
  friend auto operator<=>(const PassKey&, const PassKey&) = default;
};

bool lives_in_run(const Slot& slot) {
  return slot.tier == Tier::kDevice && (slot.kind == SlotKind::kTransient || slot.kind == SlotKind::kWorkspace);
}

// Bytes alive at every moment of an order of instructions.
class LiveBytes {
 public:
  // `at`: by instruction, its moment.
  LiveBytes(const RankProgram& rank, const std::vector<int32_t>& at) : during_(at.size() + 1, 0), before_(at.size() + 1, 0) {
    const std::vector<Instruction>& code = rank.entries[0].code;
    std::vector<int32_t> first(rank.slots.size(), INT32_MAX), last(rank.slots.size(), -1);
    for (size_t i = 0; i < code.size(); ++i)
      touch(touched_slots(code[i]), at[i], first, last);
    std::vector<int64_t> born(at.size() + 1, 0), died(at.size() + 1, 0);
    for (size_t s = 0; s < rank.slots.size(); ++s) {
      if (last[s] < 0 || !lives_in_run(rank.slots[s])) continue;
      born[static_cast<size_t>(first[s])] += rank.slots[s].bytes;
      died[static_cast<size_t>(last[s])] += rank.slots[s].bytes;
    }
    for (size_t moment = 0; moment < at.size(); ++moment) {
      during_[moment] = before_[moment] + born[moment];
      before_[moment + 1] = during_[moment] - died[moment];
    }
  }
  int64_t during(size_t moment) const { return during_[moment]; }
  int64_t before(size_t moment) const { return before_[moment]; }

 private:
  static void touch(const TouchedSlots& slots, int32_t moment, std::vector<int32_t>& first, std::vector<int32_t>& last) {
    for (const std::vector<int32_t>* all : {&slots.reads, &slots.writes})
      for (const int32_t slot : *all) {
        const auto s = static_cast<size_t>(slot);
        first[s] = std::min(first[s], moment);
        last[s] = std::max(last[s], moment);
      }
  }

  std::vector<int64_t> during_, before_;
};

class Profiler {
 public:
  Profiler(const EntryLayout& layout, const RankProgram& rank, const Cluster& cluster, bool splits,
           bool apart)
      : layout_(layout),
        rank_(rank),
        cluster_(cluster),
        code_(rank.entries[0].code),
        splits_(splits),
        apart_(apart) {
    profile_.map = find_blocks(layout.graph);
    const auto count = static_cast<size_t>(profile_.map.after()) + 1;
    profile_.passes.resize(count);
    profile_.copies.assign(count, 0);
  }

  StepProfile run() {
    find_keys();
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

  // By instruction: the pass that it is part of, and by when it runs the one that it runs in, which may be another where gathers are
  // issued ahead of their readers.
  void find_keys() {
    const std::vector<StepPhase> phases = find_step_phases(rank_.entries[0], layout_.graph);
    size_t last_pass = 0;  // updates before it go with the pass that they are among
    for (size_t i = 0; i < code_.size(); ++i)
      if (const Node* node = node_at(code_[i]);
          node != nullptr && node->phase != Phase::kUpdate && std::holds_alternative<KernelInst>(code_[i]))
        last_pass = i;
    PassKey now;
    for (size_t i = 0; i < code_.size(); ++i) {
      PassKey own = now;
      if (const Node* node = node_at(code_[i])) {
        const auto n = static_cast<size_t>(node - layout_.graph.nodes().data());
        own = {micro_batch_of(code_[i]), pass_of(*node, phases[i]), profile_.map.of_node[n], layout_.once[n]};
        if (own.pass == BlockPass::kUpdate && i < last_pass)
          own = {own.micro_batch, BlockPass::kBackward, now.block, false};
      }
      if (std::holds_alternative<KernelInst>(code_[i])) now = own;
      owns_.push_back(own);
      runs_in_.push_back(now);
    }
    // What comes before the first kernel runs in its pass.
    size_t begun = 0;
    while (begun < code_.size() && !std::holds_alternative<KernelInst>(code_[begun])) ++begun;
    for (size_t i = 0; i < begun && begun < code_.size(); ++i) runs_in_[i] = runs_in_[begun];
  }

  BlockPass pass_of(const Node& node, StepPhase phase) const {
    if (node.phase == Phase::kUpdate) return BlockPass::kUpdate;
    if (node.phase == Phase::kForward)
      return phase == StepPhase::kRecompute ? BlockPass::kBackward : BlockPass::kForward;
    return splits_ && node.phase == Phase::kBackwardWeight ? BlockPass::kWeight : BlockPass::kBackward;
  }

  Turn turn_of(int32_t micro_batch) const {
    if (!apart_ && micro_batch + 1 == layout_.micro_batches) return Turn::kLast;
    return micro_batch == 0 ? Turn::kFirst : Turn::kSteady;
  }

  PassCost& cost_of(const PassKey& key) {
    const Turn turn = key.pass == BlockPass::kUpdate ? Turn::kLast : turn_of(key.micro_batch);
    return profile_.passes[static_cast<size_t>(key.block)][static_cast<size_t>(turn)][static_cast<size_t>(key.pass)];
  }

  // The last of three micro-batches, after which copies of parameters are let go, stands for none of a pipeline's.
  bool ends_copies(const PassKey& key) const {
    return apart_ && key.pass != BlockPass::kUpdate && key.micro_batch > 1 && key.micro_batch + 1 == layout_.micro_batches;
  }

  void find_bytes() {
    std::map<PassKey, int32_t> order;
    for (const PassKey& key : runs_in_) order.try_emplace(key, static_cast<int32_t>(order.size()));
    for (const PassKey& key : owns_) order.try_emplace(key, static_cast<int32_t>(order.size()));
    std::vector<size_t> sorted(code_.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::stable_sort(sorted, {}, [&](size_t i) { return order.at(owns_[i]); });
    std::vector<int32_t> moment(code_.size()), as_is(code_.size());
    for (size_t m = 0; m < sorted.size(); ++m) moment[sorted[m]] = static_cast<int32_t>(m);
    std::iota(as_is.begin(), as_is.end(), 0);
    const LiveBytes apart(rank_, moment), together(rank_, as_is);
    std::map<PassKey, int64_t> began;
    for (size_t from = 0, to = 0; from < sorted.size(); from = to) {
      const PassKey key = owns_[sorted[from]];
      while (to < sorted.size() && owns_[sorted[to]] == key) ++to;
      began[key] = apart.before(from);
      if (key.once) {
        profile_.copies[static_cast<size_t>(key.block)] += apart.before(to) - apart.before(from);
        continue;
      }
      if (ends_copies(key)) continue;
      PassCost& bytes = cost_of(key);
      bytes.left = apart.before(to) - apart.before(from);
      for (size_t m = from; m < to; ++m) bytes.peak = std::max(bytes.peak, apart.during(m) - apart.before(from));
    }
    for (size_t i = 0; i < code_.size(); ++i) {
      const auto at = began.find(runs_in_[i]);
      if (at == began.end() || runs_in_[i].once || ends_copies(runs_in_[i]) || runs_in_[i].micro_batch != owns_[i].micro_batch)
        continue;
      PassCost& bytes = cost_of(runs_in_[i]);
      bytes.peak_ahead = std::max(bytes.peak_ahead, together.during(i) - at->second);
    }
  }

  // A pass lasts from its first kernel to the first of the next.
  void find_seconds() {
    const std::vector<double> begins = solo_begins(rank_, cluster_);
    PassKey now;
    double began = 0;
    bool has_begun = false;
    const auto end = [&](double at) {
      if (!has_begun) return;
      if (now.once)
        profile_.once_s += at - began;
      else if (!ends_copies(now))
        cost_of(now).seconds += at - began;
    };
    for (size_t i = 0; i < code_.size(); ++i) {
      if (!std::holds_alternative<KernelInst>(code_[i]) || (has_begun && runs_in_[i] == now)) continue;
      end(begins[i]);
      now = runs_in_[i], began = has_begun ? begins[i] : 0, has_begun = true;
    }
    end(begins.back());
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
      if (slot.tier != Tier::kDevice || slot.kind == SlotKind::kTransient || slot.kind == SlotKind::kWorkspace) continue;
      PersistentBytes it{.kind = slot.kind, .bytes = slot.bytes, .blocks = {profile_.map.after()}};
      if (const auto named = names.find(slot.name); named != names.end() && slot.kind != SlotKind::kOutput) {
        const std::set<int32_t>& blocks = readers[named->second];
        if (!blocks.empty()) it.blocks.assign(blocks.begin(), blocks.end());
        it.by_batch = slot.kind == SlotKind::kInput && layout_.batch_dim[index(named->second)] >= 0;
        if (it.by_batch) it.bytes /= layout_.micro_batches;
      }
      profile_.persistent.push_back(std::move(it));
    }
  }

  // From the second block on, where there is one: the first one's neighbour is like all others.
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
        if (producer == kNoNode || !reads_input(node, i) || !seen.insert(input).second) continue;
        const Phase made = layout_.graph.node(producer).phase;
        const int32_t maker = profile_.map.of_node[index(producer)];
        if (made == Phase::kForward && node.phase == Phase::kForward && maker == from && to == from + 1)
          profile_.forward_message += local_bytes(input);
        else if (made != Phase::kForward && maker == from && to == from - 1)
          profile_.backward_message += local_bytes(input);
        else
          seen.erase(input);
      }
    }
  }

  // Of the largest part.
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
  const bool splits_, apart_;
  StepProfile profile_;
  std::vector<PassKey> owns_, runs_in_;  // by instruction
};

}  // namespace

Result<StepProfile> profile_step(const EntryLayout& layout, const RankProgram& rank, const Cluster& cluster,
                                 bool splits, bool apart) {
  if (layout.places.size() != 1 || rank.entries.size() != 1)
    return Status(StatusCode::kInvalidArgument, "a step is profiled without a pipeline, as the one entry of its program");
  return Profiler(layout, rank, cluster, splits, apart).run();
}

}  // namespace tessera
