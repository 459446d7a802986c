// AdapterValues: values of another project's file as f32 rows of our parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

// Reads a tensor as f32. kUnsupported for types that are not numeric.
Result<HostTensor> read_f32(const ByteSource& source, const std::string& name, const ForeignTensor& tensor);

HostTensor f32_matrix(int64_t rows, int64_t columns, std::span<const float> values);

// [rows, columns] -> [columns, rows].
HostTensor transposed_matrix(const HostTensor& matrix);

// Rows [first, first + rows) of a tensor [N] or [N, K]; `order`: permutation of rows within each head, or empty.
HostTensor rows_of(const HostTensor& tensor, int64_t first, int64_t rows, const std::vector<int64_t>& order);

// Replaces rows `ids` of the f32 table [V, C] by rows [N, C].
HostTensor with_rows(const HostTensor& table, const HostTensor& rows, std::span<const int64_t> ids);

}  // namespace tessera
