// Model -> model: another number of rows of the token table, and of the head where it is a parameter of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

// Rows of the token table; 0 where the model has none.
int64_t token_rows(const Model& model);

// The same with `rows` rows: the first keep their bits, new ones are drawn by `seed` from a normal distribution with the
// mean of the old rows and 1e-9 of their covariance, as transformers' resize_token_embeddings has it (a bias' from its own
// mean and 1e-9 of its deviation), and are stored in the type of the others. Parameters without a value stay so.
// `model` is what its family's builder makes of its description, and has no adapters: else kUnsupported or
// kFailedPrecondition.
Result<Model> with_token_rows(const Model& model, int64_t rows, uint64_t seed);

}  // namespace tessera
