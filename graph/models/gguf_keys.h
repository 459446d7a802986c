// GgufKeys: the metadata of a GGUF file, behind the name of its architecture. An architecture's function names its keys, in
// reading and in writing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/models/foreign_keys.h"

namespace tessera {

// Scaled rotations of an architecture.
struct GgufRotation {
  bool truncates = true;        // the bounds of yarn's ramp are whole numbers
  bool log_multiplier = false;  // rope.scaling.yarn_log_multiplier divides yarn's magnitude by that of its own
};

// Options of a decoder's keys.
struct GgufDecoder {
  bool by_layer = false;      // heads of keys and values, and widths, may be arrays
  bool beside_dense = false;  // each layer has experts and a dense MLP, of width feed_forward_length
  bool norm_twice = false;    // attention.layer_norm_epsilon has the number of attention.layer_norm_rms_epsilon; readers may want either
  bool dense_first = false;   // leading_dense_block_count layers have a dense MLP of that width, the others experts
};

// Windows in all layers except each `every`th, or by a pattern in the file.
struct GgufWindows {
  int64_t otherwise = 0;  // the window where the key is absent
  int64_t every = 0;
  bool is_optional = false;  // models without windows lack the key, else it states one of the whole context
  bool has_pattern = false;  // writers state it
};

class GgufKeys : public ForeignKeys {
 public:
  using ForeignKeys::real;

  virtual void sizes() = 0;    // L, C, H, F and T, common to all architectures
  // Sizes, heads, norm, base of the rotation, and experts, if the architecture has them.
  virtual void decoder(const GgufDecoder& keys = {}) = 0;
  virtual void whole_heads() = 0;  // as many heads of keys and values as of queries, which divide the channels
  virtual void rotation(const GgufRotation& keys = {}) = 0;  // scaled rotations by keys
  // The temperature of queries by their position, in steps of the original context.
  virtual void query_temperature(std::string_view key) = 0;
  // Phi-3: rotations by two tensors of factors.
  virtual void factor_tensors() = 0;
  // One window for all layers, which llama.cpp ignores.
  virtual void window() = 0;
  virtual void windows(const GgufWindows& keys) = 0;
  // Layers with windows have heads of another size (keys that end in _swa); after windows.
  virtual void window_heads() = 0;
  virtual bool has_windows() const = 0;
  // Recurrent layers: all but each so manyth (`every` where the key is absent), or a list of flags in attention.recurrent_layers.
  virtual void recurrent_by_interval(std::string_view key, int64_t every) = 0;
  // ssm.*: convolution, heads and widths of recurrent layers.
  virtual void states() = 0;
  // The rotated pairs of three axes, which are equal in texts.
  virtual void rope_sections(std::string_view key) = 0;
  // The number of layers in block_count after the model's, which predict further tokens. One is read, where the file has its
  // tensors; several are skipped.
  virtual void draft_blocks(std::string_view key) = 0;
  // All layers rotate if the flag is set, or absent; else none.
  virtual void rotates_if(std::string_view key) = 0;
  // Scores are divided by the root of the head size, whatever the key says.
  virtual void plain_scores() = 0;
  // A key with the factor of scores.
  virtual void score_scale(std::string_view key) = 0;
  // Gemma: the largest model of a generation, known by its layers, divides scores by the root of channels per head.
  virtual void largest_scores(int64_t layers_of_largest) = 0;
  // A factor; 0 and absent: none.
  virtual void factor(std::string_view key, std::string_view ours, KeyForm form = KeyForm::kSame) = 0;
  // A bound of logits; 0 and absent: none. Writers state 0, for llama.cpp bounds by 30 where the key is absent.
  virtual void cap(std::string_view key, std::string_view ours) { real(key, ours, 0); }
  // The number of last layers with keys and values of earlier ones; after windows.
  virtual void shared_keys(std::string_view key) { size_or_zero(key, "shared_kv", 0); }
  // All layers but each `every`th rotate; the file does not state it.
  virtual void rope_layers(int64_t every) = 0;
  // Absent where there is none.
  virtual void optional_size(std::string_view key, std::string_view ours) = 0;
  // dense_2_feat_* and dense_3_feat_*: Dense modules of sentence-transformers.
  virtual void dense_modules() = 0;
  // Returns the number at a key, which sets nothing; for writers 0.
  virtual int64_t stated_size(std::string_view key) = 0;
  virtual void latent() = 0;  // DeepSeek: widths of latent attention, experts and dense layers
};

// Tensors of rotation factors that an architecture has.
enum class FactorTensors : uint8_t {
  kNone,
  kOne,     // rope_freqs
  kAlways,  // likewise, in each model with a layer without a window
  kTwo,     // rope_factors_short and _long
};
// Biases that llama.cpp reads in decoders.
enum class Biases : uint8_t { kNone, kQkv, kAll };

// An architecture of llama.cpp that a family reads and writes.
struct GgufArchitecture {
  std::string_view name;  // general.architecture
  void (*keys)(GgufKeys& k);
  bool rope_half = true;     // rotated pairs are (i, i + R/2)
  bool has_experts = false;  // expert_count is above 0: two families may share a name
  FactorTensors factors = FactorTensors::kNone;
  Biases biases = Biases::kNone;
  bool is_tied = false;            // always without a tensor for the head
  bool optional_biases = false;    // read where the tensors exist
  bool softmax_of_chosen = false;  // expert_gating_func may be 3
  bool sigmoid_router = false;      // experts are scored by a sigmoid
  bool turned = false;              // heads of values of recurrent layers are in turn of the heads of keys
  bool single_halves = false;       // each layer has one half; feed_forward_length is a list, with 0 for layers of the other
  bool recurrent_by_heads = false;  // attention.head_count_kv is a list, with 0 for recurrent layers
  bool dense_layers = false;        // layers with a tensor ffn_up have no experts; feed_forward_length has their width
  bool optional_values = false;    // layers without a tensor for v take values from the keys' projection
  // Attention in both directions, of which windows state the sum, and no projection onto the vocabulary.
  bool bidirectional = false;
};

}  // namespace tessera
