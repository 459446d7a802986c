#include "tests/planner/operation_graphs.h"

#include <doctest/doctest.h>

#include "graph/base/text.h"

namespace tessera::testing {

Graph random_operations(std::mt19937& random, int operations, bool uneven) {
  Graph graph;
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto extent = [&] {
    return static_cast<int64_t>((uneven && below(3) == 0 ? 13 : 16) << (2 * below(3)));
  };
  const auto tensor = [&](const char* kind, Shape shape, TensorKind of) {
    auto made = graph.add_tensor(format("{}{}", kind, graph.tensors().size()), {DType::kF32, shape}, of);
    REQUIRE(made.ok());
    return *made;
  };
  std::vector<TensorId> values = {tensor("x", {extent(), extent()}, TensorKind::kInput)};
  for (int i = 0; i < operations; ++i) {
    // The newest value mostly, so that the graph is deep; sometimes another, so that it branches.
    const TensorId a = below(3) == 0 ? values[below(values.size())] : values.back();
    const Shape shape = graph.type(a).shape;
    std::vector<TensorId> alike;
    for (const TensorId v : values)
      if (v != a && graph.type(v).shape == shape) alike.push_back(v);
    Result<TensorId> made = Status(StatusCode::kInternal, "");
    const size_t kind = below(4);
    if (kind == 0 && !alike.empty()) {
      made = graph.add("add", {a, alike[below(alike.size())]});
    } else if (kind == 1) {
      made = graph.add("gelu", {a});
    } else {
      const int64_t n = below(2) == 0 ? shape[1] : extent();
      made = graph.add("matmul", {a, tensor("w", {shape[1], n}, TensorKind::kParameter)});
    }
    REQUIRE_MESSAGE(made.ok(), std::string(made.status().message()));
    values.push_back(*made);
  }
  REQUIRE(graph.add_output("y", values.back()).ok());
  return graph;
}

Cluster small_cluster(int32_t devices, double bytes_per_s, double latency_s) {
  Cluster cluster;
  DeviceKind kind;
  kind.name = "small";
  kind.memory_bytes = int64_t{1} << 30;
  kind.matmul_flops_per_s = 1e11;
  kind.memory_bytes_per_s = 1e10;
  cluster.kinds = {kind};
  cluster.devices.assign(static_cast<size_t>(devices), 0);
  cluster.link = {bytes_per_s, latency_s};
  return cluster;
}

}  // namespace tessera::testing
