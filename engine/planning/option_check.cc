#include "engine/planning/option_check.h"

#include <string_view>
#include <vector>

#include "engine/data/data_settings.h"
#include "engine/planning/planning.h"
#include "engine/planning/serving_plan.h"
#include "engine/settings/embedder_settings.h"
#include "engine/settings/generator_settings.h"
#include "engine/settings/run_settings.h"
#include "engine/settings/trainer_settings.h"
#include "engine/settings/window_settings.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

Status check_planning(const Options& options) {
  TSR_ASSIGN_OR_RETURN(const std::string mode, plan_mode(options));
  Options rest = options;
  rest.erase("mode");
  if (mode == "serve") return check_serving_options(rest);
  return mode == "train" ? read_trainer_settings(rest, 0).status() : read_generator_settings(rest).status();
}

struct Consumer {
  std::string_view name;
  Status (*check)(const Options& options);
};
constexpr Consumer kConsumers[] = {
    {"trainer", [](const Options& it) { return read_trainer_settings(it, 0).status(); }},
    {"run", [](const Options& it) { return read_run_settings(it).status(); }},
    {"plan", check_planning},
    {"generator", [](const Options& it) { return read_generator_settings(it).status(); }},
    {"engine", check_serving_options},
    {"scorer", [](const Options& it) { return read_scorer_settings(it).status(); }},
    {"embedder", [](const Options& it) { return read_embedder_settings(it).status(); }},
    {"imatrix", [](const Options& it) { return read_importance_settings(it).status(); }},
    {"dataset", [](const Options& it) { return read_data_settings(it.contains("files") ? "" : "data", it).status(); }},
};

}  // namespace

Status check_options(const std::string& consumer, const Options& options) {
  std::vector<std::string> names;
  for (const Consumer& each : kConsumers) {
    if (each.name == consumer) return each.check(options);
    names.emplace_back(each.name);
  }
  return Status(StatusCode::kNotFound, format("nothing is called '{}' that takes options{}; there are {}",
                                              consumer.substr(0, 100), nearest_hint(consumer, names),
                                              join(names, ", ")));
}

}  // namespace tessera
