#include "capi/engine/followed_plan.h"

#include <algorithm>

#include "capi/engine/text_file.h"
#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

Result<Graph> graph_of_plan(const Plan& plan, const Graph& given) {
  TSR_ASSIGN_OR_RETURN(Graph ordered, in_canonical_order(given));
  if (plan.graph_fingerprint == ordered.fingerprint()) return ordered;
  if (plan.graph_fingerprint == given.fingerprint()) return given;
  return Status(StatusCode::kInvalidArgument,
                format("the plan is of graph {}, this graph is {}: make the plan again from the same graph",
                       plan.graph_fingerprint, ordered.fingerprint()));
}

Result<Plan> read_plan_file(const std::string& path, const Graph& graph) {
  TSR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "plan", kMostPlanBytes));
  Result<Plan> plan = parse_plan(text, graph);
  if (!plan.ok()) return plan.status().with_context(format("plan '{}'", path));
  if (plan->graph_fingerprint != graph.fingerprint())
    return Status(
        StatusCode::kInvalidArgument,
        format("plan '{}' is of graph {}, this graph is {}: make the plan again from the same model and "
               "options",
               path, plan->graph_fingerprint, graph.fingerprint()));
  return plan;
}

Status check_followed(const Plan& plan, const Graph& graph, int64_t batch,
                      const std::vector<std::pair<std::string, int64_t>>& symbols) {
  const auto wrong = [&](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  std::vector<int32_t> devices;
  for (const Stage& stage : plan.stages)
    devices.insert(devices.end(), stage.mesh.devices.begin(), stage.mesh.devices.end());
  std::ranges::sort(devices);
  devices.erase(std::ranges::unique(devices).begin(), devices.end());
  const auto words = parse_parallel(plan.strategy);
  if (words.ok() && words->spec.devices() != static_cast<int32_t>(devices.size()))
    return wrong(format("its strategy '{}' is for {} devices, its meshes have {}", plan.strategy,
                        words->spec.devices(), devices.size()));
  const bool has_batch =
      std::ranges::any_of(graph.symbols(), [](const Symbol& symbol) { return symbol.name == "B"; });
  if (has_batch && plan.global_batch != batch)
    return wrong(format("it is for a batch of {}, {} is asked for", plan.global_batch, batch));
  for (const auto& [name, value] : symbols)
    for (const auto& [planned, planned_value] : plan.symbols)
      if (name == planned && name != "B" && value != planned_value)
        return wrong(format("it is for {} = {}, {} is asked for", name, planned_value, value));
  return {};
}

Status check_promise(const Plan& plan, const Program& program) {
  const std::vector<int64_t>& promised = plan.estimate.arena_bytes;
  if (promised.empty()) return {};
  if (promised.size() != program.ranks.size())
    return Status(StatusCode::kInvalidArgument,
                  format("its estimate is of {} devices, its program runs on {}", promised.size(),
                         program.ranks.size()));
  for (size_t rank = 0; rank < promised.size(); ++rank)
    if (promised[rank] != program.ranks[rank].arena_bytes)
      return Status(StatusCode::kInvalidArgument,
                    format("it promises {} bytes on device {}, its program takes {}: it was changed since it "
                           "was made; take out its line 'estimate' to run it as it is now",
                           promised[rank], rank, program.ranks[rank].arena_bytes));
  return {};
}

}  // namespace tessera
