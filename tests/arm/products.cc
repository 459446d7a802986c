// Products with blocks of every type on this machine, a line each: errors against sums in double over decoded
// blocks, and a hash of the results' bits. Exits with 1 where an error is too large, or where a row's bits
// depend on its batch, on ranges or on the layout.
#include <cinttypes>
#include <cstdio>
#include <string>

#include "tests/kernels/block_products.h"
#include "tests/kernels/panel_permutation.h"

namespace tessera::cpu {
namespace {

// Rows enough for every way of multiplying: one; up to 8, in fours, twos and ones; more.
constexpr int64_t kBatches[] = {1, 3, 8, 17, 33};
const std::vector<int64_t> kCuts = {3, 4, 20};

struct Verdict {
  double q8 = 0, f32 = 0, gradient = 0;
  uint64_t hash = 14695981039346656037u;
  std::string fault;

  void hash_bits(const std::vector<float>& values) {
    for (const float value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      for (int i = 0; i < 32; i += 8) hash = (hash ^ (bits >> i & 255)) * 1099511628211u;
    }
  }
  void expect(bool holds, const std::string& otherwise) {
    if (!holds && fault.empty()) fault = otherwise;
  }
};

// Every batch and both layouts against all rows at once.
void compare_batches(Problem& p, Verdict& verdict) {
  const std::vector<float> dy = p.make_gradient();
  const bool rounds = has_integer_codes(p.type);
  const std::vector<float> f32 = multiply_f32(p, p.matrix(), 0, p.M),
                           q8 = rounds ? multiply_q8(p, p.matrix(), 0, p.M) : std::vector<float>();
  const std::vector<float> dx = multiply_transposed(p, p.matrix(), dy, 0, p.M);
  if (rounds) verdict.q8 = std::max(verdict.q8, largest_error(p, QuantizedRows(p.type, p.x), q8));
  verdict.f32 = std::max(verdict.f32, largest_error(p, {p.x.begin(), p.x.end()}, f32));
  verdict.gradient = std::max(verdict.gradient, largest_gradient_error(p, dy, dx));
  for (const auto* values : {&q8, &f32, &dx}) verdict.hash_bits(*values);
  const auto compare = [&](const BlockMatrix& w, const std::string& layout) {
    for (const int64_t rows : kBatches) {
      if (rows > p.M) continue;
      const int64_t first = p.M - rows;
      const std::string where = ": other bits in a batch of " + std::to_string(rows) + ", " + layout;
      if (rounds) {
        verdict.expect(multiply_q8(p, w, first, rows) == rows_of(q8, p.N, first, rows), "q8" + where);
        verdict.expect(multiply_q8(p, w, first, rows, kCuts) == rows_of(q8, p.N, first, rows),
                       "q8 in ranges" + where);
      }
      verdict.expect(multiply_f32(p, w, first, rows, kCuts) == rows_of(f32, p.N, first, rows), "f32" + where);
      verdict.expect(multiply_transposed(p, w, dy, first, rows) == rows_of(dx, p.K, first, rows),
                     "gradient" + where);
    }
  };
  compare(p.matrix(), "the file's layout");
  if (can_interleave_rows(p.type)) compare(p.interleave(), "interleaved");
}

void compare_layouts(Problem& p, Verdict& verdict) {
  if (!can_interleave_rows(p.type)) return;
  const BlockMatrix w = p.interleave();
  std::vector<std::byte> back(p.blocks.size());
  const int64_t panels = p.N / interleaved_rows() + 1;
  deinterleave_rows(p.type, p.N, p.K, w.data, back.data(), 0, panels);
  verdict.expect(back == p.blocks, "interleaving has no inverse");
  verdict.expect(p.interleaved != p.blocks, "interleaving moves nothing");
}

// Returns whether all is as it should be.
bool check_type(DType type) {
  Verdict verdict;
  // Rests of panels of 4, 8 and 16 rows, and of the gradient's 64.
  Problem wide(type, 33, 70, 512);
  compare_layouts(wide, verdict);
  compare_batches(wide, verdict);
  // Rows so long that a panel is unpacked in parts.
  Problem deep(type, 17, 21, 4352);
  compare_batches(deep, verdict);
  const auto limit = [&](double error, double most, const char* of) {
    verdict.expect(error < most, std::string("the error of ") + of + " is not below " + std::to_string(most));
  };
  limit(verdict.q8, kQ8Error, "q8");
  limit(verdict.f32, kF32Error, "f32");
  limit(verdict.gradient, kGradientError, "the gradient");
  const bool good = verdict.fault.empty();
  const std::string name(info(type).name);
  std::printf("%s: %-7s | error q8 %.2f f32 %.2f gradient %.2f | bits %016" PRIx64 "%s%s\n",
              good ? "ok" : "failed", name.c_str(), verdict.q8, verdict.f32, verdict.gradient, verdict.hash,
              good ? "" : " | ", verdict.fault.c_str());
  std::fflush(stdout);
  return good;
}

}  // namespace
}  // namespace tessera::cpu

int main() {
  bool good = true;
  for (const tessera::DType type : tessera::cpu::kBlockTypes) good = tessera::cpu::check_type(type) && good;
  return good ? 0 : 1;
}
