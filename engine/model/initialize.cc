#include "engine/model/initialize.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "graph/base/half.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

void store(DType dtype, std::byte* at, double value) {
  const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  if (dtype == DType::kF64) return put(value);
  if (dtype == DType::kF32) return put(static_cast<float>(value));
  if (dtype == DType::kF16) return put(f16_from_f32(static_cast<float>(value)));
  put(bf16_from_f32(static_cast<float>(value)));
}

}  // namespace

// The finaliser of splitmix64, twice: once to spread the counter, once to mix in the key.
uint64_t random_bits(uint64_t key, uint64_t counter) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  return mix(key ^ mix(counter * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u));
}

uint64_t random_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return random_bits(seed, hash);
}

uint64_t seed_of_batch(uint64_t seed, uint64_t number) { return random_bits(seed, number) >> 33; }

uint64_t number_of_part(int64_t step, int64_t part) {
  return static_cast<uint64_t>(step) + (static_cast<uint64_t>(part) << 32);
}

Result<HostTensor> draw(const Initializer& initializer, const TensorType& type, uint64_t seed,
                        std::string_view name) {
  const bool known = type.dtype == DType::kF32 || type.dtype == DType::kF64 || type.dtype == DType::kF16 ||
                     type.dtype == DType::kBF16;
  if (!known && initializer.kind != Initializer::Kind::kZeros)
    return Status(
        StatusCode::kUnsupported,
        format("parameter '{}' is {}: values can be drawn for f32, f64, f16 and bf16; write this one", name,
               to_text(type)));
  std::span<std::byte> out;
  HostTensor tensor = HostTensor::zeros(type, &out);
  if (initializer.kind == Initializer::Kind::kZeros) return tensor;

  const int64_t count = type.shape.elements();
  const size_t width = static_cast<size_t>(dtype_bytes(type.dtype, 1));
  if (initializer.kind == Initializer::Kind::kOnes) {
    for (int64_t i = 0; i < count; ++i) store(type.dtype, out.data() + static_cast<size_t>(i) * width, 1.0);
    return tensor;
  }
  // Box-Muller on 26 + 26 bits of one draw: elements 2j and 2j + 1 come from counter j.
  const uint64_t key = random_key(seed, name);
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t bits = random_bits(key, static_cast<uint64_t>(i / 2));
    const double u = (static_cast<double>(bits >> 38) + 0.5) * 0x1p-26;
    const double v = static_cast<double>(bits & 0x3ffffff) * 0x1p-26;
    const float radius =
        std::sqrt(-2.0f * std::log(static_cast<float>(u))) * static_cast<float>(initializer.stddev);
    const float angle = static_cast<float>(2 * std::numbers::pi * v);
    store(type.dtype, out.data() + static_cast<size_t>(i) * width, radius * std::cos(angle));
    if (i + 1 < count)
      store(type.dtype, out.data() + static_cast<size_t>(i + 1) * width, radius * std::sin(angle));
  }
  return tensor;
}

}  // namespace tessera
