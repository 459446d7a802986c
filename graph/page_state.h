// PageState: keys or values of an attention as pages hold them (graph/transform/serving.h), whatever the size of a page and
// the devices that have parts of it.
#pragma once

#include <cstdint>
#include <string>

#include "graph/base/dtype.h"

namespace tessera {

struct PageState {
  std::string name;
  DType dtype = DType::kF32;
  int64_t heads = 0, width = 0;
  bool operator==(const PageState&) const = default;
  int64_t row_bytes() const { return dtype_bytes(dtype, heads * width); }  // of a position
};

}  // namespace tessera
