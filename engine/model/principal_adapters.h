// PiSSA initialization of adapters: A and B begin as the principal part of their weight.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/transform/adapters.h"
#include "serialize/model.h"

namespace tessera {

// Sets a0 and b0 of PiSSA adapters to sqrt(S / factor) V^T and U sqrt(S / factor), with the largest
// singular values S of the weight. Adapters with a common first matrix are one module, with
// concatenated rows. `read` returns weight values. `with_values`: a and b become a0 and b0; else they
// have values already. kInvalidArgument: a factor that is not positive, or a weight that is not finite.
Status initialize_principal_adapters(Model& model, const std::vector<Adapter>& adapters,
                          const std::function<Result<HostTensor>(const std::string&)>& read,
                          bool with_values);

}  // namespace tessera
