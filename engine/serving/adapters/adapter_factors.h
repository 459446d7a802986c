// AdapterFactors: a low-rank adapter on the host, as the slots of a server hold it (graph/transform/row_adapters.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/shared_model.h"
#include "graph/base/result.h"
#include "graph/host_tensor.h"

namespace tessera {

// AdapterLayout: the weights of a server that adapters apply to, and what a slot has room for.
struct AdapterLayout {
  struct Weight {
    int64_t inputs = 0, outputs = 0;
  };
  std::map<std::string, Weight, std::less<>> weights;  // by name
  int64_t slots = 0, rank = 0;                         // 0: none
  DType dtype = DType::kF32;                           // of the factors

  // From the states of a serving program, by name.
  static AdapterLayout of(const std::vector<std::pair<std::string, TensorType>>& states);
};

struct AdapterFactors {
  // a [rank, inputs], b [rank, outputs] times alpha / rank, in the layout's type.
  struct Pair {
    HostTensor a, b;
  };
  std::map<std::string, Pair, std::less<>> weights;  // by name; weights that are not there have none

  int64_t bytes() const;
};

// The adapter of a model with adapters (adapters.h) whose base has the parameters of `base`. Any thread.
// kInvalidArgument: no adapters, another base, a rank that slots have no room for; kUnsupported names what cannot be
// applied by token: magnitudes (DoRA), biases, tables, weights outside of the layout, and parameters that train in full.
Result<AdapterFactors> read_adapter(const SharedModel& adapted, const SharedModel& base,
                                    const AdapterLayout& layout);
// The same of a file over `base`: a PEFT folder, the adapter_model.safetensors in it, or a GGUF adapter. Also errors of
// load_adapters.
Result<AdapterFactors> read_adapter_file(const std::string& path, const SharedModel& base,
                                         const AdapterLayout& layout);

}  // namespace tessera
