// Steps of servers composed of the profile of a few blocks, against the whole model lowered: parameters, pages, inputs, what is
// alive at once, and seconds, of prompts and of single tokens, whatever the family.
#include "parallel/composition/serving_profile.h"

#include <doctest/doctest.h>

#include <numeric>

#include "graph/models/model_family.h"
#include "graph/transform/fewer_blocks.h"
#include "graph/transform/precision.h"
#include "parallel/composition/solo_run.h"
#include "tests/fake_cluster.h"
#include "tests/ok.h"
#include "tests/parallel/fake_catalog.h"

using namespace tessera;

namespace {

using test::ok;

int64_t bytes_of(const RankProgram& rank, SlotKind kind) {
  int64_t bytes = 0;
  for (const Slot& slot : rank.slots) bytes += slot.kind == kind ? slot.bytes : 0;
  return bytes;
}

void check_served(const std::string& shorthand, int32_t tp, const ServedStep& step) {
  CAPTURE(shorthand);
  CAPTURE(tp);
  CAPTURE(step.tokens);
  const Graph forward = ok(build_model(ok(parse_shorthand(shorthand))));
  const FewerBlocks few = ok(with_fewer_blocks(forward));
  const Cluster cluster = fake_cluster(tp, {1e10, 1e-6}, 1e12);
  const ServingProgram small = ok(lower_serving(ok(with_mixed_precision(few.graph, DType::kBF16)),
                                                DType::kBF16, step, tp, FakeCatalog()));
  const ServingProfile profile = ok(profile_serving(small, step, cluster));
  std::vector<int32_t> blocks = {0};
  for (const int32_t like : few.like) blocks.push_back(like + 1);
  blocks.push_back(profile.step.map.after());

  const ServingProgram whole = ok(
      lower_serving(ok(with_mixed_precision(forward, DType::kBF16)), DType::kBF16, step, tp, FakeCatalog()));
  const ServingBytes bytes = composed_bytes(profile, blocks);
  CHECK(bytes.parameters ==
        bytes_of(whole.rank, SlotKind::kParameter) + bytes_of(whole.rank, SlotKind::kConstant));
  CHECK(bytes.inputs == bytes_of(whole.rank, SlotKind::kInput));
  CHECK(bytes.logits == bytes_of(whole.rank, SlotKind::kOutput));
  int64_t pages = 0;
  for (const int32_t block : blocks)
    for (const PositionBytes& it : profile.pages[static_cast<size_t>(block)])
      pages += it.bytes * step.sequences * step.text;
  const int64_t state = bytes_of(whole.rank, SlotKind::kState);
  CHECK(pages == state);
  CHECK(bytes.run == whole.rank.max_live_bytes - bytes.parameters - bytes.inputs - bytes.logits - state);
  // Copies of small inputs at the ends run among the first block's kernels.
  CHECK(composed_seconds(profile, blocks).total() ==
        doctest::Approx(run_solo(whole.rank, cluster, solo_prices(whole.rank, cluster, {}), false).end_s)
            .epsilon(0.02));
}

}  // namespace

TEST_SUITE("composed serving") {
  TEST_CASE("prompts and single tokens, of every family") {
    for (const char* shorthand :
         {"llama:L=7,C=128,H=8,KV=4,F=256,V=512,T=256", "gpt2:L=6,C=128,H=4,V=512,T=256",
          "moe:L=5,C=128,H=4,KV=2,F=256,E=4,K=2,V=512,T=256",
          "gemma3:L=12,C=128,H=4,KV=2,D=32,F=256,V=512,T=256,window=48,tied,rope_half",
          "deepseek2:L=6,C=128,H=4,D=48,R=16,KA=64,VD=32,F=64,E=4,K=2,FS=64,FD=256,V=512,T=256"})
      for (const int32_t tp : {1, 2}) {
        check_served(shorthand, tp, {2, 64, 32});
        check_served(shorthand, tp, {8, 1, 80});
      }
  }
}
