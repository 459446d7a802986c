// The first CUDA device, real or emulated, for tests that talk to the plugin's table directly.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/op_def.h"
#include "runtime/backend_registry.h"
#include "runtime/host_services.h"
#include "runtime/kernel_description.h"
#include "tests/ops/kernel_run.h"
#include "tests/skip.h"
#include "tests/test_backend.h"

namespace tessera::conformance {

// A kernel's description, which a variant can be added to.
struct Question {
  const OpDef* op;
  std::vector<Attr> attrs;
  std::vector<TensorType> inputs, outputs;
  std::vector<FactorView> factors;

  static Question of(std::string_view op, const std::vector<Attr>& given, std::vector<TensorType> inputs) {
    Question made{find_op(op), {}, std::move(inputs), {}, {}};
    made.attrs = complete_attrs(*made.op, given).value();
    made.outputs = made.op->infer(made.inputs, made.attrs).value();
    ShardingRule rule = made.op->sharding({made.attrs, made.inputs, made.outputs, {}});
    REQUIRE(bind_extents(rule, made.inputs, made.outputs).ok());
    for (const Factor& factor : rule.factors)
      made.factors.push_back({factor.name, factor.extent, 1, 1, {0, 0}, {factor.extent, 0}});
    return made;
  }
  OpView view() const { return {attrs, inputs, outputs, factors}; }
};

// CudaDevice: a CUDA device with pieces of memory; absent without a GPU.
class CudaDevice {
 public:
  CudaDevice() : registry_(options()) {
    const auto found = registry_.find("cuda");
    if (!found.ok()) return;
    api_ = *found;
    REQUIRE(take_error(api_->device_open(&registry_.host(), 0, &device_)).ok());
    REQUIRE(take_error(api_->stream_create(device_, &stream_)).ok());
  }
  ~CudaDevice() {
    if (api_ == nullptr) return;
    for (const auto& [memory, bytes] : memory_) api_->memory_free(device_, 0, memory, bytes);
    api_->stream_destroy(stream_);
    api_->device_close(device_);
  }
  // Returns whether there is a device; without one the case in progress counts as skipped.
  bool is_there() const {
    if (api_ == nullptr) test::skip("no CUDA device, real or emulated");
    return api_ != nullptr;
  }
  // tests/cuda_emulator; of a real one nothing is counted that only the emulator can tell.
  bool is_emulated() const {
    tsr_abi_device_info info{};
    info.struct_size = sizeof(info);
    REQUIRE(take_error(api_->device_info(0, &info)).ok());
    return std::string_view(info.name).starts_with("emulated");
  }
  // Launches that could begin before what was launched before them had ended; an emulated device counts them.
  size_t overlaps() const {
    Dl_info plugin{};
    REQUIRE(dladdr(reinterpret_cast<const void*>(api_->kernel_launch), &plugin) != 0);
    void* library = dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library != nullptr);
    const auto count = reinterpret_cast<size_t (*)()>(dlsym(library, "tessera_emulated_overlaps"));
    dlclose(library);
    REQUIRE(bool(count != nullptr));
    return count();
  }
  // Whether this build has kernels for elements of the type (TSR_FEW_TYPES).
  bool has(DType dtype) const {
    if (dtype != DType::kF16 && dtype != DType::kF64) return true;
    const TensorType type{dtype, Shape{8}};
    const Question question = Question::of("add", {}, {type, type});
    const KernelDescription description(*question.op, question.view(), "");
    tsr_abi_kernel_info info{};
    info.struct_size = sizeof(info);
    return take_error(api_->kernel_query(0, &description.abi(), &info)).ok();
  }
  std::vector<DType> those_of(std::vector<DType> types) const {
    std::erase_if(types, [&](DType dtype) { return !has(dtype); });
    return types;
  }
  const tsr_backend_api& api() const { return *api_; }
  tsr_abi_device* device() const { return device_; }
  tsr_abi_stream* stream() const { return stream_; }

  std::byte* allocate(size_t bytes) {
    void* memory = nullptr;
    REQUIRE(take_error(api_->memory_alloc(device_, 0, static_cast<int64_t>(bytes), 0, &memory)).ok());
    memory_.emplace_back(memory, static_cast<int64_t>(bytes));
    return static_cast<std::byte*>(memory);
  }
  void copy(const std::byte* from, std::byte* to, size_t bytes) {
    const auto count = static_cast<int64_t>(bytes);
    REQUIRE(take_error(api_->copy(stream_, from, to, 1, count, count, count)).ok());
    REQUIRE(take_error(api_->stream_synchronize(stream_)).ok());
  }
  // The first result of a kernel of the variant, on copies of the operands.
  void run(const Question& question, const std::string& variant,
           std::span<const std::span<const std::byte>> inputs, std::span<std::byte> result) {
    const KernelDescription description(*question.op, question.view(), variant);
    tsr_abi_kernel_info info{};
    info.struct_size = sizeof(info);
    const Status asked = take_error(api_->kernel_query(0, &description.abi(), &info));
    REQUIRE_MESSAGE(asked.ok(), asked.to_string());
    tsr_abi_kernel* kernel = nullptr;
    REQUIRE(take_error(api_->kernel_prepare(device_, &description.abi(), &kernel)).ok());
    std::vector<const void*> in;
    for (const std::span<const std::byte> operand : inputs) {
      std::byte* at = allocate(operand.size());
      copy(operand.data(), at, operand.size());
      in.push_back(at);
    }
    std::vector<void*> out;
    for (const TensorType& type : question.outputs) out.push_back(allocate(static_cast<size_t>(bytes(type))));
    void* workspace = allocate(static_cast<size_t>(info.workspace_bytes));
    REQUIRE(take_error(api_->kernel_launch(kernel, stream_, in.data(), out.data(), workspace)).ok());
    copy(static_cast<const std::byte*>(out[0]), result.data(), result.size());
    api_->kernel_destroy(kernel);
  }
  tsr_abi_kernel* prepare(std::string_view op, const std::vector<Attr>& given,
                          const std::vector<TensorType>& inputs) {
    const Question question = Question::of(op, given, inputs);
    const KernelDescription description(*question.op, question.view(), "");
    tsr_abi_kernel* kernel = nullptr;
    const Status status = take_error(api_->kernel_prepare(device_, &description.abi(), &kernel));
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    return kernel;
  }

 private:
  static RegistryOptions options() {
    RegistryOptions options;
    options.plugin_path = test::plugin_folder();
    options.threads = 1;
    return options;
  }
  BackendRegistry registry_;
  const tsr_backend_api* api_ = nullptr;
  tsr_abi_device* device_ = nullptr;
  tsr_abi_stream* stream_ = nullptr;
  std::vector<std::pair<void*, int64_t>> memory_;
};

}  // namespace tessera::conformance
