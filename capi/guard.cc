#include "capi/guard.h"

#include <new>

#include "capi/handles.h"
#include "graph/base/text.h"

namespace tessera::capi {
namespace {

tsr_status* status_without_memory() noexcept {
  static tsr_status status{Status::out_of_memory()};
  return &status;
}

}  // namespace

tsr_status* to_c(Status status) noexcept {
  if (status.ok()) return nullptr;
  tsr_status* made = new (std::nothrow) tsr_status{std::move(status)};
  return made ? made : status_without_memory();
}

void release(tsr_status* status) noexcept {
  if (status != status_without_memory()) delete status;
}

Status required(std::initializer_list<Named> arguments) {
  for (const Named& argument : arguments)
    if (!argument.pointer) return Status(StatusCode::kInvalidArgument, format("{} is NULL", argument.name));
  return {};
}

Status give_text(std::string text, tsr_text** out_text) {
  *out_text = new tsr_text{std::move(text)};
  return {};
}

Status put_text(std::string_view text, char* buffer, size_t capacity, size_t* out_size) {
  if (buffer && capacity > 0) {
    const size_t fits = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), fits);
    buffer[fits] = '\0';
  }
  if (out_size) *out_size = text.size() + 1;
  return {};
}

Result<TensorType> tensor_type(tsr_dtype dtype, int32_t rank, const int64_t* dims, bool symbols_allowed) {
  if (dtype < 0 || dtype >= kDTypeCount)
    return Status(StatusCode::kInvalidArgument,
                  format("dtype is {}, wanted one of TSR_F32 .. TSR_Q2_0", dtype));
  if (rank < 0 || rank > kMaxRank)
    return Status(StatusCode::kInvalidArgument, format("rank is {}, wanted 0 to {}", rank, kMaxRank));
  if (rank > 0 && !dims) return Status(StatusCode::kInvalidArgument, "dims is NULL");
  TensorType type{static_cast<DType>(dtype), Shape(std::span(dims, static_cast<size_t>(rank)))};
  int64_t elements = 1;
  for (int32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0 && symbols_allowed) continue;
    if (dims[i] < 0 || (dims[i] > 0 && elements > (INT64_MAX >> 4) / dims[i]))
      return Status(StatusCode::kInvalidArgument,
                    format("dims[{}] is {}: negative, or too large", i, dims[i]));
    if (dims[i] > 0) elements *= dims[i];
  }
  const int64_t block = info(type.dtype).block_elements;
  if (block > 1 && (rank == 0 || (dims[rank - 1] >= 0 && dims[rank - 1] % block != 0)))
    return Status(StatusCode::kInvalidArgument,
                  format("{} needs a last dim that is a multiple of {}", to_text(type.dtype), block));
  return type;
}

Status check_struct_size(size_t found, size_t smallest, const char* name) {
  constexpr size_t kLargest = 4096;  // a size that was never set is mostly beyond it
  if (found >= smallest && found <= kLargest) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}.struct_size is {}, wanted sizeof({}), which is {} to {}", name, found, name,
                       smallest, kLargest));
}

Status check_struct_tail(const void* from, size_t theirs, size_t ours, const char* name) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = ours; i < theirs; ++i)
    if (bytes[i] != 0)
      return Status(
          StatusCode::kUnsupported,
          format("{} of {} bytes sets byte {}; this library knows the first {}: leave newer members 0, "
                 "or use a newer library",
                 name, theirs, i, ours));
  return {};
}

}  // namespace tessera::capi
