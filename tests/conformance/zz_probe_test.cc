#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/conformance/parity_harness.h"
#include "tests/conformance/plan_edits.h"
using namespace tessera;
using namespace tessera::parity;
TEST_CASE("zzprobe") {
  Job job{.model = getenv("M") ? getenv("M") : "llama:L=1,C=32,H=4,KV=2,F=48,V=60,T=16",
          .dtype = DType::kF32,
          .batch = 12,
          .tokens = getenv("T") ? atoi(getenv("T")) : 12};
  job.gradients = false;
  job.steps = 1;
  Outcome o = run(job, getenv("W"), getenv("G") ? chunk_products(atoi(getenv("G"))) : PlanEdit());
  std::printf("%s\n", o.error.c_str());
  for (auto& c : o.sent)
    std::printf("%s %s calls %lld elements %g\n", c.collective.c_str(), c.axis.c_str(), (long long)c.calls,
                c.bytes / 4.0);
  if (o.program.ranks.empty()) return;
  int r = getenv("R") ? atoi(getenv("R")) : 0;
  for (auto& s : o.program.ranks[r].slots)
    std::printf("  %-40s kind %d tier %d %lld\n", s.name.c_str(), (int)s.kind, (int)s.tier,
                (long long)(s.bytes));
  for (auto& k : o.program.ranks[r].kernels)
    std::printf("  kernel %s ws %lld\n", std::string(k.op->name).c_str(), (long long)k.workspace_bytes);
  if (getenv("P")) std::printf("%s\n", print(o.program.ranks[r]).c_str());
}
