// make_plan decides between finalists by their measured times.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "parallel/planner/planner.h"
#include "parallel/strategy/strategy.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Cluster two_cores() {
  Cluster cluster = fake_cluster(4, {5e9, 5e-6}, 1e11);
  cluster.shared_cores = 2;
  return cluster;
}

PlanOptions options_of(int32_t finalists) {
  PlanOptions options;
  options.global_batch = 4;
  options.symbols = {{"T", 32}};
  options.finalists = finalists;
  return options;
}

const Candidate* candidate_of(const PlanResult& result, const std::string& strategy) {
  const auto at = std::ranges::find(result.candidates, strategy, &Candidate::strategy);
  return at == result.candidates.end() ? nullptr : &*at;
}

}  // namespace

TEST_CASE("of the finalists the one that is measured fastest is the plan, whatever its price") {
  const Graph step = training_step("gpt2:L=2,C=32,H=4,V=64,T=32").value();
  const Cluster cluster = two_cores();
  const PlanResult priced = make_plan(step, cluster, FakeCatalog(), options_of(1)).value();

  std::vector<std::string> asked;
  PlanOptions options = options_of(5);
  options.measure = [&](std::span<const Plan* const> plans) -> Result<std::vector<double>> {
    std::vector<double> seconds;
    for (const Plan* plan : plans) {
      asked.push_back(plan->strategy);
      seconds.push_back(1.0 / static_cast<double>(asked.size()));  // the last is the fastest
    }
    return seconds;
  };
  const PlanResult measured = make_plan(step, cluster, FakeCatalog(), options).value();
  REQUIRE(asked.size() == 5);
  CHECK(asked.front() == priced.plan.strategy);  // who is predicted fastest is always among them
  CHECK(measured.plan.strategy == asked.back());
  CHECK(measured.plan.strategy != priced.plan.strategy);
  CHECK(std::set(asked.begin(), asked.end()).size() == asked.size());

  // They are of several kinds, not five shades of one; none is predicted hopeless.
  std::set<std::pair<int32_t, bool>> families;
  for (const std::string& strategy : asked) {
    const StrategySpec spec = parse_parallel(strategy)->spec;
    families.emplace(spec.devices(), spec.tp > 1);
    const Candidate* it = candidate_of(measured, strategy);
    REQUIRE(it != nullptr);
    CHECK(it->measured_s > 0);
    CHECK(it->step_time_s <= 1.5 * priced.plan.estimate.step_time_s);
  }
  CHECK(families.size() >= 2);
  // Measured plans come first, in that order; the gap includes the cost of the choice under the prices.
  for (size_t i = 0; i < asked.size(); ++i)
    CHECK(measured.candidates[i].strategy == asked[asked.size() - 1 - i]);
  const double loses = measured.plan.estimate.step_time_s - priced.plan.estimate.step_time_s;
  CHECK(loses >= 0);
  CHECK(measured.plan.estimate.gap * measured.plan.estimate.step_time_s >= loses * (1 - 1e-9));
}

TEST_CASE("one finalist, or nobody to measure, is the plan by price; a failure to measure is passed on") {
  const Graph step = training_step("gpt2:L=1,C=32,H=4,V=64,T=32").value();
  const Cluster cluster = two_cores();
  const std::string priced = make_plan(step, cluster, FakeCatalog(), options_of(1))->plan.strategy;
  CHECK(make_plan(step, cluster, FakeCatalog(), options_of(4))->plan.strategy == priced);
  PlanOptions options = options_of(1);
  options.measure = [](std::span<const Plan* const>) -> Result<std::vector<double>> {
    return Status(StatusCode::kInternal, "not to be asked");
  };
  CHECK(make_plan(step, cluster, FakeCatalog(), options)->plan.strategy == priced);
  options.finalists = 3;
  const auto failed = make_plan(step, cluster, FakeCatalog(), options);
  REQUIRE(!failed.ok());
  CHECK(failed.status().message().find("not to be asked") != std::string::npos);
}
