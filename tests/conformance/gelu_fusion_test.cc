// Gradients through gelu as part of their products, under every form, against one device that has them apart.
#include <doctest/doctest.h>

#include <string_view>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

TEST_CASE("gelu differentiated in products trains as apart, however tokens, widths and features are split") {
  Job job{.model = "gpt2:L=2,C=32,H=8,V=61,T=16"};
  job.steps = 3;
  job.fused_gelu_gradients = true;
  for (const std::string_view words :
       {"single", "dp=3", "mb=4", "tp=2", "tp=3,sp", "cp=ring:3", "dp=2,zero=3,mb=3",
        "dp=2,tp=2,sp,zero=3,mb=3", "tp=2d:2x2", "tp=2.5d:2x2x1", "tp=3d:2x2x2", "dp=2,recompute=full",
        "dp=2,offload=activations", "pp=2:1f1b,mb=3", "tp=2,pp=2:zb-h1,mb=6"})
    check(measure(job, words, {}, format("gelu in products: {}", words)));
  job.model = "gpt2:L=4,C=16,H=4,V=37,T=8";
  job.tokens = 7;
  check(measure(job, "pp=2:zb-v,mb=3", {}, "gelu in products: pp=2:zb-v"));
}
