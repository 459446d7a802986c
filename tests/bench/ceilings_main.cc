// Prints the ceilings of this machine, now, as one JSON object: bench_ceilings [THREADS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/bench/ceilings.h"

int main(int argc, char** argv) {
  using namespace tessera::bench;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1 || threads > 64) {
    std::fprintf(stderr, "bench_ceilings: %d threads, wanted 1 to 64\n", threads);
    return 2;
  }
  const double fma = fma_flops_per_s(), product = product_flops_per_s(threads),
               triad = triad_bytes_per_s(threads), read = read_bytes_per_s(threads);
  const double bytes = std::max(byte_macs_per_s(), dot_macs_per_s());
  std::printf(
      "{\"threads\": %d, \"fma_flops_per_s_one_thread\": %.4g, \"product_flops_per_s\": %.4g, "
      "\"triad_bytes_per_s\": %.4g, \"read_bytes_per_s\": %.4g, \"byte_macs_per_s_one_thread\": %.4g}\n",
      threads, fma, product, triad, read, bytes);
}
