// Kernels that make the gradient norm stand side by side, and nothing overtakes what it depends on.
#include "parallel/lowering/fusible_kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "parallel/lowering/touched_slots.h"

using namespace tessera;

namespace {

// An entry whose kernels are put down one by one; values are slots. Node ids number the instructions.
struct Code {
  RankProgram program;
  EntryPoint entry;

  SlotRef slot() {
    program.slots.emplace_back();
    return {static_cast<int32_t>(program.slots.size()) - 1, 0};
  }
  SlotRef put(const std::string& op, const std::vector<SlotRef>& in, SlotRef out, int64_t elements = 1) {
    KernelDesc desc;
    desc.op = find_op(op);
    REQUIRE(desc.op != nullptr);
    desc.inputs.assign(in.size(), {DType::kF32, Shape{elements}});
    desc.outputs = {{DType::kF32, Shape{elements}}};
    program.kernels.push_back(desc);
    KernelInst inst;
    inst.kernel = static_cast<int32_t>(program.kernels.size()) - 1;
    inst.inputs = in;
    inst.outputs = {out};
    inst.node = static_cast<NodeId>(entry.code.size());
    entry.code.emplace_back(inst);
    return out;
  }
  SlotRef put(const std::string& op, const std::vector<SlotRef>& in) { return put(op, in, slot()); }

  std::string gathered() {
    group_fusible_kernels(entry, program);
    std::string text;
    for (const Instruction& instruction : entry.code) {
      const auto& kernel = std::get<KernelInst>(instruction);
      text += (text.empty() ? "" : " ") +
              std::string(program.kernels[static_cast<size_t>(kernel.kernel)].op->name);
    }
    return text;
  }
};

// Three gradients as the backward pass leaves them, each with the norm's part of it at once.
Code backward(bool reuses_sum, int64_t elements = 4) {
  Code code;
  SlotRef g = code.slot(), sum;
  std::vector<SlotRef> wide;
  for (int i = 0; i < 3; ++i) {
    g = code.put("tanh", {g});
    wide.push_back(code.put("cast", {g}, code.slot(), elements));
    const SlotRef squares = code.put("sum_squares", {wide.back()});
    sum = i == 0 ? squares : code.put("add", {sum, squares}, reuses_sum && i > 1 ? sum : code.slot());
  }
  const SlotRef scale = code.put("clip_scale", {sum});
  for (const SlotRef& gradient : wide) code.put("mul", {gradient, scale});
  return code;
}

}  // namespace

TEST_CASE("parts of the norm stand side by side in front of what needs it") {
  for (const bool reuses_sum : {false, true}) {
    CAPTURE(reuses_sum);
    CHECK(backward(reuses_sum).gathered() ==
          "tanh tanh tanh cast cast cast sum_squares sum_squares sum_squares add add clip_scale mul mul mul");
  }
}

TEST_CASE("large casts stay") {
  CHECK(backward(false, 1 << 17).gathered() ==
        "tanh cast tanh cast tanh cast sum_squares sum_squares sum_squares add add clip_scale mul mul mul");
}

TEST_CASE("what something else needs earlier stays where it was") {
  Code code;
  const SlotRef a = code.put("tanh", {code.slot()});
  const SlotRef wide = code.put("cast", {a});
  const SlotRef squares = code.put("sum_squares", {wide});
  code.put("relu", {wide});            // reads the cast gradient in between
  code.put("tanh", {code.slot()}, a);  // writes over the first
  const SlotRef b = code.put("sum_squares", {code.put("tanh", {code.slot()})});
  code.put("clip_scale", {code.put("add", {squares, b})});
  CHECK(code.gathered() == "tanh cast relu tanh tanh sum_squares sum_squares add clip_scale");

  // A sum over something else than squares, and an addition of more than one element.
  Code other;
  const SlotRef x = other.put("tanh", {other.slot()}), y = other.put("tanh", {other.slot()});
  const SlotRef sum = other.put("add", {x, y});
  other.put("relu", {x});
  const SlotRef wide_sum = other.put("add", {other.put("sum_squares", {x}), y}, other.slot(), 2);
  other.put("relu", {y});
  other.put("mul", {sum, wide_sum});
  CHECK(other.gathered() == "tanh tanh add relu sum_squares add relu mul");
}

TEST_CASE("whatever depends on something else keeps its place behind it") {
  const std::vector<std::string> ops = {"cast", "sum_squares", "sum_squares", "add", "add", "add", "tanh"};
  std::mt19937 random(5);
  int moved = 0;
  for (int round = 0; round < 3000; ++round) {
    Code code;
    std::vector<SlotRef> slots;
    for (int i = 0; i < 6 + round % 7; ++i) slots.push_back(code.slot());
    const auto any = [&] { return slots[random() % slots.size()]; };
    for (int i = 0; i < 25; ++i) {
      const std::string& op = ops[random() % ops.size()];
      code.put(op, op == "add" ? std::vector<SlotRef>{any(), any()} : std::vector<SlotRef>{any()}, any());
    }
    const std::vector<Instruction> before = code.entry.code;
    group_fusible_kernels(code.entry, code.program);
    REQUIRE(code.entry.code.size() == before.size());
    std::vector<size_t> place(before.size(), before.size());
    for (size_t at = 0; at < before.size(); ++at) {
      const auto node = static_cast<size_t>(std::get<KernelInst>(code.entry.code[at]).node);
      REQUIRE(place[node] == before.size());
      place[node] = at;
      moved += node != at;
    }
    const auto touch = [](const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
      return std::ranges::any_of(a, [&](int32_t slot) { return std::ranges::find(b, slot) != b.end(); });
    };
    for (size_t i = 0; i < before.size(); ++i)
      for (size_t j = i + 1; j < before.size(); ++j) {
        const TouchedSlots a = touched_slots(before[i]), b = touched_slots(before[j]);
        if (touch(a.writes, b.reads) || touch(a.reads, b.writes) || touch(a.writes, b.writes))
          REQUIRE(place[i] < place[j]);
      }
  }
  CHECK(moved > 1000);  // else nothing was tried
}
