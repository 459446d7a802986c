// LayerBuilder: a Graph under construction, in the terms of model code. The first error sticks:
// later calls do nothing, and `finish` returns it. Model code therefore needs no error checks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/model_config.h"

namespace tessera {

class LayerBuilder {
 public:
  int64_t symbol(std::string_view name, int64_t capacity = 0) { return graph_.symbol(name, capacity); }
  void scope(std::string scope) { graph_.set_scope(std::move(scope)); }

  TensorId input(std::string name, DType dtype, std::initializer_list<int64_t> shape);
  TensorId parameter(std::string name, std::initializer_list<int64_t> shape);
  TensorId constant(std::string name, std::initializer_list<int64_t> shape);  // a parameter that never trains

  // The first result of a node; further results (statistics kept for the backward pass) stay in the graph.
  TensorId op(std::string_view name, std::initializer_list<TensorId> inputs, std::vector<Attr> attrs = {});

  TensorId op(std::string_view name, std::span<const TensorId> inputs, std::vector<Attr> attrs);

  // Returns all results of a node; empty after an error.
  std::vector<TensorId> op_all(std::string_view name, std::initializer_list<TensorId> inputs,
                               std::vector<Attr> attrs = {});

  // x [..., K] -> [..., N] by a weight stored [N, K], as Hugging Face and GGUF hold it.
  TensorId linear(TensorId x, std::string weight, int64_t k, int64_t n);
  // The same with "<weight>.bias" added, where `bias`.
  TensorId linear(TensorId x, const std::string& weight, int64_t k, int64_t n, bool bias);
  // The same with "<name>.weight" and "<name>.bias".
  TensorId linear_with_bias(TensorId x, const std::string& name, int64_t k, int64_t n);
  TensorId project(TensorId x, TensorId weight);  // by an existing weight (a tied head)

  TensorId squared_relu(TensorId x) { return op("square", {op("relu", {x})}); }
  TensorId split_heads(TensorId x, int64_t head_size);  // [B, T, H*D] -> [B, T, H, D]
  TensorId merge_heads(TensorId x);                     // and back

  void output(std::string name, TensorId tensor);
  void fail(Status status);
  Result<Graph> finish();

 private:
  std::vector<TensorId> results(std::string_view name, std::span<const TensorId> inputs, std::vector<Attr> attrs);

  Graph graph_;
  Status status_;
};

// ConfigReader: reads a ModelConfig and records the keys read, so that a size unknown to the family is an
// error. Errors go to the builder.
class ConfigReader {
 public:
  ConfigReader(const ModelConfig& config, LayerBuilder& builder) : config_(config), builder_(builder) {}

  // Whether the size is given.
  bool has(std::string_view name) const { return config_.sizes.contains(std::string(name)); }
  int64_t size(std::string_view name);  // must be given
  int64_t size(std::string_view name, int64_t otherwise);
  double real(std::string_view name, double otherwise);
  bool flag(std::string_view name, bool otherwise);
  // Reads a number of at least `least` for each of `count` layers; empty where the list is absent.
  std::vector<int64_t> list(std::string_view name, int64_t count, int64_t least);
  // Reads at most `most` numbers of at least 1; empty where the list is absent.
  std::vector<int64_t> widths(std::string_view name, int64_t most);
  void check(bool holds, std::string message);
  // Call after reading, before layers are built; false after an error.
  bool done();
  // All values read, with the defaults of those that were not given.
  ModelConfig values() const;

 private:
  std::vector<int64_t> read_list(std::string_view name, const std::vector<int64_t>& given, int64_t least);

  const ModelConfig& config_;
  LayerBuilder& builder_;
  ModelConfig values_;
  bool ok_ = true;
};

}  // namespace tessera
