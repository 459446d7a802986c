#include "parallel/planner/recompute_set.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "parallel/lowering/entry_layout.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/pricing/program_memory.h"

namespace tessera {

namespace {

template <class Visit>
void for_each_slot(const Instruction& instruction, Visit visit) {
  struct {
    Visit& visit;
    void operator()(const KernelInst& i) {
      for (const SlotRef& ref : i.inputs) visit(ref.slot);
      for (const SlotRef& ref : i.outputs) visit(ref.slot);
    }
    void operator()(const CollectiveInst& i) { visit(i.in.slot), visit(i.out.slot); }
    void operator()(const SendInst& i) { visit(i.in.slot); }
    void operator()(const RecvInst& i) { visit(i.out.slot); }
    void operator()(const CopyInst& i) { visit(i.in.slot), visit(i.out.slot); }
  } all{visit};
  std::visit(all, instruction);
}

// By tensor of the layout: the corresponding tensor of the
// entry's graph; none for intermediate tensors of expanded nodes.
Result<std::vector<TensorId>> known_tensors(const EntrySpec& entry, const EntryLayout& layout) {
  std::vector<TensorId> known(layout.graph.tensors().size(), kNoTensor);
  if (layout.expanded == nullptr) {
    for (size_t t = 0; t < known.size(); ++t) known[t] = TensorId{static_cast<uint32_t>(t)};
    return known;
  }
  // Expands again, with the old ids next to the plan's tensors.
  Plan probe = *entry.plan;
  probe.stored.clear();
  for (size_t t = 0; t < entry.graph->tensors().size(); ++t)
    probe.stored.push_back({TensorId{static_cast<uint32_t>(t)}, {Placement{static_cast<int32_t>(t), {}}}});
  TSR_ASSIGN_OR_RETURN(const auto expanded, expand_phases(*entry.graph, probe));
  if (!expanded) return Status(StatusCode::kInternal, "recompute: phases were taken apart only once");
  for (const StoredTensor& it : expanded->plan.stored)
    if (index(it.tensor) < known.size())
      known[index(it.tensor)] = TensorId{static_cast<uint32_t>(it.placements[0].mesh)};
  return known;
}

}  // namespace

class RecomputeFinder {
 public:
  RecomputeFinder(std::vector<TensorId> known, const EntryLayout& layout, const Cluster& cluster,
                  const std::function<bool(TensorId)>& may_repeat)
      : known_(std::move(known)),
        layout_(layout),
        graph_(layout.graph),
        cluster_(cluster),
        may_repeat_(may_repeat) {
    aliases_.resize(graph_.tensors().size());
    for (size_t t = 0; t < graph_.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      if (made_forward(id)) aliases_[index(viewed(graph_, id))].push_back(id);
      if (layout.offload[t] != Tier::kDevice) offloaded_.insert(index(viewed(graph_, id)));
    }
  }

  RecomputeOptions::Place find(const RankProgram& rank, int32_t number, int32_t where) {
    rank_ = &rank;
    where_ = where;
    RecomputeOptions::Place place;
    const EntryPoint& point = rank.entries[0];
    phases_ = find_step_phases(point, graph_);
    live_ranges_ = find_live_ranges(rank, 0, layout_, phases_);
    place.held = memory_over_time(rank, 0, live_ranges_, Tier::kDevice).total;
    place.live_bytes = *std::ranges::max_element(place.held);
    find_uses(point);
    find_waits();
    prices_ = prices_of(*rank_, point, cluster_, number);
    place.works = works_of(point);
    passed_s_.assign(1, 0);
    for (const InstructionPrice& price : prices_)
      passed_s_.push_back(passed_s_.back() + seconds_at(price, cluster_, 1));
    for (const auto& [root, waits] : waits_) add(TensorId{root}, waits, place);
    return place;
  }

 private:
  struct Wait {
    int32_t first = 0, last = 0;  // between its last use in forward and its first in backward
    int64_t bytes = 0;
  };

  bool made_forward(TensorId id) const {
    const NodeId producer = graph_.tensor(id).producer;
    return producer != kNoNode && graph_.node(producer).phase == Phase::kForward;
  }

  void find_uses(const EntryPoint& point) {
    uses_.assign(rank_->slots.size(), {});
    for (size_t at = 0; at < point.code.size(); ++at)
      for_each_slot(point.code[at], [&](int32_t slot) {
        if (slot < 0) return;
        auto& mine = uses_[static_cast<size_t>(slot)];
        if (mine.empty() || mine.back() != static_cast<int32_t>(at)) mine.push_back(static_cast<int32_t>(at));
      });
    by_slot_.assign(rank_->slots.size(), {});
    for (const LiveRange& it : live_ranges_) by_slot_[static_cast<size_t>(it.slot)].push_back(&it);
  }

  // The last reader of a value may overwrite it with its
  // result; such a slot then holds the reader's value.
  bool reads(int32_t at, int32_t slot) const {
    const auto* kernel = std::get_if<KernelInst>(&rank_->entries[0].code[static_cast<size_t>(at)]);
    return kernel != nullptr &&
           std::ranges::find(kernel->inputs, slot, &SlotRef::slot) != kernel->inputs.end();
  }

  void find_waits() {
    waits_.clear();
    for (const LiveRange& it : live_ranges_) {
      const Slot& slot = rank_->slots[static_cast<size_t>(it.slot)];
      if (it.tensor == kNoTensor || slot.tier != Tier::kDevice || slot.kind != SlotKind::kTransient ||
          !made_forward(it.tensor))
        continue;
      const auto& uses = uses_[static_cast<size_t>(it.slot)];
      for (auto at = std::ranges::lower_bound(uses, it.first); at != uses.end() && *at <= it.last; ++at) {
        const auto next = at + 1;
        if (next == uses.end() || !(*next <= it.last || (*next == it.last + 1 && reads(*next, it.slot))))
          break;
        if (phase(*at) == StepPhase::kForward && phase(*next) == StepPhase::kBackward)
          waits_[index(viewed(graph_, it.tensor))].push_back({*at + 1, *next - 1, slot.bytes});
      }
    }
  }

  // By node: forward seconds over all micro-batches;
  // exchanges of a value count for its producer.
  std::vector<double> works_of(const EntryPoint& point) const {
    std::vector<double> works(graph_.nodes().size(), 0);
    for (size_t at = 0; at < point.code.size(); ++at) {
      NodeId node = node_of(point.code[at]);
      if (phase(static_cast<int32_t>(at)) != StepPhase::kForward || node == kNoNode) continue;
      if (const auto* exchange = std::get_if<CollectiveInst>(&point.code[at])) {
        const TensorId moved = tensor_at(exchange->in.slot, static_cast<int32_t>(at));
        if (moved != kNoTensor && made_forward(moved)) node = graph_.tensor(viewed(graph_, moved)).producer;
      }
      if (node != kNoNode && index(node) < works.size())
        works[index(node)] += seconds_at(prices_[at], cluster_, 1);
    }
    return works;
  }

  TensorId tensor_at(int32_t slot, int32_t at) const {
    if (slot < 0) return kNoTensor;
    for (const LiveRange* it : by_slot_[static_cast<size_t>(slot)])
      if (it->first <= at && at <= it->last) return it->tensor;
    return kNoTensor;
  }

  static constexpr int64_t kTooSmall = 2000;  // as a fraction of the held bytes

  void add(TensorId root, const std::vector<Wait>& waits, RecomputeOptions::Place& place) const {
    RecomputeOptions::Waiting waiting;
    for (const Wait& wait : waits) waiting.bytes += wait.bytes;
    if (waiting.bytes < place.live_bytes / kTooSmall) return;
    waiting.first = waits.front().first;
    waiting.idle_s = INFINITY;
    RematerializableValue value;
    for (const Wait& wait : waits) {
      waiting.idle_s = std::min(waiting.idle_s, passed_s_[static_cast<size_t>(wait.last + 1)] -
                                                    passed_s_[static_cast<size_t>(wait.first)]);
      value.bytes = std::max(value.bytes, wait.bytes);
    }
    std::set<uint32_t> again;
    const bool is_repeatable = collect(root, again);
    std::vector<TensorId> tensors;  // with everything recomputed on the way
    for (const uint32_t t : again) {
      const size_t work = index(graph_.tensor(TensorId{t}).producer);
      value.works.push_back(static_cast<int32_t>(work));
      waiting.seconds += place.works[work];
      add_known(TensorId{t}, tensors);
    }
    if (!is_repeatable) waiting.seconds = INFINITY;
    add_known(root, waiting.tensors);
    place.waiting.push_back(std::move(waiting));
    for (const Wait& wait : waits)
      if (wait.bytes == value.bytes && wait.first <= wait.last) value.moments.emplace_back(wait.first, wait.last);
    if (!is_repeatable || value.moments.empty() || value.bytes < place.live_bytes / kTooSmall) return;
    place.values.push_back(std::move(value));
    place.tensors.push_back(std::move(tensors));
  }

  // The entry's tensors with the bytes of `root`.
  void add_known(TensorId root, std::vector<TensorId>& tensors) const {
    for (const TensorId alias : aliases_[index(root)])
      if (known_[index(alias)] != kNoTensor) tensors.push_back(known_[index(alias)]);
  }

  // Collects the computations to repeat for `root`, down to kept values.
  bool collect(TensorId root, std::set<uint32_t>& again) const {
    constexpr size_t kMost = 64;
    if (again.contains(index(root))) return true;
    if (again.size() == kMost || !may_repeat(root)) return false;
    again.insert(index(root));
    const Node& node = graph_.node(graph_.tensor(root).producer);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId input = viewed(graph_, node.inputs[i]);
      if (!reads_input(node, i) || graph_.tensor(input).kind != TensorKind::kActivation) continue;
      const bool kept = waits_.contains(index(input)) || offloaded_.contains(index(input));
      if (!kept && !collect(input, again)) return false;
    }
    return true;
  }

  bool may_repeat(TensorId root) const {
    if (!made_forward(root)) return false;
    const size_t producer = index(graph_.tensor(root).producer);
    if (layout_.place[producer] != where_) return false;
    bool named = false;
    for (const TensorId alias : aliases_[index(root)]) {
      if (layout_.lies_on[index(alias)].size() > 1) return false;
      const TensorId known = known_[index(alias)];
      if (known != kNoTensor && !may_repeat_(known)) return false;
      named = named || known != kNoTensor;
    }
    return named;
  }

  StepPhase phase(int32_t at) const { return phases_[static_cast<size_t>(at)]; }

  const std::vector<TensorId> known_;  // by tensor of the layout: the entry's tensor
  const EntryLayout& layout_;
  const Graph& graph_;
  const Cluster& cluster_;
  const std::function<bool(TensorId)>& may_repeat_;
  std::vector<std::vector<TensorId>> aliases_;  // by root: forward values with its bytes, including itself
  std::set<uint32_t> offloaded_;                // by root
  const RankProgram* rank_ = nullptr;
  int32_t where_ = 0;
  std::vector<InstructionPrice> prices_;  // by instruction
  std::vector<double> passed_s_;          // elapsed before it, in sequence
  std::vector<StepPhase> phases_;
  std::vector<LiveRange> live_ranges_;
  std::vector<std::vector<const LiveRange*>> by_slot_;
  std::vector<std::vector<int32_t>> uses_;       // by slot
  std::map<uint32_t, std::vector<Wait>> waits_;  // by root
};

Result<RecomputeOptions> RecomputeOptions::of(const EntrySpec& entry, const Program& program,
                                              const Cluster& cluster,
                                              const std::function<bool(TensorId)>& may_repeat) {
  TSR_ASSIGN_OR_RETURN(const EntryLayout layout, make_layout(entry));
  TSR_ASSIGN_OR_RETURN(std::vector<TensorId> known, known_tensors(entry, layout));
  RecomputeFinder finder(std::move(known), layout, cluster, may_repeat);
  RecomputeOptions options;
  for (size_t p = 0; p < layout.places.size(); ++p) {
    const int32_t rank = layout.places[p].devices[0];
    options.places_.push_back(
        finder.find(program.ranks[static_cast<size_t>(rank)], rank, static_cast<int32_t>(p)));
    options.places_.back().rank = rank;
  }
  return options;
}

std::optional<RecomputeOptions::Set> RecomputeOptions::choose(std::span<const int64_t> budgets) const {
  std::vector<std::vector<bool>> released;
  for (size_t p = 0; p < places_.size(); ++p) {
    auto chosen = choose_rematerialization(places_[p].held, places_[p].works, places_[p].values, budgets[p]);
    if (!chosen) return std::nullopt;
    released.push_back(std::move(chosen->released));
  }
  return set_of(std::move(released));
}

RecomputeOptions::Set RecomputeOptions::set_of(std::vector<std::vector<bool>> released) const {
  Set set;
  for (size_t p = 0; p < places_.size(); ++p) {
    std::set<int32_t> works;
    for (size_t v = 0; v < places_[p].values.size(); ++v) {
      if (!released[p][v]) continue;
      const auto& tensors = places_[p].tensors[v];
      set.tensors.insert(set.tensors.end(), tensors.begin(), tensors.end());
      works.insert(places_[p].values[v].works.begin(), places_[p].values[v].works.end());
    }
    for (const int32_t work : works) set.seconds += places_[p].works[static_cast<size_t>(work)];
  }
  std::ranges::sort(set.tensors);
  set.tensors.erase(std::ranges::unique(set.tensors).begin(), set.tensors.end());
  set.released = std::move(released);
  return set;
}

std::vector<std::pair<size_t, size_t>> RecomputeOptions::dearest(const Set& set) const {
  std::vector<std::pair<double, std::pair<size_t, size_t>>> order;
  for (size_t p = 0; p < places_.size(); ++p)
    for (size_t v = 0; v < places_[p].values.size(); ++v) {
      if (!set.released[p][v]) continue;
      double seconds = 0;
      for (const int32_t work : places_[p].values[v].works)
        seconds += places_[p].works[static_cast<size_t>(work)];
      order.push_back({seconds, {p, v}});
    }
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::pair<size_t, size_t>> result;
  for (const auto& it : order) result.push_back(it.second);
  return result;
}

}  // namespace tessera
