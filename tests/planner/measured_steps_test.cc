// Step times measured on A100s against predictions whose constants were fitted to other rows; the figures are
// printed, with the constants. Without the shared data these tests say so and pass.
//
// What the rows show about the software that ran them:
// - Gradients are reduced in f16 (a data-parallel group takes longer by exactly that).
// - On one node nothing is recomputed: with it, products are fitted far above the device's peak rate.
// - On one node with tp=1 the projection onto the vocabulary runs at 84 Tflop/s, as products of an odd extent
//   do: the vocabulary is GPT-2's, not padded; in parts it is.
// - On one node eight-way tensor parallelism with one sequence takes a quarter longer than with two: the
//   kernel that softmaxes wants four matrices at once.
// - On one node collectives within a pass take about three times what they do in a benchmark's loop;
// gradients, after
//   the pass, are reduced at the loop's rate.
// - Data-parallel groups with some but not all devices of a node reach half their share of the network.
#include <doctest/doctest.h>

#include <cstdio>

#include "fit.h"
#include "graph/base/text.h"
#include "parallel/analytic/step_time.h"
#include "parallel/pricing/cluster_presets.h"
#include "published_runs.h"
#include "tests/skip.h"

using namespace tessera;
using namespace tessera::planner_test;

namespace {

constexpr int kEvaluations = 1500;

// Where fits start: the preset, with four 200 Gbit/s cards a node as the measured nodes have.
Cluster starting_cluster() {
  Cluster cluster = *cluster_preset("dgx-a100-80gb:8");
  cluster.network.bytes_per_s = 90e9;
  return cluster;
}

Accuracy held_out(const char* name, const std::vector<MeasuredStep>& known,
                  const std::vector<MeasuredStep>& unseen) {
  Cluster fitted = fit(starting_cluster(), known, kEvaluations);
  const Accuracy result = accuracy(unseen, predict(fitted, unseen));
  std::printf(
      "%-24s rows %3d  MAPE %5.2f %%  median %5.2f %%  pairwise order %.3f  regret %5.2f %% (worst %.1f %%; "
      "%.2f %% of the fastest predicted) over %d choices\n",
      name, result.rows, 100 * result.mape, 100 * result.median, result.pairwise, 100 * result.regret,
      100 * result.worst_regret, 100 * result.fastest_regret, result.groups);
  std::printf("   ");
  for (const Constant& constant : fitted_constants())
    std::printf(" %s %.3g;", constant.name, constant.in(fitted));
  std::printf("\n");
  return result;
}

std::vector<MeasuredStep> with_width(const std::vector<MeasuredStep>& rows, int64_t width) {
  std::vector<MeasuredStep> some;
  for (const MeasuredStep& row : rows)
    if (row.model.C == width) some.push_back(row);
  return some;
}

}  // namespace

TEST_CASE("constants fitted on one model size predict the other on one node") {
  const auto rows = read_measured_steps(false);
  if (!rows) {
    test::skip("no shared data (TESSERA_TEST_DATA names the folder that has it)");
    return;
  }
  REQUIRE(rows->size() == 720);
  const auto narrow = with_width(*rows, 1024), wide = with_width(*rows, 2048);
  const Accuracy up = held_out("1 node, 1024 -> 2048", narrow, wide);
  const Accuracy down = held_out("1 node, 2048 -> 1024", wide, narrow);
  CHECK(up.mape < 0.08);
  CHECK(down.mape < 0.08);
  CHECK(up.median < 0.035);
  CHECK(down.median < 0.03);
  CHECK(up.pairwise > 0.88);
  CHECK(down.pairwise > 0.93);
  // A block of the wide model with tp=2 and two sequences is measured a quarter slower than between its
  // neighbours, one with tp=4 a fifth faster than the narrow model's; choices among these go wrong where
  // nothing steadier is predicted nearly as fast.
  CHECK(up.regret < 0.02);
  CHECK(down.regret < 0.02);
  // Steadier plans are worth it on these rows, not only allowed.
  CHECK(up.regret < up.fastest_regret);
  CHECK(down.regret < down.fastest_regret);
}

TEST_CASE("constants fitted on one model size predict the other on many nodes") {
  const auto rows = read_measured_steps(true);
  if (!rows) {
    test::skip("no shared data (TESSERA_TEST_DATA names the folder that has it)");
    return;
  }
  REQUIRE(rows->size() == 41);
  const auto small = with_width(*rows, 3072), large = with_width(*rows, 6144);
  const Accuracy up = held_out("nodes, 3.6B -> 18.4B", small, large);
  const Accuracy down = held_out("nodes, 18.4B -> 3.6B", large, small);
  CHECK(up.mape < 0.08);
  CHECK(down.mape < 0.08);  // three rows of 26 are outliers by a factor of 1.2 to 2
  CHECK(up.median < 0.04);
  CHECK(down.median < 0.04);
  CHECK(up.pairwise > 0.85);
  CHECK(down.pairwise > 0.93);
  // One choice of 15: mb=16, predicted 1.8 % faster than mb=8, is measured 9 % slower.
  CHECK(up.regret < 0.02);
  CHECK(down.regret < 0.02);
}

// No row of these was fitted. What passes for the device and its links must hold for the software that prices
// describe: Megatron-LM's; what else others' software does, this cannot tell.
TEST_CASE("the presets predict published training runs that they were not fitted to") {
  struct Bound {
    std::string_view source;
    double mean, worst;  // of absolute errors
  };
  constexpr Bound kBounds[] = {
      {"Megatron-LM 2021, table 1", 0.035, 0.07},
      {"Megatron-LM 2021, table 2", 0.035, 0.07},
      {"Megatron-LM 2022, full", 0.065, 0.09},
      {"Megatron-LM 2022, selective", 0.08, 0.1},
      {"BLOOM and its trials", 0.075, 0.2},
      {"MT-NLG", 0.1, 0.12},
      {"Llama 3", 0.08, 0.1},
  };
  for (const Bound& bound : kBounds) {
    double sum = 0;
    int rows = 0;
    for (const PublishedRun& run : published_runs()) {
      if (run.source != bound.source) continue;
      const auto time = forecast(run);
      REQUIRE(time.ok());
      const double error = std::abs(time->step_s / measured_seconds(run) - 1);
      CHECK_MESSAGE(error < bound.worst, run.model << " " << run.parallel);
      sum += error;
      ++rows;
    }
    REQUIRE(rows > 0);
    std::printf("published %-28.*s rows %2d  MAPE %5.2f %%\n", static_cast<int>(bound.source.size()),
                bound.source.data(), rows, 100 * sum / rows);
    CHECK(sum / rows < bound.mean);
  }
}
