// StateHeads: the order of the heads of values in recurrent layers with several for each head of keys. Hugging Face keeps those of
// one head of keys together; llama.cpp takes one of each head of keys in turn ("turned").
#pragma once

#include <cstdint>

#include "graph/models/decoder.h"
#include "serialize/tensor_source.h"

namespace tessera {

struct StateHeads {
  int64_t H = 1, G = 1, V = 1;  // heads of values, heads of keys, width of a head of values
  bool turned = false, wanted_turned = false;
};

StateHeads state_heads(const RecurrentSizes& sizes, bool wanted_turned);

// The parameter in the wanted order; unchanged where it has no heads of values. It is read whole. kUnsupported where a block of
// its type holds numbers of two heads.
Result<TensorSource> with_heads_in_order(TensorSource parameter, const StateHeads& heads);

}  // namespace tessera
