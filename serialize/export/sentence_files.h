// Files of sentence-transformers: the pooling of token vectors, and Dense modules behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/models/dense_modules.h"
#include "serialize/export/tensor_file.h"
#include "serialize/model.h"

namespace tessera {

// Names and contents, if the model states the pooling of its vectors of `channels` numbers; else empty. `pooling`: where the model
// states none.
std::vector<std::pair<std::string, std::string>> sentence_files(const Model& model, int64_t channels, const DenseModules& dense = {},
                                                                std::string_view pooling = {});
// The weights of Dense modules, taken out of `parameters`.
Result<std::vector<TensorFile>> dense_module_files(const DenseModules& dense, std::vector<TensorSource>& parameters);

}  // namespace tessera
