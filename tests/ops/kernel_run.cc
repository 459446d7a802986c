#include "tests/ops/kernel_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "graph/base/text.h"

namespace tessera::conformance {

namespace {

// The description of a kernel as it crosses the ABI; borrows from the instance.
class Description {
 public:
  explicit Description(const OpInstance& instance) {
    for (const Attr& attr : instance.attrs) attrs_.push_back(convert(attr));
    for (const TensorType& type : instance.inputs) inputs_.push_back(convert(type));
    for (const TensorType& type : instance.outputs) outputs_.push_back(convert(type));
    for (const FactorView& view : instance.factors)
      factors_.push_back({view.name,
                          view.range_count,
                          view.global_extent,
                          view.unit,
                          {view.begin[0], view.begin[1]},
                          {view.end[0], view.end[1]}});
    desc_.struct_size = sizeof desc_;
    desc_.op = instance.op->name.data();
    desc_.op_version = instance.op->version;
    desc_.attr_count = static_cast<int32_t>(attrs_.size());
    desc_.input_count = static_cast<int32_t>(inputs_.size());
    desc_.output_count = static_cast<int32_t>(outputs_.size());
    desc_.factor_count = static_cast<int32_t>(factors_.size());
    desc_.attrs = attrs_.data();
    desc_.inputs = inputs_.data();
    desc_.outputs = outputs_.data();
    desc_.factors = factors_.data();
  }
  Description(const Description&) = delete;
  const tsr_abi_kernel_desc& desc() const { return desc_; }

 private:
  static tsr_abi_attr convert(const Attr& attr) {
    tsr_abi_attr result = {};
    result.name = attr.name.c_str();
    result.type = static_cast<int32_t>(attr.value.index());
    if (const auto* i = std::get_if<int64_t>(&attr.value)) result.i64 = *i;
    if (const auto* f = std::get_if<double>(&attr.value)) result.f64 = *f;
    if (const auto* s = std::get_if<std::string>(&attr.value)) result.string = s->c_str();
    if (const auto* list = std::get_if<std::vector<int64_t>>(&attr.value)) {
      result.ints = list->data();
      result.count = static_cast<int32_t>(list->size());
    }
    return result;
  }
  static tsr_abi_tensor convert(const TensorType& type) {
    tsr_abi_tensor result = {};
    result.dtype = static_cast<int32_t>(type.dtype);
    result.rank = type.shape.rank();
    std::ranges::copy(type.shape.dims(), result.dims);
    return result;
  }

  std::vector<tsr_abi_attr> attrs_;
  std::vector<tsr_abi_tensor> inputs_, outputs_;
  std::vector<tsr_abi_factor> factors_;
  tsr_abi_kernel_desc desc_ = {};
};

// 64-byte aligned memory between two guards.
class Guarded {
 public:
  Guarded(int64_t bytes, std::byte fill)
      : bytes_(static_cast<size_t>(bytes)), memory_(bytes_ + 3 * kGuard, kMark) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    data_ = memory_.data() + ((at + 63) / 64 * 64 - reinterpret_cast<uintptr_t>(memory_.data()));
    std::fill_n(data_, bytes_, fill);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* data() { return data_; }
  // The memory from one guard to the other, which begins at a multiple of 64.
  ForeignKernel::Block block() { return {data_ - kGuard, bytes_ + 2 * kGuard}; }
  bool guards_hold() const {
    const auto marked = [](std::byte b) { return b == kMark; };
    return std::all_of(memory_.data(), static_cast<const std::byte*>(data_), marked) &&
           std::all_of(static_cast<const std::byte*>(data_) + bytes_, memory_.data() + memory_.size(),
                       marked);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kMark{0xc3};
  size_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* data_;
};

tsr_host_api host_api(bool last_task_first) {
  using Body = void (*)(void*, int64_t);
  tsr_host_api api = {};
  api.struct_size = sizeof api;
  api.parallel_for = [](void*, int64_t tasks, Body body, void* context) {
    for (int64_t task = 0; task < tasks; ++task) body(context, task);
  };
  if (last_task_first)
    api.parallel_for = [](void*, int64_t tasks, Body body, void* context) {
      for (int64_t task = tasks; task-- > 0;) body(context, task);
    };
  api.thread_count = [](void*) { return 1; };
  api.take_scratch = [](void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); };
  api.give_scratch = [](void*, void* memory) { std::free(memory); };
  return api;
}

}  // namespace

bool OpInstance::is_shape_only(int input) const {
  return std::ranges::find(op->shape_only, input) != op->shape_only.end();
}

Result<std::vector<Attr>> complete_attrs(const OpDef& op, std::vector<Attr> given) {
  std::vector<Attr> complete;
  for (const AttrSpec& spec : op.attrs) {
    const auto at = std::ranges::find(given, spec.name, &Attr::name);
    if (at != given.end()) {
      AttrValue value = at->value;
      if (spec.type == AttrType::kF64 && std::holds_alternative<int64_t>(value))
        value = static_cast<double>(std::get<int64_t>(value));
      if (value.index() != static_cast<size_t>(spec.type))
        return Status(StatusCode::kInvalidArgument,
                      format("attribute {} = {} has another type", spec.name, to_text(value)));
      complete.push_back({std::string(spec.name), value});
      given.erase(at);
    } else if (spec.default_value) {
      complete.push_back({std::string(spec.name), *spec.default_value});
    } else {
      return Status(StatusCode::kInvalidArgument, format("attribute {} is missing", spec.name));
    }
  }
  if (!given.empty())
    return Status(StatusCode::kInvalidArgument, format("{} has no attribute {}", op.name, given[0].name));
  return complete;
}

Result<OpInstance> make_instance(const OpDef& op, std::vector<Attr> attrs, std::vector<TensorType> inputs) {
  OpInstance instance{&op, std::move(attrs), std::move(inputs), {}, {}};
  TSR_ASSIGN_OR_RETURN(instance.outputs, op.infer(instance.inputs, instance.attrs));
  ShardingRule rule = instance.rule();
  TSR_RETURN_IF_ERROR(bind_extents(rule, instance.inputs, instance.outputs));
  for (const Factor& factor : rule.factors)
    instance.factors.push_back({factor.name, factor.extent, factor.unit, 1, {0, 0}, {factor.extent, 0}});
  return instance;
}

Result<PreparedKernel> PreparedKernel::prepare(const cpu::KernelEntry& entry, const OpInstance& instance) {
  PreparedKernel result;
  result.instance_ = instance;
  const Description description(result.instance_);
  Status status = catch_status([&]() -> Status {
    if (entry.prepare == nullptr) {
      TSR_ASSIGN_OR_RETURN(result.foreign_, ForeignKernel::prepare(description.desc()));
      result.prepared_.workspace_bytes = result.foreign_->workspace_bytes();
      return {};
    }
    Result<cpu::PreparedKernel> prepared = entry.prepare(KernelSpec(description.desc()));
    if (!prepared.ok()) return prepared.status();
    result.prepared_ = std::move(prepared).value();
    return {};
  });
  if (!status.ok()) return status;
  return result;
}

Result<std::vector<Array>> PreparedKernel::run(std::span<const Array> inputs,
                                               const RunOptions& options) const {
  std::vector<std::unique_ptr<Guarded>> memory;
  const auto allocate = [&](int64_t size, std::byte fill) {
    memory.push_back(std::make_unique<Guarded>(size, fill));
    return memory.back()->data();
  };
  std::vector<const void*> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TSR_CHECK(inputs[i].type == instance_.inputs[i], "an array of the wrong type");
    if (instance_.is_shape_only(static_cast<int>(i))) {
      in.push_back(nullptr);
      continue;
    }
    std::byte* to = allocate(static_cast<int64_t>(inputs[i].bytes.size()), options.poison);
    std::ranges::copy(inputs[i].bytes, to);
    in.push_back(to);
  }
  std::vector<void*> out;
  std::vector<bool> taken_over(inputs.size());
  for (size_t o = 0; o < instance_.outputs.size(); ++o) {
    const int from = options.in_place && o < instance_.op->in_place.size() ? instance_.op->in_place[o] : -1;
    if (from >= 0) {
      TSR_CHECK(bytes(instance_.outputs[o]) == bytes(instance_.inputs[static_cast<size_t>(from)]),
                "in place wants operand and result of one size");
      taken_over[static_cast<size_t>(from)] = true;
      out.push_back(const_cast<void*>(in[static_cast<size_t>(from)]));
    } else {
      out.push_back(allocate(bytes(instance_.outputs[o]), options.poison));
    }
  }
  const int64_t scratch = prepared_.workspace_bytes;
  void* workspace = scratch > 0 ? allocate(scratch, options.poison) : nullptr;

  const tsr_host_api host = host_api(options.last_task_first);
  TSR_RETURN_IF_ERROR(catch_status([&]() -> Status {
    if (foreign_ != nullptr) {
      std::vector<ForeignKernel::Block> blocks;
      for (const auto& guarded : memory) blocks.push_back(guarded->block());
      return foreign_->run(blocks, in, out, workspace);
    }
    prepared_.kernel->launch({in.data(), out.data(), workspace, cpu::Pool(host)});
    return {};
  }));

  for (const auto& guarded : memory)
    if (!guarded->guards_hold())
      return Status(StatusCode::kInternal, "the kernel wrote outside of its buffers");
  for (size_t i = 0; i < inputs.size(); ++i)
    if (in[i] != nullptr && !taken_over[i] && !inputs[i].bytes.empty() &&
        std::memcmp(in[i], inputs[i].bytes.data(), inputs[i].bytes.size()) != 0)
      return Status(StatusCode::kInternal, format("the kernel changed operand {}", i));
  std::vector<Array> results;
  for (size_t o = 0; o < out.size(); ++o) {
    Array result = Array::zeros(instance_.outputs[o]);
    std::copy_n(static_cast<const std::byte*>(out[o]), result.bytes.size(), result.bytes.data());
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<cpu::KernelEntry> kernels_of(std::string_view op) {
  std::vector<cpu::KernelEntry> rows;
  if (!foreign_backend_name().empty()) rows.push_back({op, foreign_backend_name(), nullptr});
  for (const cpu::KernelEntry& entry : cpu::kernel_table())
    if (entry.op == op) rows.push_back(entry);
  return rows;
}

const cpu::KernelEntry* reference_of(std::span<const cpu::KernelEntry> kernels) {
  const auto at = std::ranges::find(kernels, "reference", &cpu::KernelEntry::variant);
  return at == kernels.end() ? nullptr : &*at;
}

}  // namespace tessera::conformance
