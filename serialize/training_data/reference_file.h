// Reference log probabilities of a preference loss, f64 [rows, 2]: for each row of the dataset those of the chosen and of
// the rejected answer. KTO's rows have one answer: its own, then with the answer of another row. A cache: an invalid
// file is made again.
//
// Header, little-endian, 40 bytes: magic TSRREFLP, u32 version 1, u32 0, u64 key, u64 number of values, u64 xxh3 of all
// before and of the values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// `key`: hash of model, dataset and settings that the values depend on. kNotFound, kIo, kCorrupt; the file is untrusted.
Result<std::vector<double>> read_reference_file(const std::string& path, uint64_t key, int64_t rows);
// Writes atomically.
Status write_reference_file(const std::string& path, uint64_t key, std::span<const double> values);

}  // namespace tessera
