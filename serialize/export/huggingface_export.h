// A model as a Hugging Face folder that transformers loads: config.json, safetensors, tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

inline constexpr int64_t kHuggingfaceShardBytes = 5'000'000'000;  // save_pretrained's bound

struct HuggingfaceExportSettings {
  // f32, bf16 or f16 for every value. None: matrices as they are, blocks as f16, and what has one dim in the type of
  // most of the matrices where that holds it exactly, else f32.
  std::optional<DType> type = {};
  int64_t shard_bytes = kHuggingfaceShardBytes;
  int32_t threads = 1;    // that encode a slice
  bool tokenizer = true;  // false: it is left out
};

// The files; values are read as they are written. `opened` gives up its sources. kUnsupported names what transformers
// has no form for.
Result<ExportContents> huggingface_contents(OpenedModel& opened, const HuggingfaceExportSettings& settings);

// Ok where a folder that has files is an earlier export, and nothing else is in it. kInvalidArgument names what is.
Status may_replace_huggingface(const std::string& folder);

}  // namespace tessera
