#include "engine/program/explain.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "parallel/planner/explain.h"
#include "parallel/pricing/simulator.h"
#include "serialize/explanation_json.h"

namespace tessera {
namespace {

// Adds the effect of frozen parameters, if any.
void explain_frozen(const Graph& graph, Explanation& explanation) {
  int64_t trained = 0, all = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const int64_t elements = graph.type(id).shape.elements();
    all += elements;
    trained += graph.tensor(id).trainable ? elements : 0;
  }
  if (trained == all || graph.gradients().empty()) return;
  explanation.reasons.push_back(
      format("{} of {} parameters are trained; the frozen ones have no gradient, no optimizer state and no "
             "reduction over data-parallel ranks",
             trained, all));
}

// Adds the plans that were tried, fastest first.
void explain_measured(const PlanRecord& record, Explanation& explanation) {
  std::vector<const Candidate*> measured;
  for (const Candidate& it : record.candidates)
    if (it.measured_s > 0) measured.push_back(&it);
  if (measured.empty()) return;
  std::ranges::stable_sort(measured, {}, &Candidate::measured_s);
  std::vector<std::string> parts;
  for (const Candidate* it : measured)
    parts.push_back(format("'{}' {} (predicted {})", it->strategy, seconds_text(it->measured_s),
                           seconds_text(it->step_time_s)));
  explanation.reasons.push_back(format("Measured here: {}", join(parts, ", ")));
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 1) return format("{} s", std::round(seconds * 1000) / 1000);
  return format("{} ms", std::round(seconds * 1e6) / 1000);
}

Result<Explanation> explain_plan(const PlanRecord& record, bool drawings) {
  if (record.program == nullptr)
    return Status(StatusCode::kFailedPrecondition, "this plan was kept without its program");
  std::vector<EntrySpec> specs;
  for (const PlannedEntry& entry : record.entries)
    specs.push_back({entry.name, entry.graph.get(), &entry.plan});
  TSR_ASSIGN_OR_RETURN(const Simulation simulation,
                       simulate(*record.program, record.entries[0].name, record.cluster));
  ExplainOptions options;
  options.memory_limit = record.memory_limit;
  options.candidates = record.candidates;
  options.drawings.wanted = drawings;
  TSR_ASSIGN_OR_RETURN(Explanation explanation, explain_program(specs, *record.program, simulation, options));
  explanation.cluster = record.devices_text;
  int64_t parameters = 0;
  for (const TensorId id : record.entries[0].graph->tensors_of_kind(TensorKind::kParameter))
    parameters += record.entries[0].graph->type(id).shape.elements();
  explanation.subject = format("{} of {} parameters", record.entries[0].name, parameters);
  explain_frozen(*record.entries[0].graph, explanation);
  explain_measured(record, explanation);
  explanation.reasons.insert(explanation.reasons.end(), record.reasons.begin(), record.reasons.end());
  // The bound is the search's; the gap is measured from it to the step of all entries.
  if (explanation.gap >= 0 && record.search.bound_s > 0 && explanation.step_s > 0) {
    explanation.bound_s = std::min(record.search.bound_s, explanation.step_s);
    explanation.gap = 1 - explanation.bound_s / explanation.step_s;
  }
  if (const PlanSearch& search = record.search; search.configurations > 1) {
    std::vector<std::string> parts = {format("{} were lowered and simulated", search.solved),
                                      format("{} closed by their bound", search.closed_by_bound)};
    if (search.too_large > 0) parts.push_back(format("{} found too large", search.too_large));
    if (search.refused > 0) parts.push_back(format("{} refused by the model", search.refused));
    if (search.open > 0)
      parts.push_back(format("{} left open when the most lowerings were reached", search.open));
    explanation.reasons.push_back(
        format("Of {} configurations {}", search.configurations, join(parts, ", ")));
  }
  return explanation;
}

Result<std::string> plan_explanation_json(const PlanRecord& record) {
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_plan(record, false));
  return explanation_to_json(explanation);
}

Result<std::string> plan_page(const PlanRecord& record) {
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_plan(record, true));
  return explanation_to_page(explanation);
}

}  // namespace tessera
