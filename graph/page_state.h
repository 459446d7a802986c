// PageState: an attention's state in pages: keys, values or latent vectors
// (graph/transform/serving.h), independent of the page size and of the devices that hold parts of it.
#pragma once

#include <cstdint>
#include <string>

#include "graph/base/dtype.h"

namespace tessera {

struct PageState {
  std::string name;
  DType dtype = DType::kF32;
  int64_t heads = 0, width = 0;
  bool is_window = false;  // its attention has a window, and pages of its own
  // Returns whether both have the same layout, in any pages.
  bool has_layout_of(const PageState& other) const {
    return name == other.name && dtype == other.dtype && heads == other.heads && width == other.width;
  }
  bool operator==(const PageState&) const = default;
  int64_t row_bytes() const { return dtype_bytes(dtype, heads * width); }  // of one position
};

}  // namespace tessera
