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

// Checks that the size of a caller's struct is set.
Status check_struct_size(size_t found, size_t smallest, const char* name);

}  // namespace tessera::capi
