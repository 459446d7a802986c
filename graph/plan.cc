#include "graph/plan.h"

#include <algorithm>

namespace tessera {

const StoredTensor* Plan::find_stored(TensorId tensor) const {
  const auto at = std::ranges::lower_bound(stored, tensor, {}, &StoredTensor::tensor);
  return at != stored.end() && at->tensor == tensor ? &*at : nullptr;
}

}  // namespace tessera
