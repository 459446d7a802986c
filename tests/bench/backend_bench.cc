// Time of single kernels of a backend through the plugin ABI, beside the floor that the backend states for
// its device:
//   backend_bench cuda [OP]
// One line a kernel: microseconds, GB/s of operands or TFLOP/s, and the share of the copy's rate or of the
// products' that the backend states.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "runtime/host_services.h"
#include "runtime/kernel_description.h"
#include "tests/test_backend.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

namespace tessera {
namespace {

struct Subject {
  std::string op;
  std::vector<TensorType> inputs;
  std::vector<std::pair<std::string, AttrValue>> attrs;
  double flops;  // 0: bound by memory
};

class Bench {
 public:
  Status open(std::string_view backend) {
    TSR_ASSIGN_OR_RETURN(api_, registry_.find(backend));
    info_.struct_size = sizeof(info_);
    TSR_RETURN_IF_ERROR(take_error(api_->device_info(0, &info_)));
    TSR_RETURN_IF_ERROR(take_error(api_->device_open(&registry_.host(), 0, &device_)));
    TSR_RETURN_IF_ERROR(take_error(api_->stream_create(device_, &stream_)));
    std::printf("%s: %.0f GB/s, %.0f TFLOP/s stated\n", info_.name, info_.memory_bytes_per_s / 1e9,
                info_.matmul_flops_per_s / 1e12);
    return {};
  }

  // Copies of 1 GiB within the device: read and written bytes.
  Status copies() {
    constexpr int64_t kBytes = int64_t{1} << 30;
    void *from = nullptr, *to = nullptr;
    TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, kBytes, 0, &from)));
    TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, kBytes, 0, &to)));
    TSR_ASSIGN_OR_RETURN(const double seconds, time([&] {
                           return take_error(api_->copy(stream_, from, to, 1, kBytes, kBytes, kBytes));
                         }));
    copy_bytes_per_s_ = 2.0 * kBytes / seconds;
    report("copy 1 GiB", seconds, 2.0 * kBytes, 0);
    api_->memory_free(device_, 0, from, kBytes);
    api_->memory_free(device_, 0, to, kBytes);
    return {};
  }

  Status run(const Subject& subject) {
    const OpDef* op = find_op(subject.op);
    if (op == nullptr) return Status(StatusCode::kNotFound, format("no op '{}'", subject.op));
    std::vector<Attr> attrs;
    for (const AttrSpec& spec : op->attrs) {
      AttrValue value = spec.default_value ? *spec.default_value : AttrValue(int64_t{0});
      for (const auto& [name, given] : subject.attrs)
        if (name == spec.name) value = given;
      attrs.push_back({std::string(spec.name), value});
    }
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorType> outputs, op->infer(subject.inputs, attrs));
    ShardingRule rule = op->sharding({attrs, subject.inputs, outputs, {}});
    TSR_RETURN_IF_ERROR(bind_extents(rule, subject.inputs, outputs));
    std::vector<FactorView> factors;
    for (const Factor& f : rule.factors)
      factors.push_back({f.name, f.extent, f.unit, 1, {0, 0}, {f.extent, 0}});
    const KernelDescription description(*op, {attrs, subject.inputs, outputs, factors}, "");
    tsr_abi_kernel_info info{};
    info.struct_size = sizeof(info);
    TSR_RETURN_IF_ERROR(take_error(api_->kernel_query(0, &description.abi(), &info)));
    tsr_abi_kernel* kernel = nullptr;
    TSR_RETURN_IF_ERROR(take_error(api_->kernel_prepare(device_, &description.abi(), &kernel)));

    double bytes_moved = 0;
    std::vector<std::pair<void*, int64_t>> memory;
    std::vector<const void*> in;
    std::vector<void*> out;
    const auto allocate = [&](int64_t size) -> Result<void*> {
      void* made = nullptr;
      TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, size, 0, &made)));
      memory.emplace_back(made, size);
      return made;
    };
    for (const TensorType& type : subject.inputs) {
      TSR_ASSIGN_OR_RETURN(void* const made, allocate(bytes(type)));
      TSR_RETURN_IF_ERROR(fill(type, made));
      in.push_back(made);
      bytes_moved += static_cast<double>(bytes(type));
    }
    for (const TensorType& type : outputs) {
      TSR_ASSIGN_OR_RETURN(void* const made, allocate(bytes(type)));
      out.push_back(made);
      bytes_moved += static_cast<double>(bytes(type));
    }
    TSR_ASSIGN_OR_RETURN(void* const workspace, allocate(info.workspace_bytes));
    TSR_ASSIGN_OR_RETURN(
        const double seconds, time([&] {
          return take_error(api_->kernel_launch(kernel, stream_, in.data(), out.data(), workspace));
        }));
    report(format("{} ({}) {} {}", subject.op, std::string(info.variant), to_text(subject.inputs[0].dtype),
                  to_text(subject.inputs[0].shape)),
           seconds, bytes_moved, subject.flops);
    api_->kernel_destroy(kernel);
    for (const auto& [at, size] : memory) api_->memory_free(device_, 0, at, size);
    return {};
  }

 private:
  static RegistryOptions options() {
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry};
    options.plugin_path = test::plugin_folder();
    return options;
  }

  // Values in -1 to 1, in a pattern that repeats: zeros run faster than data. Indices are 0 but for
  // one-dimensional ones, the last position of a cache of 2048.
  Status fill(const TensorType& type, void* to) {
    constexpr int64_t kPattern = 1 << 20;
    const int64_t element = dtype_bytes(type.dtype, 1), total = bytes(type);
    std::vector<std::byte> pattern(static_cast<size_t>(std::min(total, kPattern * element)));
    uint32_t state = 1;
    for (size_t at = 0; at + static_cast<size_t>(element) <= pattern.size();
         at += static_cast<size_t>(element)) {
      state = state * 1664525 + 1013904223;
      const float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      const auto last = static_cast<int32_t>(type.shape.rank() == 1 ? 2047 : 0);
      switch (type.dtype) {
        case DType::kF32: std::memcpy(&pattern[at], &bits, 4); break;
        case DType::kBF16: std::memcpy(&pattern[at], reinterpret_cast<const std::byte*>(&bits) + 2, 2); break;
        case DType::kI32: std::memcpy(&pattern[at], &last, 4); break;
        default: break;
      }
    }
    for (int64_t at = 0; at < total; at += static_cast<int64_t>(pattern.size())) {
      const int64_t size = std::min(total - at, static_cast<int64_t>(pattern.size()));
      TSR_RETURN_IF_ERROR(take_error(
          api_->copy(stream_, pattern.data(), static_cast<std::byte*>(to) + at, 1, size, size, size)));
    }
    return take_error(api_->stream_synchronize(stream_));
  }

  // Seconds of one launch: as many as fill 50 ms between two waits, after a few to warm up.
  template <class Launch>
  Result<double> time(Launch&& launch) {
    const auto seconds_of = [&](int count) -> Result<double> {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < count; ++i) TSR_RETURN_IF_ERROR(launch());
      TSR_RETURN_IF_ERROR(take_error(api_->stream_synchronize(stream_)));
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
    };
    TSR_RETURN_IF_ERROR(seconds_of(3).status());
    TSR_ASSIGN_OR_RETURN(const double rough, seconds_of(3));
    return seconds_of(std::clamp(static_cast<int>(0.05 / std::max(rough, 1e-7)), 1, 5000));
  }

  void report(const std::string& what, double seconds, double moved, double flops) const {
    const double rate = flops > 0 ? flops / seconds : moved / seconds;
    // Of the copy at hand, or of the rate that the backend states for products.
    const double stated = flops > 0 ? info_.matmul_flops_per_s : copy_bytes_per_s_;
    std::printf("%-58s %9.1f us %8.1f %s %5.1f %%\n", what.c_str(), seconds * 1e6,
                rate / (flops > 0 ? 1e12 : 1e9), flops > 0 ? "TFLOP/s" : "GB/s   ", 100 * rate / stated);
  }

  BackendRegistry registry_{options()};
  const tsr_backend_api* api_ = nullptr;
  tsr_abi_device_info info_{};
  tsr_abi_device* device_ = nullptr;
  tsr_abi_stream* stream_ = nullptr;
  double copy_bytes_per_s_ = 1;
};

std::vector<Subject> subjects(DType dtype) {
  const auto of = [dtype](Shape shape) { return TensorType{dtype, std::move(shape)}; };
  const auto wide = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  return {
      {"add", {of({32768, 1024}), of({32768, 1024})}, {}, 0},
      {"gelu", {of({32768, 3072})}, {}, 0},
      {"swiglu", {of({16384, 4096}), of({16384, 4096})}, {}, 0},
      {"layer_norm", {of({32768, 768}), of({768}), of({768})}, {}, 0},
      {"rms_norm", {of({16384, 2048}), of({2048})}, {}, 0},
      {"softmax", {of({16384, 2048})}, {}, 0},
      {"row_max", {of({4096, 50304})}, {}, 0},
      {"row_sum_exp", {of({4096, 50304}), wide({4096})}, {}, 0},
      {"adamw_update",
       {of({8192, 4096}), of({8192, 4096}), wide({8192, 4096}), wide({8192, 4096}), wide({}), wide({})},
       {},
       0},
      {"transpose", {of({8192, 8192})}, {{"perm", std::vector<int64_t>{1, 0}}}, 0},
      {"matmul", {of({4096, 4096}), of({4096, 4096})}, {}, 2.0 * 4096 * 4096 * 4096},
      {"matmul", {of({1, 4096}), of({11008, 4096})}, {{"trans_w", int64_t{1}}}, 0},
      {"attention",
       {of({8, 1024, 12, 64}), of({8, 1024, 12, 64}), of({8, 1024, 12, 64})},
       {},
       2.0 * 8 * 12 * 1024 * 1024 * 64},
      {"attention",
       {of({4, 2048, 16, 128}), of({4, 2048, 16, 128}), of({4, 2048, 16, 128})},
       {},
       2.0 * 4 * 16 * 2048 * 2048 * 128},
      {"attention_grad",
       {of({4, 2048, 16, 128}), of({4, 2048, 16, 128}), of({4, 2048, 16, 128}), of({4, 2048, 16, 128}),
        of({4, 2048, 16, 128}), wide({4, 2048, 16})},
       {},
       5.0 * 4 * 16 * 2048 * 2048 * 128},
      {"attention_cached",
       {of({8, 1, 32, 128}), of({8, 2048, 8, 128}), of({8, 2048, 8, 128}), {DType::kI32, {8}}},
       {},
       0},
      {"sample",
       {of({1, 32000}),
        wide({}),
        {DType::kI32, {}},
        wide({}),
        {DType::kI64, {}},
        {DType::kI32, {1}},
        {DType::kI32, {1}}},
       {},
       0},
  };
}

int bench(std::string_view backend, std::string_view only) {
  Bench bench;
  const auto failed = [](const Status& status, std::string_view what) {
    std::fprintf(stderr, "%s: %s\n", std::string(what).c_str(), status.to_string().c_str());
    return 1;
  };
  if (const Status status = bench.open(backend); !status.ok()) return failed(status, backend);
  int failures = 0;
  if (const Status status = bench.copies(); !status.ok()) failures += failed(status, "copy");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Subject& subject : subjects(dtype))
      if (only.empty() || subject.op == only)
        if (const Status status = bench.run(subject); !status.ok()) failures += failed(status, subject.op);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::bench(argc > 1 ? argv[1] : tessera::test::test_backend(), argc > 2 ? argv[2] : "");
}
