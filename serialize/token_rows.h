// Changes the number of rows of the token table and of an untied head.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

// Rows of the token table; 0: none.
int64_t token_rows(const Model& model);

// The model with `rows` rows: the first keep their bits, new ones are drawn by `seed`
// from a normal distribution with the old rows' mean and 1e-9 of their covariance, as
// transformers' resize_token_embeddings (biases likewise, with 1e-9 of the deviation),
// in the table's type. Parameters without values stay so. kUnsupported or
// kFailedPrecondition unless `model` is built from its description and has no adapters.
Result<Model> with_token_rows(const Model& model, int64_t rows, uint64_t seed);

}  // namespace tessera
