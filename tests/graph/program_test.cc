#include "graph/program.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

using namespace tessera;

namespace {

constexpr int64_t kElements = 6;  // whole tensor; 4 on rank 0, 2 on rank 1

// Two ranks: y = x + x on shards of 4 and 2, gathered, sent from 0 to 1, and copied into the output.
Program two_ranks() {
  Program program;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const Range mine = rank == 0 ? Range{0, 4} : Range{4, 6};
    RankProgram r;
    r.arena_bytes = 512;
    r.slots = {{"x", SlotKind::kInput, Tier::kDevice, mine.size() * 4, 0},
               {"y", SlotKind::kTransient, Tier::kDevice, mine.size() * 4, 64},
               {"whole", SlotKind::kTransient, Tier::kDevice, kElements * 4, 128},
               {"out", SlotKind::kOutput, Tier::kDevice, kElements * 4, 192},
               {"w", SlotKind::kParameter, Tier::kDevice, kElements * 4, 256},
               {"scratch", SlotKind::kWorkspace, Tier::kDevice, 64, 320}};
    const TensorType local{DType::kF32, {mine.size()}};
    KernelDesc add;
    add.op = find_op("add");
    add.inputs = {local, local};
    add.outputs = {local};
    FactorView factor{'a', kElements, 1, 1, {mine.begin, 0}, {mine.end, 0}};
    add.factors = {factor};
    add.variant = "reference";
    add.workspace_bytes = 64;
    r.kernels = {add};
    r.groups = {{{0, 1}, rank, "tp"}};

    EntryPoint entry;
    entry.name = "run";
    KernelInst kernel;
    kernel.kernel = 0;
    kernel.inputs = {{0, 0}, {0, 0}};
    kernel.outputs = {{1, 0}};
    kernel.workspace = {5, 0};
    CollectiveInst gather;
    gather.kind = CollectiveKind::kAllGather;
    gather.group = 0;
    gather.extents = {4, 2};
    gather.elements = kElements;
    gather.in = {1, 0};
    gather.out = {2, 0};
    CopyInst copy;
    copy.in = {2, 0};
    copy.out = {3, 0};
    copy.rows = 2;
    copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes = 12;
    entry.code = {kernel, gather, copy};
    if (rank == 0) entry.code.push_back(SendInst{1, 24, {3, 0}, kNoNode, 0});
    if (rank == 1) entry.code.push_back(RecvInst{0, 24, {2, 0}, kNoNode, 0});
    const TensorType global{DType::kF32, {kElements}};
    entry.inputs = {{"x", global, {{{0, 0}, {mine}}}}};
    entry.outputs = {{"y", global, {{{3, 0}, {{0, kElements}}}}}};
    r.entries = {entry};
    r.parameters = {{"w", global, {{{4, 0}, {{0, kElements}}}}}};
    program.ranks.push_back(r);
  }
  return program;
}

template <class Inst>
Inst& instruction(Program& program, size_t rank, size_t i) {
  return std::get<Inst>(program.ranks[rank].entries[0].code[i]);
}

struct Fault {
  std::string what;
  std::function<void(Program&)> plant;
};

}  // namespace

TEST_CASE("a sound program verifies, and every planted fault is found") {
  const Status sound = verify(two_ranks());
  REQUIRE_MESSAGE(sound.ok(), sound.to_string());

  const std::vector<Fault> faults = {
      {"no ranks", [](Program& p) { p.ranks.clear(); }},
      {"slot beyond the arena", [](Program& p) { p.ranks[0].slots[4].offset = 500; }},
      {"slot size overflows", [](Program& p) { p.ranks[0].slots[0].bytes = INT64_MAX; }},
      {"slot before the arena", [](Program& p) { p.ranks[0].slots[0].offset = -1; }},
      {"slot kind", [](Program& p) { p.ranks[0].slots[0].kind = SlotKind(9); }},
      {"tier", [](Program& p) { p.ranks[0].slots[0].tier = Tier(9); }},
      {"operand in a file",
       [](Program& p) {
         p.ranks[0].slots[0].tier = Tier::kFile;
         p.ranks[0].file_arena_bytes = 512;
       }},
      {"no op", [](Program& p) { p.ranks[0].kernels[0].op = nullptr; }},
      {"operand count", [](Program& p) { p.ranks[0].kernels[0].inputs.pop_back(); }},
      {"result is not what infer finds",
       [](Program& p) { p.ranks[0].kernels[0].outputs[0].shape.set(0, 3); }},
      {"negative extent", [](Program& p) { p.ranks[0].kernels[0].inputs[0].shape.set(0, -1); }},
      {"operands larger than their slots",
       [](Program& p) {
         KernelDesc& kernel = p.ranks[0].kernels[0];
         for (TensorType* type : {&kernel.inputs[0], &kernel.inputs[1], &kernel.outputs[0]})
           type->shape.set(0, 6);
         kernel.factors[0].end[0] = 6;
       }},
      {"factor covers too little", [](Program& p) { p.ranks[0].kernels[0].factors[0].end[0] = 3; }},
      {"factor beyond its extent", [](Program& p) { p.ranks[1].kernels[0].factors[0].global_extent = 5; }},
      {"factor count", [](Program& p) { p.ranks[0].kernels[0].factors.clear(); }},
      {"range count", [](Program& p) { p.ranks[0].kernels[0].factors[0].range_count = 3; }},
      {"unknown attribute",
       [](Program& p) {
         p.ranks[0].kernels[0].attrs = {{"x", int64_t{1}}};
       }},
      {"negative workspace", [](Program& p) { p.ranks[0].kernels[0].workspace_bytes = -1; }},
      {"workspace too small", [](Program& p) { p.ranks[0].kernels[0].workspace_bytes = 65; }},
      {"workspace missing", [](Program& p) { instruction<KernelInst>(p, 0, 0).workspace.slot = -1; }},
      {"kernel index", [](Program& p) { instruction<KernelInst>(p, 0, 0).kernel = 1; }},
      {"operand slot", [](Program& p) { instruction<KernelInst>(p, 0, 0).inputs[0].slot = 6; }},
      {"operand missing", [](Program& p) { instruction<KernelInst>(p, 0, 0).inputs[0].slot = -1; }},
      {"operand offset", [](Program& p) { instruction<KernelInst>(p, 0, 0).inputs[0].offset = 4; }},
      {"operand offset overflows",
       [](Program& p) { instruction<KernelInst>(p, 0, 0).inputs[0].offset = INT64_MAX; }},
      {"misaligned operand", [](Program& p) { p.ranks[0].slots[1].offset = 66; }},
      {"group position", [](Program& p) { p.ranks[0].groups[0].position = 1; }},
      {"group member", [](Program& p) { p.ranks[0].groups[0].ranks[1] = 7; }},
      {"group listed differently",
       [](Program& p) {
         p.ranks[0].groups[0] = {{1, 0}, 1, "tp"};
       }},
      {"group not listed by a member",
       [](Program& p) {
         p.ranks[1].groups.push_back({{0, 1}, 1, "tp"});
       }},
      {"collective group", [](Program& p) { instruction<CollectiveInst>(p, 0, 1).group = 1; }},
      {"collective kind", [](Program& p) { instruction<CollectiveInst>(p, 0, 1).kind = CollectiveKind(9); }},
      {"collective dtype", [](Program& p) { instruction<CollectiveInst>(p, 0, 1).dtype = DType::kQ8_0; }},
      {"collective extents", [](Program& p) { instruction<CollectiveInst>(p, 0, 1).extents = {6}; }},
      {"collective extents overflow",
       [](Program& p) {
         instruction<CollectiveInst>(p, 0, 1).extents = {INT64_MAX, INT64_MAX};
       }},
      {"collective elements", [](Program& p) { instruction<CollectiveInst>(p, 0, 1).elements = 7; }},
      {"collective piece outside",
       [](Program& p) {
         for (size_t rank : {0, 1}) instruction<CollectiveInst>(p, rank, 1).extents = {2, 4};
       }},
      {"ranks disagree on the extents",
       [](Program& p) {
         instruction<CollectiveInst>(p, 1, 1).extents = {5, 1};
       }},
      {"one rank does not take part",
       [](Program& p) { p.ranks[1].entries[0].code.erase(p.ranks[1].entries[0].code.begin() + 1); }},
      {"send size", [](Program& p) { instruction<SendInst>(p, 0, 3).bytes = 25; }},
      {"send and receive differ", [](Program& p) { instruction<SendInst>(p, 0, 3).bytes = 20; }},
      {"send to itself", [](Program& p) { instruction<SendInst>(p, 0, 3).peer = 0; }},
      {"send without receive", [](Program& p) { p.ranks[1].entries[0].code.pop_back(); }},
      {"receive without send", [](Program& p) { p.ranks[0].entries[0].code.pop_back(); }},
      {"a receive before the collective that its sender waits in",
       [](Program& p) { std::swap(p.ranks[1].entries[0].code[1], p.ranks[1].entries[0].code[3]); }},
      {"copy rows", [](Program& p) { instruction<CopyInst>(p, 0, 2).rows = 3; }},
      {"copy stride", [](Program& p) { instruction<CopyInst>(p, 0, 2).in_stride_bytes = INT64_MAX; }},
      {"copy rows negative", [](Program& p) { instruction<CopyInst>(p, 0, 2).rows = -1; }},
      {"copy row bytes negative", [](Program& p) { instruction<CopyInst>(p, 0, 2).row_bytes = -4; }},
      {"copy onto itself", [](Program& p) { instruction<CopyInst>(p, 0, 2).out_stride_bytes = 4; }},
      {"copy slot", [](Program& p) { instruction<CopyInst>(p, 0, 2).out.slot = -1; }},
      {"micro-batch", [](Program& p) { instruction<CopyInst>(p, 0, 2).micro_batch = -1; }},
      {"box outside", [](Program& p) { p.ranks[1].entries[0].inputs[0].pieces[0].box[0].end = 7; }},
      {"box backwards",
       [](Program& p) {
         p.ranks[1].entries[0].inputs[0].pieces[0].box[0] = {5, 4};
       }},
      {"box rank", [](Program& p) { p.ranks[1].parameters[0].pieces[0].box.clear(); }},
      {"box larger than its slot",
       [](Program& p) {
         p.ranks[1].parameters[0].pieces[0].at = {0, 0};
       }},
      {"binding type", [](Program& p) { p.ranks[1].parameters[0].global.dtype = DType(99); }},
      {"bindings differ", [](Program& p) { p.ranks[1].parameters[0].global.dtype = DType::kI32; }},
      {"binding repeated", [](Program& p) { p.ranks[0].parameters.push_back(p.ranks[0].parameters[0]); }},
      {"entries differ", [](Program& p) { p.ranks[1].entries[0].name = "go"; }},
      {"entry repeated",
       [](Program& p) {
         for (RankProgram& rank : p.ranks) rank.entries.push_back(rank.entries[0]);
       }},
  };
  for (const Fault& fault : faults) {
    Program program = two_ranks();
    fault.plant(program);
    CHECK_MESSAGE(verify(program).code() == StatusCode::kCorrupt, fault.what);
  }
}

TEST_CASE("a program's fingerprint changes with every part that runs") {
  const uint64_t before = fingerprint(two_ranks());
  CHECK(fingerprint(two_ranks()) == before);
  const std::vector<Fault> changes = {
      {"offset", [](Program& p) { p.ranks[0].slots[0].offset = 4; }},
      {"variant", [](Program& p) { p.ranks[1].kernels[0].variant = "fast"; }},
      {"stride", [](Program& p) { instruction<CopyInst>(p, 0, 2).in_stride_bytes = 8; }},
      {"box", [](Program& p) { p.ranks[1].entries[0].inputs[0].pieces[0].box[0].end = 5; }},
      {"extents",
       [](Program& p) {
         instruction<CollectiveInst>(p, 0, 1).extents = {3, 3};
       }},
      {"catalog", [](Program& p) { p.catalog_fingerprint = 1; }},
  };
  for (const Fault& change : changes) {
    Program program = two_ranks();
    change.plant(program);
    CHECK_MESSAGE(fingerprint(program) != before, change.what);
  }
}

TEST_CASE("entries are found by rank and name") {
  const Program program = two_ranks();
  CHECK(program.find_entry(1, "run") == &program.ranks[1].entries[0]);
  CHECK(program.find_entry(1, "walk") == nullptr);
  CHECK(program.find_entry(2, "run") == nullptr);
  CHECK(program.find_entry(-1, "run") == nullptr);
}

TEST_CASE("a program prints one line an instruction") {
  CHECK(print(two_ranks().ranks[1]) ==
        "arena 512 host 0 file 0 max_live 0\n"
        "slot 0 input x: [0, 8)\n"
        "slot 1 transient y: [64, 72)\n"
        "slot 2 transient whole: [128, 152)\n"
        "slot 3 output out: [192, 216)\n"
        "slot 4 parameter w: [256, 280)\n"
        "slot 5 workspace scratch: [320, 384)\n"
        "group 0 tp: [0, 1] position 1\n"
        "parameter w f32[6]: [0:6] at w\n"
        "entry run\n"
        "  input x f32[6]: [4:6] at x\n"
        "  output y f32[6]: [0:6] at out\n"
        "  y = add.reference(x, x) : f32[2]\n"
        "  whole = all_gather tp sum(y) f32[6] [4, 2]\n"
        "  out = copy whole 2 x 12 bytes, strides 12 -> 12\n"
        "  whole = recv from 0 24 bytes\n");
}
