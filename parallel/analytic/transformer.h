// TransformerShape: a decoder-only transformer as its sizes alone, enough to price a training step of it.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "graph/models/model_family.h"

namespace tessera {

struct TransformerShape {
  int64_t L = 0, C = 0, H = 0, KV = 0, F = 0, V = 0, T = 0;
  int64_t D = 0;          // of a head, where it is not C / H
  bool gated = false;     // feed-forward of three matrices (llama) instead of two
  bool biases = true;     // products add a bias
  bool tied = true;       // output projection = embedding
  bool positions = true;  // learned position embedding
  double dropout = 0.1;   // > 0: dropout kernels run
  // Mixtures of experts: E feed-forwards, of which every token visits K; each takes `capacity` times its even
  // share.
  int64_t E = 0, K = 0;
  double capacity = 1;

  int64_t head_size() const { return D > 0 ? D : C / H; }
  int64_t mixed_width() const { return H * head_size(); }  // of what all heads attend to, as `o` reads it
  int64_t block_parameters() const;                        // one block, with all its experts
  int64_t expert_parameters() const;                       // of which: all its experts'
  // Adapters of rank r beside every product of a block that is no expert's: those of the dim that tensor
  // parallelism leaves whole, and of the one that it splits.
  struct Adapters {
    int64_t whole = 0, split = 0;
  };
  Adapters adapter_parameters(int64_t rank) const;
  int64_t embedding_parameters() const;  // first stage: tokens and positions
  int64_t head_parameters() const;       // last stage: final norm and projection (a copy where tied)
  int64_t parameters() const;            // tied ones once
};

// "gpt2:L=48,C=8192,H=64,V=51200,T=2048" or a llama shorthand. Models are trained with dropout unless the
// shorthand says dropout=0 or the family has none.
Result<TransformerShape> transformer_shape(const ModelConfig& config);

}  // namespace tessera
