#include "serialize/import/stored_numbers.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {

Result<std::vector<float>> read_stored_numbers(const ByteSource& source, const ForeignTensor& tensor,
                                               std::string_view name) {
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16)
    return Status(StatusCode::kUnsupported,
                  format("tensor '{}' is {}, wanted f32, f16 or bf16", quote(name), tensor.type));
  std::vector<std::byte> stored(static_cast<size_t>(tensor.bytes));
  TSR_RETURN_IF_ERROR(source.read_at(tensor.offset, stored));
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  decode_blocks(tensor.dtype, stored.data(), values.data(), std::ssize(values));
  const auto wrong = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (wrong != values.end())
    return Status(StatusCode::kCorrupt, format("tensor '{}' has {} at {}, wanted a finite number",
                                               quote(name), *wrong, wrong - values.begin()));
  return values;
}

Result<std::vector<int32_t>> read_stored_integers(const ByteSource& source, const ForeignTensor& tensor,
                                                  std::string_view name) {
  if (tensor.type != "i32")
    return Status(StatusCode::kUnsupported,
                  format("tensor '{}' is {}, wanted i32", quote(name), tensor.type));
  std::vector<int32_t> values(static_cast<size_t>(tensor.shape.elements()));
  TSR_RETURN_IF_ERROR(source.read_at(tensor.offset, std::as_writable_bytes(std::span(values))));
  return values;
}

}  // namespace tessera
