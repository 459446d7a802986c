// Low-rank adapters: beside a product of a frozen weight W a second one of two small matrices that train,
//   y = x W + factor * (x A) B,   factor = alpha / rank,
// as ordinary nodes, so that every strategy, kernel and file that knows products knows adapters. A starts at
// random and B at zero: an adapted model computes what the model did. Graph -> graph, before
// differentiation.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Matrices that nothing but products read, as their weight: those of the blocks, where parameters are named
// "block.*", else all.
std::vector<TensorId> adaptable_weights(const Graph& forward);

// Adapters beside every product of `weights`, named after them: "block.0.q.weight" gets "block.0.q.lora_a"
// and "block.0.q.lora_b", stored as the weight is (its rows or columns `rank`). All other parameters are
// frozen. kInvalidArgument: a weight that is not adaptable, a rank above the weight's, adapters already
// there.
struct AdapterOptions {
  int64_t rank = 16;
  double alpha = 0;  // 0: the rank, for a factor of 1
};
Result<Graph> with_adapters(const Graph& forward, std::span<const TensorId> weights,
                            const AdapterOptions& options);

// What is there: names of parameters. `transposed`: weight [N, K], a [rank, K], b [N, rank]; else weight
// [K, N], a [K, rank], b [rank, N].
struct Adapter {
  std::string weight, a, b;
  double factor = 1;
  bool transposed = true;
};
std::vector<Adapter> find_adapters(const Graph& forward);

// Whether a parameter so named is one of an adapter's two.
bool is_adapter_name(std::string_view parameter);

// The graph without them, all parameters trainable: what a merged model computes, once W += factor * A B.
Result<Graph> without_adapters(const Graph& forward);

}  // namespace tessera
