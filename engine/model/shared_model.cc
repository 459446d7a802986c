// A value is the file's, a written one, or drawn from the seed when first read. Each write raises the parameter's version.
#include "engine/model/shared_model.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "engine/model/adapters.h"
#include "engine/model/initialize.h"
#include "engine/model/weight_pool.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/draft_block.h"
#include "graph/transform/weight_storage.h"
#include "serialize/atomic_file.h"
#include "serialize/file_limits.h"
#include "serialize/output_name.h"
#include "text/json.h"

namespace tessera {
namespace {

std::string_view kind_name(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBytes: return "bytes";
    case TokenizerKind::kSentencePiece: return "sentencepiece";
    case TokenizerKind::kByteLevelBpe: return "byte_level_bpe";
    case TokenizerKind::kWordPiece: return "wordpiece";
    case TokenizerKind::kPipeline: return "pipeline";
    case TokenizerKind::kRwkv: return "rwkv";
    case TokenizerKind::kSentencePieceModel: return "sentencepiece_model";
  }
  return "unknown";
}

Json shape_json(const Graph& graph, const Shape& shape) {
  Json dims = Json::array();
  for (const int64_t extent : shape.dims()) {
    if (is_symbol(extent)) {
      dims.push_back(graph.symbols()[static_cast<size_t>(symbol_index(extent))].name);
    } else {
      dims.push_back(extent);
    }
  }
  return dims;
}

Json tensor_json(const Graph& graph, const std::string& name, TensorId id) {
  const TensorType& type = graph.type(id);
  return {{"name", name}, {"dtype", to_text(type.dtype)}, {"shape", shape_json(graph, type.shape)}};
}

// The most frequent first.
Json ops_json(const Graph& graph) {
  std::map<std::string_view, int64_t> counts;
  for (const Node& node : graph.nodes()) ++counts[node.op->name];
  std::vector<std::pair<std::string_view, int64_t>> ops(counts.begin(), counts.end());
  std::ranges::stable_sort(ops, std::ranges::greater(), &std::pair<std::string_view, int64_t>::second);
  Json json = Json::array();
  for (const auto& [op, count] : ops) json.push_back({{"op", op}, {"count", count}});
  return json;
}

// The model file's contents; null without a file.
Json origin_json(const ModelOrigin& origin, const ByteSource* source) {
  if (origin.format.empty()) return nullptr;
  Json stored = Json::array(), used = Json::object(), unused = Json::object(), read = Json::array();
  if (source != nullptr)
    for (const std::string& path : source->paths())
      read.push_back(std::filesystem::path(path).filename().string());
  for (const StoredTensors& it : origin.stored)
    stored.push_back({{"type", it.type}, {"tensors", it.tensors}, {"bytes", it.bytes}});
  for (const auto& [key, value] : origin.used) used[key] = value;
  for (const auto& [key, value] : origin.unused) unused[key] = value;
  return {{"format", origin.format},
          {"stored", stored},
          {"keys_used", used},
          {"keys_unused", unused},
          {"files", origin.files},
          {"read", read},
          {"unread", origin.unread}};
}

// The adapters' options (AdapterSummary), and each adapter; null without adapters.
Json adapters_json(const Graph& graph) {
  const std::optional<AdapterSummary> summary = adapter_summary(graph);
  if (!summary) return nullptr;
  const Result<LogicalGraph> logical = with_logical_weights(graph);
  Json json = {{"rank", summary->rank}, {"alpha", summary->alpha}, {"on", summary->on}};
  for (const auto& [option, value] : summary->more()) json[option] = value;
  int64_t size = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (is_adapter_name(graph.tensor(id).name)) size += bytes(graph.type(id));
  json["bytes"] = size;
  json["weights"] = Json::array();
  for (const Adapter& it : find_adapters(logical->graph))
    json["weights"].push_back({{"weight", it.weight}, {"rank", it.rank}, {"factor", it.factor}});
  return json;
}

Result<Graph> with_wide_parameters(const Graph& graph, std::span<const std::string> names) {
  if (names.empty()) return graph;
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(graph));
  for (const std::string& name : names) logical.stored.erase(name);
  return with_stored_weights(logical.graph, {.types = std::move(logical.stored)});
}

}  // namespace

SharedModel::SharedModel(Model model, uint64_t seed, std::shared_ptr<const Tokenizer> tokenizer)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      blocks_(block_count(model_.graph)),
      seed_(seed),
      weights_(std::make_unique<WeightPool>()) {
  set_forward();
}

// After each change of the graph.
void SharedModel::set_forward() {
  forward_.reset();
  if (!has_draft_block(model_.graph)) return;
  Result<Graph> forward = without_draft_block(model_.graph);
  TSR_CHECK(forward.ok(), "a part of a valid graph is valid");
  forward_ = std::move(*forward);
}

SharedModel::~SharedModel() = default;

Result<std::shared_ptr<SharedModel>> SharedModel::describe(std::string_view description,
                                                           const Options& options) {
  OptionReader reader(options, "model");
  const int64_t seed = reader.i64("seed", 0);
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(description));
  Model model;
  TSR_ASSIGN_OR_RETURN(model.graph, build_model(config));
  model.metadata["architecture"] = config.family;
  model.metadata["description"] = std::string(description);
  if (const auto context = config.sizes.find("T"); context != config.sizes.end())
    model.metadata["context_length"] = to_text(context->second);
  TSR_RETURN_IF_ERROR(check_storable(model));
  return std::make_shared<SharedModel>(std::move(model), static_cast<uint64_t>(seed));
}

Result<std::shared_ptr<SharedModel>> SharedModel::from_graph(const Graph& graph, const Options& options) {
  OptionReader reader(options, "model");
  const int64_t seed = reader.i64("seed", 0);
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(graph.verify());
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (!graph.type(id).shape.is_concrete())
      return Status(StatusCode::kInvalidArgument,
                    format("parameter '{}' is {}: a parameter's extents are numbers", graph.tensor(id).name,
                           type_text(graph.type(id), graph)));
  Model model;
  model.graph = graph;
  TSR_RETURN_IF_ERROR(check_storable(model));
  return std::make_shared<SharedModel>(std::move(model), static_cast<uint64_t>(seed));
}

Status SharedModel::check_path(const std::string& path) {
  TSR_RETURN_IF_ERROR(check_file_name(path));
  return AtomicFile::check(path);
}

Graph SharedModel::graph() const {
  const std::lock_guard lock(mutex_);
  return forward_ ? *forward_ : model_.graph;
}

Result<Graph> SharedModel::draft_block() const {
  const std::lock_guard lock(mutex_);
  return draft_block_of(model_.graph);
}

Result<Graph> SharedModel::graph_with_wide(std::span<const std::string> parameters) const {
  const std::lock_guard lock(mutex_);
  return with_wide_parameters(model_.graph, parameters);
}

Model SharedModel::snapshot() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

std::vector<std::string> SharedModel::parameter_names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const TensorId id : model_.graph.tensors_of_kind(TensorKind::kParameter))
    names.push_back(model_.graph.tensor(id).name);
  return names;
}

Result<TensorId> SharedModel::find_parameter(std::string_view name) const {
  const std::optional<TensorId> id = model_.graph.find_tensor(name);
  if (id && model_.graph.tensor(*id).kind == TensorKind::kParameter) return *id;
  std::vector<std::string> names;
  for (const TensorId parameter : model_.graph.tensors_of_kind(TensorKind::kParameter))
    names.push_back(model_.graph.tensor(parameter).name);
  return Status(StatusCode::kNotFound, format("the model has no parameter '{}'{}", name,
                                              nearest_hint(name, names)));
}

Status SharedModel::check_parameter(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return find_parameter(name).status();
}

Result<const HostTensor*> SharedModel::find_value(std::string_view name) const {
  const auto found = model_.parameters.find(name);
  if (found == model_.parameters.end()) return nullptr;
  if (model_.source && found->second.keep_alive == model_.source)
    TSR_RETURN_IF_ERROR(model_.source->unchanged());
  return &found->second;
}

Result<HostTensor> SharedModel::read(std::string_view parameter) {
  const std::lock_guard lock(mutex_);
  TSR_ASSIGN_OR_RETURN(const TensorId id, find_parameter(parameter));
  TSR_ASSIGN_OR_RETURN(const HostTensor* found, find_value(parameter));
  if (found) return *found;
  const Tensor& tensor = model_.graph.tensor(id);
  TSR_ASSIGN_OR_RETURN(HostTensor value,
                       draw(initializer_for(model_.graph, id, blocks_), tensor.type, seed_, tensor.name));
  model_.parameters.emplace(parameter, value);
  return value;
}

Result<HostTensor> SharedModel::read_uncached(std::string_view parameter, uint64_t seed) const {
  TensorType type;
  Initializer initializer;
  {
    const std::lock_guard lock(mutex_);
    TSR_ASSIGN_OR_RETURN(const TensorId id, find_parameter(parameter));
    TSR_ASSIGN_OR_RETURN(const HostTensor* found, find_value(parameter));
    if (found) return *found;
    type = model_.graph.type(id);
    initializer = initializer_for(model_.graph, id, blocks_);
  }
  return draw(initializer, type, seed, parameter);  // slow, and concurrent
}

Result<std::optional<SharedModel::Value>> SharedModel::find(std::string_view parameter) const {
  const std::lock_guard lock(mutex_);
  TSR_RETURN_IF_ERROR(find_parameter(parameter).status());
  TSR_ASSIGN_OR_RETURN(const HostTensor* found, find_value(parameter));
  if (found == nullptr) return std::optional<Value>();
  const auto version = versions_.find(parameter);
  return std::optional(Value{*found, version == versions_.end() ? 0 : version->second});
}

std::shared_ptr<const ByteSource> SharedModel::source() const {
  const std::lock_guard lock(mutex_);
  return model_.source;
}

std::vector<std::string> SharedModel::read_paths() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> paths = model_.source ? model_.source->paths() : std::vector<std::string>();
  paths.insert(paths.end(), more_read_paths_.begin(), more_read_paths_.end());
  return paths;
}

std::vector<std::string> SharedModel::lost_paths() const {
  const std::lock_guard lock(mutex_);
  return more_read_paths_;
}

void SharedModel::add_read_paths(const std::vector<std::string>& paths) {
  const std::lock_guard lock(mutex_);
  for (const std::string& path : paths)
    if (std::ranges::find(more_read_paths_, path) == more_read_paths_.end()) more_read_paths_.push_back(path);
}

std::string SharedModel::resumed() const {
  const std::lock_guard lock(mutex_);
  return resumed_;
}

void SharedModel::set_resumed(std::string checkpoint) {
  const std::lock_guard lock(mutex_);
  resumed_ = std::move(checkpoint);
}

void SharedModel::set_origin(const SharedModel& made_of) {
  add_read_paths(made_of.read_paths());
  set_resumed(made_of.resumed());
}

void SharedModel::drop_pages(const HostTensor& value) const {
  const std::shared_ptr<const ByteSource> file = source();
  if (file && value.keep_alive == file) file->drop(value.data);
}

Status SharedModel::write(std::string_view parameter, const HostTensor& value) {
  HostTensor held = value;  // freed after the lock, since its owner may call back
  const std::lock_guard lock(mutex_);
  TSR_ASSIGN_OR_RETURN(const TensorId id, find_parameter(parameter));
  if (value.type != model_.graph.type(id))
    return Status(StatusCode::kInvalidArgument, format("parameter '{}' is {}, the value is {}", parameter,
                                                       to_text(model_.graph.type(id)), to_text(value.type)));
  ++versions_[std::string(parameter)];
  std::swap(model_.parameters[std::string(parameter)], held);
  return {};
}

Status SharedModel::widen(std::span<const std::string> parameters) {
  std::map<std::string, HostTensor> values;  // old values are freed after the lock, since their owners may call back
  const std::lock_guard lock(mutex_);
  TSR_ASSIGN_OR_RETURN(Graph graph, with_wide_parameters(model_.graph, parameters));
  for (const std::string& name : parameters) {
    TSR_ASSIGN_OR_RETURN(const HostTensor* value, find_value(name));
    if (value == nullptr) continue;
    TSR_ASSIGN_OR_RETURN(HostTensor wide, widen_weight(*value));
    values.emplace(name, std::move(wide));
  }
  for (const auto& [name, value] : values) ++versions_[name];
  // No failure is possible from here on.
  for (auto& [name, value] : values) std::swap(model_.parameters[name], value);
  model_.graph = std::move(graph);
  set_forward();
  return {};
}

std::string SharedModel::metadata(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = model_.metadata.find(std::string(key));
  return found == model_.metadata.end() ? "" : found->second;
}

void SharedModel::set_metadata(std::string key, std::string value) {
  const std::lock_guard lock(mutex_);
  if (value.empty()) {
    model_.metadata.erase(key);
  } else {
    model_.metadata.insert_or_assign(std::move(key), std::move(value));
  }
}

std::shared_ptr<const Tokenizer> SharedModel::tokenizer() const {
  const std::lock_guard lock(mutex_);
  return tokenizer_;
}

void SharedModel::set_tokenizer(std::shared_ptr<const Tokenizer> tokenizer) {
  const std::lock_guard lock(mutex_);
  model_.tokenizer.reset();
  if (tokenizer) model_.tokenizer = tokenizer->data();
  tokenizer_ = std::move(tokenizer);
}

int64_t SharedModel::context_length() const {
  if (const std::optional<int64_t> length = parse_i64(metadata("context_length"))) return *length;
  const std::lock_guard lock(mutex_);
  for (const Symbol& symbol : model_.graph.symbols())
    if (symbol.name == "T") return symbol.capacity;
  return 0;
}

int64_t SharedModel::logit_rows() const {
  const std::lock_guard lock(mutex_);
  const auto output = model_.graph.find_output("logits");
  if (!output) return 0;
  const Shape& shape = model_.graph.type(*output).shape;
  const int64_t rows = shape.rank() > 0 ? shape[shape.rank() - 1] : 0;
  return is_symbol(rows) ? 0 : rows;
}

std::string SharedModel::info_json() const {
  const std::lock_guard lock(mutex_);
  const Graph &graph = model_.graph, &forward = forward_ ? *forward_ : graph;
  int64_t elements = 0, frozen = 0, size = 0;
  Json tensors = Json::array(), inputs = Json::array(), outputs = Json::array(), symbols = Json::array();
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    elements += graph.type(id).shape.elements();
    if (!graph.tensor(id).trainable) frozen += graph.type(id).shape.elements();
    size += bytes(graph.type(id));
    tensors.push_back(tensor_json(graph, graph.tensor(id).name, id));
  }
  int64_t drafts = elements;  // parameters that the draft block alone reads
  for (const TensorId id : forward.tensors_of_kind(TensorKind::kParameter)) drafts -= forward.type(id).shape.elements();
  for (const TensorId id : forward.tensors_of_kind(TensorKind::kInput))
    inputs.push_back(tensor_json(forward, forward.tensor(id).name, id));
  for (const NamedTensor& output : forward.outputs())
    outputs.push_back(tensor_json(forward, output.name, output.tensor));
  for (const Symbol& symbol : graph.symbols())
    symbols.push_back({{"name", symbol.name}, {"capacity", symbol.capacity}});
  Json tokenizer;
  if (model_.tokenizer)
    tokenizer = {{"kind", kind_name(model_.tokenizer->kind)},
                 {"vocabulary_size", tokenizer_ ? tokenizer_->vocabulary_size() : 0},
                 {"bos", model_.tokenizer->bos},
                 {"eos", model_.tokenizer->eos}};
  const auto architecture = model_.metadata.find("architecture");
  Json json = {{"architecture", architecture == model_.metadata.end() ? "" : architecture->second},
               {"parameters", elements},
               {"parameter_bytes", size},
               {"parameters_given", model_.parameters.size()},
               {"tensors", tensors},
               {"inputs", inputs},
               {"outputs", outputs},
               {"symbols", symbols},
               {"metadata", model_.metadata},
               {"tokenizer", tokenizer},
               {"graph_nodes", forward.nodes().size()},
               {"ops", ops_json(forward)},
               {"draft_parameters", drafts},
               {"frozen_parameters", frozen},
               {"adapters", adapters_json(graph)},
               {"file", origin_json(model_.origin, model_.source.get())}};
  return dump(json);
}

}  // namespace tessera
