// Files of reference log probabilities: two numbers per row of a dataset. A cache: an invalid file is
// made again. Little-endian: a header, then f64 [rows, 2]. The format is described in COMPATIBILITY.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// `key`: hash of all inputs of the numbers. kNotFound, kIo, kCorrupt; the file is untrusted.
Result<std::vector<double>> read_reference_file(const std::string& path, uint64_t key, int64_t rows);
// Writes atomically.
Status write_reference_file(const std::string& path, uint64_t key, std::span<const double> values);

}  // namespace tessera
