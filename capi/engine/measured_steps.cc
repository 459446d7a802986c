#include "capi/engine/measured_steps.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "capi/engine/compile.h"
#include "capi/engine/measured_run.h"
#include "capi/engine/probe_program.h"

namespace tessera {
namespace {

constexpr std::string_view kEntry = "step";
// A turn is as many steps as fit into its budget, at least four; each plan has so many turns.
constexpr MeasureOptions kTurn{.budget_s = 0.06, .rounds = 20, .traces = false};
constexpr int kTurns = 6;

Result<double> turn_of(const std::shared_ptr<DeviceSet>& devices, const std::shared_ptr<const Graph>& graph,
                       const Plan& plan) {
  TSR_ASSIGN_OR_RETURN(Compiled compiled, compile_entries({{std::string(kEntry), graph, plan}}, *devices));
  const Program program = compiled.program;
  const auto fill = [&](Session& session, const std::string& entry) {
    return fill_step(session, entry, program, *graph);
  };
  TSR_ASSIGN_OR_RETURN(const MeasuredRun run, measure_run(devices, std::move(compiled.program), kTurn, fill));
  return run.run_s;
}

}  // namespace

MeasurePlans measured_steps(std::shared_ptr<DeviceSet> devices, std::shared_ptr<const Graph> graph) {
  return [devices, graph](std::span<const Plan* const> plans) -> Result<std::vector<double>> {
    std::vector<double> seconds(plans.size(), std::numeric_limits<double>::infinity());
    for (int turn = 0; turn < kTurns; ++turn)
      for (size_t i = 0; i < plans.size(); ++i) {
        const size_t at = turn % 2 == 0 ? i : plans.size() - 1 - i;
        TSR_ASSIGN_OR_RETURN(const double taken, turn_of(devices, graph, *plans[at]));
        seconds[at] = std::min(seconds[at], taken);
      }
    return seconds;
  };
}

}  // namespace tessera
