#include "serialize/import/fp8_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "graph/base/cancellation.h"
#include "graph/base/fp8.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/stored_numbers.h"

namespace tessera {
namespace {

constexpr std::string_view kType = "f8_e4m3", kScale = "_scale_inv";

struct Fp8Weight {
  std::shared_ptr<const ByteSource> source;
  int64_t offset, N, K, block_rows, block_columns, scale_columns;
  std::vector<float> scales;

  // Decodes rows from chunk * block_rows, as many as `out` holds.
  Status decode(int64_t chunk, std::span<std::byte> out) const {
    const int64_t first = chunk * block_rows, rows = std::ssize(out) / (K * int64_t{sizeof(float)});
    std::vector<uint8_t> codes(static_cast<size_t>(rows * K));
    TSR_RETURN_IF_ERROR(source->read_at(offset + first * K, std::as_writable_bytes(std::span(codes))));
    std::array<float, 256> values;
    for (size_t code = 0; code < values.size(); ++code)
      values[code] = f32_from_fp8(static_cast<uint8_t>(code), kE4M3Format);
    auto* to = reinterpret_cast<float*>(out.data());
    const float* scale_row = scales.data() + chunk * scale_columns;
    for (int64_t row = 0; row < rows; ++row) {
      cancellation_point();
      const uint8_t* from = codes.data() + row * K;
      for (int64_t column = 0; column < K; ++column)
        *to++ = values[from[column]] * scale_row[column / block_columns];
    }
    return {};
  }
};

}  // namespace

Result<std::vector<DecodedWeight>> fp8_weights(const FolderQuantization& quantization,
                                               const ForeignFile& file) {
  std::vector<DecodedWeight> weights;
  for (const auto& [name, tensor] : file.tensors) {
    if (tensor.type != kType) continue;
    const std::string scale_name = name + std::string(kScale);
    const auto scale = file.tensors.find(scale_name);
    if (scale == file.tensors.end())
      return Status(StatusCode::kCorrupt, format("tensor '{}' is missing: '{}' is of 8-bit floats",
                                                 quote(scale_name), quote(name)));
    if (tensor.shape.rank() != 2 || tensor.shape.elements() == 0)
      return Status(StatusCode::kUnsupported, format("tensor '{}' is [{}] of 8-bit floats, wanted a matrix",
                                                     quote(name), tensor.shape));
    Fp8Weight weight{file.source, tensor.offset, tensor.shape[0], tensor.shape[1], 0, 0, 0, {}};
    weight.block_rows = quantization.block_rows > 0 ? quantization.block_rows : weight.N;
    weight.block_columns = quantization.block_rows > 0 ? quantization.block_columns : weight.K;
    const int64_t scale_rows = (weight.N + weight.block_rows - 1) / weight.block_rows;
    weight.scale_columns = (weight.K + weight.block_columns - 1) / weight.block_columns;
    if (scale->second.shape.elements() != scale_rows * weight.scale_columns)
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' is [{}], wanted [{}, {}] for '{}' [{}]", quote(scale_name),
                           scale->second.shape, scale_rows, weight.scale_columns, quote(name), tensor.shape));
    TSR_ASSIGN_OR_RETURN(weight.scales, read_stored_numbers(*file.source, scale->second, scale_name));
    const int64_t bytes = weight.N * weight.K * int64_t{sizeof(float)},
                  chunk = std::min(weight.N, weight.block_rows) * weight.K * int64_t{sizeof(float)};
    DecodedWeight made{name, {DType::kF32, tensor.shape}, {}, {name, scale_name}};
    made.decoded = {bytes, chunk, [weight = std::move(weight)](int64_t at, std::span<std::byte> out) {
                      return weight.decode(at, out);
                    }};
    weights.push_back(std::move(made));
  }
  return weights;
}

}  // namespace tessera
