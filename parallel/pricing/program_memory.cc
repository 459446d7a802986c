// Replays the instructions: a write begins a value's live range in its slot, its last read ends it. The cause follows from
// the slot's kind and the value's tensor.
#include "parallel/pricing/program_memory.h"

#include <algorithm>
#include <unordered_map>

#include "parallel/lowering/kernel_fusion.h"

namespace tessera {

namespace {

constexpr std::array<std::string_view, kMemoryCauses> kNames = {
    "parameters", "optimizer", "caches",        "inputs",    "gradients", "activations",
    "logits",     "gathered",  "communication", "transient", "workspace"};

template <class Visit>  // visit(ref, is_write), reads first
void for_each_ref(const Instruction& instruction, Visit visit) {
  struct {
    Visit& visit;
    void operator()(const KernelInst& i) {
      for (const SlotRef& ref : i.inputs) visit(ref, false);
      visit(i.workspace, false);
      for (const SlotRef& ref : i.outputs) visit(ref, true);
    }
    void operator()(const CollectiveInst& i) { visit(i.in, false), visit(i.out, true); }
    void operator()(const SendInst& i) { visit(i.in, false); }
    void operator()(const RecvInst& i) { visit(i.out, true); }
    void operator()(const CopyInst& i) { visit(i.in, false), visit(i.out, true); }
  } all{visit};
  std::visit(all, instruction);
}

bool exchanges(const Instruction& instruction) {
  return std::holds_alternative<SendInst>(instruction) || std::holds_alternative<RecvInst>(instruction);
}

bool communicates(const Instruction& instruction) {
  return exchanges(instruction) || std::holds_alternative<CollectiveInst>(instruction);
}

class LiveRangeFinder {
 public:
  LiveRangeFinder(const RankProgram& rank, size_t entry, const EntryLayout& layout,
                  const std::vector<StepPhase>& phases)
      : rank_(rank), code_(rank.entries[entry].code), layout_(layout), phases_(phases) {
    for (size_t t = 0; t < layout.graph.tensors().size(); ++t)
      by_name_.emplace(layout.graph.tensors()[t].name, TensorId{static_cast<uint32_t>(t)});
    is_gradient_.assign(layout.graph.tensors().size(), false);
    for (const Gradient& gradient : layout.graph.gradients()) is_gradient_[index(gradient.gradient)] = true;
    trains_ = !layout.graph.gradients().empty();
    if (const auto logits = layout.graph.find_tensor("logits")) logits_ = layout.graph.type(*logits).shape;
    if (const auto logits = layout.graph.find_output("logits")) logits_ = layout.graph.type(*logits).shape;
  }

  std::vector<LiveRange> run() {
    find_lifetimes();
    find_uses();
    std::vector<LiveRange> all;
    for (size_t s = 0; s < rank_.slots.size(); ++s) {
      const Slot& slot = rank_.slots[s];
      if (outlives_run(slot.kind)) {
        const int32_t end = std::max<int32_t>(0, static_cast<int32_t>(code_.size()) - 1);
        all.push_back({static_cast<int32_t>(s), 0, end, named(slot.name), kept_cause(slot.kind)});
        continue;
      }
      if (last_[s] < 0) continue;
      if (slot.kind == SlotKind::kWorkspace) {
        all.push_back({static_cast<int32_t>(s), first_[s], last_[s], kNoTensor, MemoryCause::kWorkspace});
        continue;
      }
      add_tenants(s, all);
    }
    return all;
  }

 private:
  struct Write {
    int32_t at;
    TensorId tensor;
    bool by_communication;
  };

  static bool outlives_run(SlotKind kind) {
    return kind != SlotKind::kTransient && kind != SlotKind::kWorkspace;
  }

  MemoryCause kept_cause(SlotKind kind) const {
    if (kind == SlotKind::kParameter) return MemoryCause::kParameters;
    if (kind == SlotKind::kState) return trains_ ? MemoryCause::kOptimizer : MemoryCause::kCaches;
    return MemoryCause::kInputs;
  }

  TensorId named(const std::string& name) const {
    const size_t open = name.find('('), close = name.rfind(')');
    const auto at = by_name_.find(open == std::string::npos || close == std::string::npos || close < open
                                      ? name
                                      : name.substr(open + 1, close - open - 1));
    return at == by_name_.end() ? kNoTensor : at->second;
  }

  // As in slot allocation: adjacent sends and receives are one exchange.
  void find_lifetimes() {
    first_.assign(rank_.slots.size(), 0);
    last_.assign(rank_.slots.size(), -1);
    for (size_t begin = 0, end = 0; begin < code_.size(); begin = end) {
      for (end = begin + 1; exchanges(code_[begin]) && end < code_.size() && exchanges(code_[end]);) ++end;
      for (size_t at = begin; at < end; ++at)
        for_each_ref(code_[at], [&](const SlotRef& ref, bool) {
          if (ref.slot < 0) return;
          const auto s = static_cast<size_t>(ref.slot);
          if (last_[s] < 0) first_[s] = static_cast<int32_t>(begin);
          last_[s] = static_cast<int32_t>(end - 1);
        });
    }
  }

  // The value of each write, and its readers.
  void find_uses() {
    writes_.resize(rank_.slots.size());
    reads_.resize(rank_.slots.size());
    std::vector<TensorId> holds(rank_.slots.size(), kNoTensor);
    for (size_t s = 0; s < rank_.slots.size(); ++s)
      if (outlives_run(rank_.slots[s].kind)) holds[s] = named(rank_.slots[s].name);
    for (size_t at = 0; at < code_.size(); ++at) {
      const Instruction& instruction = code_[at];
      TensorId moved = kNoTensor;
      for_each_ref(instruction, [&](const SlotRef& ref, bool is_write) {
        if (ref.slot < 0 || is_write) return;
        reads_[static_cast<size_t>(ref.slot)].push_back(static_cast<int32_t>(at));
        if (moved == kNoTensor) moved = holds[static_cast<size_t>(ref.slot)];
      });
      size_t output = 0;
      for_each_ref(instruction, [&](const SlotRef& ref, bool is_write) {
        if (!is_write) return;
        const size_t o = output++;
        if (ref.slot < 0) return;
        const auto s = static_cast<size_t>(ref.slot);
        TensorId made = moved;
        if (const auto* kernel = std::get_if<KernelInst>(&instruction)) made = made_by(*kernel, o, moved);
        if (made == kNoTensor) made = named(rank_.slots[s].name);
        holds[s] = made;
        writes_[s].push_back({static_cast<int32_t>(at), made, communicates(instruction)});
      });
    }
  }

  // Accumulating kernels keep the value that they read.
  TensorId made_by(const KernelInst& kernel, size_t output, TensorId read) const {
    if (kernel.node == kNoNode || index(kernel.node) >= layout_.graph.nodes().size()) return read;
    const Node& node = layout_.graph.node(kernel.node);
    const OpDef* op = rank_.kernels[static_cast<size_t>(kernel.kernel)].op;
    if (is_fused(*op, node)) return output == 0 ? node.outputs[0] : kNoTensor;  // the others are identified by slot
    return op == node.op && output < node.outputs.size() ? node.outputs[output] : read;
  }

  void add_tenants(size_t s, std::vector<LiveRange>& all) const {
    const std::vector<Write>& writes = writes_[s];
    const size_t begin = all.size();
    bool by_communication = false;
    for (size_t w = 0; w < writes.size(); ++w) {
      if (all.size() > begin && all.back().tensor == writes[w].tensor &&
          by_communication == writes[w].by_communication)
        continue;  // parts of one value
      const int32_t from = all.size() > begin ? writes[w].at : first_[s];
      if (all.size() > begin) {
        if (from == all.back().first)
          all.pop_back();
        else
          all.back().last = from - 1;
      }
      by_communication = writes[w].by_communication;
      all.push_back({static_cast<int32_t>(s), from, last_[s], writes[w].tensor, MemoryCause::kTransient});
    }
    if (all.size() == begin)  // read but never written by this entry
      all.push_back({static_cast<int32_t>(s), first_[s], last_[s], named(rank_.slots[s].name)});
    for (size_t t = begin; t < all.size(); ++t) all[t].cause = cause_of(s, all[t]);
  }

  MemoryCause cause_of(size_t s, const LiveRange& live_range) const {
    bool arrives = false;
    for (const Write& write : writes_[s])
      if (live_range.first <= write.at && write.at <= live_range.last)
        arrives = write.by_communication || arrives;
    bool leaves = true;  // has no other reader
    int32_t last_read = -1;
    for (const int32_t at : reads_[s]) {
      if (at < live_range.first || at > live_range.last + 1) continue;
      if (at == live_range.first && at > first_[s]) continue;  // of the previous value
      leaves = leaves && communicates(code_[static_cast<size_t>(at)]);
      last_read = std::max(last_read, at);
    }
    leaves = leaves && last_read >= 0;
    if (live_range.tensor != kNoTensor) {
      const Tensor& tensor = layout_.tensor(live_range.tensor);
      if (tensor.kind == TensorKind::kParameter) return MemoryCause::kGathered;
      if (is_gradient_[index(live_range.tensor)]) return MemoryCause::kGradients;
      if (logits_.rank() > 0 && tensor.type.shape == logits_) return MemoryCause::kLogits;
      const bool forward =
          tensor.producer != kNoNode && layout_.graph.node(tensor.producer).phase == Phase::kForward;
      if (forward && last_read >= 0 && phase(live_range.first) == StepPhase::kForward &&
          (phase(last_read) == StepPhase::kBackward || phase(last_read) == StepPhase::kRecompute))
        return MemoryCause::kActivations;
    }
    return arrives || leaves ? MemoryCause::kCommunication : MemoryCause::kTransient;
  }

  StepPhase phase(int32_t at) const { return phases_[static_cast<size_t>(at)]; }

  const RankProgram& rank_;
  const std::vector<Instruction>& code_;
  const EntryLayout& layout_;
  const std::vector<StepPhase>& phases_;
  std::unordered_map<std::string, TensorId> by_name_;
  std::vector<bool> is_gradient_;
  bool trains_ = false;
  Shape logits_;
  std::vector<int32_t> first_, last_;
  std::vector<std::vector<Write>> writes_;
  std::vector<std::vector<int32_t>> reads_;
};

}  // namespace

std::string_view to_text(MemoryCause cause) { return kNames[static_cast<size_t>(cause)]; }

std::vector<LiveRange> find_live_ranges(const RankProgram& rank, size_t entry, const EntryLayout& layout,
                                        const std::vector<StepPhase>& phases) {
  return LiveRangeFinder(rank, entry, layout, phases).run();
}

MemoryOverTime memory_over_time(const RankProgram& rank, size_t entry,
                                const std::vector<LiveRange>& live_ranges, Tier tier) {
  const size_t moments = std::max<size_t>(1, rank.entries[entry].code.size());
  MemoryOverTime memory;
  std::vector<std::array<int64_t, kMemoryCauses>> change(moments + 1);
  for (const LiveRange& live_range : live_ranges) {
    const Slot& slot = rank.slots[static_cast<size_t>(live_range.slot)];
    if (slot.tier != tier) continue;
    const auto cause = static_cast<size_t>(live_range.cause);
    change[static_cast<size_t>(live_range.first)][cause] += slot.bytes;
    change[static_cast<size_t>(live_range.last) + 1][cause] -= slot.bytes;
  }
  std::array<int64_t, kMemoryCauses> now{};
  for (size_t at = 0; at < moments; ++at) {
    int64_t total = 0;
    for (size_t cause = 0; cause < kMemoryCauses; ++cause) total += now[cause] += change[at][cause];
    memory.at.push_back(now);
    memory.total.push_back(total);
    if (total > memory.total[memory.peak]) memory.peak = at;
  }
  return memory;
}

MemoryCurve memory_curve(const MemoryOverTime& memory, size_t most_points) {
  MemoryCurve curve;
  std::vector<size_t> shown;
  for (size_t cause = 0; cause < kMemoryCauses; ++cause)
    if (std::ranges::any_of(memory.at, [&](const auto& at) { return at[cause] > 0; })) shown.push_back(cause);
  for (const size_t cause : shown) curve.causes.emplace_back(to_text(static_cast<MemoryCause>(cause)));
  curve.bytes.resize(shown.size());
  const size_t moments = memory.at.size();
  const size_t each = (moments + most_points - 1) / std::max<size_t>(1, most_points);
  for (size_t begin = 0; begin < moments; begin += each) {
    size_t fullest = begin;
    for (size_t at = begin; at < std::min(moments, begin + each); ++at)
      if (memory.total[at] > memory.total[fullest]) fullest = at;
    curve.position.push_back(static_cast<int64_t>(fullest));
    for (size_t c = 0; c < shown.size(); ++c) curve.bytes[c].push_back(memory.at[fullest][shown[c]]);
  }
  return curve;
}

}  // namespace tessera
