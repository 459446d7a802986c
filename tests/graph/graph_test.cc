#include "graph/graph.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/autodiff.h"
#include "graph/base/text.h"
#include "graph/transform/prune.h"

using namespace tessera;

namespace {
Graph parsed(std::string_view text) {
  Result<Graph> graph = parse_graph(text);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  return std::move(*graph);
}
std::string error_of(std::string_view text) {
  const Result<Graph> graph = parse_graph(text);
  return graph.ok() ? std::string() : std::string(graph.status().message());
}
constexpr std::string_view kTwoLayers = R"(graph {
  symbol B
  symbol T <= 1024
  input x: f32[B, T, 64]
  parameter w: f32[64, 128]
  parameter "my bias": f32[128] frozen
  h = matmul(x, w) : f32[B, T, 128] @scope "block.0"
  hb = add_bias(h, "my bias") : f32[B, T, 128] @scope "block \"1\""
  %5 = gelu(hb) {approximate = "none"} : f32[B, T, 128]
  y = reduce_sum(%5) {axes = [0, 1]} : f32[128]
  output "the sum" = y
}
)";
}  // namespace

TEST_CASE("a graph reads back from its text exactly") {
  CHECK(print(parsed(kTwoLayers)) == kTwoLayers);
  CHECK(parsed(kTwoLayers).symbols()[1].capacity == 1024);
  // Written by hand: types left out, one line, comments.
  CHECK(print(parsed("graph { # a comment\nsymbol B; input x: f32[B]; y = relu(x); output y = y }")) ==
        "graph {\n  symbol B\n  input x: f32[B]\n  y = relu(x) : f32[B]\n  output y = y\n}\n");
}

TEST_CASE("what does not read names line, found and wanted") {
  CHECK(error_of("graph {\n  input x: f32[4]\n  y = rely(x)\n}")
            .find("line 3: unknown op 'rely'; nearest: relu") == 0);
  CHECK(error_of("graph {\n  input x: f32[4]\n  y = relu(z)\n}").find("line 3: there is no tensor 'z'") == 0);
  CHECK(error_of("graph {\n  input x: f32[4]\n  y = relu(x) : f32[5]\n}").find("'y' is f32[4], not f32[5]") !=
        std::string::npos);
  CHECK(error_of("graph {\n input x: f32[N]\n}").find("symbol 'N' is not declared") != std::string::npos);
  CHECK(error_of("graph {\n input x: f33[4]\n}").find("'f33' is not a dtype") != std::string::npos);
  CHECK(error_of("graph {\n input x: f32[4]\n x = relu(x)\n}").find("'x' exists already") !=
        std::string::npos);
  CHECK(error_of("graph {\n input x: f32[4]\n y = scale(x) {factr = 1}\n}").find("'factor' is missing") !=
        std::string::npos);
  CHECK(error_of("graph {\n input x: f32[4]\n y = scale(x) {factor = 1, factr = 1}\n}")
            .find("unknown attribute 'factr'; nearest: factor") != std::string::npos);
  CHECK(error_of("graph {\n input x: f32[4]\n y = scale(x) {factor = \"1\"}\n}").find("wanted a real") !=
        std::string::npos);
  for (const char* text :
       {"", "graph", "graph {", "graph { } }", "graph { input }", "graph { input x: f32[4 }",
        "graph { input \"x: f32[4] }", "graph { input x: f32[4]; update x <- x }",
        "graph { input x: f32[1,1,1,1,1,1,1] }", "graph { input x: f32[9000000000,9000000000,9000000000] }"})
    CHECK_MESSAGE(!parse_graph(text).ok(), text);
}

TEST_CASE("attributes are completed with defaults and integers stand for reals") {
  Graph graph;
  const TensorId x = *graph.add_tensor("x", {DType::kF32, {4}}, TensorKind::kInput);
  REQUIRE(graph.add("gelu", {x}).ok());
  CHECK(attr_string(graph.nodes()[0].attrs, "approximate") == "tanh");
  REQUIRE(graph.add("scale", {x}, {{"factor", int64_t{2}}}).ok());
  CHECK(attr_f64(graph.nodes()[1].attrs, "factor") == 2.0);
  CHECK(!graph.add("scale", {x}, {{"factor", 1.0}, {"factor", 2.0}}).ok());
  CHECK(!graph.add("relu", {TensorId{77}}).ok());
  CHECK(graph.nodes().size() == 2);
  CHECK(graph.verify().ok());
}

TEST_CASE("names are unique, and %<number> belongs to its own tensor") {
  Graph graph;
  const TensorId x = *graph.add_tensor("x", {DType::kF32, {4}}, TensorKind::kInput);
  CHECK(!graph.add_tensor("x", {DType::kF32, {4}}, TensorKind::kInput).ok());
  CHECK(!graph.add_tensor("", {DType::kF32, {4}}, TensorKind::kInput).ok());
  CHECK(!graph.add_tensor("a\nb", {DType::kF32, {4}}, TensorKind::kInput).ok());
  for (const char* name : {"%9", "%1"})  // of another tensor, and what would be its own
    CHECK(!graph.add_tensor(name, {DType::kF32, {4}}, TensorKind::kInput).ok());
  CHECK(!graph.rename(x, "%0").ok());
  CHECK(!graph.add_tensor("a", {DType::kF32, {4}}, TensorKind::kActivation).ok());
  CHECK(!graph.add_tensor("a", {DType::kQ8_0, {4, 33}}, TensorKind::kParameter).ok());
  CHECK(!graph.add_tensor("a", {DType::kF32, {symbol_extent(0)}}, TensorKind::kParameter).ok());
  const TensorId y = *graph.add("relu", {x});
  CHECK(graph.tensor(y).name == "%1");
  CHECK(!graph.rename(y, "x").ok());
  CHECK(graph.rename(y, "y").ok());
  CHECK(graph.rename(y, "y").ok());
  CHECK(graph.find_tensor("x") == x);
  CHECK(graph.find_tensor("y") == y);
  CHECK(!graph.find_tensor("%1"));  // its name no longer
  CHECK(graph.rename(y, "z").ok());
  CHECK(!graph.find_tensor("y"));
  CHECK(graph.add_tensor("y", {DType::kF32, {4}}, TensorKind::kInput).ok());  // free again
  CHECK(graph.rename(y, "%1").ok());
  CHECK(graph.find_tensor("%1") == y);
  CHECK(!graph.find_tensor("%01"));
  CHECK(!graph.find_tensor("%7"));
  const Graph copy = graph;
  CHECK(copy.find_tensor("%1") == y);
  CHECK(copy.find_tensor("x") == x);
}

TEST_CASE("names are found in a time that does not grow with the graph") {
  // Looking at every tensor for each of these would take minutes.
  constexpr int kTensors = 100000;
  Graph graph;
  for (int i = 0; i < kTensors; ++i)
    REQUIRE(graph.add_tensor(format("w{}", i), {DType::kF32, {4}}, TensorKind::kParameter).ok());
  for (int i = 0; i < kTensors; i += 7)
    REQUIRE(graph.find_tensor(format("w{}", i)) == TensorId{static_cast<uint32_t>(i)});
}

TEST_CASE("bind replaces every symbol and asks for those that shapes use") {
  const Graph graph = parsed(kTwoLayers);
  const std::pair<std::string, int64_t> both[] = {{"B", 2}, {"T", 3}}, only_t[] = {{"T", 3}},
                                        long_t[] = {{"B", 2}, {"T", 1025}}, unknown[] = {{"B", 2}, {"t", 3}};
  Result<Graph> bound = graph.bind(both);
  REQUIRE(bound.ok());
  CHECK(bound->type(*bound->find_tensor("h")).shape == Shape{2, 3, 128});
  CHECK(bound->verify().ok());
  CHECK(bound->symbols().empty());
  CHECK(graph.bind(only_t).status().message().find("symbol 'B' has no value") == 0);
  CHECK(graph.bind(long_t).status().message().find("given as 1025, wanted 0 to 1024") != std::string::npos);
  CHECK(graph.bind(unknown).status().message().find("unknown symbol 't'") == 0);

  Result<Graph> partly = graph.bind_partly(only_t);
  REQUIRE(partly.ok());
  CHECK(partly->symbols().size() == 1);
  CHECK(partly->verify().ok());
  CHECK(partly->type(*partly->find_tensor("h")).shape == Shape{symbol_extent(0), 3, 128});
  const std::pair<std::string, int64_t> only_b[] = {{"B", 2}};
  CHECK(print(*partly->bind(only_b)) == print(*bound));
}

TEST_CASE("a fingerprint depends on structure, types and attributes, not on names") {
  const uint64_t before = parsed(kTwoLayers).fingerprint();
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string text(kTwoLayers);
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    return parsed(text).fingerprint();
  };
  CHECK(edited("hb", "z") == before);
  CHECK(edited("block.0", "b") == before);
  CHECK(edited(" frozen", "") != before);
  CHECK(edited("128", "129") != before);
  CHECK(edited("none", "tanh") != before);
  CHECK(edited("gelu(hb)", "gelu(h)") != before);
  CHECK(edited("1024", "1025") != before);
}

TEST_CASE("gradients of several uses are summed, last use first") {
  Graph graph = parsed(R"(graph {
    parameter w: f32[4]
    a = square(w)
    b = mul(a, w)
    c = add(b, w)
    loss = reduce_sum(c) {axes = [0]}
    output loss = loss
  })");
  const TensorId loss = *graph.find_output("loss");
  const Status status = differentiate(graph, loss);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  CHECK(graph.verify().ok());
  REQUIRE(graph.gradients().size() == 1);
  CHECK(graph.tensor(graph.gradients()[0].gradient).name == "w.grad");
  // w is read by square, mul and add: two adds join three contributions.
  CHECK(std::ranges::count_if(graph.nodes(), [](const Node& n) {
          return n.op->name == "add" && n.phase != Phase::kForward;
        }) == 2);
  CHECK(graph.scope().empty());
}

TEST_CASE("differentiation wants a scalar that depends on a trainable parameter") {
  Graph graph =
      parsed("graph { parameter w: f32[4]; input x: f32[4]; y = mul(w, x); z = reduce_sum(x) {axes = [0]} }");
  CHECK(differentiate(graph, *graph.find_tensor("y")).message().find("wanted a scalar") != std::string::npos);
  CHECK(differentiate(graph, *graph.find_tensor("z")).message().find("no trainable parameter") !=
        std::string::npos);
  Graph blocked =
      parsed("graph { parameter w: f32[2, 8]; q = sum_squares(w); r, norm = clip_scale(q) {max_norm = 1} }");
  CHECK(differentiate(blocked, *blocked.find_tensor("r")).message().find("clip_scale '' has no gradient") ==
        0);
}

TEST_CASE("pruning drops what nobody reads and keeps inputs and parameters") {
  const Graph graph =
      parsed("graph { input x: f32[4]; parameter w: f32[4]; a = relu(x); b = relu(x); output a = a }");
  const Result<Graph> pruned = prune(graph);
  REQUIRE(pruned.ok());
  CHECK(print(*pruned) ==
        "graph {\n  input x: f32[4]\n  parameter w: f32[4]\n  a = relu(x) : f32[4]\n  output a = a\n}\n");
}

// Every op is given operands that it mostly refuses: no message may call a symbol by its number.
TEST_CASE("messages of shapes call symbols by their names") {
  int refused = 0, named = 0;
  uint32_t state = 1;
  const auto draw = [&](size_t count) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % count;
  };
  for (const OpDef* op : all_ops())
    for (int round = 0; round < 40; ++round) {
      Graph graph;
      const int64_t batch = graph.symbol("B"), sequence = graph.symbol("T", 1024);
      const Shape shapes[] = {
          {batch, sequence, 64},  {batch, sequence}, {sequence, batch, 8}, {batch}, {64, 64}, {64}, {},
          {batch, 4, sequence, 8}};
      std::vector<TensorId> inputs;
      for (size_t i = 0, count = 1 + draw(4); i < count; ++i)
        inputs.push_back(*graph.add_tensor(format("x{}", i),
                                           {draw(4) == 0 ? DType::kI32 : DType::kF32, shapes[draw(8)]},
                                           TensorKind::kInput));
      std::vector<Attr> attrs;
      for (const AttrSpec& spec : op->attrs) {
        if (spec.default_value) continue;
        constexpr const char* kTexts[] = {"f32", "sum", "none"};
        if (spec.type == AttrType::kI64)
          attrs.push_back({std::string(spec.name), static_cast<int64_t>(draw(4))});
        if (spec.type == AttrType::kF64) attrs.push_back({std::string(spec.name), 0.5});
        if (spec.type == AttrType::kString)
          attrs.push_back({std::string(spec.name), std::string(kTexts[draw(3)])});
        if (spec.type == AttrType::kI64List)
          attrs.push_back(
              {std::string(spec.name), std::vector<int64_t>(1 + draw(3), static_cast<int64_t>(draw(3)))});
      }
      const auto outputs = graph.add_node(op->name, inputs, attrs);
      const std::string message(outputs.status().message());
      refused += outputs.ok() ? 0 : 1;
      named += message.find("[B") != std::string::npos ? 1 : 0;
      CHECK_MESSAGE(message.find('$') == std::string::npos, message);
    }
  CHECK(refused > 1000);
  CHECK(named > 100);
  CHECK(error_of("graph {\nsymbol B; symbol \"my T\"; input x: f32[B, \"my T\", 8]; parameter w: f32[4, 2]\n"
                 "y = matmul(x, w)\n}")
            .find("$") == std::string::npos);
}
