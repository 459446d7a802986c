#include "tests/ops/kernel_runner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <variant>

#include "graph/base/text.h"
#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::test {

namespace {

// Tasks in ascending order, or in descending order: a kernel may not depend on it.
tsr_host_api host_api(bool reverse_tasks) {
  tsr_host_api api{};
  api.struct_size = sizeof api;
  if (!reverse_tasks) {
    api.parallel_for = [](void*, int64_t tasks, void (*body)(void*, int64_t), void* context) {
      for (int64_t task = 0; task < tasks; ++task) body(context, task);
    };
  } else {
    api.parallel_for = [](void*, int64_t tasks, void (*body)(void*, int64_t), void* context) {
      for (int64_t task = tasks; task-- > 0;) body(context, task);
    };
  }
  return api;
}

tsr_abi_tensor abi_tensor(const TensorType& type) {
  tsr_abi_tensor tensor{static_cast<int32_t>(type.dtype), type.shape.rank(), {}};
  std::ranges::copy(type.shape.dims(), tensor.dims);
  return tensor;
}

tsr_abi_attr abi_attr(const Attr& attr) {
  tsr_abi_attr out{};
  out.name = attr.name.c_str();
  out.type = static_cast<int32_t>(attr.value.index());
  if (const auto* i64 = std::get_if<int64_t>(&attr.value)) out.i64 = *i64;
  if (const auto* f64 = std::get_if<double>(&attr.value)) out.f64 = *f64;
  if (const auto* text = std::get_if<std::string>(&attr.value)) out.string = text->c_str();
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attr.value)) {
    out.ints = list->data();
    out.count = static_cast<int32_t>(list->size());
  }
  return out;
}

tsr_abi_factor abi_factor(const Factor& factor, std::span<const FactorView> given) {
  tsr_abi_factor out{factor.name, 1, factor.extent, factor.unit, {0, 0}, {factor.extent, 0}};
  const auto view = std::ranges::find(given, factor.name, &FactorView::name);
  if (view == given.end()) return out;
  out.range_count = view->range_count;
  out.global_extent = view->global_extent;
  std::ranges::copy(view->begin, out.begin);
  std::ranges::copy(view->end, out.end);
  return out;
}

// 64-byte aligned, poisoned; at least one byte, so that it is never null.
std::shared_ptr<std::byte> buffer(int64_t bytes) {
  const size_t size = (static_cast<size_t>(bytes) / 64 + 1) * 64;
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(64, size)), &std::free);
  std::memset(memory.get(), 0xA5, size);
  return memory;
}

Result<cpu::Prepared> prepare(const KernelSpec& spec, std::string_view variant) {
  for (const cpu::KernelEntry& entry : cpu::kernel_table())
    if (entry.op == spec.op() && entry.variant == variant) return entry.prepare(spec);
  return Status(StatusCode::kNotFound, format("no CPU kernel '{}' of '{}'", variant, spec.op()));
}

}  // namespace

std::vector<Attr> complete_attrs(const OpDef& op, const std::vector<Attr>& attrs) {
  std::vector<Attr> complete;
  for (const AttrSpec& spec : op.attrs) {
    const auto given = std::ranges::find(attrs, spec.name, &Attr::name);
    if (given != attrs.end()) {
      complete.push_back(*given);
    } else {
      TSR_CHECK(spec.default_value.has_value(), "an attribute must be given");
      complete.push_back({std::string(spec.name), *spec.default_value});
    }
  }
  return complete;
}

Result<std::vector<HostTensor>> run_kernel(const KernelCall& call) {
  const OpDef* op = find_op(call.op);
  if (op == nullptr) return Status(StatusCode::kNotFound, format("no op '{}'", call.op));
  const std::vector<Attr> attrs = complete_attrs(*op, call.attrs);
  std::vector<TensorType> input_types;
  for (const HostTensor& input : call.inputs) input_types.push_back(input.type);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorType> output_types, op->infer(input_types, attrs));
  ShardingRule rule = op->sharding({attrs, input_types, output_types, {}});
  TSR_RETURN_IF_ERROR(bind_extents(rule, input_types, output_types));

  std::vector<tsr_abi_attr> abi_attrs;
  std::vector<tsr_abi_tensor> abi_inputs, abi_outputs;
  std::vector<tsr_abi_factor> abi_factors;
  for (const Attr& attr : attrs) abi_attrs.push_back(abi_attr(attr));
  for (const TensorType& type : input_types) abi_inputs.push_back(abi_tensor(type));
  for (const TensorType& type : output_types) abi_outputs.push_back(abi_tensor(type));
  for (const Factor& factor : rule.factors) abi_factors.push_back(abi_factor(factor, call.factors));
  const std::string name(op->name);
  const tsr_abi_kernel_desc desc{sizeof(tsr_abi_kernel_desc),
                                 name.c_str(),
                                 op->version,
                                 static_cast<int32_t>(abi_attrs.size()),
                                 static_cast<int32_t>(abi_inputs.size()),
                                 static_cast<int32_t>(abi_outputs.size()),
                                 static_cast<int32_t>(abi_factors.size()),
                                 abi_attrs.data(),
                                 abi_inputs.data(),
                                 abi_outputs.data(),
                                 abi_factors.data(),
                                 nullptr};
  TSR_ASSIGN_OR_RETURN(const cpu::Prepared prepared, prepare(KernelSpec(desc), call.variant));

  std::vector<const void*> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool shape_only = std::ranges::find(op->shape_only, static_cast<int>(i)) != op->shape_only.end();
    inputs.push_back(shape_only ? nullptr : call.inputs[i].data.data());
  }
  std::vector<HostTensor> results;
  std::vector<void*> outputs;
  for (const TensorType& type : output_types) {
    const std::shared_ptr<std::byte> memory = buffer(bytes(type));
    outputs.push_back(memory.get());
    results.push_back({type, {memory.get(), static_cast<size_t>(bytes(type))}, memory});
  }
  if (call.reuse_input >= 0) {
    const HostTensor& input = call.inputs[static_cast<size_t>(call.reuse_input)];
    if (!input.data.empty()) std::memcpy(outputs[0], input.data.data(), input.data.size());
    inputs[static_cast<size_t>(call.reuse_input)] = outputs[0];
  }
  const std::shared_ptr<std::byte> workspace = buffer(prepared.workspace_bytes);
  const tsr_host_api host = host_api(call.reverse_tasks);
  prepared.kernel->launch({inputs.data(), outputs.data(),
                           prepared.workspace_bytes > 0 ? workspace.get() : nullptr, cpu::Pool(host)});
  return results;
}

}  // namespace tessera::test
