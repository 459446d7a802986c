// DecoderSizes: the sizes and options of the decoder families, Llama's and
// its relatives'. A family reads its sizes, sets its options, and builds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/models/dense_modules.h"
#include "graph/models/foreign_names.h"
#include "graph/models/layer_builder.h"
#include "graph/models/model_family.h"

namespace tessera {

// Sizes of attention whose keys and values are projections of a latent vector shared by all heads (DeepSeek-V2, section 2.1).
struct LatentSizes {
  int64_t KA = 0;  // width of the latent vector; 0: no latent attention
  int64_t QA = 0;  // width of the queries' latent vector; 0: queries are projections of x
  int64_t N = 0;   // unrotated elements of a head of q and k; R are rotated, which all heads of k share
  int64_t VD = 0;  // width of a head of v
  double norm_eps = 1e-6;  // of both latent vectors' norms
};

// Sizes of a mixture of experts in place of a feed-forward half. The model's F is the width of one expert.
struct ExpertSizes {
  int64_t E = 0, K = 0;  // experts, and experts of each token; 0: none
  bool normalize = true;                // a token's K weights are divided by their sum, plus sum_eps
  double sum_eps = 0;
  double capacity = 0, aux = 0, z = 0;  // see moe.cc
  std::vector<int64_t> layers;          // by layer: 0 for a dense layer, whose width is FD; empty: all layers have experts
  int64_t FD = 0;
  int64_t FS = 0;            // width of the shared expert, which all tokens visit; 0: none
  bool shared_gate = false;  // the shared expert is weighted by the sigmoid of a product of its own
  double scale = 1;          // factor of the sum over a token's experts
  bool sigmoid = false;      // scores by a sigmoid of each logit in place of the softmax
  bool selection_bias = false;  // added to scores for the choice of experts (DeepSeek-V3, section 2.1.2)
  int64_t groups = 1, groups_used = 1;  // a token's experts are of its best groups alone; see moe_route
  int64_t group_best = 2;               // number of scores whose sum ranks a group
  bool bias = false;                    // at the router and at every product of an expert
  int64_t M = 0;  // width of the routed experts' input and output, which are projections of x; 0: C
  bool beside_dense = false;  // in addition to a dense MLP: both have norms of their own before and after
  bool router_norm = false;   // the router reads the half's input before its norm: normed, over sqrt(C), times a weight [C]
  bool output_scale = false;  // a weight of each expert's result
  double limit = 0;  // gates at most this, and ups at least -limit and at most limit; then (up + 1) * gate *
                     // sigmoid(1.702 gate); 0: swiglu
};

// Recurrent: what mixes the tokens of a recurrent layer, in place of attention.
enum class Recurrent : uint8_t {
  kNone,
  kConvolution,  // a causal convolution between two products (LFM2, section 2)
  kDelta,        // the gated delta rule ("Gated Delta Networks", Yang et al., 2024)
  kStateSpace,   // state-space duality (Mamba-2; Dao and Gu, 2024)
};

// Sizes of recurrent layers. A convolution has the model's C channels; the other two have H states of K x V.
struct RecurrentSizes {
  Recurrent kind = Recurrent::kNone;
  std::vector<int64_t> layers;  // by layer: 1 for a recurrent one, 0 for one with attention
  int64_t taps = 0;             // of the causal convolution
  bool conv_bias = false;
  int64_t H = 0, V = 0;  // heads of values, and their width
  int64_t G = 0, K = 0;  // heads of keys and queries, each for H / G heads of values, and their width
  bool turned = false;   // head j of values reads head j mod G of keys; else head j / (H / G)
  double least_step = 0, most_step = 0;  // bounds of the step of a state space; 0: none
};

struct DecoderSizes {
  int64_t L, C, H, KV, D, F, V, T;
  double norm_eps, rope_theta;
  bool tied, rope_half;

  // ---- replacements of "logits" [B, T, V]: without a head the output is "hidden" [B, T, C] alone; with `classes` also
  // "class_logits" [B, T, classes], of which those at a text's last token are its classes
  bool head = true;
  int64_t classes = 0;
  DenseModules dense;  // behind "hidden", whose width is then theirs
  bool causal = true;  // false: attention in both directions; a window is then on either side

  // ---- sizes by layer in place of D, KV and F (of a dense layer); empty: all layers are alike
  std::vector<int64_t> head_sizes, kv_heads, ffn_widths;
  int64_t head_size(size_t layer) const { return head_sizes.empty() ? D : head_sizes[layer]; }
  int64_t kv_count(size_t layer) const { return kv_heads.empty() ? KV : kv_heads[layer]; }
  int64_t ffn_width(size_t layer) const { return !ffn_widths.empty() ? ffn_widths[layer] : experts.FD > 0 ? experts.FD : F; }

  // ---- attention by layer; empty lists: as Llama
  std::vector<int64_t> kv_layers;   // the layer whose keys and values are read: itself, or an earlier one
  std::vector<int64_t> key_values;  // 1: values are the keys' projection, before norm and rotation
  bool has_own_keys(size_t layer) const { return kv_layers.empty() || kv_layers[layer] == static_cast<int64_t>(layer); }

  // ---- per-layer embeddings (layer_inputs.h): P numbers of a token for each layer, from a table of PV tokens; 0: none
  int64_t P = 0, PV = 0;
  bool layer_scale = false;  // each block's result is multiplied by a constant of its own

  // ---- options that Llama lacks; the defaults have no effect
  int64_t R = 0;  // rotated elements at the start of a head; 0: all of the layer's
  // Frequencies are divided by the parameter "rope_factors" [rows, R/2]: row 1, of two, in sequences longer than
  // rope_switch. Cosines and sines are multiplied by rope_magnitude.
  int64_t rope_rows = 0, rope_switch = 0;
  double rope_magnitude = 1;
  double window_theta = 0;           // rope_theta of layers with a window, whose rotations are unscaled; 0: as others
  std::vector<int64_t> windows;      // by layer: keys that a query sees at most, itself included; 0: all
  std::vector<int64_t> rope_layers;  // by layer: 0 for one without rotation
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool head_norm = false;        // rms_norm of every head of q and k, before the rotation
  bool value_norm = false;       // rms_norm without weight of every head of v
  bool wide_norm = false;        // rms_norm over all heads of q, and of k, at once
  bool input_norm = true;        // rms_norm of the input of each half
  bool branch_norm = false;      // rms_norm of the output of each half
  bool output_gate = false;      // values of attention are multiplied by the sigmoid of a product with q's other half
  bool sinks = false;            // a logit of each head in the denominator of its weights (attention_sink)
  bool gelu_gate = false;        // gelu (tanh form) in place of silu
  double attention_scale = 0;    // 0: 1/sqrt(D)
  double query_beta = 0;         // temperature of rotated queries by their position (position_scale); 0: none
  int64_t query_context = 0;     // its steps
  double softcap = 0;            // of attention's scores; 0: none
  double logit_softcap = 0;      // of the logits
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // factors: of embeddings, of what halves add, of
                                                                    // the logits
  LatentSizes latent;
  ExpertSizes experts;
  RecurrentSizes recurrent;
  // 1: a draft block after the last (draft_block.h), with an embedding and a head of its own where draft_tables; 0: none.
  int64_t MTP = 0;
  bool draft_tables = false;
  bool squared_relu = false;     // feed-forward halves are down(relu(up x)^2), without a gate
  std::vector<int64_t> halves;   // by layer: 1 for the mixer alone, 2 for the feed-forward half alone, 0 for both; empty: both
  // The beginning of the names of a layer's parameters and scopes; layer L is the draft block.
  std::string block(size_t layer) const;
  bool has_mixer(size_t layer) const { return halves.empty() || halves[layer] != 2; }
  bool has_feed_forward(size_t layer) const { return halves.empty() || halves[layer] != 1; }
  // The name of the norm before a mixer; halves alone have one norm.
  const char* mixer_norm() const { return halves.empty() ? ".attention_norm" : ".norm"; }
  bool is_recurrent(size_t layer) const { return !recurrent.layers.empty() && recurrent.layers[layer] != 0; }

  bool has_experts(size_t layer) const { return experts.E > 0 && (experts.layers.empty() || experts.layers[layer] != 0); }
  // Whether the layer rotates by window_theta.
  bool has_local_rotation(size_t layer) const { return window_theta > 0 && !windows.empty() && windows[layer] > 0; }
  // The first layer with a window, and the first without; the first of all where there is none.
  size_t window_layer() const;
  size_t full_layer() const;
  // Columns of rope_factors: rotated pairs of a head in layers without local rotation.
  int64_t scaled_pairs() const { return (R == 0 ? head_size(full_layer()) : R) / 2; }
};

// Reads the common sizes: norm_eps, rope_theta, tied, rope_half, head, classes, causal, dense.
DecoderSizes read_decoder_sizes(ConfigReader& config);
// Reads the lists "head_sizes", "kv_heads" and "ffn_widths".
void read_layer_sizes(ConfigReader& config, DecoderSizes& m);
// Reads the size "shared_kv", the number of last layers that read keys and values of the last layer before them of their kind
// (with a window or without), and the list "key_values".
void read_shared_keys(ConfigReader& config, DecoderSizes& m);
// Reads the sizes "P" and "PV", and the flag "layer_scale".
void read_layer_inputs(ConfigReader& config, DecoderSizes& m);
// Reads the flags "qkv_bias" and "o_bias".
void read_biases(ConfigReader& config, DecoderSizes& m);
// Reads the real "query_beta" and the size "query_context".
void read_query_temperature(ConfigReader& config, DecoderSizes& m);
// Reads the size "window", for all layers except each `every`th (0: for all), or the list "windows".
void read_windows(ConfigReader& config, DecoderSizes& m, size_t every = 0);
// Reads the sizes "R", "rope_rows", "rope_switch" and the real "rope_magnitude".
void read_rope_scaling(ConfigReader& config, DecoderSizes& m);
// Reads the sizes "E" and "K", the flag "normalize", the reals "capacity", "aux" and "z".
void read_experts(ConfigReader& config, DecoderSizes& m, bool normalize, double capacity, double aux);
// Reads the sizes "groups" and "groups_used". If a token may use all groups, there is one: the choice is the same.
void read_expert_groups(ConfigReader& config, ExpertSizes& experts);
// Reads the list "expert_layers" and the size "FD".
void read_dense_layers(ConfigReader& config, DecoderSizes& m);

// Reads the list "recurrent", or the size "attention_every": each so manyth layer has attention (`every` where it is absent), the
// others `kind`. Reads the size "taps" (`taps`) and the flag "conv_bias".
void read_recurrent(ConfigReader& config, DecoderSizes& m, Recurrent kind, int64_t every, int64_t taps);
// Reads the list "halves".
void read_halves(ConfigReader& config, DecoderSizes& m);
// Reads the sizes "HS", "VS", "GS" and "KS": H, V, G and K of states; the flag "turned", the reals "least_step" and "most_step".
void read_states(ConfigReader& config, DecoderSizes& m);

// Reads the size "MTP" and the flag "draft_tables".
void read_draft_block(ConfigReader& config, DecoderSizes& m);

// Reads a family's sizes, with its defaults and its differences from Llama.
using ReadDecoderSizes = DecoderSizes (*)(ConfigReader& config);
// Applies `read` to a configuration; the status names a missing, wrong or unknown size.
Result<DecoderSizes> decoder_sizes(const ModelConfig& config, ReadDecoderSizes read);
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], with experts also aux_loss f32 []; other heads: see DecoderSizes
Result<Graph> build_decoder(const ModelConfig& config, ReadDecoderSizes read);

// The names of the parameters of Llama and its relatives in Hugging Face and GGUF files.
extern const std::span<const NameRule> kDecoderHuggingfaceNames, kDecoderGgufNames;
// The names of the parameters of Mamba-2 mixers in GGUF files.
extern const std::span<const NameRule> kStateSpaceGgufNames;

}  // namespace tessera
