#include "tests/ops/foreign_backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "runtime/backend_registry.h"
#include "runtime/backends/cpu/cpu_backend.h"
#include "runtime/host_services.h"
#include "tests/ops/kernel_run.h"
#include "tests/test_backend.h"

namespace tessera::conformance {

namespace {

// One device with a stream and memory that grows; lives as long as the process, as the plugin does.
class ForeignDevice {
 public:
  static Result<ForeignDevice*> get() {
    static ForeignDevice device;
    if (!device.status_.ok()) return device.status_;
    return &device;
  }
  const tsr_backend_api& api() const { return *api_; }
  tsr_abi_device* device() const { return device_; }
  tsr_abi_stream* stream() const { return stream_; }

  // Allocations, launches and compilations, which an emulated device counts; 0 on a real one.
  size_t work() const {
    Dl_info plugin{};
    if (dladdr(reinterpret_cast<const void*>(api_->kernel_query), &plugin) == 0) return 0;
    void* library = dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    if (library == nullptr) return 0;  // a program, not a plugin
    const auto count = reinterpret_cast<size_t (*)()>(dlsym(library, "tessera_emulated_work"));
    dlclose(library);
    return count != nullptr ? count() : 0;
  }

  Result<std::byte*> memory(int64_t bytes) {
    if (bytes > memory_bytes_) {
      api_->memory_free(device_, 0, memory_, memory_bytes_);
      memory_ = nullptr;
      memory_bytes_ = 0;
      const int64_t wanted = std::max<int64_t>(bytes + bytes / 2, 1 << 20);
      TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, wanted, 0, &memory_)));
      memory_bytes_ = wanted;
    }
    return static_cast<std::byte*>(memory_);
  }

 private:
  ForeignDevice() : registry_(options()) { status_ = open(); }
  static RegistryOptions options() {
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry};
    options.plugin_path = test::plugin_folder();
    options.threads = 1;
    return options;
  }
  Status open() {
    TSR_ASSIGN_OR_RETURN(api_,
                         registry_.find(foreign_backend_name().empty() ? "cpu" : foreign_backend_name()));
    TSR_RETURN_IF_ERROR(take_error(api_->device_open(&registry_.host(), 0, &device_)));
    return take_error(api_->stream_create(device_, &stream_));
  }

  BackendRegistry registry_;
  Status status_;
  const tsr_backend_api* api_ = nullptr;
  tsr_abi_device* device_ = nullptr;
  tsr_abi_stream* stream_ = nullptr;
  void* memory_ = nullptr;
  int64_t memory_bytes_ = 0;
};

int64_t rounded(size_t bytes) { return (static_cast<int64_t>(bytes) + 255) / 256 * 256; }

}  // namespace

std::string_view foreign_backend_name() {
  const char* name = std::getenv("TESSERA_TEST_BACKEND");
  return name == nullptr || std::string_view(name) == "cpu" ? "" : name;
}

bool foreign_backend_has(DType dtype) {
  const OpDef* const op = find_op("add");
  const TensorType type{dtype, Shape{8}};
  const auto instance = make_instance(*op, {}, {type, type});
  return instance.ok() && PreparedKernel::prepare({"add", foreign_backend_name(), nullptr}, *instance).ok();
}

Result<std::shared_ptr<const ForeignKernel>> ForeignKernel::prepare(const tsr_abi_kernel_desc& desc) {
  TSR_ASSIGN_OR_RETURN(ForeignDevice* const on, ForeignDevice::get());
  tsr_abi_kernel_info info{};
  info.struct_size = sizeof(info);
  tsr_abi_kernel_desc asked = desc;
  asked.variant = std::getenv("TESSERA_TEST_VARIANT");
  const size_t work = on->work();
  if (asked.variant == nullptr || !take_error(on->api().kernel_query(0, &asked, &info)).ok())
    TSR_RETURN_IF_ERROR(take_error(on->api().kernel_query(0, &desc, &info)));
  if (on->work() != work)
    return Status(StatusCode::kInternal,
                  format("kernel_query of {} allocates, launches or compiles: it only answers", desc.op));
  std::shared_ptr<ForeignKernel> made(new ForeignKernel());
  made->workspace_bytes_ = info.workspace_bytes;
  // As for programs: exactly the variant of the query.
  tsr_abi_kernel_desc exact = desc;
  exact.variant = info.variant;
  TSR_RETURN_IF_ERROR(take_error(on->api().kernel_prepare(on->device(), &exact, &made->kernel_)));
  return std::shared_ptr<const ForeignKernel>(std::move(made));
}

ForeignKernel::~ForeignKernel() {
  if (kernel_ == nullptr) return;
  if (const auto on = ForeignDevice::get(); on.ok()) (*on)->api().kernel_destroy(kernel_);
}

Status ForeignKernel::run(std::span<const Block> blocks, std::span<const void* const> inputs,
                          std::span<void* const> outputs, void* workspace) const {
  TSR_ASSIGN_OR_RETURN(ForeignDevice* const on, ForeignDevice::get());
  int64_t total = 0;
  for (const Block& block : blocks) total += rounded(block.bytes);
  TSR_ASSIGN_OR_RETURN(std::byte* const base, on->memory(std::max<int64_t>(total, 1)));
  // Host addresses of a block and the device's go side by side.
  const auto on_device = [&](const void* pointer) -> void* {
    std::byte* at = base;
    for (const Block& block : blocks) {
      const auto* host = static_cast<const std::byte*>(pointer);
      if (host >= block.begin && host < block.begin + block.bytes) return at + (host - block.begin);
      at += rounded(block.bytes);
    }
    return nullptr;
  };
  const auto copy = [&](const void* from, void* to, size_t bytes) {
    const auto count = static_cast<int64_t>(bytes);
    return take_error(on->api().copy(on->stream(), from, to, 1, count, count, count));
  };
  for (const Block& block : blocks)
    TSR_RETURN_IF_ERROR(copy(block.begin, on_device(block.begin), block.bytes));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const void* pointer : inputs) in.push_back(on_device(pointer));
  for (void* pointer : outputs) out.push_back(on_device(pointer));
  TSR_RETURN_IF_ERROR(take_error(
      on->api().kernel_launch(kernel_, on->stream(), in.data(), out.data(), on_device(workspace))));
  for (const Block& block : blocks)
    TSR_RETURN_IF_ERROR(copy(on_device(block.begin), block.begin, block.bytes));
  return take_error(on->api().stream_synchronize(on->stream()));
}

}  // namespace tessera::conformance
