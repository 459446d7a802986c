// PageState: keys, values or latent vectors of an attention as pages hold them (graph/transform/serving.h), whatever the size
// of a page and the devices that have parts of it.
#pragma once

#include <cstdint>
#include <string>

#include "graph/base/dtype.h"

namespace tessera {

struct PageState {
  std::string name;
  DType dtype = DType::kF32;
  int64_t heads = 0, width = 0;
  bool is_window = false;  // its attention sees only a window, and has pages of its own
  // Whether both have the same layout, in whichever pages.
  bool has_layout_of(const PageState& other) const {
    return name == other.name && dtype == other.dtype && heads == other.heads && width == other.width;
  }
  bool operator==(const PageState&) const = default;
  int64_t row_bytes() const { return dtype_bytes(dtype, heads * width); }  // of a position
};

}  // namespace tessera
