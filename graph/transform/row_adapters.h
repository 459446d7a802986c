// RowAdapters: low-rank adapters chosen by token, next to products with unchanged
// weights ("S-LoRA", Sheng et al., 2023). Matmuls by matrices of the blocks have
// them: those of `adaptable_weights` (adapters.h), also behind a cast to 16 bits; and, where asked, the head and the tables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

// Names of states, after the weight's: factors [slots, rank, K] and, times
// alpha / rank, [slots, rank, N] of a weight that maps K to N elements. The first of a
// table [K, N] are rows, [slots, K, rank].
inline constexpr std::string_view kAdapterA = ".adapter_a", kAdapterB = ".adapter_b", kAdapterTable = ".adapter_rows";
inline bool is_adapter_state(std::string_view name) {
  return name.ends_with(kAdapterA) || name.ends_with(kAdapterB) || name.ends_with(kAdapterTable);
}

// The weight of the head, as adapters name it: of a table that is the head too, the parameter that the head becomes where
// it is adapted alone ("output"). Empty: no product with a parameter makes the logits.
std::string adapted_head(const Graph& forward);

struct RowAdapterOptions {
  int64_t slots = 0, rank = 0;
  DType dtype = DType::kF32;  // of the factors
  bool head = false;          // the head has them, too
  bool tables = false;        // and tables of which rows are looked up, such as the tokens'
  TensorKind kind = TensorKind::kState;  // or kParameter, which trains
  std::vector<TensorId> weights = {};    // empty: all that may have adapters
};

// RowInputs: what is told of tokens and rows, in the graph with adapters.
struct RowInputs {
  TensorId adapter = kNoTensor;  // i32, the slot of each token
  TensorId factor = kNoTensor;   // of each token's adapter; kNoTensor: it is part of B
  // Operands of row_dropout, one number a row; kNoTensor: no dropout.
  TensorId seed = kNoTensor, row = kNoTensor, rate = kNoTensor;
};

class RowAdapters {
 public:
  RowAdapters(const Graph& forward, const RowAdapterOptions& options);

  bool applies_to(const Node& node) const;
  bool has_head() const { return head_ != kNoNode; }  // with `head`
  // Copies such a node, and adds the tokens' adapters to its result, before
  // its activation.
  Status add_product(GraphCopy& copy, NodeId id, const RowInputs& rows);

 private:
  struct Factors {
    TensorId a = kNoTensor, b = kNoTensor;
  };
  bool is_head(const Node& node) const;
  bool is_adapted_table(const Node& node) const;
  Result<TensorId> first_product(GraphCopy& copy, const Node& node, TensorId a, const RowInputs& rows) const;
  Result<Factors> factors_of(GraphCopy& copy, const Node& node);

  const Graph& forward_;
  const RowAdapterOptions options_;
  std::vector<bool> is_adapted_;         // by tensor
  NodeId head_ = kNoNode;                // the head's product, where it has them
  // In the copy, by the base's parameter: a tied one is a product's weight and a table.
  std::map<TensorId, Factors> factors_, table_factors_;
};

}  // namespace tessera
