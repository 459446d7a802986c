// AdapterFile: low-rank adapters of another project's file, as parameters of our model.
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
    std::string a;     // name of the first matrix, shared by the parts of a tensor; empty: derived from the weight
    int64_t rank = 0;
    double factor = 1;
    bool has_bias = false, has_magnitude = false;
    // Whether the initial product was subtracted from the base (PiSSA).
    bool has_start = false;
    double dropout = 0;  // used in training only
  };
  // The adapters' model: the given one, or with an untied
  // head if the file changes head or embedding alone.
  Model base;
  std::vector<Weight> weights;
  // f32 values of adapters, by the names of with_adapters
  // (graph/transform/adapters.h), and of parameters that replace the base's.
  std::map<std::string, HostTensor, std::less<>> values;
  std::vector<std::string> trained;  // parameters of the base that also train
};

// Reads a PEFT folder (adapter_config.json, adapter_model.safetensors) with all values. `base` has no
// adapters and determines the family. kNotFound for a missing file; kCorrupt for missing or contradictory
// tensors; kInvalidArgument for an adapter of another model; kUnsupported names the unsupported part.
Result<AdapterFile> read_peft_adapter(const std::string& folder, const Model& base);
// Reads a GGUF adapter of llama.cpp's convert_lora_to_gguf.py; errors likewise.
Result<AdapterFile> read_gguf_adapter(std::shared_ptr<const ByteSource> source, const Model& base);

}  // namespace tessera
