// Files of reference log probabilities: two numbers for each row of a dataset. A cache: a file that is not what its name
// says is made again. Little-endian: a header, then f64 [rows, 2]. The format is described in COMPATIBILITY.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// `key`: of all that the numbers depend on. kNotFound, kIo, kCorrupt; the file is not trusted.
Result<std::vector<double>> read_reference_file(const std::string& path, uint64_t key, int64_t rows);
// Appears whole or not at all.
Status write_reference_file(const std::string& path, uint64_t key, std::span<const double> values);

}  // namespace tessera
