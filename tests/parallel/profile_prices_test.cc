// Prices from a device profile: exact at marks, on straight lines between them, in proportion beyond.
#include "parallel/pricing/profile_prices.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "graph/graph.h"

using namespace tessera;

namespace {

// Products of 2 m k n flops at 1e9 a second, trans_w = 1 at half of that.
DeviceProfile profile() {
  DeviceProfile profile;
  profile.device = "fake";
  profile.cores = 2;
  for (const auto& [form, slower] : {std::pair{"trans_w=0", 1.0}, {"trans_w=1", 2.0}}) {
    PriceTable table{"matmul", form, DType::kF32, {"*", "k", "n"}, {{8, 64}, {16, 64, 256}, {16, 64}},
                     {},       {}};
    for (const double m : table.marks[0])
      for (const double k : table.marks[1])
        for (const double n : table.marks[2]) {
          table.seconds.push_back(slower * 2 * m * k * n / 1e9);
          table.shared_seconds.push_back(2 * table.seconds.back());
        }
    profile.kernels.push_back(table);
  }
  profile.kernels.push_back({"", "", DType::kF32, {"bytes"}, {{1e3, 1e6}}, {1e-6, 1e-4}, {1e-6, 2e-4}});
  profile.collectives = {{CollectiveKind::kAllReduce, 2, {{1e3, 1e6}, {1e-5, 1e-3}}},
                         {CollectiveKind::kAllReduce, 4, {{1e3, 1e6}, {3e-5, 3e-3}}}};
  return profile;
}

struct Question {
  const OpDef* op;
  std::vector<Attr> attrs;
  std::vector<TensorType> inputs, outputs;
  std::vector<FactorView> factors;
  OpView view() const { return {attrs, inputs, outputs, factors}; }
};

Question matmul_question(int64_t batch, int64_t rows, int64_t k, int64_t n, int64_t trans = 0) {
  Graph graph;
  const auto x = graph.add_tensor("x", {DType::kF32, Shape{batch, rows, k}}, TensorKind::kInput);
  const auto w =
      graph.add_tensor("w", {DType::kF32, trans ? Shape{n, k} : Shape{k, n}}, TensorKind::kParameter);
  const auto y = graph.add("matmul", {*x, *w}, {{"trans_w", trans}});
  REQUIRE(y.ok());
  const Node& node = graph.nodes()[0];
  Question question{node.op, node.attrs, {graph.type(*x), graph.type(*w)}, {graph.type(*y)}, {}};
  ShardingRule rule = node.op->sharding(question.view());
  REQUIRE(bind_extents(rule, question.inputs, question.outputs).ok());
  for (const Factor& factor : rule.factors)
    question.factors.push_back({factor.name, factor.extent, 1, 1, {0, 0}, {factor.extent, 0}});
  return question;
}

double alone(const Question& question) {
  const auto seconds = kernel_seconds(profile(), *question.op, question.view());
  REQUIRE(seconds.has_value());
  return seconds->alone_s;
}

}  // namespace

TEST_CASE("a product is priced by its shape: at marks, between them and beyond them") {
  for (const auto& [b, m, k, n] :
       {std::tuple{1, 8, 16, 16}, {2, 32, 256, 64}, {1, 20, 100, 50}, {4, 64, 1024, 128}}) {
    CAPTURE(k);
    CHECK(alone(matmul_question(b, m, k, n)) == doctest::Approx(2e-9 * b * m * k * n));
    CHECK(alone(matmul_question(b, m, k, n, 1)) == doctest::Approx(4e-9 * b * m * k * n));
  }
  CHECK(alone(matmul_question(1, 1, 1, 1)) == doctest::Approx(2e-9 * 8 * 16 * 16));  // below all marks: the smallest
}

TEST_CASE("a product that does more at its end costs what a product does") {
  for (const int64_t trans : {0, 1}) {
    const Question plain = matmul_question(2, 4, 64, 16, trans);
    Question adds = plain;
    adds.op = find_op("matmul_add");
    adds.attrs = {{"trans_w", trans}};
    adds.inputs.push_back(adds.outputs[0]);
    CHECK(alone(adds) == alone(plain));
  }
}

TEST_CASE(
    "attention in a window costs its share of the pairs, and the width of values is no factor of a price") {
  const auto attention = [](int64_t window, int64_t width) {
    Graph graph;
    const auto q = graph.add_tensor("q", {DType::kF32, Shape{2, 64, 4, 16}}, TensorKind::kInput);
    const auto k = graph.add_tensor("k", {DType::kF32, Shape{2, 64, 2, 16}}, TensorKind::kInput);
    const auto v = graph.add_tensor("v", {DType::kF32, Shape{2, 64, 2, width}}, TensorKind::kInput);
    const std::vector<TensorId> operands = {*q, *k, *v};
    REQUIRE(graph.add_node("attention", operands, {{"window", window}}).ok());
    const Node& node = graph.nodes()[0];
    Question question{node.op,
                      node.attrs,
                      {graph.type(*q), graph.type(*k), graph.type(*v)},
                      {graph.type(node.outputs[0]), graph.type(node.outputs[1])},
                      {}};
    ShardingRule rule = node.op->sharding(question.view());
    REQUIRE(bind_extents(rule, question.inputs, question.outputs).ok());
    for (const Factor& factor : rule.factors)
      question.factors.push_back({factor.name, factor.extent, 1, 1, {0, 0}, {factor.extent, 0}});
    DeviceProfile p = profile();
    p.kernels.push_back(
        {"attention", "causal=1", DType::kF32, {"bkg", "ts", "d"}, {{8}, {64 * 64}, {16}}, {1e-3}, {}});
    return kernel_seconds(p, *question.op, question.view()).value().alone_s;
  };
  CHECK(attention(0, 16) == doctest::Approx(1e-3));
  CHECK(attention(0, 32) == doctest::Approx(1e-3));
  CHECK(attention(64, 16) == doctest::Approx(1e-3));
  CHECK(attention(8, 16) == doctest::Approx(1e-3 * (8 * 9 / 2 + 56 * 8) / (64 * 65 / 2)));
}

TEST_CASE(
    "a product that may multiply in TF32 costs what such products were measured to, and no other does") {
  DeviceProfile p = profile();
  const auto seconds = [&](const Question& question) {
    return kernel_seconds(p, *question.op, question.view()).value().alone_s;
  };
  Question exact = matmul_question(2, 4, 64, 16, 1), rounding = exact;
  std::ranges::find(rounding.attrs, "allow_tf32", &Attr::name)->value = int64_t{1};
  // Not measured: as in f32, like everything that no product can be faster than.
  const double slow = seconds(exact);
  CHECK(seconds(rounding) == slow);
  Question head = matmul_question(1, 64, 64, 64);
  head.op = find_op("scaled_matmul_weight_grad");  // without a table
  const double at_most = seconds(head);
  // The first that fits is taken, and tables are sorted by form.
  PriceTable fast = p.kernels[0];
  fast.form = "allow_tf32=1";
  for (double& each : fast.seconds) each /= 8;
  p.kernels.insert(p.kernels.begin(), fast);
  CHECK(seconds(exact) == slow);
  CHECK(seconds(rounding) == doctest::Approx(slow / 2 / 8));  // whichever way w is stored
  CHECK(seconds(head) == at_most);
  std::ranges::find(head.attrs, "allow_tf32", &Attr::name)->value = int64_t{1};
  CHECK(seconds(head) < at_most);
}

TEST_CASE("sums that leave in f32 cost what those of their operands' type do") {
  DeviceProfile given = profile();
  for (const auto& [dtype, seconds] : {std::pair{DType::kF32, 1.0}, {DType::kBF16, 0.1}})
    given.kernels.push_back({"sum_leading", "", dtype, {"bytes"}, {{1, 1e6}}, {seconds, seconds}, {}});
  Question question{find_op("sum_leading"), {{"wide", int64_t{1}}}, {}, {}, {}};
  question.outputs = {{DType::kF32, Shape{8}}};
  for (const auto& [dtype, seconds] : {std::pair{DType::kF32, 1.0}, {DType::kBF16, 0.1}}) {
    question.inputs = {{dtype, Shape{100, 8}}};
    CHECK(kernel_seconds(given, *question.op, question.view())->alone_s == doctest::Approx(seconds));
  }
}

TEST_CASE("what has no table is priced by its bytes, but never faster than the fastest product computes") {
  Question question = matmul_question(1, 64, 64, 64);
  const OpDef* softmax = find_op("softmax");
  REQUIRE(softmax != nullptr);
  question.op = softmax;
  question.inputs = question.outputs = {{DType::kF32, Shape{125, 1000}}};  // 1e6 bytes read and written
  const auto seconds = kernel_seconds(profile(), *softmax, question.view());
  REQUIRE(seconds.has_value());
  const double compute_s = softmax->cost(question.view()).flops / 1e9;
  CHECK(seconds->alone_s == doctest::Approx(std::max(1e-4, compute_s)));
}

TEST_CASE("below a table by bytes an op costs in proportion, but no less than any op of those bytes") {
  DeviceProfile p = profile();
  std::erase_if(p.kernels, [](const PriceTable& table) { return table.op == "matmul"; });
  const Question small = matmul_question(1, 8, 16, 16);
  const OpCost cost = small.op->cost(small.view());
  const double bytes = cost.bytes_read + cost.bytes_written;
  const double least = kernel_seconds(p, *small.op, small.view())->alone_s;  // of any op
  const auto priced = [&](double times, double at_mark_s) {
    p.kernels.push_back(
        {"matmul", "", DType::kF32, {"bytes"}, {{times * bytes}}, {at_mark_s}, {2 * at_mark_s}});
    const double seconds = kernel_seconds(p, *small.op, small.view())->alone_s;
    p.kernels.pop_back();
    return seconds;
  };
  CHECK(priced(1, 8 * least) == doctest::Approx(8 * least));
  CHECK(priced(4, 8 * least) == doctest::Approx(2 * least));
  CHECK(priced(16, 8 * least) == doctest::Approx(least));
}

TEST_CASE("collectives of sizes between those measured lie between, larger groups in proportion") {
  const DeviceProfile given = profile();
  const auto seconds = [&](int32_t members, double bytes) {
    return collective_seconds(given, CollectiveKind::kAllReduce, members, bytes).value_or(-1);
  };
  CHECK(seconds(2, 1e3) == doctest::Approx(1e-5));
  CHECK(seconds(2, 1e6) == doctest::Approx(1e-3));
  CHECK(seconds(2, 2e6) == doctest::Approx(2e-3));
  CHECK(seconds(2, (1e3 + 1e6) / 2) == doctest::Approx((1e-5 + 1e-3) / 2));
  CHECK(seconds(3, 1e6) == doctest::Approx(2e-3));
  CHECK(seconds(8, 1e6) == doctest::Approx(6e-3));
  CHECK_FALSE(collective_seconds(given, CollectiveKind::kAllToAll, 2, 1e3).has_value());
}
