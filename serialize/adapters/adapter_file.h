// AdapterFile: low-rank adapters of another project's file, as parameters of a model of ours.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "serialize/model.h"

namespace tessera {

struct AdapterFile {
  struct Weight {
    std::string name;  // parameter of the base
    std::string a;     // name of the first matrix, which parts of one tensor share; empty: after the weight
    int64_t rank = 0;
    double factor = 1;
    bool has_bias = false, has_magnitude = false;
    // Whether the adapter's first product was taken out of the base (PiSSA).
    bool has_start = false;
    double dropout = 0;  // used in training only
  };
  // The model that the adapters are of: the given one, or the same with a head apart from the embedding where the file
  // changes one of the two alone.
  Model base;
  std::vector<Weight> weights;
  // f32: of adapters, by the names that with_adapters (graph/transform/adapters.h) gives them, and of parameters that
  // take the place of the base's.
  std::map<std::string, HostTensor, std::less<>> values;
  std::vector<std::string> trained;  // parameters of the base that train as well
};

// From a folder of PEFT's (adapter_config.json, adapter_model.safetensors). Reads all values. `base` has no adapters and
// says which family it is of. kNotFound for a missing file; kCorrupt for tensors that contradict the configuration or
// are missing; kInvalidArgument for an adapter of another model; kUnsupported names what has no form here.
Result<AdapterFile> read_peft_adapter(const std::string& folder, const Model& base);
// From a GGUF adapter, as llama.cpp's convert_lora_to_gguf.py writes it; else the same.
Result<AdapterFile> read_gguf_adapter(std::shared_ptr<const ByteSource> source, const Model& base);

}  // namespace tessera
