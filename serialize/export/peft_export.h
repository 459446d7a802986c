// Exports low-rank adapters as a PEFT folder: adapter_config.json, adapter_model.safetensors.
#pragma once

#include <optional>
#include <string>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

struct PeftExportSettings {
  std::optional<DType> type = {};  // f32, bf16 or f16 for all values; nullopt: f32
  // The model without adapters: absolute path, and path relative to the folder; "": unknown.
  std::string base = {}, relative_base = {};
};

// The relative path of the base noted by an export; "": none.
std::string relative_base_of(const std::string& folder);

// Adapters, and other trained parameters in full; reads all values.
// kFailedPrecondition without adapters, kUnsupported for parts that PEFT lacks.
Result<ExportContents> peft_contents(OpenedModel& opened, const PeftExportSettings& settings);

// Ok if a non-empty folder holds only an earlier export; else kInvalidArgument names the foreign file.
Status may_replace_peft(const std::string& folder);

}  // namespace tessera
