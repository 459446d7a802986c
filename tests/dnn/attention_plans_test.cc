// cuDNN takes the graphs of attention: it finds engines for devices that are only described here, compiles
// them, and says what they work in. Nothing is launched. Without the library nothing is checked.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "graph/base/text.h"
#include "runtime/backends/cuda/kernels/attention_dnn_graph.h"
#include "runtime/backends/cuda/kernels/dnn_plan.h"
#include "tests/skip.h"

namespace tessera::cuda {
namespace {

// The library, where it is, with a driver that has no device; null where there is none.
const Dnn* library() {
  static const Dnn* const loaded = []() -> const Dnn* {
    if (dlopen(TSR_TEST_DRIVER, RTLD_NOW | RTLD_LOCAL) == nullptr) {
      MESSAGE(dlerror());
      return nullptr;
    }
    const Result<const Dnn*> found = dnn();
    if (!found.ok()) MESSAGE(found.status().to_string());
    return found.ok() ? *found : nullptr;
  }();
  if (loaded == nullptr) test::skip("no usable cuDNN on this machine");
  return loaded;
}

struct Described {
  const char* name;
  int version, multiprocessors, shared_bytes, blocks, threads;
};
constexpr Described kH100{"H100", 900, 132, 232448, 32, 2048}, kA100{"A100", 800, 108, 166912, 32, 2048},
    kL40S{"L40S", 890, 142, 101376, 24, 1536}, kB200{"B200", 1000, 148, 232448, 32, 2048};

Result<DnnDescriptor> describe(const Dnn& dnn, const Described& d) {
  const std::string json = format(
      R"({"deviceName":"{}","deviceVer":{},"multiProcessorCount":{},"maxSharedMemoryPerBlockOptin":{},)"
      R"("maxCtasPerSM":{},"maxThreadsPerSM":{},"maxSharedMemoryPerBlock":49152,)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"regsPerBlock":65536,)"
      R"("maxThreadsPerBlock":1024,"warpSize":32,"totalGlobalMem":42949672960,"l2CacheSize":52428800,)"
      R"("smClockRateKHz":1500000,"memClockRateKHz":1500000,"maxGridSize":[2147483647,65535,65535],)"
      R"("maxBlockSize":[1024,1024,64],"supportCoopLaunch":1,"isTccDriver":0,"pciDeviceId":0,)"
      R"("cudaDeviceId":0,"driverVer":13000})",
      d.name, d.version, d.multiprocessors, d.shared_bytes, d.blocks, d.threads);
  DnnDescriptor properties(dnn);
  TSR_RETURN_IF_ERROR(properties.create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
  TSR_RETURN_IF_ERROR(properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     static_cast<int64_t>(json.size()), json.data()));
  TSR_RETURN_IF_ERROR(properties.finalize("describe a device"));
  return properties;
}

// Without their direction.
constexpr DnnAttention kGpt2{DType::kBF16, 8, 1024, 12, 1024, 12, 64, true, false};
constexpr DnnAttention kLlama{DType::kBF16, 2, 2048, 32, 2048, 8, 128, true, false};
constexpr DnnAttention kEncoder{DType::kF16, 4, 512, 16, 512, 16, 64, false, false};
constexpr DnnAttention kOdd{DType::kF16, 3, 77, 6, 301, 2, 40, false, false};
constexpr DnnAttention kOddCausal{DType::kBF16, 1, 1000, 5, 1000, 1, 96, true, false};
constexpr DnnAttention kTiny{DType::kBF16, 1, 2, 1, 2, 1, 8, true, false};
constexpr DnnAttention kWide{DType::kBF16, 2, 512, 4, 512, 2, 256, true, false};

std::string text(const Described& d, const DnnAttention& n) {
  return format("{}: {}{} [{}, {}, {}, {}] over [{}, {}]", d.name, n.causal ? "causal " : "",
                n.is_gradient ? "gradient" : "forward", n.B, n.T, n.H, n.D, n.S, n.KV);
}

void check_plans(const Described& device, bool is_gradient, std::initializer_list<DnnAttention> shapes) {
  const Dnn* const dnn = library();
  if (dnn == nullptr) return;
  const auto properties = describe(*dnn, device);
  REQUIRE_MESSAGE(properties.ok(), properties.status().to_string());
  const DnnDevice target{nullptr, &*properties};
  for (DnnAttention n : shapes) {
    n.is_gradient = is_gradient;
    const std::string where = text(device, n);
    auto plan = DnnPlan::propose(target, attention_dnn_graph(*dnn, n));
    CHECK_MESSAGE(plan.ok(), where << ": " << plan.status().to_string());
    if (!plan.ok()) continue;
    const Status compiled = plan->compile();
    CHECK_MESSAGE(compiled.ok(), where << ": " << compiled.to_string());
    std::printf("%-60s %-16s %10lld bytes\n", where.c_str(), plan->engine().text().c_str(),
                static_cast<long long>(plan->workspace_bytes()));
    // The gradient's scores lie in memory, or sums have no order; and nothing else that grows like that does.
    const auto padded = [](int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; };
    const int64_t scores = 2 * n.B * n.H * n.T * n.S;
    const int64_t most = 2 * n.B * n.H * padded(n.T, 128) * padded(n.S, 128) +
                         16 * n.B * n.H * (padded(n.T, 128) + padded(n.S, 128)) * n.D + (int64_t{1} << 16);
    if (is_gradient) {
      CHECK_MESSAGE(plan->workspace_bytes() >= scores, where);
      CHECK_MESSAGE(plan->workspace_bytes() <= most, where);
    } else {
      CHECK_MESSAGE(plan->workspace_bytes() <= (int64_t{1} << 16) + 8 * n.B * n.H * n.T * n.D, where);
    }
    // The check before first use takes the same engine for two sequences and fewer heads.
    DnnAttention small = n;
    small.B = std::min<int64_t>(n.B, 2);
    small.KV = std::min<int64_t>(n.KV, 2);
    small.H = small.KV * (n.H / n.KV);
    small.T = std::min<int64_t>(n.T, 256 + n.T % 128);
    small.S = std::min<int64_t>(n.S, 256 + n.S % 128);
    auto again = DnnPlan::with_engine(target, attention_dnn_graph(*dnn, small), plan->engine());
    CHECK_MESSAGE(again.ok(), where << ": " << again.status().to_string());
    if (!again.ok()) continue;
    CHECK(again->engine() == plan->engine());
    if (n.B != 8) continue;  // compiling takes its time: once a device and direction
    const Status small_compiled = again->compile();
    CHECK_MESSAGE(small_compiled.ok(), where << ": " << small_compiled.to_string());
  }
}

TEST_CASE("cudnn_has_plans_for_attention_on_devices_that_are_described") {
  check_plans(kH100, false, {kGpt2, kLlama, kEncoder, kOdd, kOddCausal, kTiny, kWide});
  check_plans(kA100, false, {kGpt2, kLlama, kEncoder, kOdd, kOddCausal, kTiny, kWide});
  check_plans(kL40S, false, {kGpt2, kLlama, kOddCausal});
  check_plans(kB200, false, {kGpt2, kLlama, kOddCausal});
}

TEST_CASE("cudnn_has_plans_for_the_gradient_of_attention_that_sums_in_one_order") {
  check_plans(kH100, true, {kGpt2, kLlama, kEncoder, kOdd, kOddCausal, kTiny, kWide});
  check_plans(kA100, true, {kGpt2, kLlama, kEncoder, kOdd, kOddCausal, kTiny});
  check_plans(kL40S, true, {kGpt2, kLlama, kOddCausal});
}

TEST_CASE("what_cudnn_refuses_is_an_error_with_its_own_words") {
  const Dnn* const dnn = library();
  if (dnn == nullptr) return;
  const auto properties = describe(*dnn, kH100);
  REQUIRE(properties.ok());
  const DnnDevice target{nullptr, &*properties};
  // Heads of 12 are no multiple of 8.
  DnnAttention odd = kGpt2;
  odd.D = 12;
  const auto none = DnnPlan::propose(target, attention_dnn_graph(*dnn, odd));
  REQUIRE(!none.ok());
  CHECK(none.status().code() == StatusCode::kUnsupported);
  CHECK(none.status().message().find("cuDNN") != std::string::npos);
  // A product of extents that do not fit.
  DnnGraph graph(*dnn);
  const DnnTensor a = graph.operand(1, CUDNN_DATA_HALF, packed({1, 1, 16, 32})),
                  b = graph.operand(2, CUDNN_DATA_HALF, packed({1, 1, 48, 16}));
  graph.multiply(a, b, graph.operand(3, CUDNN_DATA_HALF, packed({1, 1, 16, 16})));
  const auto bad = DnnPlan::propose(target, std::move(graph));
  REQUIRE(!bad.ok());
  CHECK(bad.status().code() == StatusCode::kUnsupported);
  // An engine that does not exist.
  const auto unknown = DnnPlan::with_engine(target, attention_dnn_graph(*dnn, kGpt2), {12345, {}});
  REQUIRE(!unknown.ok());
  CHECK(unknown.status().code() == StatusCode::kUnsupported);
}

}  // namespace
}  // namespace tessera::cuda
