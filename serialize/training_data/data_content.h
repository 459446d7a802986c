// The kind of a training file by its first bytes: plain text, rows of JSON, or an unsupported format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// Sufficient number of first bytes.
inline constexpr size_t kContentHead = size_t{1} << 20;

// RowLayout: one object per line, one array, or objects that span lines.
enum class RowLayout : uint8_t { kLines, kArray, kStream };

// kInvalidArgument, beginning with `name` and with the remedy,
// for binary formats (gzip, Parquet, PDF, a model, UTF-16 ...).
Status check_no_binary(std::string_view head, std::string_view name);

// Whether a file that begins with `head` (all of it if `is_whole`) holds rows of
// JSON; else it is plain text. kInvalidArgument for binary formats, tables (CSV, TSV;
// unless `takes_tables`), and JSON other than rows. `path` may be "": no file name.
Result<bool> holds_rows(std::string_view head, bool is_whole, std::string_view name, std::string_view path,
                        bool takes_tables = false);

// The layout of rows that begin with `head`.
RowLayout row_layout(std::string_view head);

// kInvalidArgument with the offset of the first invalid byte.
Status check_utf8(std::string_view text, std::string_view name);

}  // namespace tessera
