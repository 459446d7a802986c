// The blocks that decoder families share: Llama's, and what others changed of it. A family reads its sizes, says
// what it changes, and builds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/models/foreign_names.h"
#include "graph/models/layer_builder.h"

namespace tessera {

// Attention whose keys and values are made of a latent vector that all heads share (DeepSeek-V2, section 2.1).
struct LatentSizes {
  int64_t KA = 0;  // width of the latent vector; 0: there is none
  int64_t QA = 0;  // width of the one that queries are made of; 0: they are made of x
  int64_t N = 0;   // numbers of a head of q and k that are not rotated; R are, which all heads of k share
  int64_t VD = 0;  // width of a head of v
  double norm_eps = 1e-6;  // of the norms of both
};

// A mixture of experts in place of a feed-forward half. F of the model is the width of one.
struct ExpertSizes {
  int64_t E = 0, K = 0;  // experts, and those of a token; 0: none
  bool normalize = true;                // a token's K weights are divided by their sum
  double capacity = 0, aux = 0, z = 0;  // see moe.cc
  std::vector<int64_t> layers;          // by layer: 0 for one without, whose width is FD; empty: all have them
  int64_t FD = 0;
  int64_t FS = 0;            // width of the expert that all tokens visit; 0: none
  bool shared_gate = false;  // which counts by the sigmoid of a product of its own
  double scale = 1;          // of the sum over a token's experts
  bool sigmoid = false;      // scores by a sigmoid of each logit in place of the softmax
  bool selection_bias = false;  // added to scores where experts are chosen (DeepSeek-V3, section 2.1.2)
  int64_t groups = 1, groups_used = 1;  // only experts of a token's best groups are taken; see moe_route
  int64_t group_best = 2;               // scores that a group counts by
  bool bias = false;                    // at the router and at every product of an expert
  double limit = 0;  // gates at most this, and ups at least -limit and at most limit; then (up + 1) * gate *
                     // sigmoid(1.702 gate); 0: swiglu
};

struct DecoderSizes {
  int64_t L, C, H, KV, D, F, V, T;
  double norm_eps, rope_theta;
  bool tied, rope_half;

  // ---- in place of "logits" [B, T, V]: without a head output "hidden" [B, T, C] alone; with `classes` it and
  // "class_logits" [B, T, classes], of which those at a text's last token are its classes
  bool head = true;
  int64_t classes = 0;
  bool causal = true;  // else attention in both directions; a window is then on either side

  // ---- what Llama does not have, at values that change nothing
  int64_t R = 0;  // the first R numbers of a head are rotated; 0: all
  // Frequencies are divided by the parameter "rope_factors" [rows, R/2]: row 1, of two, in sequences longer than
  // rope_switch. Cosines and sines are multiplied by rope_magnitude.
  int64_t rope_rows = 0, rope_switch = 0;
  double rope_magnitude = 1;
  double window_theta = 0;           // rope_theta of layers with a window, which then scale nothing; 0: as others
  std::vector<int64_t> windows;      // by layer: keys that a query sees at most, itself included; 0: all
  std::vector<int64_t> rope_layers;  // by layer: 0 for one without rotation
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool head_norm = false;        // rms_norm of every head of q and k, before the rotation
  bool wide_norm = false;        // rms_norm of all heads of q, and of k, together
  bool input_norm = true;        // rms_norm of what each half reads
  bool branch_norm = false;      // rms_norm of what each half adds
  bool sinks = false;            // a logit of each head in the denominator of its weights (attention_sink)
  bool gelu_gate = false;        // gelu (tanh form) in place of silu
  double attention_scale = 0;    // 0: 1/sqrt(D)
  double softcap = 0;            // of attention's scores; 0: none
  double logit_softcap = 0;      // of the logits
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // factors: of embeddings, of what halves add, of
                                                                    // the logits
  LatentSizes latent;
  ExpertSizes experts;
};

// Sizes, norm_eps, rope_theta, tied, rope_half, head, classes, causal: what all of them have.
DecoderSizes read_decoder_sizes(ConfigReader& config);
// Flags "qkv_bias" and "o_bias".
void read_biases(ConfigReader& config, DecoderSizes& m);
// Size "window", of all layers but each `every`th (0: of all), or list "windows".
void read_windows(ConfigReader& config, DecoderSizes& m, size_t every = 0);
// Sizes "R", "rope_rows", "rope_switch" and real "rope_magnitude".
void read_rope_scaling(ConfigReader& config, DecoderSizes& m);
// Sizes "E" and "K", flag "normalize", reals "capacity", "aux" and "z".
void read_experts(ConfigReader& config, DecoderSizes& m, bool normalize, double capacity, double aux);
// List "expert_layers" and size "FD".
void read_dense_layers(ConfigReader& config, DecoderSizes& m);

// A family's sizes, its defaults and what it changes of Llama among them.
using ReadDecoderSizes = DecoderSizes (*)(ConfigReader& config);
// What `read` makes of a configuration; the status names a size that is missing, wrong or unknown.
Result<DecoderSizes> decoder_sizes(const ModelConfig& config, ReadDecoderSizes read);
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], with experts also aux_loss f32 []; other heads: see DecoderSizes
Result<Graph> build_decoder(const ModelConfig& config, ReadDecoderSizes read);

// What Llama's parameters and those of its relatives are called by Hugging Face and in GGUF.
extern const std::span<const NameRule> kDecoderHuggingfaceNames, kDecoderGgufNames;

}  // namespace tessera
