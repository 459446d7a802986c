// Array: a tensor in memory whose elements are read and written as doubles, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/base/shape.h"

namespace tessera::conformance {

struct Array {
  TensorType type;
  std::vector<std::byte> bytes;

  static Array zeros(const TensorType& type);
  static Array of(const TensorType& type,
                  const std::vector<double>& values);  // block types: rounded to blocks
  // The elements with these indices, as they are stored; of block types whole blocks.
  Array part(const TensorType& type, const std::vector<int64_t>& elements) const;

  int64_t count() const { return type.shape.elements(); }
  double get(int64_t i) const;
  void set(int64_t i, double value);  // plain types
  std::vector<double> values() const;
};

// |got - want| <= tolerance * max(1, |want|); infinities and NaNs equal themselves.
bool near(double got, double want, double tolerance);

}  // namespace tessera::conformance
