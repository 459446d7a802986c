// AdapterFactors: a low-rank adapter in host memory, in the layout of a server's slots (graph/transform/row_adapters.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/shared_model.h"
#include "engine/program/trained_weights.h"
#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera {

// AdapterLayout: the served weights that adapters may change, and the capacity of a slot.
struct AdapterLayout {
  struct Weight {
    int64_t inputs = 0, outputs = 0;
  };
  std::map<std::string, Weight, std::less<>> weights;  // of products, by name
  std::map<std::string, Weight, std::less<>> tables;   // by name; inputs: rows
  int64_t slots = 0, rank = 0;                         // 0: none
  DType dtype = DType::kF32;                           // of the factors

  // From the states of a serving program, by name.
  static AdapterLayout of(const std::vector<std::pair<std::string, TensorType>>& states);
};

struct AdapterFactors {
  // a [rank, inputs], b [rank, outputs] times alpha / rank, in the layout's type. a of a table: [inputs, the layout's rank], zeros
  // behind the adapter's.
  struct Pair {
    HostTensor a, b;
  };
  std::map<std::string, Pair, std::less<>> weights;  // by name; an unchanged weight has no entry
  std::map<std::string, Pair, std::less<>> tables;

  int64_t bytes() const;
};

// Reads the adapter of a graph whose base has the parameters of `base`; `read`: its present values.
// kInvalidArgument: no adapter, another base, or a rank above the slots'. kUnsupported names the part that
// cannot be applied per token: magnitudes (DoRA), biases, tables, weights outside the layout, fully trained parameters.
Result<AdapterFactors> read_adapter(const Graph& adapted, const ReadParameter& read, const SharedModel& base,
                                    const AdapterLayout& layout);
// The same of a model, whose base also has the values of `base` (base_values.h). Any thread.
Result<AdapterFactors> read_adapter(const SharedModel& adapted, const SharedModel& base,
                                    const AdapterLayout& layout);
// Reads the present adapter of a trainer, which keeps it: the factors are a copy. Uses the trainer.
// Also kBusy, kValuesLost; kInvalidArgument for a frozen parameter that was written, and has not the value of `base`.
Result<AdapterFactors> read_adapter(WeightOwner& trainer, const SharedModel& base, const AdapterLayout& layout);
// Reads an adapter of `base` from a PEFT folder, its adapter_model.safetensors,
// or a GGUF file. Also returns the errors of load_adapters.
Result<AdapterFactors> read_adapter_file(const std::string& path, const SharedModel& base,
                                         const AdapterLayout& layout);

}  // namespace tessera
