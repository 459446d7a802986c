// Check 3: the op's outputs (or those of a gradient graph) are weighed at random and summed to a scalar in
// f64, which is differentiated and compared with central finite differences. All of it runs on reference
// kernels.
#include <algorithm>
#include <cmath>
#include <map>

#include "graph/autodiff.h"
#include "graph/base/text.h"
#include "tests/ops/checks.h"
#include "tests/ops/interpreter.h"

namespace tessera::conformance {

namespace {

constexpr double kStep = 1e-5;          // errors of step^2 and of epsilon / step are both near 1e-11
constexpr int64_t kElementsTried = 40;  // of one operand, evenly spread

// A graph, values for everything in it that is fed, and the scalar to differentiate.
struct Problem {
  Graph graph;
  std::map<TensorId, Array> feeds;
  TensorId loss = kNoTensor;
};

std::vector<int64_t> all_axes(const Shape& shape) {
  std::vector<int64_t> axes;
  for (int dim = 0; dim < shape.rank(); ++dim) axes.push_back(dim);
  return axes;
}

// loss = sum over the results of sum(result * weights), the weights a fed input of random values.
Status add_projection(Problem& problem, const std::vector<TensorId>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorType type = problem.graph.type(results[i]);
    TSR_ASSIGN_OR_RETURN(const TensorId weights,
                         problem.graph.add_tensor(format("weights.{}", i), type, TensorKind::kInput));
    problem.feeds[weights] = Array::of(type, make_values(type, {}, 7000 + i));
    TSR_ASSIGN_OR_RETURN(TensorId term, problem.graph.add("mul", {results[i], weights}));
    TSR_ASSIGN_OR_RETURN(term, problem.graph.add("reduce_sum", {term}, {{"axes", all_axes(type.shape)}}));
    if (problem.loss == kNoTensor) {
      problem.loss = term;
    } else {
      TSR_ASSIGN_OR_RETURN(problem.loss, problem.graph.add("add", {problem.loss, term}));
    }
  }
  return {};
}

bool listed(const std::vector<int>& list, size_t i) {
  return list.empty() || std::ranges::find(list, static_cast<int>(i)) != list.end();
}

bool is_f64(const TensorType& type) { return type.dtype == DType::kF64; }

// The op under test replaces the registered definition in the graph's nodes.
void put_under_test(Graph& graph, const OpDef& op) {
  for (const Node& node : graph.nodes())
    if (node.op->name == op.name) const_cast<Node&>(node).op = &op;
}

// The op alone.
Result<Problem> problem_of(const OpDef& op, const CaseFile& file, const Case& c) {
  Problem problem;
  std::vector<TensorId> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const TensorType type = c.operands[i].type_in(DType::kF64);
    const bool shape_only = std::ranges::find(op.shape_only, static_cast<int>(i)) != op.shape_only.end();
    const bool variable = is_f64(type) && !shape_only && listed(file.differentiate, i);
    TSR_ASSIGN_OR_RETURN(const TensorId id,
                         problem.graph.add_tensor(format("operand.{}", i), type,
                                                  variable ? TensorKind::kParameter : TensorKind::kInput));
    problem.feeds[id] = Array::of(
        type, make_values(c.operands[i].type, c.operands[i].range, static_cast<uint64_t>(c.line) * 100 + i));
    operands.push_back(id);
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                       problem.graph.add_node(op.name, operands, c.attrs));
  put_under_test(problem.graph, op);
  std::vector<TensorId> results;
  for (size_t o = 0; o < outputs.size(); ++o)
    if (is_f64(problem.graph.type(outputs[o])) && listed(file.project, o)) results.push_back(outputs[o]);
  TSR_RETURN_IF_ERROR(add_projection(problem, results));
  return problem;
}

Result<Problem> problem_of(const OpDef& op, const GradientGraph& gradient) {
  Problem problem;
  TSR_ASSIGN_OR_RETURN(problem.graph, parse_graph(gradient.text));
  put_under_test(problem.graph, op);
  uint64_t seed = static_cast<uint64_t>(gradient.line) * 100;
  for (size_t t = 0; t < problem.graph.tensors().size(); ++t) {
    const Tensor& tensor = problem.graph.tensors()[t];
    if (tensor.kind == TensorKind::kActivation) continue;
    const auto feed =
        std::ranges::find(gradient.feeds, tensor.name, [](const auto& pair) { return pair.first; });
    const ValueRange range = feed == gradient.feeds.end() ? ValueRange{} : feed->second;
    problem.feeds[TensorId{static_cast<uint32_t>(t)}] =
        Array::of(tensor.type, make_values(tensor.type, range, seed++));
  }
  for (const auto& [name, range] : gradient.feeds)
    if (!problem.graph.find_tensor(name))
      return Status(StatusCode::kNotFound, format("feed {}: the graph has no such tensor", name));
  std::vector<TensorId> results;
  for (const NamedTensor& output : problem.graph.outputs()) results.push_back(output.tensor);
  TSR_RETURN_IF_ERROR(add_projection(problem, results));
  return problem;
}

Result<double> loss_at(const Interpreter& forward, const Problem& problem) {
  TSR_ASSIGN_OR_RETURN(const std::vector<Array> values, forward.run(problem.feeds));
  return values[index(problem.loss)].get(0);
}

// Analytic gradients by parameter; zeros for a parameter that the loss does not reach.
Result<std::map<TensorId, std::vector<double>>> analytic_gradients(const Problem& problem) {
  Graph graph = problem.graph;
  TSR_RETURN_IF_ERROR(differentiate(graph, problem.loss));
  TSR_ASSIGN_OR_RETURN(const Interpreter interpreter, Interpreter::make(graph));
  TSR_ASSIGN_OR_RETURN(const std::vector<Array> values, interpreter.run(problem.feeds));
  std::map<TensorId, std::vector<double>> gradients;
  for (TensorId parameter : graph.tensors_of_kind(TensorKind::kParameter))
    gradients[parameter].resize(static_cast<size_t>(graph.type(parameter).shape.elements()));
  for (const Gradient& gradient : graph.gradients())
    gradients[gradient.parameter] = values[index(gradient.gradient)].values();
  return gradients;
}

Result<Findings> compare_gradients(Problem problem, double tolerance) {
  Findings findings;
  TSR_ASSIGN_OR_RETURN(const auto gradients, analytic_gradients(problem));
  TSR_ASSIGN_OR_RETURN(const Interpreter forward, Interpreter::make(problem.graph));
  for (const auto& [parameter, gradient] : gradients) {
    Array& value = problem.feeds[parameter];
    const int64_t stride = std::max<int64_t>(1, value.count() / kElementsTried);
    for (int64_t i = 0; i < value.count(); i += stride) {
      const double x = value.get(i);
      value.set(i, x + kStep);
      TSR_ASSIGN_OR_RETURN(const double above, loss_at(forward, problem));
      value.set(i, x - kStep);
      TSR_ASSIGN_OR_RETURN(const double below, loss_at(forward, problem));
      value.set(i, x);
      const double difference = (above - below) / (2 * kStep);
      if (!near(gradient[static_cast<size_t>(i)], difference, tolerance))
        findings.push_back(format("gradient of {} element {}: vjp gives {}, finite differences {}",
                                  problem.graph.tensor(parameter).name, i, gradient[static_cast<size_t>(i)],
                                  difference));
    }
  }
  return findings;
}

void append(Findings& findings, const std::string& where, Result<Problem> problem, double tolerance) {
  Result<Findings> found = !problem.ok() ? Result<Findings>(problem.status())
                                         : compare_gradients(std::move(problem).value(), tolerance);
  if (!found.ok()) found = Findings{std::string(found.status().message())};
  for (const std::string& text : *found) findings.push_back(format("{}: {}", where, text));
}

}  // namespace

Findings check_gradient(const OpDef& op, const CaseFile& file) {
  Findings findings;
  if (op.vjp == nullptr) return findings;
  for (const GradientGraph& gradient : file.gradients)
    append(findings, format("{}:{}", file.path, gradient.line), problem_of(op, gradient),
           file.gradient_tolerance);
  if (!file.gradients.empty()) return findings;
  for (const Case& c : file.cases) {
    Result<Problem> problem = problem_of(op, file, c);
    // An op between other types (an integer cast) has no gradient to check.
    if (problem.ok() &&
        (problem->loss == kNoTensor || problem->graph.tensors_of_kind(TensorKind::kParameter).empty()))
      continue;
    if (c.refuses_gradient) {
      const auto made = problem.ok() ? analytic_gradients(*problem).status() : problem.status();
      if (made.code() != StatusCode::kFailedPrecondition)
        findings.push_back(
            format("{}:{}: a gradient was not refused: {}", file.path, c.line, made.to_string()));
      continue;
    }
    append(findings, format("{}:{}", file.path, c.line), std::move(problem), file.gradient_tolerance);
  }
  return findings;
}

}  // namespace tessera::conformance
