// Converts a model's parameters to the tensors of another project's file: the inverse of import/foreign_file.h.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/models/foreign_names.h"
#include "serialize/head_rows.h"
#include "serialize/model.h"
#include "serialize/state_heads.h"
#include "serialize/tensor_source.h"

namespace tessera {

struct ForeignLayout {
  const ForeignNames& names;
  std::string_view format;                           // "GGUF", for messages
  std::optional<HeadRows> heads = {};                // nullopt: rows keep their order
  StateHeads states = {};
  std::set<std::string, std::less<>> left_out = {};  // parameters stored in another form
  // Type of one-dimensional tensors. `only_exact`: f32 unless the type holds all values.
  DType vector_type = DType::kF32;
  bool only_exact = false;
};

// The tensors with the file's names, types, shapes and row order. `parameters`: all of the graph's;
// matrices keep their type, or become f32 if the parts of one tensor differ. Reads vectors now. Each source
// must be read by one thread from begin to end, in this order. kUnsupported for a parameter without a name.
Result<std::vector<TensorSource>> foreign_tensors(const Graph& graph, std::vector<TensorSource> parameters,
                                                  const ForeignLayout& layout);

}  // namespace tessera
