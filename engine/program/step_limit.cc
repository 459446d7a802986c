#include "engine/program/step_limit.h"

#include <algorithm>
#include <set>

#include "graph/analysis/graph_profile.h"
#include "graph/device_profile.h"

namespace tessera {

namespace {

constexpr const char* kPhaseNames[] = {"forward", "backward", "update"};

// Calls `visit` with the mark indices and the seconds of each point.
template <class Visit>
void visit_prices(const PriceTable& table, const std::vector<double>& seconds, const Visit& visit) {
  std::vector<size_t> at(table.axes.size(), 0);
  for (const double price : seconds) {
    visit(at, price);
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < table.marks[axis].size()) break;
      at[axis] = 0;
    }
  }
}

// Best matmul rate of the table, whose axes are the factors of the product.
double best_matmul_rate(const PriceTable& table, int32_t cores) {
  double best = 0;
  const auto look = [&](const std::vector<double>& seconds, double devices) {
    visit_prices(table, seconds, [&](const std::vector<size_t>& at, double price) {
      double flops = 2 * devices;
      for (size_t axis = 0; axis < at.size(); ++axis) flops *= table.marks[axis][at[axis]];
      if (price > 0) best = std::max(best, flops / price);
    });
  };
  look(table.seconds, 1);
  look(table.shared_seconds, static_cast<double>(cores));
  return best;
}

// Memory rate at the table's largest size, which exceeds every cache.
double memory_rate(const PriceTable& table, int32_t cores) {
  const double bytes = table.marks[0].back();
  double rate = table.seconds.back() > 0 ? bytes / table.seconds.back() : 0;
  if (!table.shared_seconds.empty() && table.shared_seconds.back() > 0)
    rate = std::max(rate, static_cast<double>(cores) * bytes / table.shared_seconds.back());
  return rate;
}

void take_measured_rates(const DeviceProfile& profile, const std::set<DType>& multiplied, double devices,
                         StepLimit& limit) {
  double flops_per_s = 0, bytes_per_s = 0;
  for (const PriceTable& table : profile.kernels) {
    const OpDef* op = find_op(table.op);
    if (op != nullptr && op->weight.use == WeightUse::kProduct && multiplied.contains(table.dtype))
      flops_per_s = std::max(flops_per_s, best_matmul_rate(table, profile.cores));
    if (table.axes.size() == 1 && table.axes[0] == "bytes" && table.op.empty())
      bytes_per_s = std::max(bytes_per_s, memory_rate(table, profile.cores));
  }
  if (flops_per_s == 0 || bytes_per_s == 0) return;
  limit.flops_per_s = flops_per_s * devices;
  limit.bytes_per_s = bytes_per_s * devices;
  limit.is_measured = true;
}

void take_stated_rates(const Cluster& cluster, const std::set<DType>& multiplied, StepLimit& limit) {
  for (const int32_t device : cluster.devices) {
    const DeviceKind& kind = cluster.kinds[static_cast<size_t>(device)];
    double flops_per_s = kind.matmul_flops_per_s;
    for (const MatrixRate& rate : kind.matrix_rates)
      if (multiplied.contains(rate.dtype)) flops_per_s = std::max(flops_per_s, rate.flops_per_s);
    limit.flops_per_s += flops_per_s;
    limit.bytes_per_s += kind.memory_bytes_per_s;
    if (cluster.shared_cores > 0) break;  // virtual devices share one device's rate
  }
}

// LeastBytes: bytes that no kernel can avoid, by WorkPhase.
struct LeastBytes {
  double phases[3] = {0, 0, 0};
};

LeastBytes least_bytes(const Graph& graph) {
  // Tables used only by lookups need not be read whole in forward and backward.
  std::set<TensorId> read_whole;
  for (const Node& node : graph.nodes())
    if (work_phase(node.phase) == WorkPhase::kForward && node.op->weight.use != WeightUse::kRows)
      read_whole.insert(node.inputs.begin(), node.inputs.end());
  LeastBytes least;
  auto& [forward, backward, update] = least.phases;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const auto size = static_cast<double>(bytes(graph.type(id)));
    if (read_whole.contains(id)) forward += size, backward += size;
    if (graph.tensor(id).trainable) update += 2 * size;
  }
  for (const Gradient& it : graph.gradients()) {
    const auto size = static_cast<double>(bytes(graph.type(it.gradient)));
    if (read_whole.contains(it.parameter)) backward += size;
    update += size;
  }
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kState))
    update += 2 * static_cast<double>(bytes(graph.type(id)));
  return least;
}

}  // namespace

Result<StepLimit> step_limit(const PlanRecord& record) {
  const PlannedEntry& entry = record.entries[0];
  std::vector<std::pair<std::string, int64_t>> values(entry.plan.symbols.begin(), entry.plan.symbols.end());
  if (std::ranges::find(values, "B", &std::pair<std::string, int64_t>::first) == values.end())
    values.emplace_back("B", entry.plan.global_batch);
  std::erase_if(values, [&](const auto& value) {
    return std::ranges::find(entry.graph->symbols(), value.first, &Symbol::name) ==
           entry.graph->symbols().end();
  });
  TSR_ASSIGN_OR_RETURN(const Graph graph, entry.graph->bind(values));
  TSR_ASSIGN_OR_RETURN(const GraphProfile profile, profile_graph(graph));

  std::set<DType> multiplied;
  for (const Node& node : graph.nodes())
    if (node.op->multiplies_matrices) multiplied.insert(graph.type(node.inputs[0]).dtype);
  StepLimit limit;
  take_stated_rates(record.cluster, multiplied, limit);
  const double own = record.cluster.shared_cores > 0 ? 1 : static_cast<double>(record.cluster.devices.size());
  if (record.cluster.profile != nullptr) take_measured_rates(*record.cluster.profile, multiplied, own, limit);

  const LeastBytes least = least_bytes(graph);
  for (size_t phase = 0; phase < 3; ++phase) {
    if (profile.phases[phase].nodes == 0) continue;
    const bool is_update = phase == static_cast<size_t>(WorkPhase::kUpdate);
    const double times = is_update ? 1 : static_cast<double>(record.accumulate);
    StepLimit::Term term{.phase = kPhaseNames[phase],
                         .flops = times * profile.phases[phase].flops,
                         .bytes = times * least.phases[phase]};
    const double by_flops = limit.flops_per_s > 0 ? term.flops / limit.flops_per_s : 0;
    const double by_bytes = limit.bytes_per_s > 0 ? term.bytes / limit.bytes_per_s : 0;
    term.by_memory = by_bytes > by_flops;
    term.seconds = std::max(by_flops, by_bytes);
    limit.seconds += term.seconds;
    limit.terms.push_back(std::move(term));
  }
  return limit;
}

}  // namespace tessera
