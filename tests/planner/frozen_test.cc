// Frozen parameters change the plan for hardware that is absent, and the reasons are told.
#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "parallel/analytic/frozen_reasons.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

FoundStep best_of(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options) {
  auto found = search_step(model, cluster, options);
  REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
  return found->best;
}

}  // namespace

TEST_CASE(
    "adapters on a frozen model are planned with less sharding or recomputation than full training, and it "
    "says why") {
  struct Case {
    const char *model, *cluster;
    int64_t batch;
  };
  for (const Case& c : {Case{"llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=2048", "dgx-a100-40gb:8", 64},
                        Case{"gpt2:L=36,C=4096,H=32,V=51200,T=2048", "pcie-rtx-4090:16", 64}}) {
    const TransformerShape model = *transformer_shape(*parse_shorthand(c.model));
    const Cluster cluster = *cluster_preset(c.cluster);
    StepSearchOptions options;
    options.global_batch = c.batch;
    options.wide = true;
    const FoundStep full = best_of(model, cluster, options);
    options.features.lora = 16;
    const FoundStep lora = best_of(model, cluster, options);
    CHECK(to_text(lora.plan) != to_text(full.plan));
    CHECK(lora.time.step_s < full.time.step_s);
    CHECK((lora.plan.zero < full.plan.zero || lora.plan.tp < full.plan.tp ||
           lora.time.recompute_s < full.time.recompute_s));
    std::string all;
    for (const std::string& reason : frozen_reasons(model, cluster, options, lora)) all += reason + "\n";
    MESSAGE(to_text(full.plan), " becomes ", to_text(lora.plan), "\n", all);
    CHECK(all.find("gradients and optimizer state take") != std::string::npos);
    CHECK(all.find("trained in full this plan would need") != std::string::npos);
    CHECK(all.find("trained in full the best plan is " + to_text(full.plan)) != std::string::npos);
    CHECK(all.find("so there is less need for") != std::string::npos);
    // Rounded, as the rest of the explanation is: no number of four decimals.
    for (size_t at = all.find('.'); at != std::string::npos; at = all.find('.', at + 1)) {
      size_t digits = 0;
      while (at + 1 + digits < all.size() && all[at + 1 + digits] >= '0' && all[at + 1 + digits] <= '9')
        ++digits;
      CHECK(digits <= 3);
    }
  }
}
