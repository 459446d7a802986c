// The phases of cross entropy together: value, gradient through `differentiate`, ignored and impossible
// labels.
#include <doctest/doctest.h>

#include <cmath>

#include "graph/autodiff.h"
#include "tests/ops/kernel_runner.h"
#include "tests/ops/host_values.h"

using namespace tessera;
using namespace tessera::test;

namespace {

// loss = reduce_mean(cross_entropy(logits [3, 5], labels [3]))
Graph loss_graph() {
  auto graph = parse_graph(R"(graph {
    parameter logits: f64[3, 5]
    input labels: i32[3]
    m = row_max(logits) : f64[3]
    s = row_sum_exp(logits, m) : f64[3]
    picked = pick(logits, labels) : f64[3]
    each = cross_entropy(logits, labels, m, s, picked) : f64[3]
    loss = reduce_mean(each) {axes = [0]} : f64[]
    output loss = loss
  })");
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  return *graph;
}

double loss_of(const Graph& graph, const std::vector<double>& logits, const std::vector<int32_t>& labels) {
  const auto values = run_graph(graph, {{"logits", f64({3, 5}, logits)}, {"labels", i32({3}, labels)}});
  REQUIRE_MESSAGE(values.ok(), values.status().to_string());
  return (*values)[index(*graph.find_output("loss"))].as<double>()[0];
}

}  // namespace

TEST_CASE("cross entropy is minus the log of the label's softmax, 0 for an ignored label") {
  const std::vector<double> logits = scattered(15, 1);
  double wanted = 0;
  const std::vector<int32_t> labels = {4, -1, 0};
  for (size_t row : {size_t{0}, size_t{2}}) {
    double sum = 0;
    for (size_t v = 0; v < 5; ++v) sum += std::exp(logits[row * 5 + v]);
    wanted -= std::log(std::exp(logits[row * 5 + static_cast<size_t>(labels[row])]) / sum) / 3;
  }
  CHECK(loss_of(loss_graph(), logits, labels) == doctest::Approx(wanted).epsilon(1e-13));
}

TEST_CASE("cross entropy of large logits does not overflow") {
  std::vector<double> logits(15, 1e4);
  CHECK(loss_of(loss_graph(), logits, {0, 1, 2}) == doctest::Approx(std::log(5)));
}

TEST_CASE("the gradient of cross entropy equals finite differences") {
  Graph graph = loss_graph();
  const Status status = differentiate(graph, *graph.find_output("loss"));
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  const std::vector<double> logits = scattered(15, 1);
  const std::vector<int32_t> labels = {4, -1, 0};
  const auto values = run_graph(graph, {{"logits", f64({3, 5}, logits)}, {"labels", i32({3}, labels)}});
  REQUIRE_MESSAGE(values.ok(), values.status().to_string());
  const auto gradient = (*values)[index(graph.gradients()[0].gradient)].as<double>();
  const double step = 1e-5;
  for (size_t i = 0; i < logits.size(); ++i) {
    std::vector<double> up = logits, down = logits;
    up[i] += step;
    down[i] -= step;
    const double wanted = (loss_of(graph, up, labels) - loss_of(graph, down, labels)) / (2 * step);
    CHECK(std::abs(gradient[i] - wanted) < 1e-9);
  }
}

TEST_CASE("a loss that depends on a statistic in another way is an error that names it") {
  auto graph = parse_graph(R"(graph {
    parameter logits: f64[3, 5]
    m = row_max(logits) : f64[3]
    loss = reduce_mean(m) {axes = [0]} : f64[]
    output loss = loss
  })");
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  const Status status = differentiate(*graph, *graph->find_output("loss"));
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK(status.message().find("row_max") != std::string_view::npos);
}
