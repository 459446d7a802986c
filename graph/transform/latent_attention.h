// LatentAttention: an attention whose keys and values are products of one latent vector of each token (multi-head latent
// attention; DeepSeek-V2, section 2.1, arXiv 2405.04434), and its absorbed form: the products of keys move to the queries,
// those of values behind the attention, so that it reads latent vectors alone. With a head's rows of the weight, U of its
// keys and V of its values:  q . (U c) = (U^T q) . c,  sum over s of p[s] * (V c[s]) = V (sum over s of p[s] * c[s])
// The weight may be a sum, difference or multiple of weights, or a product of two, as adapters and scales make it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

struct LatentAttention {
  TensorId latent = kNoTensor;   // c [B, T, KA], of rank KA
  TensorId product = kNoTensor;  // [B, T, H * M], of c: each head's part of keys, then its values
  TensorId shared = kNoTensor;   // [B, T, R]: the rotated part of keys, the same in all heads
  std::vector<NodeId> matmuls;   // the matmuls whose sum is `product`
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  Range keys, values;  // places among a head's M elements
  int64_t rank = 0;    // KA
  int64_t width = 0;   // KA + R
  // Elements of a head's query: those for the head's own keys, and those for the shared part.
  Range own_part, shared_part;
};

// Finds the parts of a latent attention built by graph/models/latent_attention.h; nullopt for any other.
std::optional<LatentAttention> find_latent_attention(const Graph& graph, const Node& attention);

// The parts of the absorbed form are added to a copy of the graph.
// Adds the row of a token that all heads read: its latent vector and the shared part of its key, [B, T, 1, KA + R].
Result<TensorId> add_latent_rows(GraphCopy& copy, const LatentAttention& latent);
// Adds the queries of these rows, [B, T, H, KA + R], from the attention's queries.
Result<TensorId> add_absorbed_queries(GraphCopy& copy, const LatentAttention& latent, const Node& attention);
// Adds the attention's results from sums of latent vectors [B, T, H, KA].
Result<TensorId> add_head_values(GraphCopy& copy, const LatentAttention& latent, TensorId sums);

}  // namespace tessera
