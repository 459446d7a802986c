// Sharding operators one by one, in slices, against sharding everything (OSDP): the published speed-ups on
// eight PCIe devices, from the analytic prices alone. The best batch is part of either side's choice:
// throughput decides.
//
// The capacity is the limit less 800 MB, which stands for contexts and what is outside the blocks, so models
// are their blocks with a vocabulary of next to nothing. Sequences have 512 tokens. The wide model is
// recomputed: otherwise sharding everything does not fit at all, whose two gathered blocks are 4.7 GB.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

#include "graph/base/text.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_time.h"

using namespace tessera;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Eight TITAN RTX in one box: 0.8 of 16.3 Tflop/s in f32, 0.75 of 672 GB/s, a ring through PCIe 3.0 switches.
Cluster titan_box() {
  Cluster cluster;
  cluster.kinds.push_back({.name = "titan-rtx",
                           .memory_bytes = 24 * 1024 * kMiB,
                           .matmul_flops_per_s = 13e12,
                           .memory_bytes_per_s = 500e9,
                           .launch_s = 8e-6,
                           .multiprocessors = 72,
                           .tile_ramp = 60,
                           .issue_s = 30e-6});
  cluster.devices.assign(8, 0);
  cluster.link = {5e9, 60e-6};
  cluster.node_devices = 8;
  cluster.node_links = {{8, cluster.link}};
  return cluster;
}

struct Best {
  double sequences_per_s = 0;
  ForeignPlan plan;
};

class Comparison {
 public:
  Comparison(const TransformerShape& model, int64_t limit_mib)
      : model_(model), cluster_(titan_box()), capacity_((limit_mib - 800) * kMiB) {}

  bool fits(const ForeignPlan& plan) const {
    const int64_t full = plan.recompute == Recompute::kFull ? model_.L : 0;
    const StageMemory memory =
        StageTimes(model_, plan, cluster_).memory({.blocks = model_.L, .full = full}, true, true, 1);
    return memory.total() - memory.reserved <= capacity_;
  }
  void consider(Best& best, const ForeignPlan& plan) const {
    const int64_t batch = plan.micro_batch * plan.dp;
    const auto step = step_time(model_, plan, cluster_, batch);
    REQUIRE(step.ok());
    const double rate = static_cast<double>(batch) / step->step_s;
    if (rate > best.sequences_per_s) best = {rate, plan};
  }

  Best all_sharded(ForeignPlan plan) const {
    Best best;
    plan.zero = 3;
    for (plan.micro_batch = 1; fits(plan); ++plan.micro_batch) consider(best, plan);
    return best;
  }
  // So many blocks' attention and feed-forward weights, in so many slices. With the others given, the fewest
  // feed-forward weights that fit are best: sharding only adds time.
  Best one_by_one(ForeignPlan plan) const {
    Best best = all_sharded(plan);
    bool any = true;
    for (plan.micro_batch = 1; any; ++plan.micro_batch) {
      any = false;
      for (const int32_t chunks : {1, 2, 4, 8, 16}) {
        plan.chunks = chunks;
        for (int32_t attention = 0; attention <= model_.L; attention += model_.L > 20 ? 4 : 1) {
          plan.sharded_attention = attention;
          int32_t low = 0, high = static_cast<int32_t>(model_.L);
          plan.sharded_mlp = high;
          if (!fits(plan)) continue;
          while (low < high) {
            plan.sharded_mlp = (low + high) / 2;
            if (fits(plan))
              high = plan.sharded_mlp;
            else
              low = plan.sharded_mlp + 1;
          }
          plan.sharded_mlp = low;
          consider(best, plan);
          any = true;
        }
      }
    }
    return best;
  }

 private:
  TransformerShape model_;
  Cluster cluster_;
  int64_t capacity_;
};

}  // namespace

TEST_CASE("operators sharded one by one beat all-sharded by as much as published") {
  struct Row {
    const char *name, *model, *recompute;
    int64_t limit_mib;
    double published;
  };
  constexpr Row kRows[] = {
      {"GPT-2, 48 layers", "gpt2:L=48,C=1024,H=16,V=128,T=512", "none", 8192, 1.216},
      {"OPT-30B's width, 8 layers", "gpt2:L=8,C=7168,H=56,V=128,T=512", "full", 16384, 2.785},
  };
  for (const Row& row : kRows) {
    const Comparison box(*transformer_shape(*parse_shorthand(row.model)), row.limit_mib);
    const auto plan = parse_foreign_plan(format("dp=8,recompute={}", row.recompute),
                                         "dtype=f32,grad_dtype=f32,attention=unfused");
    REQUIRE(plan.ok());
    const Best all = box.all_sharded(*plan), best = box.one_by_one(*plan);
    const double ratio = best.sequences_per_s / all.sequences_per_s;
    std::printf("%-26s all sharded %5.2f/s (mb=%ld), %s %5.2f/s: %.3fx (published %.3fx)\n", row.name,
                all.sequences_per_s, static_cast<long>(all.plan.micro_batch), to_text(best.plan).c_str(),
                best.sequences_per_s, ratio, row.published);
    CHECK(std::abs(ratio / row.published - 1) < 0.10);
    CHECK(box.fits(best.plan));
  }
}
