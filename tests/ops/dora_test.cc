// Magnitudes of adapters (DoRA): gradients are those of differences, where the norms stay what they were.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "graph/autodiff.h"
#include "graph/transform/adapters.h"
#include "tests/ok.h"
#include "tests/ops/interpreter.h"

using namespace tessera;
using namespace tessera::conformance;

namespace {

using test::ok;

// y = x W^T + bias with an adapter, weighed and summed; the norms are an input.
constexpr const char* kConstantNorms = R"(graph {
  input x: f64[3, 4]
  input w: f64[5, 4]
  input bias: f64[5]
  input norm: f64[5]
  input weights: f64[3, 5]
  parameter w.lora_a: f64[2, 4]
  parameter w.lora_b: f64[5, 2]
  parameter w.lora_magnitude: f64[5]
  base = matmul(x, w) {trans_w = 1} : f64[3, 5]
  low = matmul(x, w.lora_a) {trans_w = 1} : f64[3, 2]
  scaled = scale(low) {factor = 1.5} : f64[3, 2]
  up = matmul(scaled, w.lora_b) {trans_w = 1} : f64[3, 5]
  sum = add(base, up) : f64[3, 5]
  ratio = div(w.lora_magnitude, norm) : f64[5]
  everywhere = broadcast(ratio, sum) {axes = [0]} : f64[3, 5]
  times = mul(sum, everywhere) : f64[3, 5]
  y = add_bias(times, bias) : f64[3, 5]
  weighed = mul(y, weights) : f64[3, 5]
  loss = reduce_sum(weighed) {axes = [0, 1]} : f64[]
  output loss = loss
})";

constexpr const char* kBase = R"(graph {
  input x: f64[3, 4]
  input weights: f64[3, 5]
  parameter w: f64[5, 4]
  parameter bias: f64[5]
  y = matmul(x, w, bias) {trans_w = 1} : f64[3, 5]
  weighed = mul(y, weights) : f64[3, 5]
  loss = reduce_sum(weighed) {axes = [0, 1]} : f64[]
  output loss = loss
})";

std::vector<double> numbers(const TensorType& type, const std::string& name) {
  std::vector<double> all(static_cast<size_t>(type.shape.elements()));
  double next = static_cast<double>(name.size());
  for (double& value : all) value = std::sin(next += 1.7);
  return all;
}

std::map<TensorId, Array> feeds_of(const Graph& graph, const std::map<std::string, Array>& given) {
  std::map<TensorId, Array> feeds;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer != kNoNode) continue;
    const auto found = given.find(tensor.name);
    feeds[id] = found == given.end() ? Array::of(tensor.type, numbers(tensor.type, tensor.name)) : found->second;
  }
  return feeds;
}

double loss_of(const Graph& graph, const std::map<TensorId, Array>& feeds) {
  return ok(ok(Interpreter::make(graph)).run(feeds))[index(*graph.find_output("loss"))].get(0);
}

}  // namespace

TEST_CASE("gradients of magnitudes and their adapters equal finite differences at constant norms") {
  const Graph base = ok(parse_graph(kBase));
  const AdapterPlacement placement{
      .weight = *base.find_tensor("w"), .rank = 2, .factor = 1.5, .has_magnitude = true};
  Graph adapted = ok(with_adapters(base, std::span(&placement, 1)));
  const std::map<TensorId, Array> here = feeds_of(adapted, {});
  const Graph constant = ok(parse_graph(kConstantNorms));

  // |W + 1.5 B A| by rows.
  const auto value = [&](const char* name) { return here.at(*adapted.find_tensor(name)).values(); };
  const std::vector<double> w = value("w"), a = value("w.lora_a"), b = value("w.lora_b");
  std::vector<double> norms;
  for (size_t n = 0; n < 5; ++n) {
    double squares = 0;
    for (size_t k = 0; k < 4; ++k) {
      const double whole = w[n * 4 + k] + 1.5 * (b[n * 2] * a[k] + b[n * 2 + 1] * a[4 + k]);
      squares += whole * whole;
    }
    norms.push_back(std::sqrt(squares));
  }
  std::map<TensorId, Array> there =
      feeds_of(constant, {{"norm", Array::of({DType::kF64, {5}}, norms)}});
  CHECK(loss_of(adapted, here) == doctest::Approx(loss_of(constant, there)).epsilon(1e-12));

  REQUIRE(differentiate(adapted, *adapted.find_output("loss")).ok());
  const std::vector<Array> results = ok(ok(Interpreter::make(adapted)).run(here));
  CHECK(adapted.gradients().size() == 3);
  constexpr double kStep = 1e-5;
  for (const Gradient& gradient : adapted.gradients()) {
    const std::string& name = adapted.tensor(gradient.parameter).name;
    CAPTURE(name);
    Array& moved = there.at(*constant.find_tensor(name));
    for (int64_t i = 0; i < moved.count(); ++i) {
      const double x = moved.get(i);
      moved.set(i, x + kStep);
      const double above = loss_of(constant, there);
      moved.set(i, x - kStep);
      const double below = loss_of(constant, there);
      moved.set(i, x);
      CHECK(results[index(gradient.gradient)].get(i) == doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-7));
    }
  }
}
