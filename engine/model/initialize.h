// Initial values of parameters: drawn from (seed, name, element index) alone, so they depend neither on the
// layout, nor on other parameters, nor on the order of requests.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/graph.h"
#include "graph/host_tensor.h"
#include "graph/models/model_family.h"

namespace tessera {

// A value of the counter-based generator: mixes (key, counter) into 64 random bits.
uint64_t random_bits(uint64_t key, uint64_t counter);
uint64_t random_key(uint64_t seed, std::string_view name);

// f32, f64, f16 and bf16; kUnsupported for others. `type` is concrete.
Result<HostTensor> draw(const Initializer& initializer, const TensorType& type, uint64_t seed,
                        std::string_view name);

}  // namespace tessera
