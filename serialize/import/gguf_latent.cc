#include "serialize/import/gguf_latent.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

// Reads matrix `index` of the tensor as f32.
Status read_matrix(const ByteSource& source, const ForeignTensor& tensor, int64_t index,
                   std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t size = dtype_bytes(tensor.dtype, count);
  std::vector<double> aligned(static_cast<size_t>(size + 7) / 8);
  const std::span<std::byte> stored =
      std::as_writable_bytes(std::span(aligned)).first(static_cast<size_t>(size));
  TSR_RETURN_IF_ERROR(source.read_at(tensor.offset + index * size, stored));
  if (tensor.dtype == DType::kF32)
    std::copy_n(reinterpret_cast<const float*>(stored.data()), count, values.data());
  else
    decode_blocks(tensor.dtype, stored.data(), values.data(), count);
  return {};
}

struct LatentProduct {
  std::shared_ptr<const ByteSource> source;
  ForeignTensor keys, values;
  int64_t KA, N, VD;

  int64_t head_bytes() const { return (N + VD) * KA * int64_t{sizeof(float)}; }

  Status read_head(int64_t head, float* out) const {
    std::vector<float> turned(static_cast<size_t>(KA * N)), rows(static_cast<size_t>(VD * KA));
    TSR_RETURN_IF_ERROR(read_matrix(*source, keys, head, turned));
    for (int64_t n = 0; n < N; ++n)
      for (int64_t c = 0; c < KA; ++c) *out++ = turned[static_cast<size_t>(c * N + n)];
    TSR_RETURN_IF_ERROR(read_matrix(*source, values, head, rows));
    std::ranges::copy(rows, out);
    return {};
  }
};

}  // namespace

Status read_latent_products(const ForeignFile& file, const ModelConfig& config, ForeignPlaces& places) {
  const auto size = [&](const char* name) { return config.sizes.at(name); };
  const int64_t H = size("H"), KA = size("KA"), N = size("N"), VD = size("VD");
  const int64_t L = size("L");
  for (int64_t i = 0; i < L + (config.sizes.contains("MTP") ? 1 : 0); ++i) {
    const std::string k_name = format("blk.{}.attn_k_b.weight", i), v_name = format("blk.{}.attn_v_b.weight", i);
    const auto k = file.tensors.find(k_name), v = file.tensors.find(v_name);
    if (k == file.tensors.end() || v == file.tensors.end()) continue;
    for (const auto& [tensor, wanted] : {std::pair(k, Shape{H, KA, N}), std::pair(v, Shape{H, VD, KA})}) {
      if (tensor->second.shape != wanted)
        return Status(StatusCode::kCorrupt, format("tensor '{}' is [{}], the model wants [{}]", tensor->first,
                                                   tensor->second.shape, wanted));
      if (tensor->second.dtype != DType::kF32 && !can_decode(tensor->second.dtype))
        return Status(StatusCode::kUnsupported, format("tensor '{}' is stored as {}, which cannot be decoded",
                                                       tensor->first, tensor->second.type));
    }
    const LatentProduct product{file.source, k->second, v->second, KA, N, VD};
    const std::string name = i < L ? format("block.{}.kv_b", i) : "draft.kv_b";
    TensorSource made{name, {DType::kF32, {H * (N + VD), KA}}, {}, product.head_bytes(), {}, {}};
    made.read = [product](int64_t begin,
                          std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      const int64_t one = product.head_bytes();
      for (int64_t at = 0; at < std::ssize(buffer); at += one) {
        cancellation_point();
        TSR_RETURN_IF_ERROR(
            product.read_head((begin + at) / one, reinterpret_cast<float*>(buffer.data() + at)));
      }
      return std::span<const std::byte>(buffer);
    };
    places.computed.insert_or_assign(name, std::move(made));
    places.used.insert({k_name, v_name});
  }
  return {};
}

}  // namespace tessera
