// What a file of training data holds, told by its first bytes: a plain text, rows of JSON, or a format that is not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// Bytes that suffice to tell.
inline constexpr size_t kContentHead = size_t{1} << 20;

// How rows follow one another: an object a line, one array, or objects that span lines.
enum class RowLayout : uint8_t { kLines, kArray, kStream };

// kInvalidArgument, beginning with `name`, for bytes of a format that is no text (gzip, Parquet, PDF, a model, UTF-16 ...),
// with the remedy.
Status check_no_binary(std::string_view head, std::string_view name);

// Whether a file that begins with `head`, which is all of it if `is_whole`, holds rows of JSON; else it is a plain text.
// kInvalidArgument for what is neither: binary formats, tables (CSV, TSV; unless `takes_tables`), JSON that is no rows.
// `path` may be "": there is no file name to look at.
Result<bool> holds_rows(std::string_view head, bool is_whole, std::string_view name, std::string_view path,
                        bool takes_tables = false);

// How the rows that begin with `head` are laid out.
RowLayout row_layout(std::string_view head);

// kInvalidArgument with the offset of the first byte that is no UTF-8.
Status check_utf8(std::string_view text, std::string_view name);

}  // namespace tessera
