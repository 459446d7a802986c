// Every optimizer under every sharding of its state against one device, with the arenas that plans predict.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;

namespace {

// The state of a matrix [64, 128] in bytes of one f32 parameter's: what memory the optimizer is chosen for.
int64_t state_bytes(const Graph& step) {
  int64_t total = 0;
  for (const TensorId id : step.tensors_of_kind(TensorKind::kState)) total += bytes(step.type(id));
  return total;
}

}  // namespace

TEST_CASE("every optimizer under every sharding is what it is on one device, in the arenas predicted") {
  for (const char* optimizer : {"lion", "adafactor", "muon", "adamw8"})
    for (const char* words : {"dp=2", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3", "tp=2", "tp=2,dp=2,zero=2",
                              "pp=2,mb=2", "dp=2,zero=1,offload=optimizer"}) {
      CAPTURE(optimizer);
      CAPTURE(words);
      parity::Job job{.model = "llama:L=2,C=64,H=4,KV=2,F=128,V=61,T=16",
                      .batch = 8,
                      .tokens = 7,
                      .optimizer = optimizer,
                      .steps = 3,
                      .clip_norm = 1};
      const parity::Outcome& single = parity::on_one_device(job);
      CAPTURE(single.error);
      REQUIRE(single.ok());
      const parity::Outcome out = parity::run(job, words);
      CAPTURE(out.error);
      REQUIRE(out.ok());
      const parity::Deviation deviation = parity::deviation(job, single, out);
      CHECK(deviation.loss <= parity::tolerance(job.dtype));
      // The iteration of Muon takes the smallest singular values up by hundreds, with what was rounded in them; a moment
      // between two codes goes either way.
      const double most = std::string_view(optimizer) == "muon"     ? 1e-9
                          : std::string_view(optimizer) == "adamw8" ? 1e-2
                                                                    : parity::tolerance(job.dtype);
      CHECK(deviation.weights <= most);
      for (const MemoryReport& memory : out.memory) {
        CHECK(memory.measured_bytes == memory.predicted_bytes);
        CHECK(memory.host_measured_bytes == memory.host_predicted_bytes);
      }
      CHECK(out.allocations_after_first_step == 0);
    }
}

namespace {

// For each rank: flops of the iterations of Muon, and bytes of its momenta.
struct MuonShare {
  double flops = 0;
  int64_t momentum_bytes = 0;
};
std::vector<MuonShare> muon_shares(const Program& program) {
  std::vector<MuonShare> shares;
  for (const RankProgram& rank : program.ranks) {
    MuonShare& share = shares.emplace_back();
    for (const EntryPoint& entry : rank.entries)
      for (const Instruction& instruction : entry.code)
        if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
          const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
          if (desc.op->name == "orthogonalize")
            share.flops += desc.op->cost({desc.attrs, desc.inputs, desc.outputs, {}}).flops;
        }
    for (const Slot& slot : rank.slots)
      if (slot.name.ends_with(".momentum")) share.momentum_bytes += slot.bytes;
  }
  return shares;
}

}  // namespace

TEST_CASE("each matrix of Muon is computed by one rank, and its momentum is there where state is spread") {
  const parity::Job job{.model = "llama:L=6,C=32,H=4,KV=2,F=64,V=61,T=16",
                        .batch = 6,
                        .tokens = 5,
                        .optimizer = "muon",
                        .steps = 3,
                        .gradients = false};
  const parity::Outcome& single = parity::on_one_device(job);
  REQUIRE(single.ok());
  const MuonShare whole = muon_shares(single.program)[0];
  for (const char* words : {"dp=2", "dp=3", "dp=2,zero=1", "dp=3,zero=1", "dp=3,zero=2", "dp=2,zero=3",
                            "dp=2,tp=2,zero=1", "dp=2,pp=2,zero=1,mb=1", "dp=2,zero=2,mb=1"}) {
    CAPTURE(words);
    const parity::Outcome out = parity::run(job, words);
    CAPTURE(out.error);
    REQUIRE(out.ok());
    CHECK(parity::deviation(job, single, out).weights <= 1e-9);
    for (const MemoryReport& memory : out.memory) CHECK(memory.measured_bytes == memory.predicted_bytes);
    const std::string_view text(words);
    const int dp = text.starts_with("dp=3") ? 3 : 2;
    const bool has_pipeline = text.find("pp=") != text.npos;
    int64_t bytes = 0;
    for (const MuonShare& share : muon_shares(out.program)) {
      // Three kinds of matrices, 12, 12 and 18 of them: whole shares, which dp divides.
      CHECK(share.flops == doctest::Approx(whole.flops / dp / (has_pipeline ? 2 : 1)).epsilon(0.2));
      bytes += share.momentum_bytes;
    }
    const int64_t copies = text.find("zero=") == text.npos ? dp : 1;
    CHECK(bytes == whole.momentum_bytes * copies);
  }
}

TEST_CASE("the state of optimizers that save memory has the bytes that they are known for") {
  const auto of = [](const char* optimizer) {
    parity::Job job{.model = "llama:L=2,C=256,H=4,F=512,V=512,T=16",
                    .dtype = DType::kF32,
                    .optimizer = optimizer,
                    .gradients = false};
    const Result<Graph> step = parity::step_graph(job);
    REQUIRE(step.ok());
    return static_cast<double>(state_bytes(*step));
  };
  const double adamw = of("adamw");
  CHECK(of("lion") == adamw / 2);
  CHECK(of("adafactor") < 0.01 * adamw);
  CHECK(of("muon") > adamw / 2);  // table and head have two moments
  CHECK(of("muon") < 0.65 * adamw);
  CHECK(of("adamw8") > 0.25 * adamw);  // a byte and a 64th for each of four
  CHECK(of("adamw8") < 0.26 * adamw);
}
