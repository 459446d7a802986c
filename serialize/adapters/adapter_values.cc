#include "serialize/adapters/adapter_values.h"

#include <algorithm>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

Result<HostTensor> read_f32(const ByteSource& source, const std::string& name, const ForeignTensor& tensor) {
  const DType type = tensor.dtype;
  if (type != DType::kF64 && !can_decode(type) && type != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("tensor '{}' is stored as {}, wanted f32, bf16, f16 or f64", name, tensor.type));
  std::span<std::byte> bytes;
  const HostTensor stored = HostTensor::zeros({type, tensor.shape}, &bytes);
  TSR_RETURN_IF_ERROR(source.read_at(tensor.offset, bytes));
  return widen_weight(stored);
}

HostTensor f32_matrix(int64_t rows, int64_t columns, std::span<const float> values) {
  return HostTensor::copy_of<float>({DType::kF32, {rows, columns}}, values);
}

HostTensor transposed_matrix(const HostTensor& matrix) {
  const auto rows = static_cast<size_t>(matrix.type.shape[0]),
             columns = static_cast<size_t>(matrix.type.shape[1]);
  const std::span<const float> from = matrix.as<float>();
  std::vector<float> to(from.size());
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      to[column * rows + row] = from[row * columns + column];
  return f32_matrix(matrix.type.shape[1], matrix.type.shape[0], to);
}

HostTensor rows_of(const HostTensor& tensor, int64_t first, int64_t rows, const std::vector<int64_t>& order) {
  const std::span<const float> from = tensor.as<float>();
  const auto width = tensor.type.shape.rank() > 1 ? static_cast<size_t>(tensor.type.shape[1]) : size_t{1};
  const auto D = static_cast<int64_t>(order.size());
  std::vector<float> to(static_cast<size_t>(rows) * width);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t source = D == 0 ? row : row / D * D + order[static_cast<size_t>(row % D)];
    std::ranges::copy(from.subspan(static_cast<size_t>(first + source) * width, width),
                      to.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row) * width));
  }
  Shape shape = tensor.type.shape;
  shape.set(0, rows);
  return HostTensor::copy_of<float>({DType::kF32, shape}, to);
}

HostTensor with_rows(const HostTensor& table, const HostTensor& rows, std::span<const int64_t> ids) {
  std::vector<float> values(table.as<float>().begin(), table.as<float>().end());
  const auto width = static_cast<size_t>(table.type.shape[1]);
  for (size_t i = 0; i < ids.size(); ++i)
    std::ranges::copy(rows.as<float>().subspan(i * width, width),
                      values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(ids[i]) * width));
  return HostTensor::copy_of<float>(table.type, values);
}

}  // namespace tessera
