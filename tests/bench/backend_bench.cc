// Time of single kernels of a backend through the plugin ABI:
//   backend_bench cuda [OP] [--small]
// One line a kernel: microseconds, GB/s or TFLOP/s, and the share of the rate of a copy of 1 GiB, or of a
// bf16 product of 8192^3, that was measured before. Bytes are those that the op takes at least (OpCost).
// Launches are captured and replayed where the backend can, so that no issuing is in between, and go round as
// many sets of operands as no cache holds. --small: sizes for an emulator, whose times mean nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "graph/base/half.h"
#include "graph/base/text.h"
#include "runtime/entry_capture.h"
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
  double flops;               // 0: bound by memory
  int32_t indices_below = 0;  // integers are random below it; 0: see `fill`
};

// More than caches hold (50 MiB of an H100).
constexpr int64_t kUncachedBytes = int64_t{512} << 20;

class Bench {
 public:
  explicit Bench(bool small) : small_(small) {}

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
    const int64_t kBytes = int64_t{1} << (small_ ? 20 : 30);
    void *from = nullptr, *to = nullptr;
    TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, kBytes, 0, &from)));
    TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, kBytes, 0, &to)));
    TSR_RETURN_IF_ERROR(fill({DType::kF32, {kBytes / 4}}, from, 0));
    TSR_ASSIGN_OR_RETURN(const double seconds, time([&](int) {
                           return take_error(api_->copy(stream_, from, to, 1, kBytes, kBytes, kBytes));
                         }));
    copy_bytes_per_s_ = 2.0 * static_cast<double>(kBytes) / seconds;
    report("copy", seconds, 2.0 * static_cast<double>(kBytes), 0);
    api_->memory_free(device_, 0, from, kBytes);
    api_->memory_free(device_, 0, to, kBytes);
    return {};
  }

  // A launch that does next to nothing, behind another: what a kernel of a captured step takes at least.
  Status launches() { return run({"add", {{DType::kF32, {1}}, {DType::kF32, {1}}}, {}, 0}, "empty launch"); }

  Status run(const Subject& subject, const char* name = nullptr) {
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

    const OpCost cost = op->cost({attrs, subject.inputs, outputs, factors});
    std::vector<std::pair<void*, int64_t>> memory;
    const auto allocate = [&](int64_t size) -> Result<void*> {
      void* made = nullptr;
      TSR_RETURN_IF_ERROR(take_error(api_->memory_alloc(device_, 0, size, 0, &made)));
      memory.emplace_back(made, size);
      return made;
    };
    struct Operands {
      std::vector<const void*> in;
      std::vector<void*> out;
    };
    int64_t size = 0;
    for (const auto* types : {&subject.inputs, &outputs})
      for (const TensorType& type : *types) size += bytes(type);
    const int64_t most = small_ ? 2 : 64;
    std::vector<Operands> sets(
        static_cast<size_t>(std::clamp<int64_t>(kUncachedBytes / std::max<int64_t>(size, 1), 1, most)));
    for (Operands& set : sets) {
      for (const TensorType& type : subject.inputs) {
        TSR_ASSIGN_OR_RETURN(void* const made, allocate(bytes(type)));
        TSR_RETURN_IF_ERROR(fill(type, made, subject.indices_below));
        set.in.push_back(made);
      }
      for (const TensorType& type : outputs) {
        TSR_ASSIGN_OR_RETURN(void* const made, allocate(bytes(type)));
        set.out.push_back(made);
      }
    }
    TSR_ASSIGN_OR_RETURN(void* const workspace, allocate(info.workspace_bytes));
    TSR_ASSIGN_OR_RETURN(
        const double seconds, time([&](int turn) {
          const Operands& set = sets[static_cast<size_t>(turn) % sets.size()];
          return take_error(api_->kernel_launch(kernel, stream_, set.in.data(), set.out.data(), workspace));
        }));
    const TensorType& shown =
        subject.op == "quantized_matmul" || subject.op == "matmul" ? subject.inputs[1] : subject.inputs[0];
    const double rate = report(
        name != nullptr ? name : format("{} ({}) {}", subject.op, std::string(info.variant), to_text(shown)),
        seconds, cost.bytes_read + cost.bytes_written, subject.flops);
    // The first of 16-bit floats is the largest.
    if (subject.op == "matmul" && subject.flops > 0 && product_flops_per_s_ == 0 &&
        subject.inputs[0].dtype == DType::kBF16)
      product_flops_per_s_ = rate;
    api_->kernel_destroy(kernel);
    for (const auto& [at, taken] : memory) api_->memory_free(device_, 0, at, taken);
    return {};
  }

 private:
  static RegistryOptions options() {
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry};
    options.plugin_path = test::plugin_folder();
    return options;
  }

  // Values in -1 to 1, in a pattern that repeats: zeros run faster than data. Of blocks the scale that is first, and
  // codes. Integers of 32 bits are random
  // below `indices_below`; for 0 they are 0, but one-dimensional ones the last position of a cache of 2048.
  Status fill(const TensorType& type, void* to, int32_t indices_below) {
    constexpr int64_t kPattern = 1 << 20;
    const int64_t element = info(type.dtype).block_bytes, total = bytes(type);
    std::vector<std::byte> pattern(static_cast<size_t>(std::min(total, kPattern * element)));
    uint32_t state = 1;
    for (size_t at = 0; at + static_cast<size_t>(element) <= pattern.size();
         at += static_cast<size_t>(element)) {
      state = state * 1664525 + 1013904223;
      const float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      const int32_t index = indices_below > 0
                                ? static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(indices_below))
                            : type.shape.rank() == 1 && !small_ ? 2047
                                                                : 0;
      const uint16_t half = f16_from_f32(value);
      switch (type.dtype) {
        case DType::kF32: std::memcpy(&pattern[at], &bits, 4); break;
        case DType::kBF16: std::memcpy(&pattern[at], reinterpret_cast<const std::byte*>(&bits) + 2, 2); break;
        case DType::kF16: std::memcpy(&pattern[at], &half, 2); break;
        case DType::kI32: std::memcpy(&pattern[at], &index, 4); break;
        default:
          if (!is_block_type(type.dtype)) break;
          for (size_t i = 0; i < static_cast<size_t>(element); ++i)
            pattern[at + i] = static_cast<std::byte>(state >> (i % 4 * 8));
          std::memcpy(&pattern[at], &half, 2);
      }
    }
    for (int64_t at = 0; at < total; at += static_cast<int64_t>(pattern.size())) {
      const int64_t size = std::min(total - at, static_cast<int64_t>(pattern.size()));
      const void* const from = at == 0 ? pattern.data() : to;  // within the device after the first
      TSR_RETURN_IF_ERROR(
          take_error(api_->copy(stream_, from, static_cast<std::byte*>(to) + at, 1, size, size, size)));
    }
    return take_error(api_->stream_synchronize(stream_));
  }

  // Seconds of one launch: as many as fill 20 ms, the median of five times, after a few to warm up.
  // `launch(turn)`.
  template <class Launch>
  Result<double> time(Launch&& launch) {
    const auto issue = [&](int count) -> Status {
      for (int i = 0; i < count; ++i) TSR_RETURN_IF_ERROR(launch(i));
      return {};
    };
    const auto seconds_of = [&](auto&& work, int count) -> Result<double> {
      const auto begin = std::chrono::steady_clock::now();
      TSR_RETURN_IF_ERROR(work());
      TSR_RETURN_IF_ERROR(take_error(api_->stream_synchronize(stream_)));
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
    };
    TSR_RETURN_IF_ERROR(seconds_of([&] { return issue(3); }, 3).status());
    TSR_ASSIGN_OR_RETURN(const double rough, seconds_of([&] { return issue(3); }, 3));
    const int count = std::clamp(static_cast<int>((small_ ? 1e-3 : 0.02) / std::max(rough, 1e-7)), 1, 2000);
    EntryGraph graph;
    graph.allow(*api_, device_);
    graph.count_run();
    tsr_abi_stream* const streams[] = {stream_};
    if (graph.wants_capture()) (void)graph.capture(streams, [&] { return issue(count); });
    const auto once = [&] { return graph.is_captured() ? graph.launch(stream_) : issue(count); };
    std::vector<double> seconds;
    for (int i = 0; i < (small_ ? 2 : 6); ++i) {
      TSR_ASSIGN_OR_RETURN(const double each, seconds_of(once, count));
      if (i > 0) seconds.push_back(each);
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }

  double report(const std::string& what, double seconds, double moved, double flops) const {
    const double rate = flops > 0 ? flops / seconds : moved / seconds;
    // A measured rate; else the backend's nominal rate of products.
    const double best = flops == 0                 ? copy_bytes_per_s_
                        : product_flops_per_s_ > 0 ? product_flops_per_s_
                                                   : info_.matmul_flops_per_s;
    std::printf("%-58s %9.1f us %8.1f %s %5.1f %%\n", what.c_str(), seconds * 1e6,
                rate / (flops > 0 ? 1e12 : 1e9), flops > 0 ? "TFLOP/s" : "GB/s   ", 100 * rate / best);
    std::fflush(stdout);
    return rate;
  }

  const bool small_;

  BackendRegistry registry_{options()};
  const tsr_backend_api* api_ = nullptr;
  tsr_abi_device_info info_{};
  tsr_abi_device* device_ = nullptr;
  tsr_abi_stream* stream_ = nullptr;
  double copy_bytes_per_s_ = 1, product_flops_per_s_ = 0;
};

std::vector<Subject> subjects(DType dtype, bool small) {
  const auto n = [small](int64_t extent) { return small ? std::max<int64_t>(extent / 512, 1) : extent; };
  const auto of = [dtype](Shape shape) { return TensorType{dtype, std::move(shape)}; };
  const auto wide = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  const auto ids = [](Shape shape) { return TensorType{DType::kI32, std::move(shape)}; };
  const int64_t rows = n(32768), many = n(16384), big = n(8192), seq = n(2048);
  // Rows of weights in groups of 32 or 64.
  const int64_t side = small ? 64 : 4096, outer = small ? 96 : 14336;
  const auto vocabulary = static_cast<int32_t>(n(50304));
  const auto product = [&](int64_t extent) {
    const auto e = static_cast<double>(extent);
    return Subject{"matmul", {of({extent, extent}), of({extent, extent})}, {}, 2 * e * e * e};
  };
  const auto attention = [&](int64_t b, int64_t t, int64_t h, int64_t d) {
    const TensorType x = of({b, t, h, d});
    // Causal: half of the two products.
    return Subject{"attention", {x, x, x}, {}, 2.0 * static_cast<double>(b * h * t * t * d)};
  };
  std::vector<Subject> all = {
      product(big),
      product(side),
      {"add", {of({rows, 2048}), of({rows, 2048})}, {}, 0},
      {"add_bias", {of({rows, 3072}), of({3072})}, {}, 0},
      {"gelu", {of({rows, 3072})}, {}, 0},
      {"gelu_grad", {of({rows, 3072}), of({rows, 3072})}, {}, 0},
      {"swiglu", {of({many, 5632}), of({many, 5632})}, {}, 0},
      {"swiglu_grad", {of({many, 5632}), of({many, 5632}), of({many, 5632})}, {}, 0},
      {"layer_norm", {of({rows, 768}), of({768}), of({768})}, {}, 0},
      {"layer_norm_grad_input",
       {of({rows, 768}), of({rows, 768}), of({768}), wide({rows}), wide({rows})},
       {},
       0},
      {"layer_norm_grad_weight", {of({rows, 768}), of({rows, 768}), wide({rows}), wide({rows})}, {}, 0},
      {"layer_norm_grad",
       {of({rows, 768}), of({rows, 768}), of({768}), wide({rows}), wide({rows}), of({rows, 768})},
       {},
       0},
      {"rms_norm", {of({many, 2048}), of({2048})}, {}, 0},
      {"add_rms_norm", {of({many, 2048}), of({many, 2048}), of({2048})}, {}, 0},
      {"rms_norm_grad_input", {of({many, 2048}), of({many, 2048}), of({2048}), wide({many})}, {}, 0},
      {"rms_norm_grad_weight", {of({many, 2048}), of({many, 2048}), wide({many})}, {}, 0},
      {"rms_norm_grad",
       {of({many, 2048}), of({many, 2048}), of({2048}), wide({many}), of({many, 2048})},
       {},
       0},
      {"rope", {of({8, seq, 32, 64}), ids({8, seq})}, {}, 0, static_cast<int32_t>(seq)},
      {"sum_leading", {of({rows, 3072})}, {}, 0},
      {"softmax", {of({many, 2048})}, {}, 0},
      {"softmax_grad", {of({many, 2048}), of({many, 2048})}, {}, 0},
      {"row_max", {of({side, vocabulary})}, {}, 0},
      {"row_sum_exp", {of({side, vocabulary}), wide({side})}, {}, 0},
      {"embedding", {of({vocabulary, 768}), ids({rows})}, {}, 0, vocabulary},
      {"embedding_grad", {ids({rows}), of({rows, 768}), of({vocabulary, 768})}, {}, 0, vocabulary},
      {"linear_cross_entropy_grad",
       {of({big, 768}), of({vocabulary, 768}), ids({big}), wide({}), wide({})},
       {},
       6.0 * static_cast<double>(big) * vocabulary * 768,
       vocabulary},
      {"adamw_update",
       {wide({big, 4096}), wide({big, 4096}), wide({big, 4096}), wide({big, 4096}), wide({}), wide({})},
       {},
       0},
      {"sum_squares", {of({big, 8192})}, {}, 0},
      {"cast", {of({big, 8192})}, {{"dtype", std::string(dtype == DType::kF32 ? "bf16" : "f32")}}, 0},
      {"transpose", {of({big, big})}, {{"perm", std::vector<int64_t>{1, 0}}}, 0},
      {"matmul", {of({1, side}), of({outer, side})}, {{"trans_w", int64_t{1}}}, 0},
      attention(8, n(1024), 12, 64),
      attention(4, seq, 16, 128),
      attention(2, n(1024), 8, 512),
      {"attention_grad",
       {of({4, seq, 16, 128}), of({4, seq, 16, 128}), of({4, seq, 16, 128}), of({4, seq, 16, 128}),
        of({4, seq, 16, 128}), wide({4, seq, 16})},
       {},
       5.0 * 4 * 16 * static_cast<double>(seq * seq) * 128},
      {"attention_paged",
       {of({1, 8, 32, 128}), of({seq / 8, 64, 8, 128}), of({seq / 8, 64, 8, 128}), ids({8, seq / 64}),
        ids({1, 8}), ids({1, 8})},
       {},
       0},
  };
  // A head of 128 by 128: a prompt, its gradient, one token of a server's step; its convolution.
  const int64_t prompt = n(512);
  const TensorType heads = of({1, prompt, 16, 128}), factors = wide({1, prompt, 16}), heads_wide = wide({1, prompt, 16, 128});
  const TensorType token = of({1, 1, 16, 128}), factor = wide({1, 1, 16});
  const double updates = 16.0 * 128 * 128 * static_cast<double>(prompt);  // of numbers of states
  all.push_back({"state_scan", {heads, heads, heads, factors, factors}, {}, 7 * updates});
  all.push_back({"state_scan_grad", {heads, heads, heads, heads, factors, factors}, {}, 29 * updates});
  const std::vector<Attr> general = {{"rule", std::string("general")}};
  all.push_back({"state_scan", {heads, heads, heads, heads_wide, heads, heads}, general, 9 * updates});
  all.push_back({"state_scan_grad", {heads, heads, heads, heads, heads_wide, heads, heads}, general, 39 * updates});
  all.push_back({"state_scan_rows",
                 {wide({2, 16, 128, 128}), token, token, token, factor, factor, ids({1, 1}), ids({1, 1})},
                 {},
                 0,
                 2});
  const TensorType channels = of({1, prompt, 4096}), steps = wide({1, prompt, 4096}), rates = wide({4096, 16});
  const TensorType numbers = of({1, prompt, 16});
  const double selective = 14.0 * 4096 * 16 * static_cast<double>(prompt);
  all.push_back({"selective_scan", {channels, steps, rates, numbers, numbers}, {}, selective});
  all.push_back({"selective_scan_grad", {channels, channels, steps, rates, numbers, numbers}, {}, 3 * selective});
  all.push_back({"selective_scan", {channels, steps}, {{"expand", int64_t{0}}}, 0});
  all.push_back({"causal_conv", {of({1, prompt, 6144}), of({6144, 4})}, {{"activation", std::string("silu")}}, 0});
  // At a temperature of 0.47, as `fill` has it: the head of probability 0.47, of all tokens and of 65.
  for (const auto& [tokens, top_k_below] : {std::pair(n(152064), 0), std::pair(n(32000), 100)})
    all.push_back({"sample",
                   {of({1, tokens}), wide({}), ids({}), wide({}), {DType::kI64, {}}, ids({1}), ids({1})},
                   {},
                   0,
                   top_k_below});
  // Weights in fewer bits, as decoding reads them.
  for (const auto& [out, in] : {std::pair(outer, side), std::pair(side, outer)}) {
    all.push_back({"quantized_matmul", {of({1, in}), {DType::kBF16, {out, in}}}, {}, 0});
    for (const DType type : {DType::kQ8_0, DType::kQ4_0})
      all.push_back({"quantized_matmul", {of({1, in}), {type, {out, in}}}, {}, 0});
  }
  return all;
}

int bench(std::string_view backend, std::string_view only, bool small) {
  Bench bench(small);
  const auto failed = [](const Status& status, std::string_view what) {
    std::fprintf(stderr, "%s: %s\n", std::string(what).c_str(), status.to_string().c_str());
    return 1;
  };
  if (const Status status = bench.open(backend); !status.ok()) return failed(status, backend);
  int failures = 0;
  if (const Status status = bench.copies(); !status.ok()) failures += failed(status, "copy");
  if (const Status status = bench.launches(); !status.ok()) failures += failed(status, "launch");
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const Subject& subject : subjects(dtype, small))
      if (only.empty() || subject.op == only)
        if (const Status status = bench.run(subject); !status.ok()) failures += failed(status, subject.op);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  std::string backend = tessera::test::test_backend(), only;
  bool small = false;
  int words = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--small")
      small = true;
    else
      (words++ == 0 ? backend : only) = argv[i];
  }
  return tessera::bench(backend, only, small);
}
