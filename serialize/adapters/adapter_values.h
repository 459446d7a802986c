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

// The tensor in f32. kUnsupported where its type stands for no numbers.
Result<HostTensor> read_f32(const ByteSource& source, const std::string& name, const ForeignTensor& tensor);

HostTensor f32_matrix(int64_t rows, int64_t columns, std::span<const float> values);

// [rows, columns] -> [columns, rows].
HostTensor transposed_matrix(const HostTensor& matrix);

// Rows [first, first + rows) of a tensor [N] or [N, K]; `order`, if any, is that of the rows within each head.
HostTensor rows_of(const HostTensor& tensor, int64_t first, int64_t rows, const std::vector<int64_t>& order);

// The f32 table [V, C] with rows [N, C] in the places `ids`, which are below V.
HostTensor with_rows(const HostTensor& table, const HostTensor& rows, std::span<const int64_t> ids);

}  // namespace tessera
