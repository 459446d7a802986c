// Low-rank adapters: a second matmul of two small trainable matrices next to a matmul of a frozen weight W,
//   y = x W + factor * (x A) B,   factor = alpha / rank,
// as ordinary nodes, so that every strategy, kernel and file supports them. A starts at random and B at zero:
// an adapted model computes what the model did. Graph -> graph, before differentiation.
//
// With magnitudes m (DoRA,
// https://arxiv.org/abs/2402.09353) output
// n of W' = W + factor * A B is multiplied
// by m[n] / |W'[n]|, where |W'[n]| is the
// norm of its part of W', a constant to
// gradients.
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

// AdapterOptions: adapters for every matmul of `weights`, named after them:
// "block.0.q.weight" gets "block.0.q.lora_a" and "block.0.q.lora_b", stored as the weight
// is (its rows or columns `rank`). All other parameters are frozen. kInvalidArgument: a
// weight that is not adaptable, a rank above the weight's, existing adapters.
struct AdapterOptions {
  int64_t rank = 16;
  double alpha = 0;  // 0: the rank, for a factor of 1
};
Result<Graph> with_adapters(const Graph& forward, std::span<const TensorId> weights,
                            const AdapterOptions& options);

// AdapterPlacement: an adapter of one weight that only matmuls read as their weight, or only embeddings as
// their table. The first matrix of a table [V, C] is a table too, [V, rank], and the second is [C, rank].
struct AdapterPlacement {
  TensorId weight = kNoTensor;
  int64_t rank = 16;
  double factor = 1;
  std::string a = {};  // name of the first matrix, shared by adapters of one name; empty: after the weight
  bool has_bias = false;       // a bias of the adapter, "block.0.q.lora_bias"
  bool has_magnitude = false;  // DoRA, of matmuls alone: "block.0.q.lora_magnitude"
  bool has_start =
      false;           // PiSSA, of matmuls alone: "block.0.q.lora_a0", "block.0.q.lora_b0", which are frozen
  double dropout = 0;  // of A's operand in training; not of tables
};
// kInvalidArgument for an impossible placement, or a rank above the weight's, which a new adapter would waste.
Status check_new_adapter(const Graph& forward, const AdapterPlacement& placement);
// Checks placements except their ranks.
Status check_adapter_placements(const Graph& forward, std::span<const AdapterPlacement> placements);
// The same with a rank of any size and a factor for each weight.
Result<Graph> with_adapters(const Graph& forward, std::span<const AdapterPlacement> placements);

// An existing adapter, by the names of its parameters. `transposed`: weight [N, K], a [rank, K], b [N, rank];
// else weight [K, N], a [K, rank], b [rank, N]. `is_table`: weight [V, C], a [V, rank], b [C, rank].
struct Adapter {
  std::string weight, a, b;
  std::string bias;       // [N], multiplied by `factor` too; empty: none
  std::string base_bias;  // of the weight's own product; empty: none
  std::string magnitude;  // [N]; empty: none
  std::string a0, b0;     // of the start, as a and b; empty: none
  double dropout = 0;
  int64_t rank = 0;
  double factor = 1;
  bool transposed = true, is_table = false;
};
std::vector<Adapter> find_adapters(const Graph& forward);

// Returns whether a node is the dropout of an adapter, not of the model.
bool is_adapter_dropout(const Node& node);

// The name of a weight's first matrix, where its placement gives none, and the salt of the dropout of its operand, by that name:
// what is dropped depends on no other adapter.
std::string first_matrix_name(std::string_view weight);
int64_t adapter_dropout_salt(std::string_view first_matrix);

// Returns whether a parameter of that name belongs to an adapter.
bool is_adapter_name(std::string_view parameter);

// The graph without adapters, with every trainable parameter trainable: the function of a merged model, once
// W += factor * A B, the bias of W's product has the adapter's added, and the parts of W the magnitudes.
Result<Graph> without_adapters(const Graph& forward);

}  // namespace tessera
