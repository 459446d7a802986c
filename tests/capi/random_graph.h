// A random forward graph of f64: values [B, T, C], [B, T], [B, C] and [B] joined by ops of every kind, inputs and
// nodes that nobody reads among them, several outputs, weights made of weights.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/graph.h"

namespace tessera::test {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {}

  // `has_loss`: with the output "loss", a mean over one of its values, so that it can be trained.
  Graph build(bool has_loss) {
    const int64_t B = graph_.symbol("B"), T = graph_.symbol("T");
    values_.push_back(graph_.add_tensor("x", {DType::kF64, {B, T, 8}}, TensorKind::kInput).value());
    values_.push_back(graph_.add_tensor("side", {DType::kF64, {B, T, 8}}, TensorKind::kInput).value());
    values_.push_back(graph_.add_tensor("wide", {DType::kF64, {B, T, 12}}, TensorKind::kInput).value());
    ids_ = graph_.add_tensor("ids", {DType::kI32, {B, T}}, TensorKind::kInput).value();
    const size_t count = 3 + random_() % 10;
    for (size_t i = 0; i < count; ++i) {
      if (random_() % 3 == 0) graph_.set_scope(format("block.{}", random_() % 3));
      grow();
    }
    graph_.set_scope("");
    // A weight comes first of all, so that something is trained.
    const TensorId last = matmul(pick_of_rank(3));
    for (size_t i = 0; i <= random_() % 2; ++i) must(graph_.add_output(format("out{}", i), pick()));
    must(graph_.add_output("last", last));
    if (!has_loss) return std::move(graph_);
    const TensorId bounded = add("tanh", {last});
    must(graph_.add_output("loss", add("reduce_mean", {bounded}, {{"axes", std::vector<int64_t>{0, 1, 2}}})));
    return std::move(graph_);
  }

 private:
  template <class T>
  static T must(Result<T> result) {
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    return std::move(result).value();
  }
  static void must(const Status& status) { REQUIRE_MESSAGE(status.ok(), status.message()); }

  const Shape& shape(TensorId id) const { return graph_.type(id).shape; }
  int64_t columns(TensorId id) const { return shape(id)[shape(id).rank() - 1]; }
  TensorId pick() { return values_[random_() % values_.size()]; }
  TensorId pick_of_rank(int rank) {
    for (;;)
      if (const TensorId id = pick(); shape(id).rank() == rank) return id;
  }
  TensorId add(std::string_view op, std::initializer_list<TensorId> inputs, std::vector<Attr> attrs = {}) {
    return must(graph_.add(op, inputs, std::move(attrs)));
  }
  TensorId keep(TensorId id) {
    values_.push_back(id);
    return id;
  }
  TensorId parameter(Shape shape) {
    const TensorId id =
        must(graph_.add_tensor(format("w{}", weights_++), {DType::kF64, shape}, TensorKind::kParameter));
    // Some are made of others before they are used.
    return random_() % 6 == 0 ? add("scale", {id}, {{"factor", 0.5}}) : id;
  }
  TensorId matmul(TensorId x) {
    const int64_t N = std::vector<int64_t>{4, 8, 12}[random_() % 3];
    if (random_() % 2 == 0)
      return keep(add("matmul", {x, parameter({N, columns(x)})}, {{"trans_w", int64_t{1}}}));
    return keep(add("matmul", {x, parameter({columns(x), N})}));
  }

  void grow() {
    const TensorId x = pick();
    const bool is_matrix = shape(x).rank() >= 2 && !is_symbol(columns(x));
    switch (random_() % 11) {
      case 0: {
        static constexpr std::string_view kOps[] = {"relu", "gelu", "silu", "tanh", "sigmoid", "neg"};
        keep(add(kOps[random_() % 6], {x}));
        return;
      }
      case 1:
      case 2: {  // with another value of its shape, perhaps itself
        std::vector<TensorId> same_shape;
        for (const TensorId id : values_)
          if (shape(id) == shape(x)) same_shape.push_back(id);
        static constexpr std::string_view kOps[] = {"add", "sub", "mul"};
        keep(add(kOps[random_() % 3], {x, same_shape[random_() % same_shape.size()]}));
        return;
      }
      case 3:
        if (is_matrix) keep(add("add_bias", {x, parameter({columns(x)})}));
        return;
      case 4:
        if (is_matrix) {
          const TensorId w = parameter({columns(x)});
          keep(must(graph_.add_node("rms_norm", std::vector{x, w}))[0]);
        }
        return;
      case 5:
        if (is_matrix) keep(add("softmax", {x}));
        return;
      case 6:
        keep(add("embedding", {parameter({13, 8}), ids_}));
        return;
      case 7:
        if (is_matrix && columns(x) % 4 == 0) {
          const int64_t dim = shape(x).rank() - 1;
          const TensorId heads = add("split_dim", {x}, {{"dim", dim}, {"inner", int64_t{4}}});
          keep(add("merge_dims", {add("relu", {heads})}, {{"dim", dim}}));
        }
        return;
      case 8:
        if (is_matrix && columns(x) > 4)
          keep(add("slice", {x}, {{"dim", int64_t{shape(x).rank() - 1}}, {"begin", int64_t{1}}, {"end", int64_t{5}}}));
        return;
      case 9: {
        const TensorId whole = pick_of_rank(3);
        keep(add("reduce_sum", {whole}, {{"axes", std::vector<int64_t>{random_() % 2 == 0 ? 1 : 2}}}));
        return;
      }
      default:
        if (is_matrix) matmul(x);
    }
  }

  std::mt19937 random_;
  Graph graph_;
  std::vector<TensorId> values_;
  TensorId ids_ = kNoTensor;
  int weights_ = 0;
};

}  // namespace tessera::test
