// RowState: a row of a recurrent layer's state, of one sequence (graph/transform/serving.h), independent of the number of rows and
// of the devices that hold parts of it.
#pragma once

#include <string>

#include "graph/base/shape.h"

namespace tessera {

struct RowState {
  std::string name;
  TensorType type;  // of one row
  bool operator==(const RowState&) const = default;
};

}  // namespace tessera
