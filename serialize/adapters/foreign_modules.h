// ForeignModule: a matrix under another project's name, and our parameters that form it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/foreign_names.h"
#include "serialize/export/exported_config.h"

namespace tessera {

struct ForeignModule {
  struct Part {
    std::string parameter;
    int64_t first_row = 0, rows = 0;
  };
  std::string name;         // "model.layers.3.self_attn.qkv_proj": the tensor's name without ".weight"
  std::vector<Part> parts;  // parameters whose rows are concatenated
  int64_t rows = 0, columns = 0;
  bool is_table = false;   // read only by lookups
  bool is_expert = false;  // one of many; '@' in the name stands for its number
  bool is_router = false;

  bool is_head() const { return parts[0].parameter == "output"; }
};

// Every matrix with a foreign name, in graph order. `graph`:
// with computed weight types (with_logical_weights).
std::vector<ForeignModule> foreign_modules(const Graph& graph, const ForeignNames& names);

// Whether a parameter is the matrix of an expert router, or of a gate of shared experts.
bool is_router_name(std::string_view parameter);

// The name of a tensor or module in the model's Hugging Face class; some families add a prefix to the table's name.
std::string huggingface_name(const ExportedConfig& model, std::string_view tensor);
std::string huggingface_module_name(const ExportedConfig& model, std::string_view module);

}  // namespace tessera
