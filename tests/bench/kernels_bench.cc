// Fast kernels against their reference at the shapes of a GPT-2 124M training step (B = 4, T = 128), one
// thread, the two alternating in one process. Counters: xReference = how many times the reference's speed,
// GBps = operand bytes a second (ceiling: the triad of bench_ceilings), GF where the kernel states its
// operations.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "tests/bench/ceilings.h"

namespace tessera::bench {
namespace {

struct Operand {
  std::vector<int64_t> dims;
  double low = -1, high = 1;
  DType dtype = DType::kF32;

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t dim : dims) n *= dim;
    return n;
  }
  int64_t bytes() const { return dtype_bytes(dtype, elements()); }
};

struct Attribute {
  std::string name;
  double number = 0;
  std::string text;
  bool integer = false;
};

struct Case {
  std::string label, op;
  std::vector<Operand> in, out;
  std::vector<Attribute> attrs;
  std::vector<std::pair<char, int64_t>> factors;    // whole
  std::vector<std::pair<size_t, size_t>> in_place;  // result, operand
};

// A prepared kernel with memory of its own.
struct Instance {
  cpu::PreparedKernel prepared;
  std::vector<std::vector<char>> memory;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace = nullptr;

  void* allocate(int64_t bytes) {
    memory.emplace_back(static_cast<size_t>(bytes) + 64);
    const auto at = reinterpret_cast<uintptr_t>(memory.back().data());
    return reinterpret_cast<void*>((at + 63) / 64 * 64);
  }
};

void fill(const Operand& operand, void* data, uint32_t seed) {
  for (int64_t i = 0; i < operand.elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const double value = operand.low + (operand.high - operand.low) * (seed >> 8) / 16777216.0;
    if (operand.dtype == DType::kI32) {
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(std::floor(value));
    } else {
      static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }
}

tsr_abi_tensor to_abi(const Operand& operand) {
  tsr_abi_tensor tensor = {};
  tensor.dtype = static_cast<int32_t>(operand.dtype);
  tensor.rank = static_cast<int32_t>(operand.dims.size());
  std::copy(operand.dims.begin(), operand.dims.end(), tensor.dims);
  return tensor;
}

Result<Instance> make_instance(const Case& c, cpu::PrepareFn prepare) {
  std::vector<tsr_abi_tensor> in, out;
  for (const Operand& operand : c.in) in.push_back(to_abi(operand));
  for (const Operand& operand : c.out) out.push_back(to_abi(operand));
  std::vector<tsr_abi_attr> attrs;
  for (const Attribute& attribute : c.attrs) {
    tsr_abi_attr attr = {};
    attr.name = attribute.name.c_str();
    attr.type = attribute.integer ? 0 : attribute.text.empty() ? 1 : 2;
    attr.i64 = static_cast<int64_t>(attribute.number);
    attr.f64 = attribute.number;
    attr.string = attribute.text.c_str();
    attrs.push_back(attr);
  }
  std::vector<tsr_abi_factor> factors;
  for (const auto& [name, extent] : c.factors) {
    tsr_abi_factor factor = {};
    factor.name = name;
    factor.range_count = 1;
    factor.global_extent = factor.end[0] = extent;
    factor.unit = 1;
    factors.push_back(factor);
  }
  tsr_abi_kernel_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.op = c.op.c_str();
  desc.op_version = 1;
  desc.attr_count = static_cast<int32_t>(attrs.size());
  desc.input_count = static_cast<int32_t>(in.size());
  desc.output_count = static_cast<int32_t>(out.size());
  desc.factor_count = static_cast<int32_t>(factors.size());
  desc.attrs = attrs.data();
  desc.inputs = in.data();
  desc.outputs = out.data();
  desc.factors = factors.data();
  Instance instance;
  TSR_ASSIGN_OR_RETURN(instance.prepared, prepare(KernelSpec(desc)));
  for (const Operand& operand : c.in) {
    void* data = instance.allocate(operand.bytes());
    fill(operand, data, static_cast<uint32_t>(instance.inputs.size()) + 1);
    instance.inputs.push_back(data);
  }
  for (const Operand& operand : c.out) instance.outputs.push_back(instance.allocate(operand.bytes()));
  for (const auto& [result, operand] : c.in_place)
    instance.outputs[result] = const_cast<void*>(instance.inputs[operand]);
  instance.workspace = instance.allocate(instance.prepared.workspace_bytes);
  return instance;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void run(benchmark::State& state, const Case& c) {
  cpu::PrepareFn fast = nullptr, reference = nullptr;
  for (const cpu::KernelEntry& entry : cpu::kernel_table()) {
    if (entry.op != c.op) continue;
    if (fast == nullptr) fast = entry.prepare;
    reference = entry.prepare;
  }
  if (fast == nullptr) return state.SkipWithError("no such op");
  auto ours = make_instance(c, fast), theirs = make_instance(c, reference);
  if (!ours.ok() || !theirs.ok())
    return state.SkipWithError((ours.ok() ? theirs : ours).status().to_string().c_str());
  const tsr_host_api host = host_with_threads(1);
  const auto timed = [&](const Instance& instance) {
    const double begin = thread_s();
    instance.prepared.kernel->launch(
        {instance.inputs.data(), instance.outputs.data(), instance.workspace, cpu::Pool(host)});
    return thread_s() - begin;
  };
  std::vector<double> fast_s, reference_s;
  for (auto _ : state) {
    fast_s.push_back(timed(*ours));
    state.SetIterationTime(fast_s.back());
    if (reference_s.size() < 5)
      reference_s.push_back(timed(*theirs));  // slow ones are not run a thousand times
  }
  double bytes = 0;
  for (const Operand& operand : c.in) bytes += static_cast<double>(operand.bytes());
  for (const Operand& operand : c.out) bytes += static_cast<double>(operand.bytes());
  state.counters["GBps"] = bytes / median(fast_s) * 1e-9;
  state.counters["GF"] = ours->prepared.flops / median(fast_s) * 1e-9;
  state.counters["xReference"] = median(reference_s) / median(fast_s);
}

std::vector<Case> cases() {
  constexpr int64_t R = 512, C = 768, F = 3072, V = 50257, P = 16 << 20;
  const Operand hidden{{R, C}, -2, 3}, wide{{R, F}, -4, 4}, channel{{C}}, row{{R}, 0.5, 1.5}, logits{{R, V}};
  const Operand labels{{R}, 0, V, DType::kI32}, weights{{P}}, moment{{P}, 0, 0.1}, scalar{{}, 0.01, 0.01};
  const Attribute eps{"eps", 1e-5, "", false}, tanh{"approximate", 0, "tanh", false};
  const auto causal = Attribute{"causal", 1, "", true};
  const auto scale = Attribute{"scale", 0, "", false}, softcap = Attribute{"softcap", 0, "", false};
  const auto window = Attribute{"window", 0, "", true};
  const auto heads = [](int64_t B, int64_t T, int64_t H) { return Operand{{B, T, H, 64}}; };
  return {
      {"add/512x768", "add", {hidden, hidden}, {hidden}, {}, {}, {}},
      {"add/16M", "add", {weights, weights}, {weights}, {}, {}, {}},
      {"gelu/512x3072", "gelu", {wide}, {wide}, {tanh}, {}, {}},
      {"gelu_grad/512x3072", "gelu_grad", {wide, wide}, {wide}, {tanh}, {}, {}},
      {"swiglu/512x3072", "swiglu", {wide, wide}, {wide}, {}, {}, {}},
      {"layer_norm/512x768", "layer_norm", {hidden, channel, channel}, {hidden, row, row}, {eps}, {}, {}},
      {"layer_norm_grad_input/512x768",
       "layer_norm_grad_input",
       {hidden, hidden, channel, row, row},
       {hidden},
       {},
       {},
       {}},
      {"layer_norm_grad_weight/512x768",
       "layer_norm_grad_weight",
       {hidden, hidden, row, row},
       {channel, channel},
       {},
       {},
       {}},
      {"rms_norm/512x768", "rms_norm", {hidden, channel}, {hidden, row}, {eps}, {}, {}},
      {"add_bias/512x3072", "add_bias", {wide, Operand{{F}}}, {wide}, {}, {}, {}},
      {"sum_leading/512x3072", "sum_leading", {wide}, {Operand{{F}}}, {}, {}, {}},
      {"attention/4x128x12x64",
       "attention",
       {heads(4, 128, 12), heads(4, 128, 12), heads(4, 128, 12)},
       {heads(4, 128, 12), Operand{{4, 128, 12}}},
       {causal, scale, softcap, window},
       {{'t', 128}, {'s', 128}},
       {}},
      {"attention/1x1024x12x64",
       "attention",
       {heads(1, 1024, 12), heads(1, 1024, 12), heads(1, 1024, 12)},
       {heads(1, 1024, 12), Operand{{1, 1024, 12}}},
       {causal, scale, softcap, window},
       {{'t', 1024}, {'s', 1024}},
       {}},
      {"attention_grad/4x128x12x64",
       "attention_grad",
       {heads(4, 128, 12), heads(4, 128, 12), heads(4, 128, 12), heads(4, 128, 12), heads(4, 128, 12),
        Operand{{4, 128, 12}, 5, 6}},
       {heads(4, 128, 12), heads(4, 128, 12), heads(4, 128, 12)},
       {causal, scale, softcap, window},
       {{'t', 128}, {'s', 128}},
       {}},
      {"attention_paged/1x1x12x64, 1000 of 1024 keys",
       "attention_paged",
       {heads(1, 1, 12), heads(16, 64, 12), heads(16, 64, 12), Operand{{1, 16}, 0, 15, DType::kI32},
        Operand{{1, 1}, 0, 0, DType::kI32}, Operand{{1, 1}, 1000, 1000, DType::kI32}},
       {heads(1, 1, 12)},
       {scale, softcap, window},
       {},
       {}},
      {"row_max/512x50257", "row_max", {logits}, {row}, {}, {}, {}},
      {"row_sum_exp/512x50257", "row_sum_exp", {logits, row}, {row}, {}, {}, {}},
      {"cross_entropy_grad/512x50257",
       "cross_entropy_grad",
       {logits, labels, row, row, row},
       {logits},
       {},
       {{'v', V}},
       {{0, 0}}},
      {"embedding_grad/512x768",
       "embedding_grad",
       {labels, hidden, Operand{{V, C}}},
       {Operand{{V, C}}},
       {},
       {{'v', V}},
       {}},
      {"sum_squares/16M", "sum_squares", {weights}, {scalar}, {}, {}, {}},
      {"adamw_update/16M",
       "adamw_update",
       {weights, weights, moment, moment, scalar, Operand{{}, 3, 3}},
       {weights, weights, weights},
       {{"beta1", 0.9, "", false},
        {"beta2", 0.999, "", false},
        {"eps", 1e-8, "", false},
        {"weight_decay", 0.01, "", false}},
       {},
       {{0, 0}, {1, 2}, {2, 3}}},
  };
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;
  for (const Case& c : cases())
    benchmark::RegisterBenchmark(c.label.c_str(), [c](benchmark::State& state) { run(state, c); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
