#include "parallel/planner/plan_bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "graph/analysis/block_scope.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/lowering/kernel_fusion.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/search/rematerialization.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/parameter_copies.h"
#include "parallel/sharding/schedule.h"
#include "parallel/strategy/propagation.h"
#include "parallel/strategy/refine_plan.h"

namespace tessera {

namespace {

// One kernel on whole operands, as lowering would request it; 0 seconds if there is none.
KernelDesc whole_kernel(const Graph& graph, const Node& node, const KernelCatalog& catalog,
                        ShardingRule& rule) {
  KernelDesc kernel;
  kernel.op = node.op;
  kernel.attrs = node.attrs;
  for (const TensorId id : node.inputs) kernel.inputs.push_back(graph.type(id));
  for (const TensorId id : node.outputs) kernel.outputs.push_back(graph.type(id));
  rule = node.op->sharding({kernel.attrs, kernel.inputs, kernel.outputs, {}});
  if (!bind_extents(rule, kernel.inputs, kernel.outputs).ok()) {
    rule = {};
    return kernel;
  }
  for (const Factor& factor : rule.factors) {
    FactorView view;
    view.name = factor.name;
    view.global_extent = view.end[0] = factor.extent;
    view.unit = factor.unit;
    kernel.factors.push_back(view);
  }
  const auto choice = catalog.query(*node.op, {kernel.attrs, kernel.inputs, kernel.outputs, kernel.factors});
  if (choice.ok()) kernel.seconds = choice->seconds;
  return kernel;
}

// Cuts a factor and keeps the smallest part.
void cut(KernelDesc& kernel, const ShardingRule& rule, size_t factor, int32_t parts) {
  FactorView& view = kernel.factors[factor];
  const int64_t before = view.end[0] - view.begin[0], after = std::max<int64_t>(1, before / parts);
  if (before < 1) return;
  view.end[0] = view.begin[0] + after;
  const auto narrow = [&](const std::vector<ShardingRule::OperandDims>& operands,
                          std::vector<TensorType>& types) {
    for (size_t i = 0; i < operands.size() && i < types.size(); ++i)
      for (size_t d = 0; d < operands[i].size(); ++d)
        if (operands[i][d].find(view.name) != std::string::npos) {
          const int dim = static_cast<int>(d);
          types[i].shape.set(dim, types[i].shape[dim] / before * after);
        }
  };
  narrow(rule.inputs, kernel.inputs);
  narrow(rule.outputs, kernel.outputs);
}

std::string key_of(const Graph& graph, const Node& node) {
  std::string key(node.op->name);
  for (const Attr& attr : node.attrs) key += "," + to_text(attr.value);
  for (const auto* tensors : {&node.inputs, &node.outputs}) {
    for (const TensorId id : *tensors)
      key += format("|{} {}", to_text(graph.type(id).dtype), to_text(graph.type(id).shape));
    key += ">";
  }
  return key;
}

}  // namespace

PlanBounds::PlanBounds(const Graph& graph, const SpaceOfGraph& space, const Cluster& cluster,
                       const KernelCatalog& catalog)
    : graph_(graph), space_(space), cluster_(cluster), catalog_(catalog) {
  const std::vector<ParameterCopy> copies = parameter_copies(graph);
  const std::vector<bool> narrowed = read_as_narrow_copies(graph, copies);
  makes_copy_.assign(graph.nodes().size(), false);
  repeats_copy_ = makes_copy_;
  std::map<TensorId, int64_t> gathered;  // by parameter: of the narrowest copy, which may serve all readers
  std::map<TensorId, TensorId> copied;
  for (const ParameterCopy& it : copies)
    if (it.narrows) {
      makes_copy_[index(it.node)] = true;
      for (const NodeId measure : it.measures) makes_copy_[index(measure)] = true;
      const int64_t bytes = tessera::bytes(graph.type(it.copy));
      const auto [at, is_new] = gathered.try_emplace(it.parameter, bytes);
      at->second = std::min(at->second, bytes);
      repeats_copy_[index(it.node)] = !is_new;
      copied.emplace(it.copy, it.parameter);
    }
  for (const Gradient& gradient : graph.gradients()) {
    const int64_t bytes = tessera::bytes(graph.type(gradient.parameter));
    const bool narrow = narrowed[index(gradient.parameter)];
    exchanged_.push_back({bytes, narrow ? gathered[gradient.parameter] : bytes});
  }
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    parameter_bytes_ += tessera::bytes(graph.type(id));
    if (narrowed[index(id)]) narrowed_bytes_ += tessera::bytes(graph.type(id));
  }
  std::set<TensorId> read;
  for (const Node& node : graph.nodes())
    if (node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight)
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (const auto at = copied.find(node.inputs[i]); at != copied.end() && reads_input(node, i))
          if (read.insert(at->second).second) copies_bytes_ += gathered[at->second];
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kState))
    if (graph.type(id).shape.is_concrete()) state_bytes_ += tessera::bytes(graph.type(id));
  find_blocks();
}

// Work of one of `parts` equal parts, cut along one or two factors.
PlanBounds::Work PlanBounds::work_of_part(const KernelDesc& whole, const ShardingRule& rule,
                                          int32_t parts) const {
  cancellation_point();
  RankProgram one;
  one.kernels.resize(1);
  KernelInst launch;
  launch.kernel = 0;
  const auto priced = [&](KernelDesc kernel) {
    one.kernels[0] = std::move(kernel);
    const InstructionPrice price = price_of(one, launch, cluster_);
    if (cluster_.shared_cores == 0) return Work{price.alone_s, price.alone_s};
    // A rank may have only one core, and be faster on it than with help from all.
    return Work{std::min(price.alone_s, price.shared_s), machine_share_bound(price, cluster_)};
  };
  Work least = priced(whole);
  if (cluster_.profile == nullptr) return {least.alone_s / parts, least.share_s / parts};
  const auto take = [&](KernelDesc part) {
    const Work work = priced(std::move(part));
    least.alone_s = std::min(least.alone_s, work.alone_s);
    least.share_s = std::min(least.share_s, work.share_s);
  };
  for (int32_t first = 2; first <= parts; ++first) {
    if (parts % first != 0) continue;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      KernelDesc part = whole;
      cut(part, rule, f, first);
      if (first == parts) {
        take(std::move(part));
        continue;
      }
      for (size_t g = 0; g < rule.factors.size(); ++g) {
        KernelDesc smaller = part;
        cut(smaller, rule, g, parts / first);
        take(std::move(smaller));
      }
    }
  }
  return least;
}

Result<Graph> PlanBounds::bind_batch(int64_t batch) const {
  const std::pair<std::string, int64_t> value("B", batch);
  const bool has_batch = std::ranges::any_of(graph_.symbols(), [](const Symbol& s) { return s.name == "B"; });
  return graph_.bind(std::span(&value, has_batch ? 1 : 0));
}

const PlanBounds::Phases& PlanBounds::work_of(int64_t batch, int32_t inside, int32_t spread) {
  const auto [at, is_new] = works_.try_emplace({batch, inside, spread});
  if (!is_new) return at->second;
  const Result<Graph> bound = bind_batch(batch);
  if (!bound.ok()) return at->second;                  // no bound
  std::map<std::pair<bool, std::string>, Work> known;  // blocks repeat
  std::vector<Work> works(bound->nodes().size());
  for (size_t n = 0; n < works.size(); ++n) {
    const Node& node = bound->nodes()[n];
    if (node.op->is_view || repeats_copy_[n] || may_join_another(*bound, node, catalog_)) continue;
    const bool updates =
        node.phase == Phase::kUpdate || makes_copy_[n];  // once per step, spread like the state
    const auto [work, is_first] = known.try_emplace({updates, key_of(*bound, node)});
    if (is_first) {
      ShardingRule rule;
      const KernelDesc whole = whole_kernel(*bound, node, catalog_, rule);
      // Whole matrices are distributed over ranks that would otherwise repeat the update.
      const int32_t parts = !updates ? inside : needs_whole(rule) ? std::max(inside, spread) : spread;
      work->second = work_of_part(whole, rule, parts);
    }
    works[n] = work->second;
    Work& sum = updates ? at->second.update : at->second.passes;
    sum.alone_s += work->second.alone_s;
    sum.share_s += work->second.share_s;
  }
  find_saved(*bound, works, inside, at->second);
  return at->second;
}

// Finds values made before backward and read after: all exist at that moment,
// except recomputed and offloaded ones. Values of one computation share its time.
void PlanBounds::find_saved(const Graph& bound, const std::vector<Work>& works, int32_t inside,
                            Phases& phases) const {
  const auto is_backward = [&](const Node& node) {
    return node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight;
  };
  const std::span<const Node> nodes = bound.nodes();
  size_t begins = 0;
  while (begins < nodes.size() && !is_backward(nodes[begins])) ++begins;
  std::set<TensorId> read, leaves_whole;
  for (const Node& node : nodes) {
    if (!is_backward(node)) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId root = viewed(bound, node.inputs[i]);
      const NodeId producer = bound.tensor(root).producer;
      if (!reads_input(node, i) || producer == kNoNode || index(producer) >= begins ||
          makes_copy_[index(producer)])
        continue;
      if (bound.node(producer).phase == Phase::kForward) read.insert(root);
      // A one-dimensional view is not offloaded, and keeps it on the device.
      if (bound.type(node.inputs[i]).shape.rank() < 2) leaves_whole.insert(root);
    }
  }
  const std::vector<TensorId> inside_blocks = block_activations(bound);
  std::map<std::string_view, int32_t> blocks;
  std::map<NodeId, int64_t> made;
  for (const TensorId id : read) made[bound.tensor(id).producer] += tessera::bytes(bound.type(id));
  for (const TensorId id : read) {
    const NodeId producer = bound.tensor(id).producer;
    const int64_t bytes = tessera::bytes(bound.type(id));
    const double share =
        static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, made[producer]));
    const Work& work = works[index(producer)];
    int32_t block = -1;
    if (std::ranges::binary_search(inside_blocks, id))
      block = blocks.try_emplace(block_scope(bound.node(producer).scope), static_cast<int32_t>(blocks.size()))
                  .first->second;
    phases.saved.push_back(
        {bytes / inside, {share * work.alone_s, share * work.share_s}, block, !leaves_whole.contains(id)});
  }
  phases.blocks = static_cast<int32_t>(blocks.size());
}

// Reduces all gradients once, each cut in `parts`.
double PlanBounds::reduction_seconds(int32_t members, int32_t parts, bool spread) {
  const auto [at, is_new] = reductions_.try_emplace({members, parts, spread ? 1 : 0});
  if (!is_new) return at->second;
  // Members are adjacent, or one per node; the links decide which is faster.
  RankProgram one;
  const int32_t node = cluster_.node_devices;
  for (const int32_t stride : {1, node}) {
    if (stride < 1 || (stride > 1 && members <= 1)) continue;
    std::vector<int32_t>& ranks = one.groups.emplace_back().ranks;
    for (int32_t i = 0; i < members; ++i) ranks.push_back(i * stride);
  }
  const auto take = [&](CollectiveKind kind, int64_t bytes) {
    CollectiveInst inst;
    inst.kind = kind;
    inst.elements = bytes / 4;
    double least = INFINITY;
    for (inst.group = 0; inst.group < static_cast<int32_t>(one.groups.size()); ++inst.group)
      least = std::min(least, instruction_seconds(one, inst, cluster_, 1));
    return least;
  };
  for (const Exchanged& it : exchanged_) {
    const double whole = take(CollectiveKind::kAllReduce, it.gradient / parts);
    const double halves = take(CollectiveKind::kReduceScatter, it.gradient / parts) +
                          take(CollectiveKind::kAllGather, it.value / parts);
    at->second += spread ? std::min(whole, halves) : whole;
  }
  return at->second;
}

PlanBounds::Cuts PlanBounds::cuts_of(const StrategySpec& spec) const {
  Cuts cuts;
  const int64_t data = spec.data();
  if (const auto count = micro_batches_of(spec, space_.batch, space_.may_cut); count.ok())
    cuts.count = *count;
  const bool replicated = !space_.trains && space_.batch < data;
  cuts.batch = std::max<int64_t>(1, replicated ? space_.batch : space_.batch / data / cuts.count);
  cuts.fullest = cuts.batch;
  // Experts, and weights spread over the batch ranks, balance its parts.
  const bool by_batch = spec.ep == 1 && !spec.owt && spec.form == TensorForm::k1d && space_.batch > data;
  if (const int64_t left = space_.batch % data; by_batch && cuts.count == 1 && left > 0) {
    ++cuts.fullest;
    cuts.fuller = static_cast<double>(left) / static_cast<double>(data);
  }
  cuts.replicas = static_cast<int32_t>(data) * spec.cp;
  cuts.spread = spec.tp * (spec.zero >= 1 ? cuts.replicas : spec.ep);
  return cuts;
}

const PlanBounds::Phases& PlanBounds::phases_of(const StrategySpec& spec) {
  const Cuts cuts = cuts_of(spec);
  return work_of(cuts.fullest, spec.tp * spec.cp, cuts.spread);
}

PlanBounds::Work PlanBounds::copy_work(int64_t bytes) const {
  const InstructionPrice price = price_of_move(bytes, cluster_);
  return {price.alone_s, machine_share_bound(price, cluster_)};
}

double PlanBounds::seconds(const StrategySpec& spec) { return seconds(spec, std::nullopt); }

PlanBounds::Extra PlanBounds::extra_of(const StrategySpec& spec, const Phases& phases,
                                       const std::optional<Within>& within) {
  Extra extra;
  if (within) {
    const int64_t limit = within->limit;
    // One micro-batch, in all stages (see `bytes`).
    const InFlight& held = in_flight(spec);
    const double room = static_cast<double>(limit) * held.inverses -
                        static_cast<double>(other_bytes(spec)) * spec.pp / held.most;
    int64_t excess = saved_activation_bytes(spec, phases) - static_cast<int64_t>(std::ceil(room));
    // Assigns block by block to the device with the least to
    // free. The cost is convex per device, so this is optimal.
    if (const BlockBytes block = block_bytes(spec, phases); block.waiting > 0) {
      std::vector<int64_t> blocks(held.held.size(), 0);
      const auto over = [&](size_t d, int64_t count) {
        return std::max<int64_t>(0, count * (held.held[d] * block.waiting + block.lasting) - limit) /
               held.held[d];
      };
      int64_t sum = 0;
      for (int64_t i = 0; i < block.blocks; ++i) {
        size_t next = 0;
        const auto more = [&](size_t d) { return over(d, blocks[d] + 1) - over(d, blocks[d]); };
        for (size_t d = 1; d < blocks.size(); ++d)
          if (more(d) < more(next)) next = d;
        sum += more(next);
        ++blocks[next];
      }
      excess = std::max(excess, sum - static_cast<int64_t>(blocks.size()));  // rounding
    }
    std::vector<std::pair<int64_t, double>> alone, share;
    for (const Saved& it : phases.saved) {
      if (it.may_leave && spec.offload.activations != Tier::kDevice) continue;
      alone.emplace_back(it.bytes, it.work.alone_s);
      share.emplace_back(it.bytes, it.work.share_s);
    }
    const auto part = [&](double of_it) {
      return static_cast<int64_t>(of_it * static_cast<double>(std::max<int64_t>(0, excess)));
    };
    const int64_t stays = excess - part(within->leaves_most);
    extra.again = {rematerialization_bound_s(stays, alone), rematerialization_bound_s(stays, share)};
    if (const int64_t leaves = part(within->leaves_least); leaves > 0) {
      const Work copy = copy_work(leaves);
      extra.copies = {2 * copy.alone_s, 2 * copy.share_s};
    }
  } else if (spec.recompute == RecomputeForm::kFull) {
    for (const Saved& it : phases.saved)
      if (it.block >= 0) extra.again.alone_s += it.work.alone_s, extra.again.share_s += it.work.share_s;
  }
  // Offloaded values return, on the copy stream.
  if (spec.offload.activations != Tier::kDevice && spec.form == TensorForm::k1d)
    for (const Saved& it : phases.saved) {
      if (!it.may_leave || (it.block >= 0 && spec.recompute == RecomputeForm::kFull)) continue;
      const Work copy = copy_work(it.bytes);
      extra.copies.alone_s += 2 * copy.alone_s, extra.copies.share_s += 2 * copy.share_s;
    }
  return extra;
}

double PlanBounds::seconds(const StrategySpec& spec, const std::optional<Within>& within) {
  const Cuts cuts = cuts_of(spec);
  const Phases& work = phases_of(spec);
  const Extra extra = extra_of(spec, work, within);
  // Some pipeline stage has at least the average.
  const double passes = static_cast<double>(cuts.count) / spec.pp, update = 1.0 / spec.pp;
  const double loss = loss_to_others(cluster_, spec.devices());
  const double chain =
      loss * (passes * (work.passes.alone_s + extra.again.alone_s) + update * work.update.alone_s);
  double reduction = 0;
  if (cuts.replicas > 1 && space_.trains && space_.experts == 0 && spec.form == TensorForm::k1d)
    reduction = reduction_seconds(cuts.replicas, spec.tp, spec.zero >= 1) / spec.pp;
  double bound = std::max({chain, reduction, loss * passes * extra.copies.alone_s});
  if (cluster_.shared_cores > 0) {
    const auto machine = [&](const Phases& rank, const Extra& more) {
      return passes * (rank.passes.share_s + more.again.share_s + more.copies.share_s) +
             update * rank.update.share_s;
    };
    double each = machine(work, extra);
    if (cuts.fuller > 0) {
      const Phases& others = work_of(cuts.batch, spec.tp * spec.cp, cuts.spread);
      each = cuts.fuller * each + (1 - cuts.fuller) * machine(others, extra_of(spec, others, within));
    }
    const double members =
        static_cast<double>(cuts.replicas) / std::max(cuts.replicas, cluster_.shared_cores);
    bound = std::max(bound, loss * spec.devices() * each + reduction * spec.tp * spec.pp * members);
  }
  return bound;
}

double PlanBounds::seconds_within(const StrategySpec& spec, int64_t limit) {
  if (persistent_bytes(spec) > limit) return INFINITY;
  StrategySpec kept = spec;
  kept.recompute = RecomputeForm::kNone;
  kept.offload.activations = Tier::kDevice;
  if (!space_.trains || spec.form != TensorForm::k1d) return seconds(kept);
  if (spec.offload.activations == Tier::kDevice) return seconds(kept, Within{limit});
  // The more is offloaded, the longer copies take, and the less
  // is recomputed: for each range of shares, the minimum of both.
  constexpr int kRanges = 4;
  double least = INFINITY;
  for (int i = 0; i < kRanges; ++i)
    least = std::min(least, seconds(kept, Within{limit, double(i) / kRanges, double(i + 1) / kRanges}));
  return least;
}

double PlanBounds::seconds_with_set(const StrategySpec& spec, int64_t limit) {
  if (spec.recompute != RecomputeForm::kNone) return INFINITY;
  const double kept_s = seconds_within(spec, limit);
  return spec.offload.activations != Tier::kDevice
             ? kept_s
             : std::min(kept_s, seconds_within(with_moves(spec, space_.away), limit));
}

std::pair<double, double> PlanBounds::extra_seconds_with_set(const StrategySpec& spec, int64_t bytes, int64_t limit) {
  // Cheapest operation: reads two values to write one.
  const double rate = cluster_.kinds.empty() ? 0 : cluster_.kinds[0].memory_bytes_per_s;
  const double cheap_s = rate > 0 ? 3 * static_cast<double>(bytes - limit) / rate : 0;
  const double kept_s = seconds(with_moves(spec, Tier::kDevice)), least_s = seconds_within(spec, limit) - kept_s;
  // Bytes unknown to the bounds remain; if no set then suffices, possibly none does.
  const int64_t unseen = std::max<int64_t>(0, bytes - this->bytes(spec));
  const double likely_s = seconds_within(spec, limit - unseen) - kept_s;
  constexpr double kDoubt = 0.02;
  return {least_s, std::isinf(likely_s) ? std::max(least_s, cheap_s) + kDoubt * kept_s : likely_s};
}

}  // namespace tessera
