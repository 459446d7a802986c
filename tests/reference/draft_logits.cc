// draft_logits FOLDER TOKEN...: logits of a model's draft block as a command, which draft_blocks.py compares with torch. Writes f32
// [T - 1, V] to standard output: of each token but the first, after the model's hidden state of the token before it.
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/draft_block.h"
#include "graph/transform/embedding.h"
#include "serialize/opened_model.h"
#include "tests/ops/kernel_runner.h"

using namespace tessera;

namespace {

using Values = std::map<std::string, HostTensor>;

HostTensor row_of(const std::vector<int32_t>& values) {
  return HostTensor::copy_of<int32_t>({DType::kI32, {1, std::ssize(values)}}, values);
}

// The tensor of the graph, in a run with these tokens.
Result<HostTensor> compute(const Graph& graph, TensorId wanted, Values& values, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  values["tokens"] = row_of(tokens);
  values["positions"] = row_of(positions);
  const std::vector<std::pair<std::string, int64_t>> extents = {{"B", 1}, {"T", std::ssize(tokens)}};
  TSR_ASSIGN_OR_RETURN(const Graph bound, graph.bind(extents));
  TSR_ASSIGN_OR_RETURN(const std::vector<HostTensor> results, test::run_graph(bound, values));
  return results[index(wanted)];
}

Result<HostTensor> draft_logits(const std::string& folder, const std::vector<int32_t>& tokens) {
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(folder));
  TSR_ASSIGN_OR_RETURN(const OpenedModel opened, open_model(std::move(source)));
  Values values;
  for (const TensorSource& parameter : opened.parameters) {
    TSR_ASSIGN_OR_RETURN(values[parameter.name], read_whole(parameter));
  }
  TSR_ASSIGN_OR_RETURN(const Graph forward, without_draft_block(opened.model.graph));
  TSR_ASSIGN_OR_RETURN(const Graph block, draft_block_of(opened.model.graph));
  TSR_ASSIGN_OR_RETURN(const TensorId hidden_id, find_hidden(forward));
  TSR_ASSIGN_OR_RETURN(const HostTensor hidden, compute(forward, hidden_id, values, tokens));
  const int64_t width = hidden.type.shape[2], count = std::ssize(tokens) - 1;
  const auto before = hidden.as<float>().first(static_cast<size_t>(count * width));
  values[std::string(kDraftHidden)] = HostTensor::copy_of<float>({DType::kF32, {1, count, width}}, {before.begin(), before.end()});
  return compute(block, *block.find_output("logits"), values, {tokens.begin() + 1, tokens.end()});
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kUsage = 2;
  std::vector<int32_t> tokens;
  for (int i = 2; i < argc; ++i) tokens.push_back(static_cast<int32_t>(parse_i64(argv[i]).value_or(0)));
  if (tokens.size() < 2) {
    std::cerr << "usage: draft_logits FOLDER TOKEN TOKEN...\n";
    return kUsage;
  }
  const Result<HostTensor> logits = draft_logits(argv[1], tokens);
  if (!logits.ok()) {
    std::cerr << logits.status().to_string() << '\n';
    return 1;
  }
  std::cout.write(reinterpret_cast<const char*>(logits->data.data()), static_cast<std::streamsize>(logits->data.size()));
  return 0;
}
