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

struct DecoderSizes {
  int64_t L, C, H, KV, D, F, V, T;
  double norm_eps, rope_theta;
  bool tied, rope_half;

  // ---- what Llama does not have, at values that change nothing
  int64_t R = 0;  // the first R numbers of a head are rotated; 0: all
  // Frequencies are divided by the parameter "rope_factors" [rows, R/2]: row 1, of two, in sequences longer than
  // rope_switch. Cosines and sines are multiplied by rope_magnitude.
  int64_t rope_rows = 0, rope_switch = 0;
  double rope_magnitude = 1;
  double window_theta = 0;       // rope_theta of layers with a window, which then scale nothing; 0: as others
  std::vector<int64_t> windows;  // by layer: keys that a query sees at most, itself included; 0: all
  std::vector<int64_t> rope_layers;  // by layer: 0 for one without rotation
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool head_norm = false;               // rms_norm of every head of q and k, before the rotation
  bool branch_norm = false;             // rms_norm of what each half adds
  bool gelu_gate = false;               // gelu (tanh form) in place of silu
  double attention_scale = 0;           // 0: 1/sqrt(D)
  double softcap = 0;                   // of attention's scores; 0: none
  double logit_softcap = 0;             // of the logits
  bool scaled_embedding = false;        // embeddings are multiplied by sqrt(C)
  int64_t E = 0, K = 0;                 // experts, and those of a token; 0: none
  bool normalize = true;                // a token's K weights are divided by their sum
  double capacity = 0, aux = 0, z = 0;  // see moe.cc
};

// Sizes, norm_eps, rope_theta, tied, rope_half: what all of them have.
DecoderSizes read_decoder_sizes(ConfigReader& config);
// Flags "qkv_bias" and "o_bias".
void read_biases(ConfigReader& config, DecoderSizes& m);
// Size "window", of all layers but each `every`th (0: of all), or list "windows".
void read_windows(ConfigReader& config, DecoderSizes& m, size_t every = 0);
// Sizes "R", "rope_rows", "rope_switch" and real "rope_magnitude".
void read_rope_scaling(ConfigReader& config, DecoderSizes& m);
// Sizes "E" and "K", flag "normalize", reals "capacity", "aux" and "z".
void read_experts(ConfigReader& config, DecoderSizes& m, bool normalize, double capacity, double aux);

// A family's sizes, its defaults and what it changes of Llama among them.
using ReadDecoderSizes = DecoderSizes (*)(ConfigReader& config);
// What `read` makes of a configuration; the status names a size that is missing, wrong or unknown.
Result<DecoderSizes> decoder_sizes(const ModelConfig& config, ReadDecoderSizes read);
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], with experts also aux_loss f32 []
Result<Graph> build_decoder(const ModelConfig& config, ReadDecoderSizes read);

// What Llama's parameters and those of its relatives are called by Hugging Face and in GGUF.
extern const std::span<const NameRule> kDecoderHuggingfaceNames, kDecoderGgufNames;

}  // namespace tessera
