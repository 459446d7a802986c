#include "serialize/import/fp8_weights.h"

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/code_matrix.h"

namespace tessera {
namespace {

constexpr std::string_view kType = "f8_e4m3", kScale = "_scale_inv", kOtherScale = "_scale";

Result<DecodedWeight> fp8_weight(const FolderQuantization& quantization, const ForeignFile& file, const std::string& name,
                                 const ForeignTensor& tensor) {
  const std::string inverse = name + std::string(kScale), other = name + std::string(kOtherScale);
  const bool is_inverse = file.tensors.contains(inverse);
  if (is_inverse && file.tensors.contains(other))
    return Status(StatusCode::kCorrupt,
                  format("'{}' has the scales '{}' and '{}', wanted one of them", quote(name), quote(inverse), quote(other)));
  const std::string& scale_name = is_inverse || !file.tensors.contains(other) ? inverse : other;
  const auto scale = file.tensors.find(scale_name);
  if (scale == file.tensors.end())
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}' is missing: '{}' is of 8-bit floats", quote(scale_name), quote(name)));
  if (tensor.shape.rank() != 2 || tensor.shape.elements() == 0)
    return Status(StatusCode::kUnsupported,
                  format("tensor '{}' is [{}] of 8-bit floats, wanted a matrix", quote(name), tensor.shape));
  CodeMatrix matrix;
  matrix.source = file.source;
  matrix.codes = CodeMatrix::Codes::kE4m3;
  matrix.N = tensor.shape[0];
  matrix.K = matrix.row_bytes = tensor.shape[1];
  matrix.codes_at = tensor.offset;
  matrix.block_rows = quantization.block_rows > 0 ? quantization.block_rows : matrix.N;
  matrix.block_columns = quantization.block_rows > 0 ? quantization.block_columns : matrix.K;
  TSR_RETURN_IF_ERROR(matrix.set_scales(scale->second, scale_name));
  TSR_RETURN_IF_ERROR(matrix.block_type(scale_name).status());  // reads the scales
  return DecodedWeight{name, {DType::kF32, tensor.shape}, matrix.decoded(DType::kF32), {name, scale_name}};
}

}  // namespace

Result<std::vector<DecodedWeight>> fp8_weights(const FolderQuantization& quantization, const ForeignFile& file) {
  std::vector<DecodedWeight> weights;
  for (const auto& [name, tensor] : file.tensors) {
    if (tensor.type != kType) continue;
    TSR_ASSIGN_OR_RETURN(DecodedWeight weight, fp8_weight(quantization, file, name, tensor));
    weights.push_back(std::move(weight));
  }
  return weights;
}

}  // namespace tessera
