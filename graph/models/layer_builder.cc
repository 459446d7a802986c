#include "graph/models/layer_builder.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

void LayerBuilder::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

TensorId LayerBuilder::input(std::string name, DType dtype, std::initializer_list<int64_t> shape) {
  if (!status_.ok()) return kNoTensor;
  Result<TensorId> id = graph_.add_tensor(std::move(name), {dtype, Shape(shape)}, TensorKind::kInput);
  if (!id.ok()) fail(id.status());
  return id.ok() ? *id : kNoTensor;
}

TensorId LayerBuilder::parameter(std::string name, std::initializer_list<int64_t> shape) {
  if (!status_.ok()) return kNoTensor;
  Result<TensorId> id =
      graph_.add_tensor(std::move(name), {DType::kF32, Shape(shape)}, TensorKind::kParameter);
  if (!id.ok()) fail(id.status());
  return id.ok() ? *id : kNoTensor;
}

TensorId LayerBuilder::constant(std::string name, std::initializer_list<int64_t> shape) {
  const TensorId id = parameter(std::move(name), shape);
  if (id != kNoTensor) graph_.set_trainable(id, false);
  return id;
}

TensorId LayerBuilder::op(std::string_view name, std::initializer_list<TensorId> inputs,
                          std::vector<Attr> attrs) {
  const std::vector<TensorId> outputs = op_all(name, inputs, std::move(attrs));
  return outputs.empty() ? kNoTensor : outputs.front();
}

TensorId LayerBuilder::op(std::string_view name, std::span<const TensorId> inputs, std::vector<Attr> attrs) {
  const std::vector<TensorId> outputs = results(name, inputs, std::move(attrs));
  return outputs.empty() ? kNoTensor : outputs.front();
}

std::vector<TensorId> LayerBuilder::op_all(std::string_view name, std::initializer_list<TensorId> inputs,
                                           std::vector<Attr> attrs) {
  return results(name, std::span(inputs.begin(), inputs.size()), std::move(attrs));
}

std::vector<TensorId> LayerBuilder::results(std::string_view name, std::span<const TensorId> inputs, std::vector<Attr> attrs) {
  if (!status_.ok()) return {};
  auto outputs = graph_.add_node(name, inputs, std::move(attrs));
  if (!outputs.ok()) fail(outputs.status());
  return outputs.ok() ? *outputs : std::vector<TensorId>{};
}

TensorId LayerBuilder::project(TensorId x, TensorId weight) {
  return op("matmul", {x, weight}, {{"trans_w", int64_t{1}}});
}

TensorId LayerBuilder::linear(TensorId x, std::string weight, int64_t k, int64_t n) {
  return project(x, parameter(std::move(weight), {n, k}));
}

TensorId LayerBuilder::linear(TensorId x, const std::string& weight, int64_t k, int64_t n, bool bias) {
  if (!bias) return linear(x, weight, k, n);
  const TensorId w = parameter(weight, {n, k}), added = parameter(weight + ".bias", {n});
  return op("matmul", {x, w, added}, {{"trans_w", int64_t{1}}});
}

TensorId LayerBuilder::linear_with_bias(TensorId x, const std::string& name, int64_t k, int64_t n) {
  const TensorId weight = parameter(name + ".weight", {n, k});
  const TensorId bias = parameter(name + ".bias", {n});
  return op("matmul", {x, weight, bias}, {{"trans_w", int64_t{1}}});
}

TensorId LayerBuilder::split_heads(TensorId x, int64_t head_size) {
  return op("split_dim", {x}, {{"dim", int64_t{2}}, {"inner", head_size}});
}

TensorId LayerBuilder::merge_heads(TensorId x) { return op("merge_dims", {x}, {{"dim", int64_t{2}}}); }

void LayerBuilder::output(std::string name, TensorId tensor) {
  if (status_.ok()) fail(graph_.add_output(std::move(name), tensor));
}

Result<Graph> LayerBuilder::finish() {
  if (!status_.ok()) return status_;
  graph_.set_scope("");
  return std::move(graph_);
}

namespace {
constexpr int64_t kLargestSize = int64_t{1} << 31;
}

void ConfigReader::check(bool holds, std::string message) {
  if (holds) return;
  ok_ = false;
  builder_.fail(Status(StatusCode::kInvalidArgument, config_.family + ": " + std::move(message)));
}

int64_t ConfigReader::size(std::string_view name) {
  const auto at = config_.sizes.find(std::string(name));
  check(at != config_.sizes.end(), format("size {} is missing", name));
  return size(name, 1);
}

int64_t ConfigReader::size(std::string_view name, int64_t otherwise) {
  int64_t& value = values_.sizes[std::string(name)];
  value = otherwise;
  const auto at = config_.sizes.find(std::string(name));
  if (at == config_.sizes.end()) return value;
  check(at->second >= 1 && at->second < kLargestSize,
        format("size {} is {}, wanted 1 to {}", name, at->second, kLargestSize - 1));
  return value = std::clamp<int64_t>(at->second, 1, kLargestSize);
}

double ConfigReader::real(std::string_view name, double otherwise) {
  const auto at = config_.reals.find(std::string(name));
  return values_.reals[std::string(name)] = at == config_.reals.end() ? otherwise : at->second;
}

bool ConfigReader::flag(std::string_view name, bool otherwise) {
  const auto at = config_.flags.find(std::string(name));
  return values_.flags[std::string(name)] = at == config_.flags.end() ? otherwise : at->second;
}

std::vector<int64_t> ConfigReader::list(std::string_view name, int64_t count, int64_t least) {
  values_.lists[std::string(name)].clear();
  const auto at = config_.lists.find(std::string(name));
  if (at == config_.lists.end()) return {};
  check(static_cast<int64_t>(at->second.size()) == count,
        format("{} has {} numbers, wanted one for each of {} layers", name, at->second.size(), count));
  return read_list(name, at->second, least);
}

std::vector<int64_t> ConfigReader::widths(std::string_view name, int64_t most) {
  values_.lists[std::string(name)].clear();
  const auto at = config_.lists.find(std::string(name));
  if (at == config_.lists.end()) return {};
  check(std::ssize(at->second) <= most, format("{} has {} numbers, wanted at most {}", name, at->second.size(), most));
  return read_list(name, at->second, 1);
}

std::vector<int64_t> ConfigReader::read_list(std::string_view name, const std::vector<int64_t>& given, int64_t least) {
  for (const int64_t item : given)
    check(item >= least && item < kLargestSize,
          format("{} has {}, wanted {} to {}", name, item, least, kLargestSize - 1));
  return values_.lists[std::string(name)] = given;
}

bool ConfigReader::done() {
  std::vector<std::string> known;
  const auto add = [&](const auto& map) {
    for (const auto& [name, value] : map) known.push_back(name);
  };
  add(values_.sizes), add(values_.reals), add(values_.flags), add(values_.lists);
  const auto check_known = [&](const auto& given, const auto& read) {
    for (const auto& [name, value] : given)
      check(read.contains(name), format("'{}' is not known; known: {}", name, join(known, ", ")));
  };
  check_known(config_.sizes, values_.sizes);
  check_known(config_.reals, values_.reals);
  check_known(config_.flags, values_.flags);
  check_known(config_.lists, values_.lists);
  return ok_;
}

ModelConfig ConfigReader::values() const {
  ModelConfig values = values_;
  values.family = config_.family;
  return values;
}

}  // namespace tessera
