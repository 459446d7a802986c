#include "parallel/pricing/device_time.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

// Tile: tile shapes of usual libraries, and their share of the
// rate on deep matmuls: larger tiles read less per operation.
struct Tile {
  double rows, columns, share;
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 128, 0.96}, {128, 64, 0.82}, {64, 64, 0.64}};

// Tensor cores read 16-bit operands in 16-byte pieces; misaligned rows use slower
// kernels. Measured: a projection onto an odd vocabulary runs at 84 Tflop/s on an A100.
constexpr double kUnalignedShare = 1.0 / 3;

bool unaligned(const DeviceKind& kind, double element_bytes, double n, double k) {
  if (kind.multiprocessors <= 0 || element_bytes > 2) return false;
  const double pieces = 16 / element_bytes;
  return std::fmod(n, pieces) != 0 || std::fmod(k, pieces) != 0;
}

double element_bytes(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

}  // namespace

double batched_matmul_seconds(const DeviceKind& kind, DType dtype, double count, double m, double n,
                              double k) {
  const double bytes = element_bytes(dtype);
  const double rate = matrix_rate(kind, dtype) * (count > 1 ? kind.batched_share : 1) *
                      (unaligned(kind, bytes, n, k) ? kUnalignedShare : 1);
  const double moved = streaming_seconds(kind, count * (m * n + m * k + n * k) * bytes);
  if (kind.multiprocessors <= 0) return std::max(over(2 * count * m * n * k, rate) + kind.launch_s, moved);
  double best = INFINITY;
  for (const Tile& tile : kTiles) {
    const double tiles = count * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double waves = std::ceil(tiles / kind.multiprocessors);
    // With too few tiles, libraries also cut the contracted dim.
    const double k_splits =
        std::max(1.0, std::min(std::floor(kind.multiprocessors / tiles), std::floor(k / 512)));
    const double per_tile = 2 * tile.rows * tile.columns * (k / k_splits + kind.tile_ramp) * kind.multiprocessors;
    best = std::min(best, waves * over(per_tile, rate * tile.share));
  }
  return std::max(best + kind.launch_s, moved);
}

double streaming_seconds(const DeviceKind& kind, double bytes) {
  return over(bytes, kind.memory_bytes_per_s) + kind.launch_s;
}

}  // namespace tessera
