// The graph builder through C.
#include "c_api.h"

using namespace capi_test;

TEST_CASE("a graph built node by node equals its text form") {
  tsr_graph* made = nullptr;
  ok(tsr_graph_new(&made));
  const Graph graph(made);
  int64_t batch = 0;
  ok(tsr_graph_symbol(made, "B", 0, &batch));
  const int64_t x_dims[] = {batch, 64}, w_dims[] = {64, 10};
  tsr_value x, w, y;
  ok(tsr_graph_input(made, "x", TSR_F32, 2, x_dims, &x));
  ok(tsr_graph_parameter(made, "w", TSR_F32, 2, w_dims, &w));
  const tsr_value operands[] = {x, w};
  size_t count = 0;
  ok(tsr_graph_node(made, "matmul", operands, 2, nullptr, &y, 1, &count));
  CHECK(count == 1);
  ok(tsr_graph_output(made, "logits", y));

  const std::string printed = text([&](auto... out) { return tsr_graph_print(made, out...); });
  tsr_graph* parsed = nullptr;
  ok(tsr_graph_parse(printed.data(), printed.size(), &parsed));
  const Graph again(parsed);
  CHECK(text([&](auto... out) { return tsr_graph_print(parsed, out...); }) == printed);

  tsr_dtype dtype;
  int32_t rank;
  int64_t dims[TSR_MAX_RANK];
  ok(tsr_graph_type(made, y, &dtype, &rank, dims));
  CHECK(dtype == TSR_F32);
  CHECK(rank == 2);
  CHECK(dims[0] == batch);
  CHECK(dims[1] == 10);
}

TEST_CASE("a wrong shape, an unknown op and a foreign value are errors that say so") {
  tsr_graph* made = nullptr;
  ok(tsr_graph_new(&made));
  const Graph graph(made);
  const int64_t a_dims[] = {4, 5}, b_dims[] = {6, 7};
  tsr_value a, b, out;
  ok(tsr_graph_input(made, "a", TSR_F32, 2, a_dims, &a));
  ok(tsr_graph_input(made, "b", TSR_F32, 2, b_dims, &b));
  const tsr_value pair[] = {a, b};
  const Error shapes = take(tsr_graph_node(made, "matmul", pair, 2, nullptr, &out, 1, nullptr));
  CHECK(shapes.code == TSR_INVALID_ARGUMENT);
  CHECK(shapes.message.find("5") != std::string::npos);
  CHECK(shapes.message.find("6") != std::string::npos);
  const Error op = take(tsr_graph_node(made, "matmull", pair, 2, nullptr, &out, 1, nullptr));
  CHECK(op.code == TSR_NOT_FOUND);
  CHECK(op.message.find("matmul") != std::string::npos);
  const tsr_value foreign = 1000;
  CHECK(take(tsr_graph_node(made, "relu", &foreign, 1, nullptr, &out, 1, nullptr)).code ==
        TSR_INVALID_ARGUMENT);
  const Error attribute =
      take(tsr_graph_node(made, "relu", &a, 1, options({{"slope", 0.1}}).get(), &out, 1, nullptr));
  CHECK(attribute.code == TSR_INVALID_ARGUMENT);
  const int64_t loose[] = {-7};
  CHECK(take(tsr_graph_input(made, "c", TSR_F32, 1, loose, &out)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_graph_parse("graph { nonsense", TSR_TEXT_END, &made)).code == TSR_INVALID_ARGUMENT);
}

TEST_CASE("an integer is accepted where an op wants a real") {
  tsr_graph* made = nullptr;
  ok(tsr_graph_new(&made));
  const Graph graph(made);
  const int64_t dims[] = {3};
  tsr_value x, y;
  ok(tsr_graph_input(made, "x", TSR_F32, 1, dims, &x));
  ok(tsr_graph_node(made, "scale", &x, 1, options({{"factor", int64_t{2}}}).get(), &y, 1, nullptr));
  CHECK(text([&](auto... out) { return tsr_graph_print(made, out...); }).find("factor = 2") !=
        std::string::npos);
}
