// Quantization: a model whose weights change their element types: the new graph, and for each of its
// parameters a source that reads a slice of the old values, decodes it and encodes it. Memory stays a few
// slices; the bits do not depend on slices and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serialize/importance_matrix.h"
#include "serialize/model.h"
#include "serialize/quantization_mix.h"
#include "serialize/tensor_source.h"

namespace tessera {

// Sums over the values of a tensor, complete when it was read to its end.
struct EncodingError {
  double squared_errors = 0, squares = 0;

  double relative() const;  // root mean square of the errors by that of the values; 0 for no values
};

struct QuantizedTensor {
  std::string name;
  TensorType from, to;
  DType wanted = DType::kF32;  // by the mix; another than to's where the width is no multiple of its block
  bool is_weighted = false;    // by importance
  std::shared_ptr<EncodingError> error;  // null: the bytes are kept
};

// How a source's values are encoded as another type.
struct EncodeSettings {
  std::vector<float> importance = {};  // by column, with several matrices one after another; empty: alike
  int32_t threads = 1;                 // that encode a slice
  std::shared_ptr<EncodingError> error = nullptr;  // receives the error; null: nobody asks
};

// The values of `source` as `type`: f32, 16 bits or blocks that divide its rows. Read by one thread, from the
// beginning to the end. Reading fails with a value that the type does not hold.
TensorSource encode_source(TensorSource source, DType type, EncodeSettings settings = {});

struct QuantizationSettings {
  MixSettings mix;
  std::shared_ptr<const ImportanceMatrix> importance = {};  // null: none
  int32_t threads = 1;                                      // that encode a slice
};

class Quantization {
 public:
  // Plans the types; reads no values. kInvalidArgument: an importance matrix of another model.
  static Result<Quantization> create(const Model& model, const QuantizationSettings& settings);

  const Graph& graph() const { return graph_; }
  // The source of the graph's parameter of that name, from one of the model's. Sources are read by one thread
  // each, from the beginning to the end.
  TensorSource encode(TensorSource parameter);
  // Those for which `encode` was called, in that order.
  const std::vector<QuantizedTensor>& tensors() const { return tensors_; }

 private:
  Quantization() = default;
  Status find_importance(const Model& model, const ImportanceMatrix& importance);

  Graph graph_;
  TypeChoices choices_;
  std::map<std::string, std::vector<float>, std::less<>> importance_;  // by parameter
  int32_t threads_ = 1;
  std::vector<QuantizedTensor> tensors_;
};

}  // namespace tessera
