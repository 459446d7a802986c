// Shape: extents of a tensor, at most kMaxRank dims. An extent is a count >= 0, or a symbol ("B", "T") that a
// Graph declares and `bind` replaces by a number before lowering. A symbol is stored as -1 - symbol index.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "graph/base/dtype.h"

namespace tessera {

inline constexpr int kMaxRank = 6;

class Shape {
 public:
  Shape() = default;  // scalar
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int dim) const { return dims_[static_cast<size_t>(dim)]; }
  void set(int dim, int64_t extent) { dims_[static_cast<size_t>(dim)] = extent; }
  void push_back(int64_t extent);
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  bool is_concrete() const;  // no symbols left
  int64_t elements() const;  // product of extents; needs is_concrete()

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int8_t rank_ = 0;
};

inline constexpr bool is_symbol(int64_t extent) { return extent < 0; }
inline constexpr int64_t symbol_extent(int32_t symbol) { return -1 - int64_t{symbol}; }
inline constexpr int32_t symbol_index(int64_t extent) { return static_cast<int32_t>(-1 - extent); }

std::string to_text(const Shape& shape);  // "4, 128"; symbols print as "$0"

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

int64_t bytes(const TensorType& type);  // needs a concrete shape
std::string to_text(const TensorType& type);  // "f32[4, 128]"

}  // namespace tessera
