// Values of parameters: narrow ones widened to f32, and any rounded to the type in which a graph stores them.
#include <algorithm>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/half.h"
#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

Result<HostTensor> widen_weight(const HostTensor& value) {
  const DType stored = value.type.dtype;
  if (stored == DType::kF32) return value;
  if (!can_decode(stored))
    return Status(StatusCode::kInvalidArgument,
                  format("a weight {} is no f32: wanted a float or a block type", to_text(value.type)));
  std::span<std::byte> bytes;
  HostTensor wide = HostTensor::zeros({DType::kF32, value.type.shape}, &bytes);
  decode_blocks(stored, value.data.data(), reinterpret_cast<float*>(bytes.data()),
                value.type.shape.elements());
  return wide;
}

Result<HostTensor> quantize_weight(const HostTensor& value, const TensorType& type) {
  const DType from = value.type.dtype, to = type.dtype;
  if (value.type == type) return value;
  if (value.type.shape != type.shape || !can_decode(from))
    return Status(StatusCode::kInvalidArgument,
                  format("a weight {} cannot be stored as {}", to_text(value.type), to_text(type)));
  if (to == DType::kF32) return widen_weight(value);
  std::span<std::byte> bytes;
  HostTensor stored = HostTensor::zeros(type, &bytes);
  constexpr int64_t kSlice = 2048;  // a multiple of every block
  float slice[kSlice];
  const int64_t elements = type.shape.elements();
  for (int64_t first = 0; first < elements; first += kSlice) {
    const int64_t count = std::min(kSlice, elements - first);
    decode_blocks(from, value.data.data() + dtype_bytes(from, first), slice, count);
    std::byte* out = bytes.data() + dtype_bytes(to, first);
    if (to == DType::kBF16) {  // holds every f32, rounded
      std::transform(slice, slice + count, reinterpret_cast<uint16_t*>(out), bf16_from_f32);
      continue;
    }
    if (Status status = encode_blocks(to, slice, count, out); !status.ok())
      return first == 0 ? status : status.with_context(format("from element {} on", first));
  }
  return stored;
}

}  // namespace tessera
