// The boundary of the C API: exceptions become a status, every argument is checked before use.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "tessera/tessera.h"

namespace tessera::capi {

// NULL for success. Never fails: without memory it returns a preallocated status.
tsr_status* to_c(Status status) noexcept;

void release(tsr_status* status) noexcept;

template <class Body>
tsr_status* guard(Body&& body) noexcept {
  return to_c(catch_status(std::forward<Body>(body)));
}

struct Named {
  const void* pointer;
  const char* name;
};
// kInvalidArgument naming the first argument that is NULL.
Status required(std::initializer_list<Named> arguments);

// The caller's text: `size` bytes, or up to its NUL.
inline std::string_view text_of(const char* text, size_t size) {
  return size == TSR_TEXT_END ? std::string_view(text) : std::string_view(text, size);
}

// "Text out", "Short text" and "Arrays out" of tessera.h.
Status give_text(std::string text, tsr_text** out_text);
Status put_text(std::string_view text, char* buffer, size_t capacity, size_t* out_size);
template <class T>
Status put_array(std::span<const T> items, T* out, size_t capacity, size_t* out_count) {
  if (out) std::copy_n(items.begin(), std::min(capacity, items.size()), out);
  if (out_count) *out_count = items.size();
  return {};
}

Result<TensorType> tensor_type(tsr_dtype dtype, int32_t rank, const int64_t* dims, bool symbols_allowed);

// PublicStruct: the name of a struct of tessera.h, and its size in version 1 (capi/public_structs.h). Caller
// and library may be of different versions, so that either one's struct may be the longer: the shorter size
// is copied.
template <class T>
struct PublicStruct;

// Checks that the size is set: from `smallest` to 4 KiB, more than any version has.
Status check_struct_size(size_t found, size_t smallest, const char* name);
// kUnsupported where the caller's struct of `theirs` bytes sets a member that begins after the `ours` bytes
// known here.
Status check_struct_tail(const void* from, size_t theirs, size_t ours, const char* name);

template <class T>
Status check_struct(const T* theirs) {
  size_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  return check_struct_size(size, PublicStruct<T>::kFirstSize, PublicStruct<T>::kName);
}

// The caller's struct as ours: members that it lacks are 0.
template <class T>
Result<T> copy_struct(const void* theirs) {
  size_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  TSR_RETURN_IF_ERROR(check_struct_size(size, PublicStruct<T>::kFirstSize, PublicStruct<T>::kName));
  TSR_RETURN_IF_ERROR(check_struct_tail(theirs, size, sizeof(T), PublicStruct<T>::kName));
  T ours{};
  std::memcpy(&ours, theirs, std::min(size, sizeof(T)));
  return ours;
}

// Ours into the caller's, which check_struct has passed: its struct_size, and members unknown here, stay as
// they are.
template <class T>
void copy_struct(const T& ours, T* theirs) {
  size_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  constexpr size_t kBegin = sizeof ours.struct_size;
  std::memcpy(reinterpret_cast<char*>(theirs) + kBegin, reinterpret_cast<const char*>(&ours) + kBegin,
              std::min(size, sizeof(T)) - kBegin);
}

}  // namespace tessera::capi
