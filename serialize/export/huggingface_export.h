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
  // f32, bf16 or f16 for all values. nullopt: matrices keep their type, quantized ones
  // become f16, and vectors get the type of most matrices if that is exact, else f32.
  std::optional<DType> type = {};
  int64_t shard_bytes = kHuggingfaceShardBytes;
  int32_t threads = 1;    // threads that encode a slice
  bool tokenizer = true;  // false: omitted
};

// Values are read while files are written. Consumes the sources of
// `opened`. kUnsupported names the part that transformers lacks.
Result<ExportContents> huggingface_contents(OpenedModel& opened, const HuggingfaceExportSettings& settings);

// Ok if a non-empty folder holds only an earlier export; else kInvalidArgument names the foreign file.
Status may_replace_huggingface(const std::string& folder);

}  // namespace tessera
