// Recurrent layers in a server's steps: the bits of a whole sequence, however its tokens come.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/transform/embedding.h"
#include "graph/transform/precision.h"
#include "graph/transform/serving.h"
#include "graph/transform/serving_pages.h"
#include "tests/ok.h"
#include "tests/ops/host_values.h"
#include "tests/ops/kernel_runner.h"
#include "tests/recurrent_graph.h"

using namespace tessera;
using namespace tessera::test;

namespace {

using Values = std::map<std::string, HostTensor>;
using Extents = std::vector<std::pair<std::string, int64_t>>;

constexpr int64_t kVocabulary = 11, kRows = 3;

HostTensor scattered_f32(const Shape& shape, uint64_t salt) {
  const std::vector<double> values = scattered(shape.elements(), salt);
  return f32(shape, {values.begin(), values.end()});
}

Values parameters_of(const Graph& graph) {
  Values values;
  uint64_t salt = 1;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    values[graph.tensor(id).name] = scattered_f32(graph.type(id).shape, salt++);
  return values;
}

std::vector<int32_t> sequence(int64_t count, int32_t salt) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((i * 7 + i / 3 + salt) % kVocabulary));
  return tokens;
}

std::vector<float> logits_of(const Graph& graph, const std::vector<HostTensor>& results) {
  const auto logits = results[index(*graph.find_output("logits"))].as<float>();
  return {logits.begin(), logits.end()};
}

// The logits [T, V] of one sequence as a whole.
std::vector<float> whole(const Graph& symbolic, const Values& parameters, const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const Graph graph = ok(symbolic.bind(Extents{{"B", 1}, {"T", count}}));
  Values values = parameters;
  values["tokens"] = i32({1, count}, tokens);
  return logits_of(graph, ok(run_graph(graph, values)));
}

// Server: sequences in rows of state, whose contents are NaN before a sequence starts.
class Server {
 public:
  explicit Server(const Graph& forward)
      : serving_(ok(make_serving(forward, {.pages = 1, .page_size = 16, .rows = kRows, .context = 16, .cache = {}}))),
        values_(parameters_of(forward)) {
    for (const TensorId id : serving_.tensors_of_kind(TensorKind::kState)) {
      const Shape& shape = serving_.type(id).shape;
      values_[serving_.tensor(id).name] =
          f32(shape, std::vector<float>(static_cast<size_t>(shape.elements()), std::numeric_limits<float>::quiet_NaN()));
    }
  }

  // Tokens of rows at positions; returns the logits of all.
  struct Token {
    int32_t id, row, position;
  };
  std::vector<float> step(const std::vector<Token>& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    const Graph graph = ok(serving_.bind(Extents{{"B", 1}, {"N", count}, {"W", count}}));
    std::vector<int32_t> ids, rows, positions, wanted;
    for (const Token& token : tokens) {
      wanted.push_back(static_cast<int32_t>(ids.size()));
      ids.push_back(token.id), rows.push_back(token.row), positions.push_back(token.position);
    }
    values_["tokens"] = i32({1, count}, ids);
    values_["row"] = i32({1, count}, rows);
    values_["positions"] = i32({1, count}, positions);
    values_["wanted"] = i32({count}, wanted);
    values_["slot"] = i32({1, count}, std::vector<int32_t>(tokens.size(), -1));
    values_["page_table"] = i32({kRows, 1}, std::vector<int32_t>(kRows, -1));
    const std::vector<HostTensor> results = ok(run_graph(graph, values_));
    for (const Update& update : graph.updates())
      values_[graph.tensor(update.target).name] = results[index(update.value)];
    return logits_of(graph, results);
  }

  const Graph& graph() const { return serving_; }
  // The state of a row, of all layers.
  std::vector<float> row(int64_t row) const {
    std::vector<float> found;
    for (const std::string& name : row_states(serving_)) {
      const auto state = values_.at(name).as<float>();
      const size_t size = state.size() / kRows;
      const auto part = state.subspan(static_cast<size_t>(row) * size, size);
      found.insert(found.end(), part.begin(), part.end());
    }
    return found;
  }

 private:
  const Graph serving_;
  Values values_;
};

std::vector<float> rows_of(const std::vector<float>& logits, size_t first, size_t count) {
  const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(first * kVocabulary);
  return {begin, begin + static_cast<std::ptrdiff_t>(count * kVocabulary)};
}

}  // namespace

TEST_CASE("recurrent layers give a sequence's bits however its prompt is cut, in rows that held NaN") {
  const Graph forward = ok(recurrent_graph(kVocabulary, false));
  const std::vector<int32_t> tokens = sequence(13, 3);
  const std::vector<float> wanted = whole(forward, parameters_of(forward), tokens);
  const std::vector<std::vector<int>> cuts = {
      {13}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 1, 7}, {1, 12}, {12, 1}, {2, 2, 2, 7}};
  for (const std::vector<int>& cut : cuts) {
    Server server(forward);
    std::vector<float> found;
    int32_t position = 0;
    for (const int count : cut) {
      std::vector<Server::Token> step;
      for (int i = 0; i < count; ++i, ++position)
        step.push_back({tokens[static_cast<size_t>(position)], 1, position});
      const std::vector<float> logits = server.step(step);
      found.insert(found.end(), logits.begin(), logits.end());
    }
    CHECK(found == wanted);
    for (const int64_t idle : {0, 2})
      CHECK(std::ranges::all_of(server.row(idle), [](float x) { return x != x; }));
  }
}

TEST_CASE("a step of several sequences, with padding between them, gives each the bits that it has alone") {
  const Graph forward = ok(recurrent_graph(kVocabulary, false));
  const Values parameters = parameters_of(forward);
  const std::vector<int32_t> first = sequence(6, 1), second = sequence(5, 4);
  Server server(forward);
  using Token = Server::Token;
  const auto of_first = [&](int32_t at) { return Token{first[static_cast<size_t>(at)], 2, at}; };
  const auto of_second = [&](int32_t at) { return Token{second[static_cast<size_t>(at)], 0, at}; };
  const Token padding{5, -1, 0}, beyond{5, kRows, 3};
  const std::vector<float> one = server.step({of_first(0), padding, of_second(0), of_first(1), beyond, of_second(1)});
  const std::vector<float> state = server.row(0);
  const std::vector<float> two = server.step({of_first(2), padding, of_first(3), of_first(4)});
  CHECK(server.row(0) == state);
  const std::vector<float> three = server.step({of_second(2), of_second(3), padding, of_first(5), of_second(4)});
  const std::vector<float> wanted_first = whole(forward, parameters, first);
  const std::vector<float> wanted_second = whole(forward, parameters, second);
  const auto check = [](const std::vector<float>& logits, size_t at, const std::vector<float>& wanted, size_t token) {
    CHECK(rows_of(logits, at, 1) == rows_of(wanted, token, 1));
  };
  for (const size_t at : {0, 3}) check(one, at, wanted_first, at / 3);
  for (const size_t at : {2, 5}) check(one, at, wanted_second, at / 3);
  check(two, 0, wanted_first, 2), check(two, 2, wanted_first, 3), check(two, 3, wanted_first, 4);
  check(three, 0, wanted_second, 2), check(three, 1, wanted_second, 3), check(three, 4, wanted_second, 4);
  check(three, 3, wanted_first, 5);
  // The row of an ended sequence is taken by another.
  std::vector<Token> next;
  for (int32_t at = 0; at < 5; ++at) next.push_back({second[static_cast<size_t>(at)], 2, at});
  CHECK(server.step(next) == wanted_second);
}

TEST_CASE("documents of a row are apart from each other in recurrent layers") {
  const Graph forward = ok(recurrent_graph(kVocabulary, false));
  const Values parameters = parameters_of(forward);
  const Graph packed = ok(ok(with_segments(forward, SegmentUse::kDocuments)).bind(Extents{{"B", 1}, {"T", 11}}));
  const std::vector<int32_t> first = sequence(4, 2), second = sequence(7, 6);
  std::vector<int32_t> tokens = first, segments(11, 1);
  tokens.insert(tokens.end(), second.begin(), second.end());
  std::fill_n(segments.begin(), 4, 0);
  Values values = parameters;
  values["tokens"] = i32({1, 11}, tokens);
  values["segments"] = i32({1, 11}, segments);
  const std::vector<float> found = logits_of(packed, ok(run_graph(packed, values)));
  CHECK(rows_of(found, 0, 4) == whole(forward, parameters, first));
  CHECK(rows_of(found, 4, 7) == whole(forward, parameters, second));
}

TEST_CASE("states of rows are told apart from pages, and are f32 where the model computes in bf16") {
  const Graph forward = ok(recurrent_graph(kVocabulary, true));
  const ServingOptions options{.pages = 4, .page_size = 8, .rows = kRows, .context = 16, .cache = {}};
  const std::set<std::string> wanted = {"block.0.conv_rows", "block.0.scan_rows", "block.2.conv_rows",
                                        "block.2.scan_rows"};
  for (const Graph& model : {forward, ok(with_mixed_precision(forward, DType::kBF16))}) {
    const Graph serving = ok(make_serving(model, options));
    CHECK(serving.verify().ok());
    CHECK(row_states(serving) == wanted);
    CHECK(serving.type(*serving.find_tensor("block.0.conv_rows")) == TensorType{DType::kF32, {kRows, 2, 28}});
    CHECK(serving.type(*serving.find_tensor("block.2.scan_rows")) == TensorType{DType::kF32, {kRows, 4, 4, 3}});
    for (const Graph& pages : {ok(make_page_copy(serving)), ok(make_page_read(serving)), ok(make_page_write(serving))})
      CHECK(pages.tensors_of_kind(TensorKind::kState).size() == 2);
    for (const Node& node : serving.nodes())
      if (node.op->name == "step_decay")
        for (const size_t i : {1, 2}) CHECK(serving.type(node.inputs[i]).dtype == DType::kF32);
  }
}
