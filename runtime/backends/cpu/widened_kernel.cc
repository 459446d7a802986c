#include "runtime/backends/cpu/widened_kernel.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/backend_table.h"
#include "runtime/backends/cpu/kernels/bf16_rows.h"

namespace tessera::cpu {

namespace {

constexpr size_t kMostOperands = 32;

int64_t align_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A weight or pages of 16 bits, where an op's other operands may be f32.
bool is_stored(const KernelSpec& spec, int input) {
  // By name: a backend knows ops by the names of its kernel table alone.
  if (spec.op() == "attention_paged") return input == 1 || input == 2;
  constexpr std::string_view kOps[] = {"quantized_matmul", "quantized_matmul_grad", "adapter_shrink",
                                       "adapter_expand"};
  return input == 1 && std::ranges::find(kOps, spec.op()) != std::end(kOps);
}

// An operand or result that is converted, and where its f32 form is in the workspace.
struct Converted {
  size_t index;
  int64_t count, offset;  // elements, bytes
};

class WidenedKernel final : public Kernel {
 public:
  std::unique_ptr<Kernel> inner;
  std::vector<Converted> inputs, outputs;
  size_t input_count = 0, output_count = 0;

  void launch(const LaunchArgs& args) const override {
    std::array<const void*, kMostOperands> in{};
    std::array<void*, kMostOperands> out{};
    std::copy_n(args.inputs, input_count, in.begin());
    std::copy_n(args.outputs, output_count, out.begin());
    const auto widened = [&](const Converted& each) {
      return reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + each.offset);
    };
    for (const Converted& each : inputs) {
      if (in[each.index] == nullptr) continue;
      const auto* const from = static_cast<const uint16_t*>(in[each.index]);
      widen_bf16(args.pool, from, widened(each), each.count);
      in[each.index] = widened(each);
    }
    for (const Converted& each : outputs) out[each.index] = widened(each);
    inner->launch({in.data(), out.data(), args.workspace, args.pool});
    for (const Converted& each : outputs)
      round_to_bf16(args.pool, widened(each), static_cast<uint16_t*>(args.outputs[each.index]), each.count);
  }
};

// The description in f32.
class WidenedDescription {
 public:
  explicit WidenedDescription(const KernelSpec& spec) : desc_(spec.desc()) {
    for (int i = 0; i < spec.input_count(); ++i) add(spec.input(i), is_stored(spec, i), inputs_, inputs);
    for (int i = 0; i < spec.output_count(); ++i) add(spec.output(i), false, outputs_, outputs);
    desc_.inputs = inputs_.data();
    desc_.outputs = outputs_.data();
  }
  WidenedDescription(const WidenedDescription&) = delete;

  tsr_abi_kernel_desc& desc() { return desc_; }
  std::vector<Converted> inputs, outputs;  // offsets are still to be set

 private:
  static void add(tsr_abi_tensor tensor, bool stays, std::vector<tsr_abi_tensor>& all,
                  std::vector<Converted>& converted) {
    if (!stays && static_cast<DType>(tensor.dtype) == DType::kBF16) {
      tensor.dtype = static_cast<int32_t>(DType::kF32);
      converted.push_back({all.size(), KernelSpec::elements(tensor), 0});
    }
    all.push_back(tensor);
  }

  tsr_abi_kernel_desc desc_;
  std::vector<tsr_abi_tensor> inputs_, outputs_;
};

// The best row of the op that takes the description, with the algorithm unless that is empty.
Result<PreparedKernel> prepare_f32(tsr_abi_kernel_desc desc, std::string_view algorithm) {
  if (algorithm.empty()) {
    desc.variant = nullptr;
    TSR_ASSIGN_OR_RETURN(auto choice, choose_kernel("cpu", kernel_table(), desc));
    return std::move(choice.prepared);
  }
  Status refused(StatusCode::kUnsupported, format("'{}' has no algorithm '{}'", desc.op, algorithm));
  for (const KernelEntry& row : kernel_table()) {
    if (row.op != desc.op || !row.has_algorithms) continue;
    const std::string variant = format("{}:{}", row.variant, algorithm);
    desc.variant = variant.c_str();
    auto prepared = row.prepare(KernelSpec(desc));
    if (prepared.ok() || prepared.status().code() != StatusCode::kUnsupported) return prepared;
    refused = prepared.status();
  }
  return refused;
}

}  // namespace

Result<PreparedKernel> prepare_widened(const KernelSpec& spec) {
  WidenedDescription widened(spec);
  if (widened.inputs.empty() && widened.outputs.empty())
    return Status(StatusCode::kUnsupported, "no operand is bf16");
  const auto inputs = static_cast<size_t>(spec.input_count()),
             outputs = static_cast<size_t>(spec.output_count());
  if (std::max(inputs, outputs) > kMostOperands)
    return Status(StatusCode::kUnsupported,
                  format("{} operands: bf16 takes up to {}", std::max(inputs, outputs), kMostOperands));
  std::string_view algorithm = spec.variant();
  if (algorithm.starts_with(kWidened)) algorithm.remove_prefix(kWidened.size());
  if (algorithm.starts_with(':')) algorithm.remove_prefix(1);
  TSR_ASSIGN_OR_RETURN(PreparedKernel prepared, prepare_f32(widened.desc(), algorithm));
  int64_t bytes = align_64(prepared.workspace_bytes);
  const auto place = [&](std::vector<Converted>& converted) {
    for (Converted& each : converted) {
      each.offset = bytes;
      bytes += align_64(each.count * int64_t{sizeof(float)});
      prepared.bytes += 6 * static_cast<double>(each.count);
    }
  };
  place(widened.inputs);
  place(widened.outputs);
  auto kernel = std::make_unique<WidenedKernel>();
  kernel->inner = std::move(prepared.kernel);
  kernel->inputs = std::move(widened.inputs);
  kernel->outputs = std::move(widened.outputs);
  kernel->input_count = inputs;
  kernel->output_count = outputs;
  prepared.kernel = std::move(kernel);
  prepared.workspace_bytes = bytes;
  return prepared;
}

}  // namespace tessera::cpu
