#include "tests/ops/kernel_runner.h"

#include <algorithm>

#include "graph/base/text.h"
#include "tests/ops/interpreter.h"

namespace tessera::test {

namespace {

conformance::Array array_of(const HostTensor& tensor) {
  return {tensor.type, {tensor.data.begin(), tensor.data.end()}};
}

std::vector<HostTensor> host_tensors(const std::vector<conformance::Array>& arrays) {
  std::vector<HostTensor> tensors;
  for (const conformance::Array& array : arrays)
    tensors.push_back(HostTensor::copy_of<std::byte>(array.type, array.bytes));
  return tensors;
}

}  // namespace

Result<std::vector<HostTensor>> run_kernel(const KernelCall& call) {
  const OpDef* op = find_op(call.op);
  if (op == nullptr) return Status(StatusCode::kNotFound, format("no op '{}'", call.op));
  TSR_ASSIGN_OR_RETURN(std::vector<Attr> attrs, conformance::complete_attrs(*op, call.attrs));
  std::vector<TensorType> types;
  std::vector<conformance::Array> inputs;
  for (const HostTensor& input : call.inputs) {
    types.push_back(input.type);
    inputs.push_back(array_of(input));
  }
  TSR_ASSIGN_OR_RETURN(conformance::OpInstance instance, conformance::make_instance(*op, attrs, types));
  for (FactorView& factor : instance.factors) {
    const auto given = std::ranges::find(call.factors, factor.name, &FactorView::name);
    if (given != call.factors.end()) factor = *given;
  }
  const auto kernels = conformance::kernels_of(call.op);
  const cpu::KernelEntry* reference = conformance::reference_of(kernels);
  if (reference == nullptr)
    return Status(StatusCode::kNotFound, format("no reference kernel of '{}'", call.op));
  TSR_ASSIGN_OR_RETURN(const auto kernel, conformance::PreparedKernel::prepare(*reference, instance));
  TSR_ASSIGN_OR_RETURN(const auto results, kernel.run(inputs));
  return host_tensors(results);
}

Result<std::vector<HostTensor>> run_graph(const Graph& graph,
                                          const std::map<std::string, HostTensor>& values) {
  std::map<TensorId, conformance::Array> feeds;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == TensorKind::kActivation) continue;
    const auto given = values.find(tensor.name);
    if (given == values.end())
      return Status(StatusCode::kNotFound, format("no value for '{}' {}", tensor.name, tensor.type));
    if (given->second.type != tensor.type)
      return Status(StatusCode::kInvalidArgument, format("the value of '{}' is {}, wanted {}", tensor.name,
                                                         given->second.type, tensor.type));
    feeds.emplace(TensorId(static_cast<uint32_t>(i)), array_of(given->second));
  }
  TSR_ASSIGN_OR_RETURN(const auto interpreter, conformance::Interpreter::make(graph));
  TSR_ASSIGN_OR_RETURN(const auto arrays, interpreter.run(feeds));
  return host_tensors(arrays);
}

}  // namespace tessera::test
