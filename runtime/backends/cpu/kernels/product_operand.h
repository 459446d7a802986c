// What reference kernels multiply for an operand's element.
#pragma once

#include <type_traits>

#include "graph/base/tf32.h"
#include "runtime/backend_adapter.h"

namespace tessera::cpu {

// Of an op that may multiply in TF32 (attribute "allow_tf32"): f32 is rounded to it where that is allowed, as
// a GPU does, so that a plan can be held against one, and one device against the other. Other types stay.
class ProductOperand {
 public:
  explicit ProductOperand(const KernelSpec& spec) : rounds_(spec.i64("allow_tf32") == 1) {}
  template <class T>
  double operator()(T x) const {
    if constexpr (std::is_same_v<T, float>)
      if (rounds_) return static_cast<double>(tf32_from_f32(x));
    return static_cast<double>(x);
  }

 private:
  bool rounds_;
};

}  // namespace tessera::cpu
