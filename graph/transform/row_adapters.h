// RowAdapters: low-rank adapters that each token has one of, beside products with weights that stay as they are
// ("S-LoRA", Sheng et al., 2023). Matmuls by matrices of the blocks get them: those that `adaptable_weights` (adapters.h)
// names, also where they are read through a cast to 16 bits.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

// Names of states, after the weight's: factors [slots, rank, K] and, times alpha / rank, [slots, rank, N] of a weight that
// makes N numbers of K.
inline constexpr std::string_view kAdapterA = ".adapter_a", kAdapterB = ".adapter_b";
inline bool is_adapter_state(std::string_view name) {
  return name.ends_with(kAdapterA) || name.ends_with(kAdapterB);
}

struct RowAdapterOptions {
  int64_t slots = 0, rank = 0;
  DType dtype = DType::kF32;  // of the factors
};

class RowAdapters {
 public:
  RowAdapters(const Graph& forward, const RowAdapterOptions& options);

  bool applies_to(const Node& node) const;
  // Copies such a node; to what it made the adapters of the tokens are added, before its activation. `adapter`: i32, the
  // slot of each token, in the copy.
  Status add_product(GraphCopy& copy, NodeId id, TensorId adapter);

 private:
  struct Factors {
    TensorId a = kNoTensor, b = kNoTensor;
  };
  TensorId weight_of(const Node& node) const;
  Result<Factors> factors_of(GraphCopy& copy, const Node& node);

  const Graph& forward_;
  const RowAdapterOptions options_;
  std::vector<bool> is_adapted_;         // by tensor
  std::map<TensorId, Factors> factors_;  // by weight, in the copy
};

}  // namespace tessera
