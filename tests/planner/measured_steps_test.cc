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
    MESSAGE("skipped: no measured steps in the test data");
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
    MESSAGE("skipped: no measured steps in the test data");
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

// Megatron-LM on Selene (Narayanan et al., SC 2021, table 1): eight A100-80GB and eight 200 Gbit/s cards a
// node, no row of it was fitted. Tflop/s a device with 96 B T L C^2 (1 + T / 6C + V / 16LC) operations a
// step.
TEST_CASE(
    "the A100 preset predicts published training runs of 1.7B to 1008B parameters that it was not fitted "
    "to") {
  struct Run {
    const char* model;
    int32_t devices;
    int64_t batch;
    const char* parallel;
    double teraflops;
  };
  constexpr Run kRuns[] = {
      {"gpt2:L=24,C=2304,H=24,V=51200,T=2048", 32, 512, "tp=1,dp=32,mb=16", 137},
      {"gpt2:L=30,C=3072,H=32,V=51200,T=2048", 64, 512, "tp=2,dp=32,mb=16", 138},
      {"gpt2:L=36,C=4096,H=32,V=51200,T=2048", 128, 512, "tp=4,dp=32,mb=16", 142},
      {"gpt2:L=40,C=6144,H=48,V=51200,T=2048", 256, 1024, "tp=8,dp=32,mb=16", 135},
      {"gpt2:L=48,C=8192,H=64,V=51200,T=2048", 512, 1536, "tp=8,dp=32,pp=2:1f1b,mb=4", 138},
      {"gpt2:L=60,C=10240,H=80,V=51200,T=2048", 1024, 1792, "tp=8,dp=32,pp=4:1f1b,mb=2", 140},
      {"gpt2:L=80,C=12288,H=96,V=51200,T=2048", 1536, 2304, "tp=8,dp=24,pp=8:1f1b,mb=2", 148},
      {"gpt2:L=96,C=16384,H=128,V=51200,T=2048", 1920, 2160, "tp=8,dp=15,pp=16:1f1b,mb=1", 155},
      {"gpt2:L=105,C=20480,H=128,V=51200,T=2048", 2520, 2520, "tp=8,dp=9,pp=35:1f1b,mb=1", 163},
      {"gpt2:L=128,C=25600,H=160,V=51200,T=2048", 3072, 3072, "tp=8,dp=6,pp=64:1f1b,mb=1", 163},
  };
  double sum = 0;
  for (const Run& run : kRuns) {
    const auto model = transformer_shape(*parse_shorthand(run.model));
    REQUIRE(model.ok());
    const auto plan = parse_foreign_plan(
        std::string(run.parallel) + ",recompute=full",
        "attention=unfused,sp=off,dp_overlap=off,grad_dtype=f32,dtype=f16,scatter_sends=on");
    REQUIRE(plan.ok());
    const auto cluster = cluster_preset(format("dgx-a100-80gb:{}", run.devices));
    REQUIRE(cluster.ok());
    const auto time = step_time(*model, *plan, *cluster, run.batch);
    REQUIRE(time.ok());
    const double C = static_cast<double>(model->C), L = static_cast<double>(model->L), T = 2048, V = 51200;
    const double flops =
        96 * static_cast<double>(run.batch) * T * L * C * C * (1 + T / (6 * C) + V / (16 * L * C));
    const double measured = flops / run.devices / (run.teraflops * 1e12);
    const double error = time->step_s / measured - 1;
    std::printf("published %-42s %7.2f s, predicted %7.2f s, %+.1f %%\n", run.model, measured, time->step_s,
                100 * error);
    CHECK(std::abs(error) < 0.08);
    sum += std::abs(error) / std::size(kRuns);
  }
  CHECK(sum < 0.045);
}
