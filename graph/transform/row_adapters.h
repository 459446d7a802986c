// RowAdapters: low-rank adapters chosen by token, next to products with unchanged
// weights ("S-LoRA", Sheng et al., 2023). Matmuls by matrices of the blocks have
// them: those of `adaptable_weights` (adapters.h), also behind a cast to 16 bits.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

// Names of states, after the weight's: factors [slots, rank, K] and, times
// alpha / rank, [slots, rank, N] of a weight that maps K to N elements.
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
  // Copies such a node, and adds the tokens' adapters to its result, before
  // its activation. `adapter`: i32, the slot of each token, in the copy.
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
