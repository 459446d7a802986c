// Parameters of a model as the tensors of another project's file: the way back of import/foreign_file.h.
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
#include "serialize/tensor_source.h"

namespace tessera {

struct ForeignLayout {
  const ForeignNames& names;
  std::string_view format;                           // "GGUF", for messages
  std::optional<HeadRows> heads = {};                // none: rows stay
  std::set<std::string, std::less<>> left_out = {};  // parameters that the file has in another form
  // Type of what has one dim. With `only_exact` it stays f32 where the type does not hold all of its values.
  DType vector_type = DType::kF32;
  bool only_exact = false;
};

// The tensors in the file's names, types, shapes and order of rows. `parameters`: all of the graph's; matrices keep
// their type, or become f32 where parts of one tensor differ. Vectors are read here. Of the result each source is read
// by one thread from its beginning to its end, and all in this order. kUnsupported for a parameter without a name.
Result<std::vector<TensorSource>> foreign_tensors(const Graph& graph, std::vector<TensorSource> parameters,
                                                  const ForeignLayout& layout);

}  // namespace tessera
