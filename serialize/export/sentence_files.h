// The files that sentence-transformers reads in a folder: how the vectors of its tokens become one of a text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "serialize/model.h"

namespace tessera {

// Names and contents, where the model says how its vectors, of `channels` numbers, are pooled; none otherwise.
std::vector<std::pair<std::string, std::string>> sentence_files(const Model& model, int64_t channels);

}  // namespace tessera
