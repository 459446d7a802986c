// Ops that normalise over a factor, or add to a sum over it, taken apart into phases: the chain makes what the op makes. That each
// op of the chain may be sharded is checked by its own case file.
#include "graph/phases.h"

#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "tests/ops/checks.h"
#include "tests/ops/host_values.h"
#include "tests/ops/interpreter.h"

namespace tessera::conformance {
namespace {

struct OneNode {
  Graph graph;
  Plan plan;
  char phased = 0;
};

// A graph of the op alone, and a plan that splits what it normalises over two ways.
Result<OneNode> one_node(const OpDef& op, const Case& c) {
  OneNode one;
  std::vector<TensorId> inputs;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(
        const TensorId id,
        one.graph.add_tensor(format("x{}", i), c.operands[i].type_in(DType::kF64), TensorKind::kInput));
    inputs.push_back(id);
  }
  TSR_ASSIGN_OR_RETURN(const auto outputs, one.graph.add_node(op.name, inputs, c.attrs));
  for (size_t o = 0; o < outputs.size(); ++o)
    TSR_RETURN_IF_ERROR(one.graph.add_output(format("y{}", o), outputs[o]));
  TSR_ASSIGN_OR_RETURN(DeviceMesh mesh, parse_mesh("t=2"));
  one.plan.stages = {{std::move(mesh)}};
  const Node& node = one.graph.nodes()[0];
  std::vector<TensorType> in, out;
  for (const TensorId id : node.inputs) in.push_back(one.graph.type(id));
  for (const TensorId id : node.outputs) out.push_back(one.graph.type(id));
  for (const Factor& factor : op.sharding({node.attrs, in, out, {}}).factors)
    if (factor.kind == FactorKind::kPhased) one.phased = factor.name;
  one.plan.nodes = {NodePlan{}};
  one.plan.nodes[0].factor_axes = {{one.phased, {AxisId{0}}}};
  return one;
}

std::vector<double> results(const Graph& graph, const Case& c) {
  std::map<TensorId, Array> feeds;
  for (size_t i = 0; i < c.operands.size(); ++i)
    feeds[*graph.find_tensor(format("x{}", i))] = Array::of(
        c.operands[i].type_in(DType::kF64), make_values(c.operands[i].type, c.operands[i].range, i));
  const auto interpreter = Interpreter::make(graph);
  REQUIRE_MESSAGE(interpreter.ok(), interpreter.status().to_string());
  const auto arrays = interpreter->run(feeds);
  REQUIRE_MESSAGE(arrays.ok(), arrays.status().to_string());
  std::vector<double> values;
  for (const NamedTensor& output : graph.outputs()) {
    const std::vector<double> some = (*arrays)[index(output.tensor)].values();
    values.insert(values.end(), some.begin(), some.end());
  }
  return values;
}

TEST_CASE("every_op_with_phases_makes_the_same_through_them") {
  int with_phases = 0;
  for (const OpDef* op : all_ops()) {
    if (op->phases == nullptr) continue;
    ++with_phases;
    const auto file = read_case_file(TSR_SOURCE_DIR "/tests/ops/cases/" + std::string(op->name) + ".txt");
    REQUIRE(file.ok());
    for (const Case& c : file->cases) {
      CAPTURE(op->name);
      CAPTURE(c.line);
      const auto one = one_node(*op, c);
      REQUIRE_MESSAGE(one.ok(), one.status().to_string());
      if (op->sums_into >= 0 && c.operands[0].type.shape.rank() == 1) continue;  // of one token
      REQUIRE(one->phased != 0);
      const auto expanded = expand_phases(one->graph, one->plan);
      REQUIRE_MESSAGE(expanded.ok(), expanded.status().to_string());
      REQUIRE(expanded->has_value());
      const Graph& chain = (*expanded)->graph;
      CHECK(chain.verify().ok());
      REQUIRE(chain.nodes().size() > 1);
      REQUIRE((*expanded)->plan.nodes.size() == chain.nodes().size());
      bool summed = false;
      for (size_t n = 0; n < chain.nodes().size(); ++n) {
        const Node& node = chain.nodes()[n];
        std::vector<TensorType> in, out;
        for (const TensorId id : node.inputs) in.push_back(chain.type(id));
        for (const TensorId id : node.outputs) out.push_back(chain.type(id));
        const ShardingRule rule = node.op->sharding({node.attrs, in, out, {}});
        const Factor* factor = rule.find(one->phased);
        if (factor == nullptr) {  // of sums alone
          CHECK(summed);
          CHECK((*expanded)->plan.nodes[n].factor_axes.empty());
          continue;
        }
        CHECK((factor->kind == FactorKind::kPass || factor->kind == FactorKind::kReduce));
        CHECK((*expanded)->plan.nodes[n].factor_axes == one->plan.nodes[0].factor_axes);
        summed |= factor->kind == FactorKind::kReduce;
      }
      CHECK(summed);
      const auto want = results(one->graph, c), got = results(chain, c);
      REQUIRE(want.size() == got.size());
      for (size_t i = 0; i < want.size(); ++i) CHECK(near(got[i], want[i], 1e-12));
    }
  }
  CHECK(with_phases == 8);
}

TEST_CASE("a_node_whose_normalised_factor_is_whole_is_left_alone") {
  Case c;
  c.operands = {{{DType::kF64, {2, 4}}, true, {}}, {{DType::kF64, {4}}, true, {}}};
  auto one = one_node(*find_op("rms_norm"), c);
  REQUIRE(one.ok());
  one->plan.nodes[0].factor_axes = {{'a', {AxisId{0}}}};
  CHECK(!expand_phases(one->graph, one->plan)->has_value());
  one->plan.nodes[0].factor_axes = {{'c', {AxisId{0}}}};
  one->plan.stages[0].mesh.axes[0].size = 1;
  CHECK(!expand_phases(one->graph, one->plan)->has_value());
}

}  // namespace
}  // namespace tessera::conformance
