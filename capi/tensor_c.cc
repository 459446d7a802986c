// tsr_tensor, tsr_dtype.
#include "capi/guard.h"
#include "capi/handles.h"
#include "engine/base/byte_sources.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

static_assert(TSR_MAX_RANK == kMaxRank);
static_assert(TSR_Q4_0 == static_cast<int>(DType::kQ4_0) && TSR_E5M2 == static_cast<int>(DType::kE5M2));
static_assert(TSR_Q4_1 == static_cast<int>(DType::kQ4_1) && TSR_IQ1_S == static_cast<int>(DType::kIQ1_S));
static_assert(TSR_NF4 == static_cast<int>(DType::kNF4) && TSR_NF4 == kDTypeCount - 1);

tsr_status* tsr_tensor_new(tsr_dtype dtype, int32_t rank, const int64_t* dims, tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_tensor, "out_tensor"}}));
    TSR_ASSIGN_OR_RETURN(const TensorType type, tensor_type(dtype, rank, dims, false));
    std::span<std::byte> bytes;
    HostTensor value = HostTensor::zeros(type, &bytes);
    *out_tensor = new tsr_tensor{std::move(value), bytes.data(), {}};
    return {};
  });
}

tsr_status* tsr_tensor_borrow(tsr_dtype dtype, int32_t rank, const int64_t* dims, const void* data,
                              size_t bytes, void (*release)(void* context), void* context,
                              tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    const std::shared_ptr<const void> owner = releasing(release, context);
    TSR_RETURN_IF_ERROR(required({{out_tensor, "out_tensor"}}));
    TSR_ASSIGN_OR_RETURN(const TensorType type, tensor_type(dtype, rank, dims, false));
    const int64_t wanted = tessera::bytes(type);
    if (wanted != static_cast<int64_t>(bytes))
      return Status(StatusCode::kInvalidArgument,
                    format("{} has {} bytes, the memory given has {}", to_text(type), wanted,
                           static_cast<uint64_t>(bytes)));
    if (bytes > 0) TSR_RETURN_IF_ERROR(required({{data, "data"}}));
    HostTensor value{type, {static_cast<const std::byte*>(data), bytes}, owner};
    *out_tensor = new tsr_tensor{std::move(value), nullptr, {}};
    return {};
  });
}

tsr_dtype tsr_tensor_dtype(const tsr_tensor* tensor) {
  return tensor ? static_cast<tsr_dtype>(tensor->value.type.dtype) : TSR_F32;
}
int32_t tsr_tensor_rank(const tsr_tensor* tensor) { return tensor ? tensor->value.type.shape.rank() : 0; }
const int64_t* tsr_tensor_dims(const tsr_tensor* tensor) {
  return tensor ? tensor->value.type.shape.dims().data() : nullptr;
}
size_t tsr_tensor_bytes(const tsr_tensor* tensor) { return tensor ? tensor->value.data.size() : 0; }
const void* tsr_tensor_data(const tsr_tensor* tensor) { return tensor ? tensor->value.data.data() : nullptr; }
void* tsr_tensor_writable(tsr_tensor* tensor) { return tensor ? tensor->writable : nullptr; }
const char* tsr_tensor_name(const tsr_tensor* tensor) { return tensor ? tensor->name.c_str() : ""; }
void tsr_tensor_free(tsr_tensor* tensor) { delete tensor; }

const char* tsr_dtype_name(tsr_dtype dtype) {
  return dtype >= 0 && dtype < kDTypeCount ? info(static_cast<DType>(dtype)).name.data() : "unknown";
}
