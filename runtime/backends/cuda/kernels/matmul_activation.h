// The activation that a matmul node may end with.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/base/result.h"
#include "graph/base/text.h"

namespace tessera::cuda {

enum class MatmulActivation : int32_t { kNone, kRelu, kGelu, kSilu };

inline Result<MatmulActivation> matmul_activation(std::string_view name) {
  if (name == "none") return MatmulActivation::kNone;
  if (name == "relu") return MatmulActivation::kRelu;
  if (name == "gelu") return MatmulActivation::kGelu;
  if (name == "silu") return MatmulActivation::kSilu;
  return Status(StatusCode::kUnsupported, format("activation '{}' is not known to this kernel", name));
}

}  // namespace tessera::cuda
