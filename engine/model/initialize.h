// Initial values of parameters: functions of (seed, name, element
// index) alone, independent of layout, other parameters and order.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/graph.h"
#include "graph/host_tensor.h"
#include "graph/models/model_family.h"

namespace tessera {

// Counter-based random generator: mixes (key, counter) into 64 bits.
uint64_t random_bits(uint64_t key, uint64_t counter);
uint64_t random_key(uint64_t seed, std::string_view name);

// The seed of dropout and stochastic rounding in a batch of a training: 31 bits, which every seed type holds exactly.
uint64_t seed_of_batch(uint64_t seed, uint64_t number);
// The number of part `part` of a step, the first of which is that of the whole step.
uint64_t number_of_part(int64_t step, int64_t part);

// Draws f32, f64, f16 or bf16; kUnsupported for other types. `type` is concrete.
Result<HostTensor> draw(const Initializer& initializer, const TensorType& type, uint64_t seed,
                        std::string_view name);

}  // namespace tessera
