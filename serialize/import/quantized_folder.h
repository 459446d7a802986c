// Quantized Hugging Face folders: FP8 with block scales, packed integers of GPTQ and AWQ, MXFP4 blocks, bitsandbytes codes, and
// groups of modules of compressed-tensors and modelopt.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/decoded_source.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/modelopt_config.h"
#include "serialize/import/module_schemes.h"
#include "text/json.h"

namespace tessera {

// FolderQuantization: the supported part of quantization_config.
struct FolderQuantization {
  enum class Method : uint8_t { kFp8, kGptq, kAwq, kMxfp4, kBitsandbytes, kModules } method = Method::kFp8;
  int64_t bits = 4;
  bool zeros_less_one = false;                // GPTQ v1 stores zero points minus one
  int64_t block_rows = 0, block_columns = 0;  // FP8: elements per scale; 0: one scale per tensor
  ModuleSchemes modules;                      // kModules
  std::optional<ModeloptConfig> modelopt;     // as quantization_config has it
};

// kUnsupported names an unsupported method or key.
Result<FolderQuantization> read_folder_quantization(const Json& json);

// Takes hf_quant_config.json into account, `json`, which modelopt writes beside config.json. kUnsupported: quantization_config
// says something else.
Status read_modelopt_file(const Json& json, std::optional<FolderQuantization>& quantization);

// DecodedWeight: a weight decoded from quantized tensors.
struct DecodedWeight {
  std::string name;
  TensorType type;
  DecodedTensor decoded;
  std::vector<std::string> replaced;  // tensors of the file that encode it
  // Where it is not 1, a factor of the weight's products, and the weight with that factor in its numbers.
  float product_scale = 1;
  DType scaled_type = DType::kF32;
  DecodedTensor scaled = {};
};

// Replaces quantized tensors of `file` by the weights they encode, decoded on reading:
//   FP8    NAME, NAME_scale_inv                  -> NAME, f32: code * scale of its block, exactly
//   modules of compressed-tensors and modelopt    -> module_weights.h
//   GPTQ   X.qweight, X.qzeros, X.scales, X.g_idx -> X.weight [N, K], as AWQ
//   AWQ    X.qweight, X.qzeros, X.scales          -> X.weight [N, K]: q4_0 or q8_0 if every zero point is the middle and
//                                                   groups are whole blocks, else (q - zero) * scale in the scales' type
//   MXFP4  experts' X_blocks, X_scales            -> mxfp4, the same numbers; rows of gate_up_proj alternate and
//                                                   become gate_proj and up_proj
//   bitsandbytes                                  -> nf4, or floats: bitsandbytes_weights.h
// Scales of activations, keys and values are taken away. Returns a description for the user. kCorrupt for inconsistent tensors.
Result<std::string> decode_quantized_tensors(const FolderQuantization& quantization, ForeignFile& file);

}  // namespace tessera
