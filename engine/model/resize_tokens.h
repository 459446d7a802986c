// A model with another number of rows in its token table and head, and with new tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "graph/base/result.h"

namespace tessera {

// rows: 0 for as many as the table has, or its tokenizer's tokens where those are more. Options and errors are those of
// tsr_model_resize_tokens.
Result<std::shared_ptr<SharedModel>> resize_tokens(const SharedModel& model, int64_t rows,
                                                   const Options& options);

}  // namespace tessera
