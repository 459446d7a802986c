// Programs written by hand, kernel by kernel, for tests of the executor.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "graph/op_def.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera::test {

// Appends to one rank. Slots lie one after the other, so nothing shares bytes.
class RankBuilder {
 public:
  RankBuilder(RankProgram& rank, const KernelCatalog& catalog) : rank_(rank), catalog_(catalog) {}

  int32_t slot(std::string name, SlotKind kind, int64_t bytes) {
    const int64_t offset = (rank_.arena_bytes + 63) / 64 * 64;
    rank_.slots.push_back({std::move(name), kind, Tier::kDevice, bytes, offset});
    rank_.arena_bytes = rank_.max_live_bytes = offset + bytes;
    return static_cast<int32_t>(rank_.slots.size()) - 1;
  }
  int32_t slot(std::string name, SlotKind kind, const TensorType& type) {
    return slot(std::move(name), kind, bytes(type));
  }

  EntryPoint& entry(std::string_view name) {
    for (EntryPoint& entry : rank_.entries)
      if (entry.name == name) return entry;
    rank_.entries.push_back({std::string(name), {}, {}, {}});
    return rank_.entries.back();
  }

  // One launch with default attributes; the whole of every factor is local unless `factors` says otherwise.
  void launch(std::string_view entry_name, std::string_view op_name, std::vector<TensorType> in,
              std::vector<int32_t> in_slots, std::vector<int32_t> out_slots) {
    const OpDef* op = find_op(op_name);
    REQUIRE(op != nullptr);
    KernelDesc desc;
    desc.op = op;
    desc.inputs = std::move(in);
    for (const AttrSpec& spec : op->attrs)
      desc.attrs.push_back({std::string(spec.name), spec.default_value.value()});
    desc.outputs = op->infer(desc.inputs, desc.attrs).value();
    ShardingRule rule = op->sharding({desc.attrs, desc.inputs, desc.outputs, {}});
    REQUIRE(bind_extents(rule, desc.inputs, desc.outputs).ok());
    for (const Factor& factor : rule.factors)
      desc.factors.push_back({factor.name, factor.extent, factor.unit, 1, {0, 0}, {factor.extent, 0}});
    const KernelChoice choice =
        catalog_.query(*op, {desc.attrs, desc.inputs, desc.outputs, desc.factors}).value();
    desc.variant = choice.variant;
    desc.workspace_bytes = choice.workspace_bytes;
    KernelInst inst;
    inst.kernel = static_cast<int32_t>(rank_.kernels.size());
    for (const int32_t id : in_slots) inst.inputs.push_back({id, 0});
    for (const int32_t id : out_slots) inst.outputs.push_back({id, 0});
    if (choice.workspace_bytes > 0)
      inst.workspace = {slot("workspace", SlotKind::kWorkspace, choice.workspace_bytes), 0};
    rank_.kernels.push_back(std::move(desc));
    entry(entry_name).code.emplace_back(std::move(inst));
  }

 private:
  RankProgram& rank_;
  const KernelCatalog& catalog_;
};

// "step", data parallel over the ranks: y = x w with rows of x split, s = column sums of y, total =
// all_reduce(s), count = count + total. x [rows, 4] input, w [4, 3] parameter, count [3] state; y [rows, 3],
// total [3] outputs.
inline Program data_parallel_program(const DeviceSet& devices, int64_t rows) {
  const auto ranks = static_cast<int32_t>(devices.size());
  const TensorType w{DType::kF32, {4, 3}}, sums{DType::kF32, {3}};
  const TensorType x_all{DType::kF32, {rows, 4}}, y_all{DType::kF32, {rows, 3}};
  Program program;
  program.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    RankProgram& part = program.ranks[static_cast<size_t>(rank)];
    RankBuilder build(part, devices.catalog());
    const Range mine = split_range({0, rows}, 1, ranks, rank);
    const TensorType x{DType::kF32, {mine.size(), 4}}, y{DType::kF32, {mine.size(), 3}};
    const int32_t w_slot = build.slot("w", SlotKind::kParameter, w);
    const int32_t count_slot = build.slot("count", SlotKind::kState, sums);
    const int32_t x_slot = build.slot("x", SlotKind::kInput, x);
    const int32_t y_slot = build.slot("y", SlotKind::kOutput, y);
    const int32_t total_slot = build.slot("total", SlotKind::kOutput, sums);
    const int32_t s_slot = build.slot("s", SlotKind::kTransient, sums);
    Group everyone;
    for (int32_t member = 0; member < ranks; ++member) everyone.ranks.push_back(member);
    everyone.position = rank;
    everyone.axis = "dp";
    part.groups.push_back(everyone);

    build.launch("step", "matmul", {x, w}, {x_slot, w_slot}, {y_slot});
    build.launch("step", "sum_leading", {y}, {y_slot}, {s_slot});
    CollectiveInst reduce;
    reduce.group = 0;
    reduce.elements = 3;
    reduce.in = {s_slot, 0};
    reduce.out = {total_slot, 0};
    build.entry("step").code.emplace_back(reduce);
    build.launch("step", "add", {sums, sums}, {count_slot, total_slot}, {count_slot});

    const Box all_sums{{0, 3}};
    part.parameters.push_back({"w", w, {{{w_slot, 0}, {{0, 4}, {0, 3}}}}});
    part.states.push_back({"count", sums, {{{count_slot, 0}, all_sums}}});
    EntryPoint& step = build.entry("step");
    step.inputs.push_back({"x", x_all, {{{x_slot, 0}, {mine, {0, 4}}}}});
    step.outputs.push_back({"y", y_all, {{{y_slot, 0}, {mine, {0, 3}}}}});
    step.outputs.push_back({"total", sums, {{{total_slot, 0}, all_sums}}});
  }
  return program;
}

}  // namespace tessera::test
