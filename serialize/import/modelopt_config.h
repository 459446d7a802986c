// The quantisation settings of NVIDIA's modelopt, from hf_quant_config.json beside config.json, and in quantization_config.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/module_schemes.h"
#include "text/json.h"

namespace tessera {

struct ModeloptConfig {
  std::string algorithm;                      // "NVFP4"; "": none
  std::vector<std::string> excluded;          // sorted patterns of modules
  std::map<std::string, std::string> layers;  // MIXED_PRECISION: the algorithm of each module

  bool caches_keys = false;  // keys and values in fewer bits: left out
};

// `json`: either form, the keys within "quantization" or not. `where` begins messages.
Result<ModeloptConfig> read_modelopt(const Json& json, std::string_view where);

// kUnsupported names the first key in which the two differ, with both values.
Status check_agrees(const ModeloptConfig& config, const ModeloptConfig& file);

// kUnsupported for an algorithm that is not known.
Result<ModuleSchemes> modelopt_schemes(const ModeloptConfig& config);

}  // namespace tessera
