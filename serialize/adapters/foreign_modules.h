// ForeignModule: a matrix of a model by the name that another project gives it, with the parameters of ours that it is.
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
  std::string name;         // "model.layers.3.self_attn.qkv_proj": its tensor's without ".weight"
  std::vector<Part> parts;  // parameters whose rows follow each other
  int64_t rows = 0, columns = 0;
  bool is_table = false;   // only look-ups read it
  bool is_expert = false;  // one of many: '@' in the name stands for its number
  bool is_router = false;

  bool is_head() const { return parts[0].parameter == "output"; }
};

// Of every matrix that has a name there, in the graph's order. `graph`: with weights in the types that they are computed
// in (with_logical_weights).
std::vector<ForeignModule> foreign_modules(const Graph& graph, const ForeignNames& names);

// Whether a parameter is the matrix of a router of experts, or of a gate of shared ones.
bool is_router_name(std::string_view parameter);

// The name that Hugging Face's class of the model gives a tensor, or a module: for some families the table's with a prefix.
std::string huggingface_name(const ExportedConfig& model, std::string_view tensor);
std::string huggingface_module_name(const ExportedConfig& model, std::string_view module);

}  // namespace tessera
