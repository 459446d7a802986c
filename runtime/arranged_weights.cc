#include "runtime/arranged_weights.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "graph/analysis/read_only_parameters.h"
#include "runtime/device_set_impl.h"
#include "runtime/host_services.h"
#include "runtime/kernel_description.h"

namespace tessera {

namespace {

constexpr std::string_view kInterleaved = ":interleaved";  // after a variant's name

bool can_arrange(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, weight_arrange) + sizeof(api.weight_arrange) &&
         api.weight_arrange != nullptr;
}

OpView view_of(const KernelDesc& desc) { return {desc.attrs, desc.inputs, desc.outputs, desc.factors}; }

// Variants: a rank's kernels by their interleaved equivalent; null: the backend has none.
class Variants {
 public:
  Variants(RankProgram& rank, DeviceSet& devices, int32_t ordinal)
      : rank_(rank), api_(*devices.impl().api), ordinal_(ordinal) {}

  bool exists(int32_t kernel) { return query(kernel).has_value(); }
  // Adds the kernel to the program if it is new.
  int32_t add(int32_t kernel) {
    const auto [at, is_new] = added_.emplace(kernel, static_cast<int32_t>(rank_.kernels.size()));
    if (is_new) {
      KernelDesc desc = rank_.kernels[static_cast<size_t>(kernel)];
      const tsr_abi_kernel_info& info = *query(kernel);
      desc.variant += kInterleaved;
      desc.seconds = std::min(desc.seconds, info.seconds);
      rank_.kernels.push_back(std::move(desc));
    }
    return at->second;
  }

 private:
  const std::optional<tsr_abi_kernel_info>& query(int32_t kernel) {
    const auto [at, is_new] = queried_.emplace(kernel, std::nullopt);
    if (!is_new) return at->second;
    const KernelDesc& desc = rank_.kernels[static_cast<size_t>(kernel)];
    const KernelDescription description(*desc.op, view_of(desc), desc.variant + std::string(kInterleaved));
    tsr_abi_kernel_info info{};
    info.struct_size = sizeof info;
    // The slot of its workspace has a fixed size.
    if (take_error(api_.kernel_query(ordinal_, &description.abi(), &info)).ok() &&
        info.workspace_bytes == desc.workspace_bytes)
      at->second = info;
    return at->second;
  }

  RankProgram& rank_;
  const tsr_backend_api& api_;
  const int32_t ordinal_;
  std::map<int32_t, std::optional<tsr_abi_kernel_info>> queried_;
  std::map<int32_t, int32_t> added_;
};

// Uses: how a rank's instructions use a slot.
struct Uses {
  std::vector<KernelInst*> weights;  // reading it whole, as their weight
  bool has_product = false;          // not rows of a table alone, which gain nothing
  bool has_others = false;
};

std::vector<Uses> find_uses(RankProgram& rank) {
  std::vector<Uses> uses(rank.slots.size());
  const auto other = [&](const SlotRef& ref) {
    if (ref.slot >= 0) uses[static_cast<size_t>(ref.slot)].has_others = true;
  };
  for (EntryPoint& entry : rank.entries)
    for (Instruction& instruction : entry.code) {
      if (auto* kernel = std::get_if<KernelInst>(&instruction)) {
        for (size_t i = 0; i < kernel->inputs.size(); ++i) {
          const SlotRef& ref = kernel->inputs[i];
          const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
          if (static_cast<int>(i) != desc.op->weight.operand || ref.slot < 0 || ref.offset != 0 ||
              bytes(desc.inputs[i]) != rank.slots[static_cast<size_t>(ref.slot)].bytes) {
            other(ref);
            continue;
          }
          Uses& of = uses[static_cast<size_t>(ref.slot)];
          of.weights.push_back(kernel);
          of.has_product |= desc.op->weight.use != WeightUse::kRows;
        }
      } else if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
        other(collective->in);
      } else if (const auto* send = std::get_if<SendInst>(&instruction)) {
        other(send->in);
      } else if (const auto* copy = std::get_if<CopyInst>(&instruction)) {
        other(copy->in);
      }
    }
  return uses;
}

}  // namespace

void take_arranged_variants(Program& program, DeviceSet& devices) {
  const DeviceSet::Impl& impl = devices.impl();
  if (!can_arrange(*impl.api) || !has_flag(*impl.api, TSR_BACKEND_BLOCKING)) return;
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    RankProgram& rank = program.ranks[r];
    Variants variants(rank, devices, impl.ordinals[r]);
    std::vector<Uses> uses = find_uses(rank);
    for (const int32_t slot : find_read_only_parameters(rank).slots) {
      const Uses& it = uses[static_cast<size_t>(slot)];
      if (it.has_others || !it.has_product) continue;
      if (!std::ranges::all_of(it.weights,
                               [&](const KernelInst* use) { return variants.exists(use->kernel); }))
        continue;
      for (KernelInst* use : it.weights) use->kernel = variants.add(use->kernel);
    }
  }
}

std::vector<ArrangedOperand> find_arranged(const RankProgram& rank) {
  std::vector<ArrangedOperand> arranged(rank.slots.size());
  for (const EntryPoint& entry : rank.entries)
    for (const Instruction& instruction : entry.code)
      if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
        const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
        if (!desc.variant.ends_with(kInterleaved)) continue;
        const int operand = desc.op->weight.operand;
        const SlotRef& weight = kernel->inputs[static_cast<size_t>(operand)];
        if (weight.slot >= 0) arranged[static_cast<size_t>(weight.slot)] = {&desc, operand};
      }
  return arranged;
}

Status arrange(DeviceSet& devices, const ArrangedOperand& operand, const std::byte* in, std::byte* out) {
  const tsr_backend_api& api = *devices.impl().api;
  const KernelDescription description(*operand.kernel->op, view_of(*operand.kernel), operand.kernel->variant);
  return take_error(api.weight_arrange(&description.abi(), operand.operand, in, out));
}

}  // namespace tessera
