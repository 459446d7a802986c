// Low-rank adapters: a second matmul of two small trainable matrices next to a matmul of a frozen weight W,
//   y = x W + factor * (x A) B,   factor = alpha / rank,
// as ordinary nodes, so that every strategy, kernel and file supports them. A starts at random and B at zero:
// an adapted model computes what the model did. Graph -> graph, before differentiation.
//
// With magnitudes m (DoRA, https://arxiv.org/abs/2402.09353) output n of W' = W + factor * A B counts m[n] / |W'[n]|
// times, where |W'[n]| is the norm of its part of W', which gradients take for a constant.
//
// With a start (PiSSA, https://arxiv.org/abs/2404.02948) A and B begin as A0 and B0, the principal part of W, and
//   y = x W + factor * ((x A) B - (x A0) B0):
// the residual W - factor * A0 B0 of the paper is never stored, so that W keeps its type and the first step its bits.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Matrices that only matmuls read, as their weight: those of the blocks, where parameters are named
// "block.*", else all.
std::vector<TensorId> adaptable_weights(const Graph& forward);

// AdapterOptions: adapters for every matmul of `weights`, named after them: "block.0.q.weight" gets
// "block.0.q.lora_a" and "block.0.q.lora_b", stored as the weight is (its rows or columns `rank`). All other
// parameters are frozen. kInvalidArgument: a weight that is not adaptable, a rank above the weight's,
// adapters already there.
struct AdapterOptions {
  int64_t rank = 16;
  double alpha = 0;  // 0: the rank, for a factor of 1
};
Result<Graph> with_adapters(const Graph& forward, std::span<const TensorId> weights,
                            const AdapterOptions& options);

// AdapterPlacement: an adapter of one weight, which only matmuls read as their weight, or only embeddings as their
// table. Of a table [V, C] the first matrix is a table too, [V, rank], and the second [C, rank].
struct AdapterPlacement {
  TensorId weight = kNoTensor;
  int64_t rank = 16;
  double factor = 1;
  std::string a = {};  // name of the first matrix, which adapters of one name share; empty: after the weight
  bool has_bias = false;       // a vector of its own is added, "block.0.q.lora_bias"
  bool has_magnitude = false;  // DoRA, of matmuls alone: "block.0.q.lora_magnitude"
  bool has_start =
      false;           // PiSSA, of matmuls alone: "block.0.q.lora_a0", "block.0.q.lora_b0", which are frozen
  double dropout = 0;  // of what A multiplies while training; not of tables
};
// kInvalidArgument where the placement cannot be, or its rank is above the weight's, which a new adapter would waste.
Status check_new_adapter(const Graph& forward, const AdapterPlacement& placement);
// Checks placements whatever the ranks are.
Status check_adapter_placements(const Graph& forward, std::span<const AdapterPlacement> placements);
// The same with a rank, of any size, and a factor for each weight.
Result<Graph> with_adapters(const Graph& forward, std::span<const AdapterPlacement> placements);

// An existing adapter, by the names of its parameters. `transposed`: weight [N, K], a [rank, K], b [N, rank];
// else weight [K, N], a [K, rank], b [rank, N]. `is_table`: weight [V, C], a [V, rank], b [C, rank].
struct Adapter {
  std::string weight, a, b;
  std::string bias;       // [N], counts `factor` times as well; empty: none
  std::string base_bias;  // of the weight's own product; empty: none
  std::string magnitude;  // [N]; empty: none
  std::string a0, b0;     // of the start, as a and b; empty: none
  double dropout = 0;
  int64_t rank = 0;
  double factor = 1;
  bool transposed = true, is_table = false;
};
std::vector<Adapter> find_adapters(const Graph& forward);

// Whether a node is the dropout of an adapter, not of the model.
bool is_adapter_dropout(const Node& node);

// Whether a parameter of that name is part of an adapter.
bool is_adapter_name(std::string_view parameter);

// The graph without adapters, all parameters trainable that can be: the function of a merged model, once W += factor *
// A B, the bias of W's product has taken in the adapter's, and the parts of W the magnitudes.
Result<Graph> without_adapters(const Graph& forward);

}  // namespace tessera
