// ForeignFile: the tensors of another project's model file, and
// their conversion to our parameters by the family's table of names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/models/foreign_names.h"
#include "serialize/opened_model.h"

namespace tessera {

struct ForeignTensor {
  std::string type;  // the file's name of the type
  DType dtype = DType::kF32;
  Shape shape;  // outermost first
  int64_t offset = 0, bytes = 0;
};
using ForeignTensors = std::map<std::string, ForeignTensor, std::less<>>;

struct ForeignFile {
  std::shared_ptr<const ByteSource> source;
  ForeignTensors tensors;
};

struct ForeignPlaces {
  const ForeignNames& names;
  std::string_view format;                                  // "GGUF", for messages
  std::map<std::string, TensorSource, std::less<>> computed;  // parameters of several tensors or none, f32
  std::set<std::string, std::less<>> used;                  // tensors accounted for otherwise
  std::map<std::string, float, std::less<>>
      product_scales;  // factor of a parameter's products, by parameter
};

// Finds a value for every parameter of opened.model.graph, whose weights get the file's types,
// and appends opened.parameters. Values stay in the file, in place if the layouts agree.
// kCorrupt for missing tensors or wrong shapes, kUnsupported for a tensor without a parameter.
Status place_parameters(const ForeignFile& file, const ForeignPlaces& places, OpenedModel& opened);

// Tensors and bytes by the file's types.
std::vector<StoredTensors> stored_tensors(const ForeignTensors& tensors);

// Whether two tensors have equal bytes: a file may store a tied output projection twice.
Result<bool> same_contents(const ForeignFile& file, const ForeignTensor& a, const ForeignTensor& b);

}  // namespace tessera
