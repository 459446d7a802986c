#include "tests/bench/ceilings.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/ceilings.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight independent chains a vector port and latency need; twelve leave room in 16 registers. Returns flops
// done.
double multiply_adds(int64_t rounds, float seed, float* sink) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kChains = 12;
  V sums[kChains];
  const V factor = hn::Set(d, 1 + seed * 1e-9f), term = hn::Set(d, seed);
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, seed + static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], factor, term);
  }
  V total = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) total = hn::Add(total, sums[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, total));
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

void triad(float* a, const float* b, const float* c, int64_t count) {
  const hn::CappedTag<float, 16> d;
  const auto factor = hn::Set(d, 3.0f);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + lanes <= count; i += lanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(d, c + i), factor, hn::LoadU(d, b + i)), d, a + i);
}

// Four sums, so that loads alone limit. Returns something that depends on every byte.
uint64_t read_all(const float* a, int64_t count) {
  const hn::CappedTag<uint64_t, 8> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* p = reinterpret_cast<const uint64_t*>(a);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i + 4 * lanes <= count / 2; i += 4 * lanes) {
    s0 = hn::Xor(s0, hn::LoadU(d, p + i));
    s1 = hn::Xor(s1, hn::LoadU(d, p + i + lanes));
    s2 = hn::Xor(s2, hn::LoadU(d, p + i + 2 * lanes));
    s3 = hn::Xor(s3, hn::LoadU(d, p + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(s0, s1), hn::Xor(s2, s3))));
}

#if HWY_TARGET == HWY_AVX2
using Integers = __m256i;
Integers zero_integers() { return _mm256_setzero_si256(); }
Integers set_words(int16_t v) { return _mm256_set1_epi16(v); }
Integers multiply_bytes(Integers w, Integers x) { return _mm256_maddubs_epi16(w, x); }
Integers multiply_words(Integers w, Integers x) { return _mm256_madd_epi16(w, x); }
Integers add_words(Integers a, Integers b) { return _mm256_add_epi16(a, b); }
Integers add_integers(Integers a, Integers b) { return _mm256_add_epi32(a, b); }
int32_t first_integer(Integers v) { return _mm256_extract_epi32(v, 0); }
bool has_dot() { return __builtin_cpu_supports("avxvnni"); }
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
using Integers = __m512i;
Integers zero_integers() { return _mm512_setzero_si512(); }
Integers set_words(int16_t v) { return _mm512_set1_epi16(v); }
Integers multiply_bytes(Integers w, Integers x) { return _mm512_maddubs_epi16(w, x); }
Integers multiply_words(Integers w, Integers x) { return _mm512_madd_epi16(w, x); }
Integers add_words(Integers a, Integers b) { return _mm512_add_epi16(a, b); }
Integers add_integers(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
int32_t first_integer(Integers v) { return _mm_cvtsi128_si32(_mm512_castsi512_si128(v)); }
bool has_dot() { return __builtin_cpu_supports("avx512vnni"); }
#endif

enum class Product { kBytes, kWords, kDot };

// One instruction that multiplies, and adds pairs or, with VNNI, fours; 0 where there is none.
template <Product kProduct>
double integer_multiply_adds(int64_t rounds, int16_t seed, int32_t* sink) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  constexpr int kChains = 12;
  const Integers w = set_words(static_cast<int16_t>(seed & 0x0f0f)), x = set_words(seed);
  Integers sums[kChains];
  if (kProduct == Product::kDot && !has_dot()) return 0;
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = zero_integers();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      if constexpr (kProduct == Product::kDot) {
#if HWY_TARGET == HWY_AVX2
        asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums[i]) : "x"(w), "x"(x));
#else
        asm volatile("vpdpbusd %2, %1, %0" : "+v"(sums[i]) : "v"(w), "v"(x));
#endif
      } else {
        Integers product = kProduct == Product::kBytes ? multiply_bytes(w, x) : multiply_words(w, x);
        asm volatile("" : "+x"(product));  // or it would leave the loop
        sums[i] = kProduct == Product::kBytes ? add_words(sums[i], product) : add_integers(sums[i], product);
      }
    }
  }
  Integers total = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) total = add_integers(total, sums[i]);
  *sink = first_integer(total);
  return kChains * static_cast<double>(sizeof(Integers)) / (kProduct == Product::kWords ? 2 : 1) *
         static_cast<double>(rounds);
#else
  *sink = seed;
  return 0.0 * static_cast<double>(rounds);
#endif
}
double byte_multiply_adds(int64_t rounds, int16_t seed, int32_t* sink) {
  return integer_multiply_adds<Product::kBytes>(rounds, seed, sink);
}
double word_multiply_adds(int64_t rounds, int16_t seed, int32_t* sink) {
  return integer_multiply_adds<Product::kWords>(rounds, seed, sink);
}
double dot_multiply_adds(int64_t rounds, int16_t seed, int32_t* sink) {
  return integer_multiply_adds<Product::kDot>(rounds, seed, sink);
}

}  // namespace tessera::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::bench {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(triad);
HWY_EXPORT(read_all);
HWY_EXPORT(byte_multiply_adds);
HWY_EXPORT(word_multiply_adds);
HWY_EXPORT(dot_multiply_adds);

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_s() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

namespace {

// The best of `rounds` runs, in seconds: a ceiling is what the machine reaches undisturbed.
template <class Body>
double best_of(int rounds, const Body& body, double (*clock)() = now_s) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double begin = clock();
    body();
    best = std::min(best, clock() - begin);
  }
  return best;
}

template <class Body>
void on_threads(int threads, const Body& body) {
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back([&body, i] { body(i); });
  body(0);
  for (std::thread& helper : helpers) helper.join();
}

struct FreeMemory {
  void operator()(float* memory) const { std::free(memory); }
};
using Floats = std::unique_ptr<float, FreeMemory>;

Floats make_floats(int64_t count) {
  Floats floats(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(count * 4 + 63) / 64 * 64)));
  std::fill_n(floats.get(), count, 0.5f);
  return floats;
}

}  // namespace

double fma_flops_per_s() {
  float sink = 0;
  double flops = 0;
  const double seconds = best_of(
      20, [&] { flops = HWY_DYNAMIC_DISPATCH(multiply_adds)(400000, 0.25f, &sink); }, thread_s);
  return sink == 12345 ? 0 : flops / seconds;
}

double triad_bytes_per_s(int threads) {
  constexpr int64_t kCount = int64_t{32} << 20;
  const Floats a = make_floats(kCount), b = make_floats(kCount), c = make_floats(kCount);
  const int64_t part = kCount / threads / 64 * 64;
  const double seconds = best_of(5, [&] {
    on_threads(threads, [&](int i) {
      HWY_DYNAMIC_DISPATCH(triad)(a.get() + i * part, b.get() + i * part, c.get() + i * part, part);
    });
  });
  return 12.0 * static_cast<double>(part * threads) / seconds;
}

double read_bytes_per_s(int threads) {
  constexpr int64_t kCount = int64_t{64} << 20;
  const Floats a = make_floats(kCount);
  const int64_t part = kCount / threads / 64 * 64;
  std::atomic<uint64_t> sink{0};
  const double seconds = best_of(
      5,
      [&] {
        on_threads(threads, [&](int i) { sink ^= HWY_DYNAMIC_DISPATCH(read_all)(a.get() + i * part, part); });
      },
      threads == 1 ? thread_s : now_s);
  return sink == 12345 ? 0 : 4.0 * static_cast<double>(part * threads) / seconds;
}

namespace {

double macs_per_s(double (*run)(int64_t, int16_t, int32_t*)) {
  int32_t sink = 0;
  double macs = 0;
  const double seconds = best_of(
      20, [&] { macs = run(400000, 0x0305, &sink); }, thread_s);
  return sink == 12345 ? 0 : macs / seconds;
}

}  // namespace

double byte_macs_per_s() {
  return macs_per_s([](auto... args) { return HWY_DYNAMIC_DISPATCH(byte_multiply_adds)(args...); });
}
double word_macs_per_s() {
  return macs_per_s([](auto... args) { return HWY_DYNAMIC_DISPATCH(word_multiply_adds)(args...); });
}
double dot_macs_per_s() {
  return macs_per_s([](auto... args) { return HWY_DYNAMIC_DISPATCH(dot_multiply_adds)(args...); });
}

tsr_host_api host_with_threads(int threads) {
  static int counts[65];  // what `host` points at; the value is the thread count
  counts[threads] = threads;
  tsr_host_api host = {};
  host.struct_size = sizeof host;
  host.host = &counts[threads];
  host.parallel_for = [](void* self, int64_t tasks, void (*body)(void*, int64_t), void* context) {
    std::atomic<int64_t> next{0};
    on_threads(static_cast<int>(std::min<int64_t>(*static_cast<int*>(self), std::max<int64_t>(tasks, 1))),
               [&](int) {
                 for (int64_t task = next++; task < tasks; task = next++) body(context, task);
               });
  };
  host.take_scratch = [](void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); };
  host.give_scratch = [](void*, void* memory) { std::free(memory); };
  return host;
}

double product_flops_per_s(int threads) {
  constexpr int64_t kSize = 2048;
  const cpu::Gemm gemm{.m = kSize, .n = kSize, .k = kSize, .a_row = kSize, .b_row = kSize};
  const Floats a = make_floats(kSize * kSize), b = make_floats(kSize * kSize), c = make_floats(kSize * kSize);
  const Floats workspace = make_floats(cpu::gemm_workspace_bytes(gemm) / 4);
  const tsr_host_api host = host_with_threads(threads);
  const double seconds = best_of(5, [&] {
    cpu::run_gemm(gemm, {.a = a.get(), .b = b.get(), .c = c.get(), .workspace = workspace.get()},
                  cpu::Pool(host));
  });
  return 2.0 * kSize * kSize * kSize / seconds;
}

}  // namespace tessera::bench
#endif
