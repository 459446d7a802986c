// The batch as a choice: what processes most sequences a second, held against every batch by itself.
#include "parallel/analytic/batch_search.h"

#include <doctest/doctest.h>

#include <cmath>

#include "graph/base/text.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }

}  // namespace

TEST_CASE(
    "of a range of batches the one that processes most sequences a second is found, as by looking at each") {
  for (const int64_t gib : {9, 16, 40}) {
    const TransformerShape model = shape("gpt2:L=12,C=2048,H=16,V=51200,T=1024");
    const Cluster cluster = *cluster_preset("dgx-a100-40gb:8");
    StepSearchOptions options;
    options.memory_limit = gib << 30;
    options.wide = true;
    const BatchRange range{1, 96, 0, 0};
    double best = 0;
    int64_t which = 0;
    for (const int64_t batch : batches_of(range)) {
      options.global_batch = batch, options.last_resort = false;
      const auto found = search_step(model, cluster, options);
      if (!found.ok()) continue;
      const double rate = static_cast<double>(batch) / found->best.time.step_s;
      if (rate > best) best = rate, which = batch;
    }
    options.last_resort = true;
    const auto found = search_batch(model, cluster, options, range);
    REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
    CHECK(found->batch == which);
    CHECK(found->per_s == doctest::Approx(best).epsilon(1e-9));
    CHECK(found->bound_per_s >= found->per_s);
    MESSAGE(gib, " GiB: batch ", found->batch, ", ", found->per_s, " sequences/s");
  }
}

TEST_CASE("auto takes the smallest batch within five percent of the best rate") {
  const TransformerShape model = shape("gpt2:L=12,C=2048,H=16,V=51200,T=1024");
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:8");
  const BatchRange range = *parse_batch_range("auto", 8);
  CHECK(range.most == 512);
  StepSearchOptions options;
  const auto close = search_batch(model, cluster, options, range);
  REQUIRE(close.ok());
  BatchRange all = range;
  all.close = 0;
  const auto best = search_batch(model, cluster, options, all);
  REQUIRE(best.ok());
  CHECK(close->batch < best->batch);
  CHECK(close->per_s >= best->per_s * 0.95);
  // Every smaller batch is further off.
  options.wide = true;
  for (const int64_t batch : batches_of(range)) {
    if (batch >= close->batch) break;
    options.global_batch = batch;
    const auto step = search_step(model, cluster, options);
    REQUIRE(step.ok());
    CHECK(static_cast<double>(batch) / step->best.time.step_s < best->per_s * 0.95);
  }
}

TEST_CASE("ranges of batches that cannot be are refused with what is wanted") {
  for (const char* text : {"", "0..4", "8..4", "1..8/0", "all", "1..", "1..99999999/1"}) {
    const auto range = parse_batch_range(text, 8);
    REQUIRE(!range.ok());
    CHECK(range.status().message().find("LEAST..MOST") != std::string::npos);
  }
  CHECK(batches_of(*parse_batch_range("60..200/50", 8)) == std::vector<int64_t>{100, 150, 200});
  CHECK(batches_of(*parse_batch_range("5..17", 8)) == std::vector<int64_t>{5, 6, 8, 12, 16, 17});
}
