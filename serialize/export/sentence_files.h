// Files of sentence-transformers: the pooling of token vectors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "serialize/model.h"

namespace tessera {

// Names and contents, if the model states the pooling of its vectors of `channels` numbers; else empty.
std::vector<std::pair<std::string, std::string>> sentence_files(const Model& model, int64_t channels);

}  // namespace tessera
