// Pipelines carried out on CPU virtual devices against one device: every schedule, micro-batch counts that
// come out even and that do not, tied embeddings, uneven stages, and what runs inside a stage.
#include <doctest/doctest.h>

#include <set>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

constexpr std::string_view kSchedules[] = {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-h2", "zb-v"};

Job job_of(std::string model, DType dtype = DType::kF64) {
  Job job;
  job.model = std::move(model);
  job.dtype = dtype;
  job.batch = 24;
  job.tokens = 7;
  job.steps = 3;
  return job;
}

const Job kGpt = job_of("gpt2:L=6,C=16,H=4,V=37,T=8");

}  // namespace

TEST_CASE("every pipeline schedule gives the losses, gradients and weights of one device") {
  // 1, 3, 4 and 8 micro-batches; 6 blocks on up to 6 stages, embedding and head tied from end to end.
  for (const std::string_view schedule : kSchedules)
    for (const int32_t pp : {2, 3})
      for (const int32_t mb : {24, 8, 6, 3}) check(measure(kGpt, format("pp={}:{},mb={}", pp, schedule, mb)));
}

TEST_CASE("uneven stages, four of them, and models whose ends are not tied") {
  const Job llama = job_of("llama:L=9,C=16,H=4,KV=2,F=24,V=41,T=8");
  for (const std::string_view schedule : kSchedules) check(measure(llama, format("pp=4:{},mb=4", schedule)));
  Job untied = job_of("gpt2:L=5,C=16,H=4,V=37,T=8");
  untied.tied = false;
  for (const std::string_view schedule : {"1f1b", "interleaved:2", "zb-v"})
    check(measure(untied, format("pp=2:{},mb=3", schedule)));
  check(measure(untied, "pp=5:zb-h1,mb=4"));
  check(measure(untied, "pp=5:1f1b"));
}

TEST_CASE("data, tensor and sharded data parallelism inside stages") {
  for (const std::string_view words :
       {"dp=2,pp=2:1f1b,mb=3", "tp=2,pp=2:zb-v,mb=6", "tp=2,sp,pp=2:zb-h1,mb=6", "dp=2,zero=1,pp=2:1f1b,mb=3",
        "dp=2,zero=2,pp=2:interleaved:2,mb=4", "dp=2,zero=3,pp=2:zb-h2,mb=3",
        "dp=2,tp=2,zero=3,pp=2:gpipe,mb=3", "dp=3,zero=3,pp=2:zb-v,mb=2", "dp=2,zero=2,pp=3:zb-v,mb=4"})
    check(measure(kGpt, words));
}

TEST_CASE("clipping, dropout, frozen parameters and an evaluation next to a pipeline") {
  Job job = kGpt;
  job.clip_norm = 0.05;
  check(measure(job, "pp=3:1f1b,mb=4"));
  check(measure(job, "dp=2,zero=2,pp=2:zb-v,mb=3"));
  job.clip_norm = 0;
  job.dropout = 0.1;
  check(measure(job, "dp=2,pp=2:zb-h1,mb=3"));
  job.dropout = 0;
  job.evaluates = true;
  check(measure(job, "pp=2:interleaved:2,mb=4"));
  check(measure(job, "pp=3:zb-v,mb=4"));
  job.evaluates = false;
  job.trainable = {"block.3", "token_embedding"};
  check(measure(job, "pp=3:1f1b,mb=4"));
}

TEST_CASE("f32 pipelines stay within 1e-5") {
  for (const std::string_view words : {"pp=2:1f1b,mb=3", "dp=2,zero=3,pp=2:zb-v,mb=3"})
    check(measure(job_of("gpt2:L=6,C=16,H=4,V=37,T=8", DType::kF32), words));
}
