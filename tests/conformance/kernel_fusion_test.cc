// Kernels that are joined when a rank is lowered, under every form, against one device that has them apart.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <string_view>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Job job_of(std::string model) {
  Job job{.model = std::move(model)};
  job.steps = 3;
  job.fuses_kernels = true;
  return job;
}

std::set<std::string> ops_of(const Program& program) {
  std::set<std::string> ops;
  for (const RankProgram& rank : program.ranks)
    for (const KernelDesc& kernel : rank.kernels)
      ops.insert(std::string(kernel.op->name) + (kernel.op->name == "matmul" && kernel.outputs.size() == 2
                                                     ? " with " + attr_string(kernel.attrs, "activation")
                                                     : std::string()));
  return ops;
}

}  // namespace

TEST_CASE("joined kernels train as those apart, however tokens, widths and features are split") {
  Job job = job_of("gpt2:L=2,C=32,H=8,V=61,T=16");
  job.evaluates = true;
  for (const std::string_view words :
       {"single", "dp=3", "mb=4", "tp=2", "tp=3,sp", "cp=ring:3", "cp=ulysses:2", "dp=2,zero=3,mb=3",
        "dp=2,tp=2,sp,zero=3,mb=3", "tp=2d:2x2", "tp=2.5d:2x2x1", "tp=3d:2x2x2", "dp=2,recompute=full",
        "dp=2,offload=activations", "dp=2,offload=params@host+grads@host+optimizer@host"})
    check(measure(job, words, {}, format("joined kernels: {}", words)));
  // Behind the sum of a split product a residual is no part of that, but of the norm that follows.
  CHECK(ops_of(run(job, "tp=2").program).contains("add_layer_norm"));
  const Outcome out = run(job, "single");
  const std::set<std::string> ops = ops_of(out.program);
  for (const char* name : {"matmul_add", "matmul with gelu", "layer_norm_grad"}) CHECK(ops.contains(name));
  for (const char* name : {"gelu", "layer_norm_grad_input", "layer_norm_grad_weight"})
    CHECK(!ops.contains(name));
}

TEST_CASE("joined kernels train as those apart: rms norms, experts, adapters, untied heads") {
  for (const std::string_view model :
       {"llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16,tied=0", "moe:L=2,C=16,H=4,KV=2,F=24,E=4,V=37,T=16"}) {
    const Job job = job_of(std::string(model));
    for (const std::string_view words : {"single", "mb=4", "tp=2", "dp=2,tp=2,sp,zero=2", "tp=2.5d:2x2x1"})
      check(measure(job, words, {}, format("joined kernels: {}", words)));
    const Outcome out = run(job, "single");
    const std::set<std::string> ops = ops_of(out.program);
    CHECK(ops.contains("rms_norm_grad"));
    CHECK(ops.contains("matmul_add"));
    CHECK(ops_of(run(job, "tp=2").program).contains("add_rms_norm"));
  }
  Job job = job_of("llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16");
  job.lora = 4;
  for (const std::string_view words : {"single", "dp=2", "tp=2"})
    check(measure(job, words, {}, format("joined kernels, adapters: {}", words)));
}

TEST_CASE("joined kernels in pipelines, whose weight gradients wait") {
  Job job = job_of("gpt2:L=4,C=16,H=4,V=37,T=8");
  job.tokens = 7;
  for (const std::string_view words :
       {"pp=2:1f1b,mb=3", "pp=2:gpipe,mb=3", "pp=2:zb-h1,mb=3", "pp=2:zb-v,mb=3", "tp=2,pp=2:zb-h1,mb=6"})
    check(measure(job, words, {}, format("joined kernels: {}", words)));
}
