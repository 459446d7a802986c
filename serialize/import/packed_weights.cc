#include "serialize/import/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "graph/base/cancellation.h"
#include "graph/base/half.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/stored_numbers.h"

namespace tessera {
namespace {

constexpr std::string_view kQweight = ".qweight";
constexpr int64_t kBlock = 32;                              // of q4_0 and q8_0
constexpr int64_t kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of columns 0 to 7 in a word

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

// PackedWeight: a packed matrix: scales, zero points, and the group of each row.
struct PackedWeight {
  std::shared_ptr<const ByteSource> source;
  int64_t offset = 0, K = 0, N = 0, bits = 4;
  bool by_rows = false;         // GPTQ: a word holds rows of one column
  std::vector<float> scales;    // [groups, N]
  std::vector<int32_t> zeros;   // [groups, N]
  std::vector<int32_t> groups;  // [K]
  DType dtype = DType::kF32;    // of the weights

  int64_t per_word() const { return 32 / bits; }

  int32_t code(const std::vector<uint32_t>& words, int64_t k, int64_t n) const {
    const uint32_t mask = (1u << bits) - 1;
    if (by_rows)
      return static_cast<int32_t>(
          words[static_cast<size_t>(k / per_word() * N + n)] >> (k % per_word() * bits) & mask);
    return static_cast<int32_t>(words[static_cast<size_t>(k * (N / per_word()) + n / per_word())] >>
                                    (kAwqPlaces[n % per_word()] * bits) &
                                mask);
  }

  // Decodes the whole matrix.
  Status decode(std::span<std::byte> out) const {
    std::vector<uint32_t> words(static_cast<size_t>(K * N / per_word()));
    TSR_RETURN_IF_ERROR(source->read_at(offset, std::as_writable_bytes(std::span(words))));
    std::byte* to = out.data();
    for (int64_t n = 0; n < N; ++n) {
      cancellation_point();
      if (is_block_type(dtype)) {
        for (int64_t k = 0; k < K; k += kBlock) to = put_block(words, k, n, to);
        continue;
      }
      for (int64_t k = 0; k < K; ++k) {
        const auto at = static_cast<size_t>(groups[static_cast<size_t>(k)] * N + n);
        const float value = static_cast<float>(code(words, k, n) - zeros[at]) * scales[at];
        to = put(value, to);
      }
    }
    return {};
  }

 private:
  std::byte* put(float value, std::byte* to) const {
    const uint16_t half = dtype == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
    const bool is_wide = dtype == DType::kF32;
    std::memcpy(to, is_wide ? static_cast<const void*>(&value) : &half, is_wide ? sizeof value : sizeof half);
    return to + (is_wide ? sizeof value : sizeof half);
  }

  // Writes a block: an f16 scale, then codes; q4_0 packs numbers i and i + 16 in a byte, q8_0 subtracts the middle.
  std::byte* put_block(const std::vector<uint32_t>& words, int64_t k, int64_t n, std::byte* to) const {
    const uint16_t scale = f16_from_f32(scales[static_cast<size_t>(groups[static_cast<size_t>(k)] * N + n)]);
    std::memcpy(to, &scale, sizeof scale);
    to += sizeof scale;
    if (dtype == DType::kQ8_0) {
      for (int64_t i = 0; i < kBlock; ++i) *to++ = static_cast<std::byte>(code(words, k + i, n) - 128);
      return to;
    }
    for (int64_t i = 0; i < kBlock / 2; ++i)
      *to++ = static_cast<std::byte>(code(words, k + i, n) | code(words, k + i + kBlock / 2, n) << 4);
    return to;
  }
};

class PackedReader {
 public:
  PackedReader(const FolderQuantization& quantization, const ForeignFile& file)
      : quantization_(quantization), file_(file) {}

  Result<DecodedWeight> read(const std::string& stem, const ForeignTensor& qweight) const {
    PackedWeight weight;
    weight.source = file_.source;
    weight.offset = qweight.offset;
    weight.bits = quantization_.bits;
    weight.by_rows = quantization_.method == FolderQuantization::Method::kGptq;
    if (qweight.type != "i32" || qweight.shape.rank() != 2 || qweight.shape.elements() == 0)
      return corrupt(format("tensor '{}.qweight' is {} [{}], wanted an i32 matrix", quote(stem), qweight.type,
                            qweight.shape));
    weight.K = qweight.shape[0] * (weight.by_rows ? weight.per_word() : 1);
    weight.N = qweight.shape[1] * (weight.by_rows ? 1 : weight.per_word());

    std::vector<std::string> replaced = {stem + std::string(kQweight)};
    const auto part = [&](const char* which, bool is_needed) -> Result<const ForeignTensor*> {
      const auto at = file_.tensors.find(stem + which);
      if (at != file_.tensors.end()) {
        replaced.push_back(at->first);
        return &at->second;
      }
      if (!is_needed) return static_cast<const ForeignTensor*>(nullptr);
      return corrupt(format("tensor '{}{}' is missing", quote(stem), which));
    };
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const scales, part(".scales", true));
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const zeros, part(".qzeros", true));
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const order, part(".g_idx", false));
    if (scales->shape.rank() != 2 || scales->shape[1] != weight.N || scales->shape[0] < 1 ||
        weight.K % scales->shape[0] != 0 ||
        zeros->shape != Shape{scales->shape[0], weight.N / weight.per_word()} ||
        weight.N % weight.per_word() != 0)
      return corrupt(format("'{}' of {} rows and {} columns has scales [{}] and zero points [{}]",
                            quote(stem), weight.K, weight.N, scales->shape, zeros->shape));
    const int64_t count = scales->shape[0];
    TSR_ASSIGN_OR_RETURN(weight.scales, read_stored_numbers(*file_.source, *scales, stem + ".scales"));
    TSR_RETURN_IF_ERROR(read_zeros(stem, *zeros, count, weight));
    TSR_RETURN_IF_ERROR(read_groups(stem, order, count, weight));
    weight.dtype = dtype_of(weight, scales->dtype);

    const TensorType type{weight.dtype, {weight.N, weight.K}};
    const int64_t size = bytes(type);
    DecodedWeight made{stem + ".weight", type, {}, std::move(replaced)};
    made.decoded = {size, size, [weight = std::move(weight)](int64_t, std::span<std::byte> out) {
                      return weight.decode(out);
                    }};
    return made;
  }

 private:
  Status read_zeros(const std::string& stem, const ForeignTensor& stored, int64_t count,
                    PackedWeight& weight) const {
    TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> packed,
                         read_stored_integers(*file_.source, stored, stem + ".qzeros"));
    const int64_t per_word = weight.per_word(), words = weight.N / per_word;
    const uint32_t mask = (1u << weight.bits) - 1;
    weight.zeros.resize(static_cast<size_t>(count * weight.N));
    for (int64_t g = 0; g < count; ++g)
      for (int64_t n = 0; n < weight.N; ++n) {
        const int64_t place = weight.by_rows ? n % per_word : kAwqPlaces[n % per_word];
        const auto word = static_cast<uint32_t>(packed[static_cast<size_t>(g * words + n / per_word)]);
        weight.zeros[static_cast<size_t>(g * weight.N + n)] =
            static_cast<int32_t>(word >> (place * weight.bits) & mask) +
            (quantization_.zeros_less_one ? 1 : 0);
      }
    return {};
  }

  Status read_groups(const std::string& stem, const ForeignTensor* order, int64_t count,
                     PackedWeight& weight) const {
    if (order == nullptr) {
      const int64_t size = weight.K / count;
      for (int64_t k = 0; k < weight.K; ++k) weight.groups.push_back(static_cast<int32_t>(k / size));
      return {};
    }
    if (order->shape != Shape{weight.K})
      return corrupt(format("tensor '{}.g_idx' is [{}], wanted [{}]", quote(stem), order->shape, weight.K));
    TSR_ASSIGN_OR_RETURN(weight.groups, read_stored_integers(*file_.source, *order, stem + ".g_idx"));
    const auto wrong = std::ranges::find_if(weight.groups, [&](int32_t g) { return g < 0 || g >= count; });
    if (wrong == weight.groups.end()) return {};
    return corrupt(format("tensor '{}.g_idx' has {} at {}, there are {} groups", quote(stem), *wrong,
                          wrong - weight.groups.begin(), count));
  }

  // q4_0 and q8_0 are equivalent if zero points are the middle and blocks lie within one group.
  static DType dtype_of(const PackedWeight& weight, DType scales) {
    const std::optional<DType> blocks = weight.bits == 4   ? std::optional(DType::kQ4_0)
                                        : weight.bits == 8 ? std::optional(DType::kQ8_0)
                                                           : std::nullopt;
    if (!blocks || scales != DType::kF16 || weight.K % kBlock != 0) return scales;
    if (!std::ranges::all_of(weight.zeros, [&](int32_t zero) { return zero == 1 << (weight.bits - 1); }))
      return scales;
    for (int64_t k = 0; k < weight.K; ++k)
      if (weight.groups[static_cast<size_t>(k)] != weight.groups[static_cast<size_t>(k / kBlock * kBlock)])
        return scales;
    return *blocks;
  }

  const FolderQuantization& quantization_;
  const ForeignFile& file_;
};

}  // namespace

Result<std::vector<DecodedWeight>> packed_weights(const FolderQuantization& quantization,
                                                  const ForeignFile& file) {
  std::vector<DecodedWeight> weights;
  const PackedReader reader(quantization, file);
  for (const auto& [name, tensor] : file.tensors) {
    if (!name.ends_with(kQweight)) continue;
    TSR_ASSIGN_OR_RETURN(DecodedWeight weight,
                         reader.read(name.substr(0, name.size() - kQweight.size()), tensor));
    weights.push_back(std::move(weight));
  }
  return weights;
}

}  // namespace tessera
