// values_of: a tensor of a folder of another project, as floats.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

// The tensor has the type `dtype`.
inline std::vector<float> values_of(const ForeignFile& file, const std::string& name, DType dtype) {
  const auto found = file.tensors.find(name);
  REQUIRE(found != file.tensors.end());
  CHECK(found->second.dtype == dtype);
  std::vector<std::byte> stored(static_cast<size_t>(found->second.bytes));
  const Status status = file.source->read_at(found->second.offset, stored);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  std::vector<float> values(static_cast<size_t>(found->second.shape.elements()));
  decode_blocks(dtype, stored.data(), values.data(), std::ssize(values));
  return values;
}

}  // namespace tessera
