// The closed form of what plans hold at least, held against plans that were found, and what is said of a
// batch range when nothing fits.
#include "parallel/analytic/memory_floor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/batch_search.h"
#include "parallel/analytic/generate_search.h"
#include "parallel/analytic/least_step.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/pricing/cluster_presets.h"
#include "parallel/pricing/reserved_memory.h"

using namespace tessera;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }

// Models of which weights and state are most, all else, adapters only, and experts.
struct Question {
  const char* words;
  StepSearchOptions options;
};
std::vector<Question> questions() {
  StepSearchOptions plain;
  plain.global_batch = 16, plain.wide = true;
  StepSearchOptions away = plain, adapters = plain, narrow = plain;
  away.shard = away.offload = true;
  adapters.features.lora = 8;
  narrow.features.grad_dtype = narrow.features.compute_dtype = DType::kF16;
  return {{"gpt2:L=24,C=2048,H=16,V=51200,T=1024", plain},
          {"gpt2:L=6,C=2048,H=16,V=51200,T=1024", away},
          {"gpt2:L=8,C=2048,H=16,V=51200,T=1024", narrow},
          {"llama:L=16,C=2048,H=16,KV=4,F=5632,V=32000,T=2048", adapters},
          {"moe:L=8,C=1024,H=16,KV=16,F=4096,E=8,K=2,V=32000,T=1024", plain}};
}

}  // namespace

TEST_CASE("no plan that is found holds less than the closed form says, and where that is too much none is") {
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:4");
  for (Question& it : questions()) {
    CAPTURE(std::string(it.words));
    const TransformerShape model = shape(it.words);
    it.options.last_resort = it.options.advise = false;
    // Down to where the search finds nothing.
    int64_t too_little = 3 * kGiB, enough = 40 * kGiB;
    while (enough - too_little > 256 * kMiB) {
      const int64_t limit = it.options.memory_limit = too_little + (enough - too_little) / 2;
      const auto found = search_step(model, cluster, it.options);
      const bool too_large = surely_too_large(model, cluster, it.options).has_value();
      CHECK_FALSE((found.ok() && too_large));
      (found.ok() ? enough : too_little) = limit;
      if (!found.ok()) continue;
      const int64_t fullest = std::ranges::max(found->best.memory_bytes);
      if (!it.options.offload)
        CHECK(devices_by_floor(model, cluster, it.options, fullest) <= found->best.plan.devices());
    }
    // Beside what contexts take it knows at least a fifth of what it takes.
    it.options.memory_limit = 3 * kGiB + (enough - 3 * kGiB) / 5;
    CHECK(surely_too_large(model, cluster, it.options).has_value());
    it.options.memory_limit = 3 * kGiB - kMiB;
    CHECK(surely_too_large(model, cluster, it.options).has_value());
    it.options.tp = 3;  // of which there may be none at all
    CHECK_FALSE(surely_too_large(model, cluster, it.options).has_value());
  }
}

TEST_CASE("the fewest devices are those of trying one count after the other") {
  const TransformerShape model = shape("gpt2:L=24,C=2048,H=16,V=51200,T=1024");
  Cluster cluster = *cluster_preset("dgx-a100-40gb:1");
  StepSearchOptions options;
  options.global_batch = 24, options.advise = false;
  for (const int64_t gib : {4, 6, 9}) {
    options.memory_limit = gib * kGiB;
    int32_t fewest = 0;
    for (size_t count = 2; count <= 40 && fewest == 0; ++count) {
      Cluster larger = cluster;
      larger.devices.assign(count, 0);
      if (search_step(model, larger, options).ok()) fewest = static_cast<int32_t>(count);
    }
    const auto found = fewest_devices_for(model, cluster, options, 40);
    REQUIRE(found.has_value() == (fewest > 0));
    if (found) CHECK(found->devices == fewest);
  }
}

TEST_CASE("where no batch of a range fits, the smallest limit of all is named with its batch") {
  const TransformerShape model = shape("gpt2:L=24,C=2048,H=16,V=51200,T=1024");
  for (const char* kinds : {"dgx-a100-40gb:4", "dgx-a100-40gb:4+dgx-h100:2"}) {
    Fleet fleet;
    for (const std::string& one : split(kinds, '+')) fleet.clusters.push_back(*cluster_preset(one));
    StepSearchOptions options;
    options.memory_limit = 7 * kGiB / 2;
    const BatchRange range = *parse_batch_range("2..24", fleet.devices());
    const auto refused = search_batch(model, fleet, options, range);
    REQUIRE(!refused.ok());
    CHECK(refused.status().code() == StatusCode::kOutOfMemory);
    const std::string message(refused.status().message());
    CAPTURE(message);
    CHECK(message.starts_with("batches from 2 to 24, of which "));
    CHECK(message.find("optimizer state") != std::string::npos);
    const auto number = [&](std::string_view before) {
      const size_t at = message.find(before) + before.size();
      return parse_i64(message.substr(at, message.find(' ', at) - at)).value_or(0);
    };
    const int64_t batch = number("of which ");
    const size_t open = message.find('(', message.find("the smallest limit that works is "));
    const int64_t bytes = parse_i64(message.substr(open + 1, message.find(' ', open) - open - 1)).value_or(0);
    options.advise = false;
    const auto fits = [&](int64_t of, int64_t limit) {
      options.global_batch = of, options.memory_limit = limit;
      return search_step(model, fleet, options).ok();
    };
    CHECK(fits(batch, bytes));
    for (const int64_t each : batches_of(range)) CHECK_FALSE(fits(each, bytes - 1));
  }
}

TEST_CASE("a small device keeps a share of its memory for contexts, and a cluster may say how much") {
  Cluster cluster = *cluster_preset("pcie-rtx-5000:2");
  CHECK(reserved_bytes(cluster.kinds[0]) == 3 * kGiB);
  CHECK(reserved_bytes(cluster_preset("dgx-a100-80gb:2")->kinds[0]) == 3 * kGiB);
  cluster.kinds[0].memory_bytes = 2 * kGiB;
  StepSearchOptions options;
  options.global_batch = 4, options.wide = true;
  const TransformerShape model = shape("gpt2:L=2,C=32,H=2,V=256,T=32");
  const auto reserved = [&] {
    const auto found = search_step(model, cluster, options);
    REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
    const FoundStep& best = found->best;
    const StageMemory memory =
        StageTimes(model, best.plan, cluster)
            .memory(best.stages[0], true, best.plan.pp == 1, 1, best.plan.virtual_stages);
    CHECK(std::ranges::max(best.memory_bytes) <= cluster.kinds[0].memory_bytes);
    return memory.reserved;
  };
  CHECK(reserved() == 384 * kMiB);
  cluster.kinds[0].reserved_bytes = kGiB;
  CHECK(reserved() == kGiB);
  cluster.kinds[0].reserved_bytes = 2 * kGiB - kMiB / 64;
  const auto found = search_step(model, cluster, options);
  REQUIRE(!found.ok());
  CHECK(found.status().message().find("contexts and communicators 2.00 GiB") != std::string::npos);
  GenerateOptions serving;
  serving.work = {16, 8, DType::kBF16};
  cluster.kinds[0].reserved_bytes = -1;
  const auto served = search_generate(model, cluster, serving);
  REQUIRE_MESSAGE(served.ok(), std::string(served.status().message()));
  CHECK(served->best.time.memory_bytes < kGiB);
}
