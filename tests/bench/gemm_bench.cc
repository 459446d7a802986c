// The packed matmul against OpenBLAS (serial) and oneDNN, one thread, alternating in one process: what counts
// are the ratios. Counters: GF = ours, xOpenBLAS and xOneDNN = how many times their speed, peak = share of
// the multiply-adds that registers alone allow. For m <= 8 GBps says how fast the weights pass.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "tests/bench/ceilings.h"

#ifdef TSR_WITH_OPENBLAS
#include <cblas.h>
#endif
#ifdef TSR_WITH_ONEDNN
#include <dnnl.h>
#endif

namespace tessera::bench {
namespace {

enum class Layout { kPlain, kTransposedB, kTransposedA };

struct Case {
  int64_t m, n, k;
};
constexpr Case kCases[] = {{256, 256, 256},   {1024, 1024, 1024}, {2048, 2048, 2048}, {512, 3072, 768},
                           {512, 768, 3072},  {512, 2304, 768},   {512, 768, 768},    {128, 3072, 768},
                           {64, 128, 128},    {32, 3072, 768},    {16, 3072, 768},    {8, 3072, 768},
                           {4, 3072, 768},    {1, 3072, 768},     {1, 50257, 768},    {512, 50257, 768},
                           {512, 768, 50257}, {50257, 768, 512},  {4096, 16, 1024},   {4096, 1024, 16},
                           {1024, 16, 4096},  {16, 1024, 4096},   {4096, 64, 1024},   {64, 1024, 4096}};

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) / 16777216.0f - 0.5f;
  }
  return values;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void product(benchmark::State& state, Case size, Layout layout) {
  cpu::Gemm gemm{.m = size.m, .n = size.n, .k = size.k, .a_row = size.k, .b_row = size.n};
  if (layout == Layout::kTransposedB) gemm.b_row = 1, gemm.b_col = size.k;
  if (layout == Layout::kTransposedA) gemm.a_row = 1, gemm.a_col = size.m;
  const std::vector<float> a = random_floats(size.m * size.k, 1), b = random_floats(size.k * size.n, 2);
  std::vector<float> c(static_cast<size_t>(size.m * size.n)), peer_c = c;
  std::vector<char> memory(static_cast<size_t>(cpu::gemm_workspace_bytes(gemm) + 64));
  void* workspace = memory.data();
  size_t space = memory.size();
  std::align(64, memory.size() - 64, workspace, space);
  const tsr_host_api host = host_with_threads(1);
  const double flops =
      2.0 * static_cast<double>(size.m) * static_cast<double>(size.n) * static_cast<double>(size.k);
  const int repeats = static_cast<int>(std::max(1.0, 1e8 / flops));
  const auto timed = [&](const auto& body) {
    const double begin = thread_s();
    for (int i = 0; i < repeats; ++i) body();
    return (thread_s() - begin) / repeats;
  };
  std::vector<double> ours, openblas, onednn;
  for (auto _ : state) {
    ours.push_back(timed([&] {
      cpu::run_gemm(gemm, {.a = a.data(), .b = b.data(), .c = c.data(), .workspace = workspace},
                    cpu::Pool(host));
    }));
    state.SetIterationTime(ours.back());
#ifdef TSR_WITH_OPENBLAS
    openblas.push_back(timed([&] {
      cblas_sgemm(CblasRowMajor, layout == Layout::kTransposedA ? CblasTrans : CblasNoTrans,
                  layout == Layout::kTransposedB ? CblasTrans : CblasNoTrans, static_cast<int>(size.m),
                  static_cast<int>(size.n), static_cast<int>(size.k), 1, a.data(),
                  static_cast<int>(gemm.a_row * gemm.a_col), b.data(),
                  static_cast<int>(gemm.b_row * gemm.b_col), 0, peer_c.data(), static_cast<int>(size.n));
    }));
#endif
#ifdef TSR_WITH_ONEDNN
    onednn.push_back(timed([&] {
      dnnl_sgemm(layout == Layout::kTransposedA ? 'T' : 'N', layout == Layout::kTransposedB ? 'T' : 'N',
                 size.m, size.n, size.k, 1, a.data(), gemm.a_row * gemm.a_col, b.data(),
                 gemm.b_row * gemm.b_col, 0, peer_c.data(), size.n);
    }));
#endif
  }
  static const double peak = fma_flops_per_s();
  state.counters["GF"] = flops / median(ours) * 1e-9;
  state.counters["peak"] = flops / median(ours) / peak;
  if (!openblas.empty()) state.counters["xOpenBLAS"] = median(openblas) / median(ours);
  if (!onednn.empty()) state.counters["xOneDNN"] = median(onednn) / median(ours);
  if (size.m <= 8) state.counters["GBps"] = 4e-9 * static_cast<double>(size.n * size.k) / median(ours);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;
  // oneDNN's threads come from an OpenMP that reads its environment before main.
  if (const char* threads = std::getenv("OMP_NUM_THREADS");
      threads == nullptr || std::strcmp(threads, "1") != 0) {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
  }
  for (const Case& size : kCases) {
    for (const auto& [layout, name] :
         {std::pair{Layout::kPlain, "nn"}, {Layout::kTransposedB, "nt"}, {Layout::kTransposedA, "tn"}}) {
      if (layout == Layout::kTransposedA && size.m < 64) continue;
      const std::string label = "gemm/" + std::to_string(size.m) + "x" + std::to_string(size.n) + "x" +
                                std::to_string(size.k) + "/" + name;
      benchmark::RegisterBenchmark(
          label.c_str(),
          [size = size, layout = layout](benchmark::State& state) { product(state, size, layout); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
