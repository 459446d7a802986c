// The algorithms that a variant names after its colon, a word (CublasLtMatmul::fastest) a product, in the
// order in which a kernel makes its products: "cublaslt:31a2.00c7". Without them every product takes the
// heuristic's first.
#pragma once

#include <string_view>

#include "runtime/backend_adapter.h"

namespace tessera::cuda {

class LtChoices {
 public:
  explicit LtChoices(const KernelSpec& spec) : rest_(words(spec.desc().variant)) {}

  // Returns the algorithm of the next matmul; empty where none is named.
  std::string_view take() {
    const size_t end = rest_.find('.');
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return word;
  }

  // Returns the part of a variant after its colon; null means no variant.
  static std::string_view words(const char* variant) {
    const std::string_view name = variant != nullptr ? variant : "";
    const size_t colon = name.find(':');
    return colon == std::string_view::npos ? std::string_view() : name.substr(colon + 1);
  }

 private:
  std::string_view rest_;
};

}  // namespace tessera::cuda
