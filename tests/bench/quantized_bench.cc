// Matmuls with block-quantized weights compared with the machine's peak rates: for each type bytes of W a
// second with 1 and 4 rows, as a share of what plain reads reach, and f32-equivalent rates with 512 rows, as a
// multiple of the packed f32 Gemm.
//   bench_quantized [--threads T] [--type q4_0] [--rows 512] [--k 4096]
// With one thread the clock is the thread's own, so that other programs count for less.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "tests/bench/ceilings.h"

namespace tessera::bench {
namespace {

constexpr DType kTypes[] = {DType::kQ8_0,   DType::kQ4_0,   DType::kQ4_1,  DType::kQ5_0,
                            DType::kQ5_1,   DType::kIQ4_NL, DType::kMXFP4, DType::kQ2_K,
                            DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K,
                            DType::kIQ4_XS, DType::kIQ3_S,  DType::kTQ2_0, DType::kNF4};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Array = std::unique_ptr<T, FreeMemory>;
template <class T>
Array<T> make_array(int64_t bytes) {
  return Array<T>(static_cast<T*>(std::aligned_alloc(64, static_cast<size_t>(bytes + 63) / 64 * 64)));
}

struct Settings {
  int threads = 1;
  std::string type;
  int64_t rows = 512, k = 4096;
};

// The best of several runs.
template <class Body>
double best_s(const Settings& settings, int rounds, const Body& body) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double wall = now_s(), own = thread_s();
    body();
    best = std::min(best, settings.threads == 1 ? thread_s() - own : now_s() - wall);
  }
  return best;
}

// Columns [0, N) in tasks; the first argument of `multiply` is the task's scratch.
template <class Multiply>
void on_ranges(const Settings& settings, int64_t N, int64_t grain, const Multiply& multiply) {
  const tsr_host_api host = host_with_threads(settings.threads);
  const cpu::Pool pool(host);
  pool.parallel_ranges(N, grain, [&](int64_t begin, int64_t end) {
    cpu::Scratch scratch(pool, cpu::block_product_scratch_bytes() / 4);
    multiply(scratch.floats(0), begin, end);
  });
}

struct Bench {
  Settings settings;
  int64_t N, K, most_rows;
  Array<std::byte> blocks, permuted, quantized;
  Array<float> x, y;
  double read_rate, gemm_rate;

  explicit Bench(const Settings& settings) : settings(settings), K(settings.k), most_rows(settings.rows) {
    N = (int64_t{384} << 20) / K / 48 * 48;  // far more than a cache holds, at 4 bits too
    blocks = make_array<std::byte>(dtype_bytes(DType::kQ8_0, N * K));
    permuted = make_array<std::byte>(dtype_bytes(DType::kQ8_0, N * K));
    quantized = make_array<std::byte>(most_rows * K * 4);
    x = make_array<float>(most_rows * K * 4);
    y = make_array<float>(most_rows * N * 4);
    uint32_t seed = 1;
    // Bytes that give no tiny or infinite scale, at whatever offset in the block a type stores it.
    for (int64_t i = 0; i < dtype_bytes(DType::kQ8_0, N * K); ++i)
      blocks.get()[i] = static_cast<std::byte>(0x20 + ((seed = seed * 1664525u + 1013904223u) >> 28));
    for (int64_t i = 0; i < most_rows * K; ++i)
      x.get()[i] = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
    std::memset(y.get(), 0, static_cast<size_t>(most_rows * N) * 4);
  }

  double gemm_flops_per_s(int64_t M, int64_t columns) {
    const cpu::Gemm gemm{.m = M, .n = columns, .k = K, .a_row = K, .b_row = 1, .b_col = K};
    const Array<float> w = make_array<float>(columns * K * 4);
    std::fill_n(w.get(), columns * K, 0.25f);
    const Array<std::byte> workspace = make_array<std::byte>(cpu::gemm_workspace_bytes(gemm) + 64);
    const tsr_host_api host = host_with_threads(settings.threads);
    const double seconds = best_s(settings, 5, [&] {
      cpu::run_gemm(gemm, {.a = x.get(), .b = w.get(), .c = y.get(), .workspace = workspace.get()},
                    cpu::Pool(host));
    });
    return 2.0 * static_cast<double>(M * columns) * static_cast<double>(K) / seconds;
  }

  // Seconds of y = x * W^T over `columns` rows of W.
  double q8_s(const cpu::BlockMatrix& w, int64_t M, int64_t columns) {
    cpu::quantize_rows(w.type, x.get(), M, K, quantized.get());
    return best_s(settings, M == most_rows ? 5 : 7, [&] {
      on_ranges(settings, columns, 192, [&](void* scratch, int64_t begin, int64_t end) {
        cpu::multiply_blocks_q8(w, quantized.get(), M, nullptr, y.get(), begin, end, scratch);
      });
    });
  }
  double f32_s(const cpu::BlockMatrix& w, int64_t M, int64_t columns) {
    return best_s(settings, 3, [&] {
      on_ranges(settings, columns, 192, [&](void* scratch, int64_t begin, int64_t end) {
        cpu::multiply_blocks_f32(w, x.get(), M, nullptr, y.get(), begin, end, scratch);
      });
    });
  }

  void run(DType type) {
    const int64_t lanes = cpu::interleaved_rows(), gemm_columns = std::min<int64_t>(N, 3072);
    const bool has_q8_kernel = has_integer_codes(type),
               slow = has_q8_kernel && !cpu::can_interleave_rows(type);
    const int64_t columns = slow ? 768 : N;
    cpu::BlockMatrix as_stored{.type = type, .N = N, .K = K, .data = blocks.get()}, interleaved = as_stored;
    if (has_q8_kernel && !slow) {
      cpu::interleave_rows(type, N, K, blocks.get(), permuted.get(), 0, N / lanes + 1);
      interleaved.data = permuted.get();
      interleaved.interleaved = true;
    }
    const double bytes = static_cast<double>(dtype_bytes(type, columns * K));
    const double flops = 2.0 * static_cast<double>(most_rows * gemm_columns) * static_cast<double>(K);
    std::printf("%-8s", std::string(info(type).name).c_str());
    for (const int64_t M : {1, 4})
      for (const cpu::BlockMatrix* w : {&as_stored, &interleaved}) {
        if (!has_q8_kernel) {
          std::printf(" %6s %4s ", "", "");
          continue;
        }
        const double rate = bytes / q8_s(*w, M, columns);
        std::printf(" %6.2f %4.0f%%", rate * 1e-9, 100 * rate / read_rate);
      }
    for (const cpu::BlockMatrix* w : {&as_stored, &interleaved}) {
      if (!has_q8_kernel) {
        std::printf(" %7s %5s ", "", "");
        continue;
      }
      const double rate = flops / q8_s(*w, most_rows, gemm_columns);
      std::printf(" %7.1f %5.2fx", rate * 1e-9, rate / gemm_rate);
    }
    const double one = bytes / f32_s(as_stored, 1, columns);
    const double all = flops / f32_s(as_stored, most_rows, gemm_columns);
    std::printf(" %6.2f %7.1f %5.2fx\n", one * 1e-9, all * 1e-9, all / gemm_rate);
    std::fflush(stdout);
  }
};

int run(const Settings& settings) {
  Bench bench(settings);
  const int64_t gemm_columns = std::min<int64_t>(bench.N, 3072);
  bench.read_rate = read_bytes_per_s(settings.threads);
  bench.gemm_rate = bench.gemm_flops_per_s(bench.most_rows, gemm_columns);
  std::printf(
      "W [%ld, %ld], %d thread(s). Reads %.1f GB/s; f32 multiply-adds %.1f GFLOP/s; int8 multiply-adds "
      "%.1f, int16 multiply-adds %.1f (as GFLOP/s); f32 Gemm, %ld rows: %.1f GFLOP/s\n",
      static_cast<long>(bench.N), static_cast<long>(bench.K), settings.threads, bench.read_rate * 1e-9,
      fma_flops_per_s() * 1e-9, 2e-9 * byte_macs_per_s(), 2e-9 * word_macs_per_s(),
      static_cast<long>(bench.most_rows), bench.gemm_rate * 1e-9);
  std::printf(
      "q8: GB/s of W, file and interleaved, 1 and 4 rows; then GFLOP/s at %ld rows. f32: GB/s, GFLOP/s\n",
      static_cast<long>(bench.most_rows));
  for (const DType type : kTypes)
    if (settings.type.empty() || settings.type == info(type).name) bench.run(type);
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  tessera::bench::Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--threads") settings.threads = std::atoi(argv[i + 1]);
    if (name == "--type") settings.type = argv[i + 1];
    if (name == "--rows") settings.rows = std::atol(argv[i + 1]);
    if (name == "--k") settings.k = std::atol(argv[i + 1]);
  }
  return tessera::bench::run(settings);
}
