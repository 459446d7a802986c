// Every optimizer of the table, whichever they are.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "graph/models/model_family.h"
#include "graph/optim/optimizer.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

Graph forward() {
  Graph graph = ok(build_model(ok(parse_shorthand("llama:L=1,C=64,H=4,KV=2,F=128,V=64,T=8"))));
  CHECK(add_token_loss(graph).ok());
  return graph;
}

Graph step_of(const OptimizerDef& optimizer) {
  TrainingOptions options;
  options.optimizer.name = optimizer.name;
  return ok(make_training_step(forward(), options));
}

TEST_CASE("every_optimizer_updates_every_parameter_from_its_gradient") {
  for (const OptimizerDef* optimizer : all_optimizers()) {
    CAPTURE(optimizer->name);
    const Graph step = step_of(*optimizer);
    std::set<TensorId> updated;
    for (const Update& update : step.updates()) updated.insert(update.target);
    for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter)) CHECK(updated.contains(id));
    for (const TensorId id : step.tensors_of_kind(TensorKind::kState)) CHECK(updated.contains(id));
  }
}

TEST_CASE("state_of_every_optimizer_is_named_after_its_parameter") {
  for (const OptimizerDef* optimizer : all_optimizers()) {
    CAPTURE(optimizer->name);
    const Graph step = step_of(*optimizer);
    CHECK_FALSE(step.tensors_of_kind(TensorKind::kState).empty());
    for (const TensorId id : step.tensors_of_kind(TensorKind::kState)) {
      const std::string& name = step.tensor(id).name;
      const auto parameter = step.find_tensor(name.substr(0, name.rfind('.')));
      CAPTURE(name);
      REQUIRE(parameter.has_value());
      CHECK(step.tensor(*parameter).kind == TensorKind::kParameter);
    }
  }
}

TEST_CASE("every_optimizer_trains_parameters_in_bf16") {
  for (const OptimizerDef* optimizer : all_optimizers()) {
    CAPTURE(optimizer->name);
    CHECK(with_bf16_parameters(step_of(*optimizer)).ok());
  }
}

TEST_CASE("defaults_of_settings_are_in_their_ranges_and_the_table_is_sorted") {
  std::string_view last;
  for (const OptimizerDef* optimizer : all_optimizers()) {
    CAPTURE(optimizer->name);
    CHECK(last < optimizer->name);
    last = optimizer->name;
    CHECK(find_optimizer(optimizer->name) == optimizer);
    CHECK(defaults_of(*optimizer).size() == optimizer->settings.size());
    for (const OptimizerSetting& setting : optimizer->settings) {
      CAPTURE(setting.name);
      CHECK(setting.low <= setting.default_value);
      CHECK(setting.default_value <= setting.high);
      if (!setting.words.empty()) CHECK(setting.default_value == 0);
    }
  }
}

TEST_CASE("a_setting_that_an_optimizer_lacks_is_refused_with_its_name") {
  for (const OptimizerDef* optimizer : all_optimizers()) {
    TrainingOptions options;
    options.optimizer.name = optimizer->name;
    options.optimizer.hyper["no_such_setting"] = 1;
    const auto step = make_training_step(forward(), options);
    REQUIRE_FALSE(step.ok());
    CHECK(step.status().message().find(optimizer->name) != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
