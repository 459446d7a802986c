// Changes the number of rows of the token table and head, and adds tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "graph/base/result.h"

namespace tessera {

// rows: 0 for the table's size, or the tokenizer's if that is
// larger. Options and errors are those of tsr_model_resize_tokens.
Result<std::shared_ptr<SharedModel>> resize_tokens(const SharedModel& model, int64_t rows,
                                                   const Options& options);

}  // namespace tessera
