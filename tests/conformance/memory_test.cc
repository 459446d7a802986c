// Bytes per device, read from the programs that run, against the formulas.
#include <doctest/doctest.h>

#include <set>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"
#include "tests/conformance/plan_edits.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Outcome one_step(const std::string& model, int64_t batch, int64_t tokens, std::string_view words) {
  Job job{.model = model, .dtype = DType::kF32, .batch = batch, .tokens = tokens};
  job.steps = 1;
  job.gradients = false;
  return run(job, words);
}

struct Stationary {
  int64_t parameters = 0, state = 0, gradients = 0;
  int64_t total() const { return parameters + state + gradients; }
};

// What a device holds through a step of several micro-batches: parameters, optimizer state, and the slots in
// which gradients add up.
Stationary stationary(const RankProgram& rank) {
  Stationary held;
  for (const Slot& slot : rank.slots) {
    if (slot.kind == SlotKind::kParameter) held.parameters += slot.bytes;
    if (slot.kind == SlotKind::kState) held.state += slot.bytes;
  }
  std::set<int32_t> sums;
  for (const Instruction& instruction : rank.entries[0].code)
    if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
      const SlotRef& out = kernel->outputs[0];
      const bool adds = rank.kernels[static_cast<size_t>(kernel->kernel)].op->name == "add";
      if (adds && rank.slots[static_cast<size_t>(out.slot)].name.find(".grad") != std::string::npos &&
          sums.insert(out.slot).second)
        held.gradients += rank.slots[static_cast<size_t>(out.slot)].bytes;
    }
  return held;
}

// Elements of the largest of n shards of every parameter, each cut along the dim that cuts it best.
int64_t largest_shards(const Outcome& whole, int64_t n) {
  int64_t elements = 0;
  for (const Binding& binding : whole.program.ranks[0].parameters) {
    int64_t least = binding.global.shape.elements();
    const int64_t all = least;
    for (const int64_t extent : binding.global.shape.dims())
      if (extent >= n) least = std::min(least, all / extent * ((extent + n - 1) / n));
    elements += least;
  }
  return elements;
}

// The slots of the first entry by the name of the tensor they hold.
std::map<std::string, int64_t> bytes_by_name(const RankProgram& rank) {
  std::map<std::string, int64_t> bytes;
  for (const Slot& slot : rank.slots) bytes[slot.name] = std::max(bytes[slot.name], slot.bytes);
  return bytes;
}

// How many slots of this name hold a value at once, at the most.
int most_alive(const RankProgram& rank, std::string_view name) {
  std::map<int32_t, std::pair<size_t, size_t>> alive;  // by slot: first written, last read
  const auto at = [&](int32_t slot, size_t where) {
    if (slot < 0 || rank.slots[static_cast<size_t>(slot)].name != name) return;
    alive.try_emplace(slot, where, where).first->second.second = where;
  };
  const std::vector<Instruction>& code = rank.entries[0].code;
  for (size_t i = 0; i < code.size(); ++i) {
    if (const auto* kernel = std::get_if<KernelInst>(&code[i]))
      for (const SlotRef& in : kernel->inputs) at(in.slot, i);
    if (const auto* collective = std::get_if<CollectiveInst>(&code[i])) {
      at(collective->in.slot, i);
      at(collective->out.slot, i);
    }
  }
  int most = 0;
  for (const auto& [slot, life] : alive) {
    int concurrent = 0;
    for (const auto& [other, theirs] : alive)
      concurrent += theirs.first <= life.first && life.first <= theirs.second;
    most = std::max(most, concurrent);
  }
  return most;
}

}  // namespace

TEST_CASE("zero levels hold 16, 8 + 8/N, 4 + 12/N and 16/N bytes a parameter") {
  struct Case {
    std::string model;
    int n;
    bool even;
  };
  for (const Case& it : {Case{"llama:L=2,C=24,H=4,KV=2,F=48,V=60,T=16,tied=0", 2, true},
                         Case{"llama:L=2,C=24,H=4,KV=2,F=48,V=60,T=16,tied=0", 3, true},
                         Case{"llama:L=2,C=24,H=4,KV=2,F=48,V=60,T=16,tied=0", 6, true},
                         Case{"gpt2:L=2,C=26,H=2,F=31,V=61,T=17,tied=0", 3, false},
                         Case{"gpt2:L=2,C=26,H=2,F=31,V=61,T=17,tied=0", 5, false}}) {
    CAPTURE(it.n);
    const int batch = 2 * it.n;  // two micro-batches of one sequence
    const auto held = [&](int zero) {
      const Outcome out = one_step(it.model, batch, 5, format("dp={},mb=1,zero={}", it.n, zero));
      REQUIRE(out.error == "ok");
      Stationary most;
      for (const RankProgram& rank : out.program.ranks) {
        const Stationary mine = stationary(rank);
        if (mine.total() > most.total()) most = mine;
      }
      return most;
    };
    const Outcome whole = one_step(it.model, batch, 5, "mb=1");
    REQUIRE(whole.error == "ok");
    int64_t psi = 0;
    for (const auto& [name, values] : whole.weights) psi += static_cast<int64_t>(values.size());
    const int64_t shard = largest_shards(whole, it.n);
    if (it.even) REQUIRE(shard * it.n == psi);
    CHECK(stationary(whole.program.ranks[0]).total() == 16 * psi);
    CHECK(held(0).total() == 16 * psi);
    CHECK(held(1).total() == 8 * psi + 8 * shard);
    CHECK(held(2).total() == 4 * psi + 12 * shard);
    CHECK(held(3).total() == 16 * shard);
  }
}

TEST_CASE("with sequence parallelism activations outside products are 1/P of a device's") {
  const std::string model = "gpt2:L=2,C=32,H=4,V=60,T=16";
  Job job{.model = model, .dtype = DType::kF32};
  job.gradients = false;
  const auto step = step_graph(job);
  REQUIRE(step.ok());
  const Outcome alone = one_step(model, 4, 12, "single");
  REQUIRE(alone.error == "ok");
  const auto whole = bytes_by_name(alone.program.ranks[0]);
  for (const int p : {2, 3, 4}) {
    const Outcome out = one_step(model, 4, 12, format("tp={},sp", p));
    REQUIRE(out.error == "ok");
    int64_t before = 0, after = 0;
    for (const RankProgram& rank : out.program.ranks) {
      const auto bytes = bytes_by_name(rank);
      for (const Node& node : step->nodes()) {
        // Norms, residual sums and their gradients; what enters a product is gathered for it.
        if (node.phase == Phase::kUpdate ||
            (node.op->name != "layer_norm" && node.op->name != "add" && node.op->name != "layer_norm_grad"))
          continue;
        const std::string& name = step->tensor(node.outputs[0]).name;
        if (!whole.contains(name) || !bytes.contains(name)) continue;
        CHECK_MESSAGE(bytes.at(name) * p == whole.at(name), node.op->name, " ", name);
        before += whole.at(name);
        after += bytes.at(name);
      }
    }
    CHECK(before > 0);
    CHECK(before == p * after);
  }
}

TEST_CASE("ring attention needs scratch for the scores of one pair of blocks") {
  const auto scratch = [](const Outcome& out) {
    std::map<std::string, int64_t> most;
    for (const KernelDesc& kernel : out.program.ranks[0].kernels)
      if (kernel.op->name.find("attention") != std::string_view::npos)
        most[std::string(kernel.op->name)] =
            std::max(most[std::string(kernel.op->name)], kernel.workspace_bytes);
    return most;
  };
  const std::string model = "gpt2:L=1,C=16,H=2,V=20,T=512";
  const Outcome ring = one_step(model, 2, 256, "cp=ring:4:contiguous");
  REQUIRE(ring.error == "ok");
  const Outcome quarter = one_step(model, 2, 64, "single"), whole = one_step(model, 2, 256, "single");
  REQUIRE(quarter.error == "ok");
  for (const auto& [name, bytes] : scratch(quarter)) {
    CAPTURE(name);
    CHECK(scratch(ring).at(name) <= bytes);
  }
  // No slot holds keys or scores of the whole sequence: nothing is larger than a quarter of what one device
  // holds.
  for (const auto& [name, bytes] : bytes_by_name(ring.program.ranks[0])) {
    const auto all = bytes_by_name(whole.program.ranks[0]);
    if (name.starts_with('%') && all.contains(name) && bytes > 4096)
      CHECK_MESSAGE(4 * bytes <= all.at(name), name);
  }
}

TEST_CASE("chunks gather ceil(K / g) of K rows at a time, two of them in flight") {
  const std::string model = "llama:L=2,C=24,H=4,KV=2,F=50,V=60,T=16,tied=0";
  for (const int g : {2, 3, 4, 7}) {
    CAPTURE(g);
    Job job{.model = model, .dtype = DType::kF32, .steps = 1, .gradients = false};
    const Outcome out = run(job, "dp=2,zero=3", chunk_products(g));
    REQUIRE(out.error == "ok");
    const auto bytes = bytes_by_name(out.program.ranks[0]);
    const auto gathered = [&](const std::string& name) { return bytes.at(format("all_gather({})", name)); };
    const auto largest = [&](int64_t rows, int64_t columns) { return 4 * columns * ((rows + g - 1) / g); };
    CHECK(gathered("block.0.q") == largest(24, 24));
    CHECK(gathered("block.1.gate") == largest(50, 24));
    CHECK(gathered("block.1.down") == largest(24, 50));
    CHECK(most_alive(out.program.ranks[0], "all_gather(block.1.gate)") == 2);
  }
}
