#include "graph/base/shape.h"

#include <algorithm>

#include "graph/base/status.h"
#include "graph/base/text.h"

namespace tessera {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  TSR_CHECK(dims.size() <= kMaxRank, "shape has too many dims");
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int8_t>(dims.size());
}

void Shape::push_back(int64_t extent) {
  TSR_CHECK(rank_ < kMaxRank, "shape has too many dims");
  dims_[static_cast<size_t>(rank_++)] = extent;
}

bool Shape::is_concrete() const {
  return std::none_of(dims().begin(), dims().end(), [](int64_t extent) { return is_symbol(extent); });
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int64_t extent : dims()) {
    TSR_CHECK(!is_symbol(extent), "shape still has symbols");
    product *= extent;
  }
  return product;
}

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

std::string to_text(const Shape& shape) {
  std::string text;
  for (int64_t extent : shape.dims()) {
    if (!text.empty()) text += ", ";
    text += is_symbol(extent) ? "$" + std::to_string(symbol_index(extent)) : std::to_string(extent);
  }
  return text;
}

int64_t bytes(const TensorType& type) { return dtype_bytes(type.dtype, type.shape.elements()); }

std::string to_text(const TensorType& type) {
  return to_text(type.dtype) + "[" + to_text(type.shape) + "]";
}

}  // namespace tessera
