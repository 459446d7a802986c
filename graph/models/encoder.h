// EncoderSizes: the sizes and options of the encoder families, BERT's and its relatives'. A family reads its
// sizes, sets its options, and builds. Attention is in both directions; graph/transform/embedding.h masks padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/models/dense_modules.h"
#include "graph/models/foreign_names.h"
#include "graph/models/layer_builder.h"
#include "graph/models/model_family.h"

namespace tessera {

struct EncoderSizes {
  int64_t L, C, H, F, V, T;
  double norm_eps;

  // ---- heads: masked tokens, N classes, or none
  bool mlm = false;     // output "logits" [B, T, V]
  int64_t N = 0;        // output "logits" [B, T, N], of which those at a text's first token are its classes
  bool pooler = false;  // without either head: output "pooled" [B, T, C]
  bool tied = true;     // of masked tokens: the output projection is the embedding
  enum class Classifier : uint8_t {
    kPooler,  // classifier(tanh(pooler(x)))
    kTanh,    // classifier(tanh(pre_classifier(x)))
    kRelu,    // classifier(relu(pre_classifier(x)))
    kNormed,  // classifier(head_norm(gelu(head(x))))
  } classifier = Classifier::kPooler;
  bool class_mean = false;  // the classifier reads the mean of a text's vectors instead of its first token's
  bool head_bias = true, output_bias = true, head_silu = false;
  bool hidden = true;  // output "hidden" [B, T, C], of the last block
  DenseModules dense;  // behind "hidden", whose width is then theirs

  // ---- options that BERT lacks; the defaults have no effect
  int64_t Y = 0;  // types of tokens (input "token_types"); 0: none
  bool learned_positions = true;
  int64_t position_offset = 0;   // rows of the table of positions before that of position 0
  double rope_theta = 0;         // rotations of q and k, pairs (i, i + D/2); 0: none
  double window_theta = 0;       // rope_theta of layers with a window; 0: as others
  std::vector<int64_t> windows;  // by layer: a token attends to those less than this far away; 0: all
  bool pre_norm = false;         // norms before each half except the first, and after the last block
  bool bias = true, norm_bias = true;
  enum class Gate : uint8_t { kNone, kSilu, kGelu } gate = Gate::kNone;
};

// Reads the common sizes, norm_eps, heads and dense. The default head is masked tokens.
EncoderSizes read_encoder_sizes(ConfigReader& config, double norm_eps);

using ReadEncoderSizes = EncoderSizes (*)(ConfigReader& config);
// Applies `read` to a configuration; the status names a missing, wrong or unknown size.
Result<EncoderSizes> encoder_sizes(const ModelConfig& config, ReadEncoderSizes read);
//   tokens, positions, token_types (where Y > 0) i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
Result<Graph> build_encoder_model(const ModelConfig& config, ReadEncoderSizes read);

// A parameter of zeros that never trains, where norms have no bias.
inline constexpr std::string_view kZeroBias = "zero_bias";

// The names of the parameters of BERT and its relatives in Hugging Face and GGUF files.
extern const std::span<const NameRule> kBertHuggingfaceNames, kEncoderGgufNames, kDenseClassifierGgufNames;

}  // namespace tessera
