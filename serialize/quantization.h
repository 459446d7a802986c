// Quantization: a model with changed element types: the new graph, and
// for each parameter a source that reads, decodes and encodes a slice.
// Memory is a few slices; results do not depend on slices and threads.
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

// EncodingError: sums over a tensor's values, complete after it was read.
struct EncodingError {
  double squared_errors = 0, squares = 0;

  double relative() const;  // RMS of errors divided by RMS of values; 0 without values
};

struct QuantizedTensor {
  std::string name;
  TensorType from, to;
  DType wanted = DType::kF32;  // by the mix; differs from `to` if the width is no multiple of its block
  bool is_weighted = false;    // by importance
  std::shared_ptr<EncodingError> error;  // null: bytes are copied
};

// EncodeSettings: conversion of a source's values to another type.
struct EncodeSettings {
  std::vector<float> importance = {};  // per column, concatenated for several matrices; empty: equal
  int32_t threads = 1;                 // threads that encode a slice
  std::shared_ptr<EncodingError> error = nullptr;  // receives the error; may be null
};

// The values of `source` as `type`: f32, 16 bits, or blocks that divide its rows. Read
// by one thread, from begin to end. Reading fails for a value that the type cannot hold.
TensorSource encode_source(TensorSource source, DType type, EncodeSettings settings = {});

struct QuantizationSettings {
  MixSettings mix;
  std::shared_ptr<const ImportanceMatrix> importance = {};  // null: none
  int32_t threads = 1;                                      // threads that encode a slice
};

class Quantization {
 public:
  // Chooses the types without reading values. kInvalidArgument for an importance matrix of another model.
  static Result<Quantization> create(const Model& model, const QuantizationSettings& settings);

  const Graph& graph() const { return graph_; }
  // Converts one of the model's parameters to its type in the
  // graph. Each source is read by one thread, from begin to end.
  TensorSource encode(TensorSource parameter);
  // Tensors for which `encode` was called, in order.
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
