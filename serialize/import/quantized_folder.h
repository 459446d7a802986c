// Quantised Hugging Face folders: weights in 8-bit floats with scales of blocks, in GPTQ's and AWQ's packed integers,
// in MXFP4 blocks, and in the codes of bitsandbytes.
#pragma once

#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/decoded_source.h"
#include "serialize/import/foreign_file.h"
#include "text/json.h"

namespace tessera {

// quantization_config of config.json, as far as it is followed.
struct FolderQuantization {
  enum class Method : uint8_t { kFp8, kGptq, kAwq, kMxfp4, kBitsandbytes } method = Method::kFp8;
  int64_t bits = 4;
  bool zeros_less_one = false;                // GPTQ's first form stores zero points less one
  int64_t block_rows = 0, block_columns = 0;  // FP8: of one scale; 0: one scale for a tensor
};

// kUnsupported names a method or a key that asks for what is not there.
Result<FolderQuantization> read_folder_quantization(const Json& json);

// A weight that stands for tensors of the file.
struct DecodedWeight {
  std::string name;
  TensorType type;
  DecodedTensor decoded;
  std::vector<std::string> replaced;
};

// Replaces quantised tensors of `file` by ones of the weights that they stand for, which are computed as they are read:
//   FP8    NAME, NAME_scale_inv                  -> NAME, f32: code * scale of its block, exactly
//   GPTQ   X.qweight, X.qzeros, X.scales, X.g_idx -> X.weight [N, K]: q4_0 or q8_0 where every zero point is the middle
//   AWQ    X.qweight, X.qzeros, X.scales             and groups are whole blocks, else (q - zero) * scale in the type of
//                                                   the scales, rounded once
//   MXFP4  experts' X_blocks, X_scales            -> mxfp4, the same numbers; rows of gate_up_proj alternate and
//                                                   become gate_proj and up_proj
//   bitsandbytes                                  -> nf4, or floats: bitsandbytes_weights.h
// Returns what became of them, for people. kCorrupt for tensors that do not fit each other.
Result<std::string> decode_quantized_tensors(const FolderQuantization& quantization, ForeignFile& file);

}  // namespace tessera
