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
  // A factor of the weight's products; where it is not 1, the weight with that factor in its numbers.
  float product_scale = 1;
  std::shared_ptr<const ForeignTensor> scaled = nullptr;
};
using ForeignTensors = std::map<std::string, ForeignTensor, std::less<>>;

struct ForeignFile {
  std::shared_ptr<const ByteSource> source;
  ForeignTensors tensors;
};

struct ForeignPlaces {
  const ForeignNames& names;
  std::string_view format;                                  // "GGUF", for messages
  std::map<std::string, TensorSource, std::less<>> computed;  // parameters computed from several tensors or none, f32
  std::set<std::string, std::less<>> used;                  // tensors already consumed; the others need a parameter
  int64_t key_heads = 1;  // of recurrent layers
  std::map<std::string, float, std::less<>>
      product_scales;  // by parameter: the scale on the products with this weight
};

// Finds a value for every parameter of opened.model.graph, gives weights the file's types, and
// appends opened.parameters. No value is read: it is used in the file's memory, or converted on reading.
// kCorrupt for missing tensors or wrong shapes, kUnsupported for a tensor without a parameter.
Status place_parameters(const ForeignFile& file, const ForeignPlaces& places, OpenedModel& opened);

// Counts tensors and bytes by type.
std::vector<StoredTensors> stored_tensors(const ForeignTensors& tensors);

// Whether two tensors have equal bytes: a file may store a tied output projection twice.
Result<bool> same_contents(const ForeignFile& file, const ForeignTensor& a, const ForeignTensor& b);

}  // namespace tessera
