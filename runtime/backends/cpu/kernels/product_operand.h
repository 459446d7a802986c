// ProductOperand: the value of an operand's element that reference kernels multiply.
#pragma once

#include <type_traits>

#include "graph/base/tf32.h"
#include "runtime/backend_adapter.h"

namespace tessera::cpu {

// Ops with attribute "allow_tf32" round f32 operands to TF32 where it is set, as a GPU does, so that devices
// can be compared. Other types stay.
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
