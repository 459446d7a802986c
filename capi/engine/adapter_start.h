// What adapters with a start (PiSSA) begin as: the principal part of their weights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/transform/adapters.h"
#include "serialize/model.h"

namespace tessera {

// Sets a0 and b0 of the adapters that have a start: sqrt(S / factor) V^T and U sqrt(S / factor) of the largest singular values
// S of the weight. Adapters that share their first matrix are one module, whose rows follow each other. `read`: values of
// weights. `with_values`: a and b begin as these; else they have values. kInvalidArgument: a factor that is not positive, a
// weight with a value that is not finite.
Status set_adapter_starts(Model& model, const std::vector<Adapter>& adapters,
                          const std::function<Result<HostTensor>(const std::string&)>& read,
                          bool with_values);

}  // namespace tessera
