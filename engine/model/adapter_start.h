// Adapter starts (PiSSA): A and B begin as the principal part of their weight.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/transform/adapters.h"
#include "serialize/model.h"

namespace tessera {

// Sets a0 and b0 of adapters with a start: sqrt(S / factor) V^T and U sqrt(S / factor) of the weight's largest singular
// values S. Adapters that share their first matrix are one module, whose rows follow each other. `read` gives values of
// weights. `with_values`: a and b begin as a0 and b0; else they have values already. kInvalidArgument: a factor that is
// not positive, or a weight with a value that is not finite.
Status set_adapter_starts(Model& model, const std::vector<Adapter>& adapters,
                          const std::function<Result<HostTensor>(const std::string&)>& read,
                          bool with_values);

}  // namespace tessera
