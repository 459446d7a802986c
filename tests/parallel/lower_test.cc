#include "parallel/lowering/lower.h"

#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "parallel/lowering/arena.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

constexpr std::string_view kTiny = "llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16";

Program tiny(std::string_view parallel, int64_t batch = 4) {
  const auto step = training_step(kTiny);
  REQUIRE(step.ok());
  auto program = program_of(*step, parallel, batch, 8);
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  return std::move(*program);
}

template <class Inst>
int count_of(const RankProgram& program) {
  int n = 0;
  for (const Instruction& instruction : program.entries[0].code)
    n += std::holds_alternative<Inst>(instruction);
  return n;
}

int count_op(const RankProgram& program, std::string_view op) {
  int n = 0;
  for (const Instruction& instruction : program.entries[0].code)
    if (const auto* kernel = std::get_if<KernelInst>(&instruction))
      n += program.kernels[static_cast<size_t>(kernel->kernel)].op->name == op;
  return n;
}

// A graph from its text, lowered on one device with default plan.
Result<Program> one_device(std::string_view text, int64_t batch = 1) {
  TSR_ASSIGN_OR_RETURN(const Graph graph, parse_graph(text));
  TSR_ASSIGN_OR_RETURN(const Plan plan, apply_strategy(graph, {}, batch));
  const EntrySpec entry{"main", &graph, &plan};
  return lower(std::span(&entry, 1), FakeCatalog());
}

}  // namespace

TEST_CASE("programs of every strategy pass the structural check and are the same when made twice") {
  for (const std::string_view parallel :
       {"single", "dp=2", "tp=2", "tp=2,sp", "dp=2,tp=2,zero=3", "dp=3,zero=1", "dp=2,zero=2,mb=1"}) {
    CAPTURE(parallel);
    const Program program = tiny(parallel, parallel == "dp=3,zero=1" ? 5 : 4);
    const Status status = verify(program);
    CHECK_MESSAGE(status.ok(), status.to_string());
    CHECK(fingerprint(program) == fingerprint(tiny(parallel, parallel == "dp=3,zero=1" ? 5 : 4)));
  }
}

TEST_CASE("one device runs kernels only") {
  const Program program = tiny("single");
  CHECK(program.ranks.size() == 1);
  CHECK(count_of<CollectiveInst>(program.ranks[0]) == 0);
  CHECK(count_of<CopyInst>(program.ranks[0]) == 0);
}

TEST_CASE("splits and merges of dims launch nothing") {
  const Program program = tiny("tp=2");
  CHECK(count_op(program.ranks[0], "split_dim") == 0);
  CHECK(count_op(program.ranks[0], "merge_dims") == 0);
  CHECK(count_op(program.ranks[0], "attention") == 2);
}

TEST_CASE("updates write parameters and state where they lie") {
  const Program program = tiny("single");
  const RankProgram& rank = program.ranks[0];
  int updates = 0;
  for (const Instruction& instruction : rank.entries[0].code)
    if (const auto* kernel = std::get_if<KernelInst>(&instruction))
      if (rank.kernels[static_cast<size_t>(kernel->kernel)].op->name == "adamw_update") {
        ++updates;
        CHECK(kernel->outputs[0] == kernel->inputs[0]);
        CHECK(kernel->outputs[1] == kernel->inputs[2]);
        CHECK(kernel->outputs[2] == kernel->inputs[3]);
        CHECK(rank.slots[static_cast<size_t>(kernel->outputs[0].slot)].kind == SlotKind::kParameter);
      }
  CHECK(updates == static_cast<int>(rank.parameters.size()));
}

TEST_CASE("micro-batches run forward and backward again, add gradients up and update once") {
  const Program whole = tiny("single"), cut = tiny("mb=1");
  CHECK(count_op(cut.ranks[0], "attention") == 4 * count_op(whole.ranks[0], "attention"));
  CHECK(count_op(cut.ranks[0], "adamw_update") == count_op(whole.ranks[0], "adamw_update"));
  const int summed = static_cast<int>(whole.ranks[0].parameters.size()) + 1;  // gradients and the loss
  CHECK(count_op(cut.ranks[0], "add") ==
        4 * (count_op(whole.ranks[0], "add") - summed + 1) + summed - 1 + 3 * summed);
  CHECK(cut.ranks[0].arena_bytes < whole.ranks[0].arena_bytes);
  const Binding* tokens = nullptr;
  for (const Binding& input : cut.ranks[0].entries[0].inputs)
    if (input.name == "tokens") tokens = &input;
  REQUIRE(tokens != nullptr);
  CHECK(tokens->global.shape == Shape{4, 8});
  REQUIRE(tokens->pieces.size() == 4);
  CHECK(tokens->pieces[2].box == Box{{2, 3}, {0, 8}});
  CHECK(tokens->pieces[2].at.offset == 2 * 8 * 4);
}

TEST_CASE("each level of zero needs less memory than the one below") {
  int64_t before = INT64_MAX;
  for (const int level : {0, 1, 2, 3}) {
    const Program program = tiny(format("dp=2,zero={},mb=1", level));
    CHECK(program.ranks[0].arena_bytes < before);
    before = program.ranks[0].arena_bytes;
  }
}

TEST_CASE("the arena of a transformer step is within 3 percent of what is live at once") {
  const auto step = training_step("llama:L=6,C=128,H=8,KV=4,F=344,V=1000,T=64");
  REQUIRE(step.ok());
  for (const std::string_view parallel :
       {"single", "dp=2", "tp=4", "tp=4,sp", "dp=2,zero=3", "dp=2,tp=2,sp,zero=2,mb=1"}) {
    CAPTURE(parallel);
    const auto program = program_of(*step, parallel, 4, 64);
    REQUIRE(program.ok());
    for (const RankProgram& rank : program->ranks) {
      CHECK(rank.arena_bytes >= rank.max_live_bytes);
      CHECK(static_cast<double>(rank.arena_bytes) <= 1.03 * static_cast<double>(rank.max_live_bytes));
    }
  }
}

TEST_CASE("slots that are alive together never share bytes") {
  const Program program = tiny("tp=2,sp");
  const RankProgram& rank = program.ranks[0];
  std::vector<std::pair<int, int>> life(rank.slots.size(), {INT32_MAX, -1});
  const auto& code = rank.entries[0].code;
  const auto touch = [&](const SlotRef& ref, int at) {
    if (ref.slot < 0) return;
    auto& [first, last] = life[static_cast<size_t>(ref.slot)];
    first = std::min(first, at);
    last = std::max(last, at);
  };
  for (int at = 0; at < static_cast<int>(code.size()); ++at) {
    const Instruction& instruction = code[static_cast<size_t>(at)];
    if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
      for (const SlotRef& ref : kernel->inputs) touch(ref, at);
      for (const SlotRef& ref : kernel->outputs) touch(ref, at);
      touch(kernel->workspace, at);
    } else if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
      touch(collective->in, at), touch(collective->out, at);
    } else if (const auto* copy = std::get_if<CopyInst>(&instruction)) {
      touch(copy->in, at), touch(copy->out, at);
    }
  }
  for (size_t a = 0; a < life.size(); ++a) {
    const Slot& x = rank.slots[a];
    if (x.kind != SlotKind::kTransient && x.kind != SlotKind::kWorkspace)
      life[a] = {0, static_cast<int>(code.size())};
    for (size_t b = 0; b < a; ++b) {
      const Slot& y = rank.slots[b];
      const bool together = life[a].first <= life[b].second && life[b].first <= life[a].second;
      const bool apart = x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset;
      CHECK_MESSAGE((!together || apart), x.name, " and ", y.name);
    }
  }
}

TEST_CASE("a result is put over an operand only when nobody reads that operand later") {
  // relu may run in place; x is an input and stays; r is read twice, and only its last reader may take it
  // over.
  const auto program = one_device(R"(graph {
    input x: f32[4, 8]
    r = relu(x) : f32[4, 8]
    s = relu(r) : f32[4, 8]
    t = add(s, r) : f32[4, 8]
    output y = t
  })");
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  const auto& code = program->ranks[0].entries[0].code;
  REQUIRE(code.size() == 3);
  const auto& r = std::get<KernelInst>(code[0]);
  const auto& s = std::get<KernelInst>(code[1]);
  CHECK(r.outputs[0].slot != r.inputs[0].slot);
  CHECK(s.outputs[0].slot != s.inputs[0].slot);
  const auto& t = std::get<KernelInst>(code[2]);
  CHECK(program->ranks[0].slots[static_cast<size_t>(t.outputs[0].slot)].kind == SlotKind::kOutput);
}

TEST_CASE("more parts than heads are refused with the nearest that fits") {
  const auto step = training_step(kTiny);
  REQUIRE(step.ok());
  const auto plan = plan_of(*step, "tp=3", 4, 8);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.status().message().find("tp=2") != std::string::npos);
  const auto batch = plan_of(*step, "dp=8", 4, 8);
  REQUIRE_FALSE(batch.ok());
  CHECK(batch.status().message().find("use dp=4") != std::string::npos);
  CHECK_FALSE(plan_of(*step, "dp=2,mb=3", 4, 8).ok());
}

TEST_CASE("plans that do not hold together are refused, not carried out") {
  const auto step = training_step(kTiny);
  REQUIRE(step.ok());
  const auto refused = [&](auto change) {
    Plan plan = plan_of(*step, "dp=2,tp=2", 4, 8).value();
    change(plan);
    const EntrySpec entry{"train_step", &*step, &plan};
    return !lower(std::span(&entry, 1), FakeCatalog()).ok();
  };
  CHECK_FALSE(refused([](Plan&) {}));
  CHECK(refused([](Plan& plan) { plan.nodes[3].factor_axes = {{'a', {9}}}; }));
  CHECK(refused([](Plan& plan) { plan.nodes[3].factor_axes = {{'Z', {0}}}; }));
  CHECK(refused([](Plan& plan) {
    plan.nodes[3].carried = {9};
    plan.nodes[3].carry_set = 0;
  }));
  CHECK(refused([](Plan& plan) {
    plan.nodes[3].carry_set = 99;
    plan.nodes[3].carried = {1};
  }));
  CHECK(refused([](Plan& plan) { plan.nodes.pop_back(); }));
  CHECK(refused([](Plan& plan) { plan.nodes[0].chunks = 2; }));
  CHECK(refused([](Plan& plan) { plan.stages.clear(); }));
  CHECK(refused([](Plan& plan) { plan.stages[0].mesh.devices = {0, 1, 2}; }));
  CHECK(refused([](Plan& plan) { plan.stages[0].mesh.devices = {0, 1, 2, 2}; }));
  CHECK(refused([](Plan& plan) { plan.stages[0].mesh.axes[0].size = 0; }));
  CHECK(refused([](Plan& plan) { plan.stored[0].placements.clear(); }));
  CHECK(refused([](Plan& plan) { plan.stored[0].placements[0].stored.dims.clear(); }));
  CHECK(refused([](Plan& plan) { plan.nodes[0].tier = Tier::kFile; }));
  CHECK(refused([](Plan& plan) { plan.micro_batches = 3; }));
  CHECK(refused([](Plan& plan) { plan.micro_batches = 0; }));
}

TEST_CASE("heads split unevenly in whole groups of queries") {
  const auto step = training_step("llama:L=1,C=64,H=8,KV=4,F=172,V=512,T=16");
  REQUIRE(step.ok());
  const auto program = program_of(*step, "tp=3", 2, 8);
  REQUIRE(program.ok());
  std::vector<int64_t> queries, keys;
  for (const RankProgram& rank : program->ranks)
    for (const KernelDesc& kernel : rank.kernels)
      if (kernel.op->name == "attention") {
        queries.push_back(kernel.inputs[0].shape[2]);
        keys.push_back(kernel.inputs[1].shape[2]);
      }
  CHECK(queries == std::vector<int64_t>{4, 2, 2});
  CHECK(keys == std::vector<int64_t>{2, 1, 1});
}

TEST_CASE("arenas: lifetimes that do not meet share bytes, and the bound is reached on a stack") {
  const std::vector<Lifetime> stack = {{100, 0, 5}, {64, 1, 4}, {200, 2, 3}, {100, 6, 7}};
  const ArenaLayout layout = layout_arena(stack);
  CHECK(max_live_bytes(stack) == 364);
  CHECK(layout.bytes <= align_slot(100) + 64 + align_slot(200));
  for (const int64_t offset : layout.offsets) CHECK(offset % kSlotAlignment == 0);
  CHECK(max_live_bytes({}) == 0);
  CHECK(layout_arena({}).bytes == 0);
}
