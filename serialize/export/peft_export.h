// A model's low-rank adapters as a folder that PEFT loads: adapter_config.json, adapter_model.safetensors.
#pragma once

#include <optional>
#include <string>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

struct PeftExportSettings {
  std::optional<DType> type = {};  // f32, bf16 or f16 of every value; none: f32
  // The model without the adapters: its absolute path, and that relative to the folder; "": not known.
  std::string base = {}, relative_base = {};
};

// The relative place of the base that an export noted; "": none.
std::string relative_base_of(const std::string& folder);

// The files: adapters, and in full what trains besides. Their values are read here. kFailedPrecondition for a model
// without adapters, kUnsupported for what PEFT has no form for.
Result<ExportContents> peft_contents(OpenedModel& opened, const PeftExportSettings& settings);

// Ok where a folder that has files is an earlier export, and nothing else is in it. kInvalidArgument names what is.
Status may_replace_peft(const std::string& folder);

}  // namespace tessera
