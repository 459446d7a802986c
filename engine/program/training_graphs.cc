// Each entry is the forward graph with its loss, differentiated as far as the entry needs.
#include "engine/program/training_graphs.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/program/compile.h"
#include "engine/program/entry_graphs.h"

namespace tessera {

Result<std::vector<GraphToPlan>> training_graphs(const Graph& forward, bool language_model,
                                                 const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph with_loss, forward_with_loss(forward, language_model, settings));
  std::vector<GraphToPlan> graphs;
  const auto add = [&](std::string name, Graph graph) {
    graphs.push_back(
        GraphToPlan::create(std::move(name), std::make_shared<const Graph>(std::move(graph)), settings.symbols));
  };
  if (!settings.evaluate_only) {
    TSR_ASSIGN_OR_RETURN(Graph step, step_of(with_loss, settings));
    add(std::string(kTrainEntry), std::move(step));
  }
  if (!settings.evaluate_only && settings.accumulate > 1) {
    TSR_ASSIGN_OR_RETURN(Graph accumulation, accumulation_of(with_loss, settings));
    add(std::string(kAccumulateEntry), std::move(accumulation));
    TSR_ASSIGN_OR_RETURN(Graph update, update_of(with_loss, settings));
    add(std::string(kUpdateEntry), std::move(update));
  }
  for (const TokenLoss loss : settings.losses) {
    TSR_ASSIGN_OR_RETURN(const LogicalGraph part, forward_with_loss(forward, loss, settings));
    TSR_ASSIGN_OR_RETURN(Graph accumulation, accumulation_of(part, settings));
    add(accumulation_entry(loss), std::move(accumulation));
    if (loss != settings.losses.back()) continue;
    TSR_ASSIGN_OR_RETURN(Graph update, update_of(part, settings));
    add(std::string(kUpdateEntry), std::move(update));
    TSR_ASSIGN_OR_RETURN(Graph logprobs, logprobs_of(part, settings));
    add(std::string(kForwardEntry), std::move(logprobs));
  }
  if (settings.preference && settings.preference->loss == PreferenceLoss::kKto) {
    TSR_ASSIGN_OR_RETURN(const LogicalGraph tokens,
                         forward_with_loss(forward, TokenLoss::kCrossEntropy, settings));
    TSR_ASSIGN_OR_RETURN(Graph logprobs, logprobs_of(tokens, settings));
    add(std::string(kMismatchedEntry), std::move(logprobs));
  }
  TSR_ASSIGN_OR_RETURN(Graph evaluation, evaluation_of(with_loss, language_model, settings));
  add(std::string(kEvalEntry), std::move(evaluation));
  return graphs;
}

}  // namespace tessera
