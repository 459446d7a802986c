// Kernels of absent devices: products priced by the extents that sharding rules tell, everything else by bytes.
#include "parallel/pricing/absent_catalog.h"

#include <doctest/doctest.h>

#include "graph/graph.h"
#include "parallel/pricing/cluster_presets.h"
#include "parallel/pricing/device_time.h"
#include "tests/ok.h"

using namespace tessera;
using test::ok;

namespace {

// `name` on operands of one type.
double kernel_seconds(const DeviceKind& kind, std::string_view name, const std::vector<TensorType>& inputs,
                      const std::vector<Attr>& given = {}) {
  Graph graph;
  std::vector<TensorId> operands;
  for (const TensorType& type : inputs)
    operands.push_back(ok(graph.add_tensor("x" + std::to_string(operands.size()), type, TensorKind::kInput)));
  ok(graph.add_node(name, operands, given));
  const Node& node = graph.nodes().back();
  std::vector<TensorType> outputs;
  for (const TensorId id : node.outputs) outputs.push_back(graph.type(id));
  return ok(AbsentCatalog(kind).query(*node.op, {node.attrs, inputs, outputs, {}})).seconds;
}

}  // namespace

TEST_CASE(
    "kernels of absent devices: products take the time of their extents, sums of products that of each") {
  const DeviceKind kind = ok(cluster_preset("dgx-a100-80gb:8")).kinds[0];
  const auto f16 = [](std::initializer_list<int64_t> shape) { return TensorType{DType::kF16, Shape(shape)}; };
  const auto i32 = [](std::initializer_list<int64_t> shape) { return TensorType{DType::kI32, Shape(shape)}; };
  const auto seconds_of = [&](double m, double n, double k) {
    return batched_matmul_seconds(kind, DType::kF16, 1, m, n, k);
  };
  CHECK(kernel_seconds(kind, "matmul", {f16({2, 1024, 4096}), f16({4096, 3000})}) ==
        doctest::Approx(seconds_of(2048, 3000, 4096)));
  CHECK(kernel_seconds(kind, "matmul_weight_grad", {f16({2, 1024, 4096}), f16({2, 1024, 3000})}) ==
        doctest::Approx(seconds_of(4096, 3000, 2048)));
  // An odd extent takes three times as long.
  CHECK(kernel_seconds(kind, "matmul", {f16({8192, 4096}), f16({4096, 50257})}) >
        2.5 * seconds_of(8192, 50264, 4096));
  CHECK(kernel_seconds(kind, "expert_matmul", {f16({8, 1, 512, 1024}), f16({8, 1024, 4096})}) ==
        doctest::Approx(batched_matmul_seconds(kind, DType::kF16, 8, 512, 4096, 1024)));
  // Three products; of the logits, and of both gradients.
  const std::vector<TensorType> head = {
      f16({4096, 2048}), f16({51200, 2048}), i32({4096}), {DType::kF32, {}}, {DType::kF32, {}}};
  CHECK(kernel_seconds(kind, "linear_cross_entropy_grad", head) ==
        doctest::Approx(3 * seconds_of(4096, 51200, 2048)).epsilon(0.02));
  // Products of 8-bit floats, of either format.
  const DeviceKind newer = ok(cluster_preset("dgx-h100:8")).kinds[0];
  const TensorType scale{DType::kF32, {}};
  for (const DType codes : {DType::kE4M3, DType::kE5M2})
    CHECK(kernel_seconds(newer, "scaled_matmul",
                         {{codes, Shape{8192, 4096}}, {DType::kE4M3, Shape{4096, 4096}}, scale, scale}) ==
          doctest::Approx(batched_matmul_seconds(newer, DType::kE4M3, 1, 8192, 4096, 4096)).epsilon(0.03));
  // Half of the pairs of a causal mask, at the rate of what stays on chip.
  const TensorType heads = f16({4, 2048, 16, 128});
  const double pairs = 4.0 * 16 * 2048 * 2049 / 2;
  CHECK(kernel_seconds(kind, "attention", {heads, heads, heads}, {{"causal", int64_t{1}}}) ==
        doctest::Approx(4 * pairs * 128 / (0.6 * matrix_rate(kind, DType::kF16)) + kind.launch_s)
            .epsilon(0.01));
  CHECK(kernel_seconds(kind, "add", {heads, heads}) ==
        doctest::Approx(streaming_seconds(kind, 3 * 2 * 4.0 * 2048 * 16 * 128)));
}
