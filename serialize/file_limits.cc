#include "serialize/file_limits.h"

#include "graph/base/text.h"
#include "serialize/checkpoint.h"
#include "serialize/model.h"

namespace tessera {
namespace {

// Upper bound of an index table, with its vector entry and padding.
constexpr uint64_t kIndexTableBytes = 160;
constexpr uint64_t kIndexWordBytes = 16;  // per text or list, in addition to its contents: length, reference, padding
constexpr uint64_t kChunkEntryBytes = 8;  // for each 1 MiB of a compressed tensor

Status too_many(uint64_t found, std::string_view what, uint64_t most) {
  return Status(StatusCode::kUnsupported,
                format("the graph has {} {}, a file holds at most {}: make a smaller one", found, what, most));
}

uint64_t text_bytes(std::string_view text) { return text.size() + kIndexWordBytes; }

uint64_t attr_bytes(const Attr& attr) {
  uint64_t bytes = kIndexTableBytes + text_bytes(attr.name);
  if (auto* text = std::get_if<std::string>(&attr.value)) bytes += text_bytes(*text);
  if (auto* list = std::get_if<std::vector<int64_t>>(&attr.value)) bytes += 8 * list->size() + kIndexWordBytes;
  return bytes;
}

// Index bytes of a record: its table and its type's.
uint64_t record_bytes(std::string_view name, const TensorType& type) {
  const uint64_t contents = type.shape.is_concrete() ? static_cast<uint64_t>(bytes(type)) : 0;
  return 2 * kIndexTableBytes + text_bytes(name) + (contents >> 20) * kChunkEntryBytes;
}

uint64_t graph_bytes(const Graph& graph) {
  uint64_t bytes = kIndexTableBytes;
  for (const Symbol& symbol : graph.symbols()) bytes += kIndexTableBytes + text_bytes(symbol.name);
  for (const NamedTensor& output : graph.outputs()) bytes += kIndexTableBytes + text_bytes(output.name);
  for (const Tensor& tensor : graph.tensors()) {
    bytes += 2 * kIndexTableBytes + text_bytes(tensor.name);
    if (tensor.kind == TensorKind::kParameter) bytes += record_bytes(tensor.name, tensor.type);
  }
  for (const Node& node : graph.nodes()) {
    bytes += kIndexTableBytes + text_bytes(node.op->name) + text_bytes(node.scope) + 4 * node.inputs.size();
    for (const Attr& attr : node.attrs) bytes += attr_bytes(attr);
  }
  return bytes + 8 * (graph.updates().size() + graph.gradients().size());
}

uint64_t texts_bytes(const std::map<std::string, std::string>& values) {
  uint64_t bytes = 0;
  for (const auto& [key, value] : values) bytes += kIndexTableBytes + text_bytes(key) + text_bytes(value);
  return bytes;
}

uint64_t tokenizer_bytes(const TokenizerData& data) {
  uint64_t bytes = kIndexTableBytes + text_bytes(data.pre_tokenizer) + 4 * data.scores.size() +
                   data.types.size() + 4 * data.end_ids.size() + text_bytes(data.pipeline) +
                   4 * data.merge_ids.size() + 8 * data.log_probabilities.size() +
                   4 * (data.lstrip_ids.size() + data.rstrip_ids.size());
  for (const std::string& token : data.tokens) bytes += text_bytes(token);
  for (const std::string& merge : data.merges) bytes += text_bytes(merge);
  return bytes;
}

Status check_index(std::string_view what, uint64_t bytes) {
  if (bytes <= kMaxIndexBytes) return {};
  return Status(StatusCode::kUnsupported,
                format("the names and numbers that describe this {} may take {} ({} bytes), a file holds at "
                       "most {} of them: fewer tensors, or shorter names, metadata and tokens",
                       what, bytes_text(static_cast<int64_t>(bytes)), bytes,
                       bytes_text(static_cast<int64_t>(kMaxIndexBytes))));
}

}  // namespace

Status check_storable(const Model& model) {
  const Graph& graph = model.graph;
  if (graph.tensors().size() > kMaxFileTensors)
    return too_many(graph.tensors().size(), "tensors", kMaxFileTensors);
  if (graph.outputs().size() > kMaxFileOutputs)
    return too_many(graph.outputs().size(), "outputs", kMaxFileOutputs);
  if (graph.symbols().size() > kMaxFileSymbols)
    return too_many(graph.symbols().size(), "symbols", kMaxFileSymbols);
  return check_index("model", index_bytes_bound(model));
}

uint64_t index_bytes_bound(const Model& model) {
  return graph_bytes(model.graph) + texts_bytes(model.metadata) +
         (model.tokenizer ? tokenizer_bytes(*model.tokenizer) : 0);
}

uint64_t index_bytes_bound(const CheckpointInfo& checkpoint) {
  uint64_t index = kIndexTableBytes + texts_bytes(checkpoint.values);
  for (const auto& [name, type] : checkpoint.tensors) index += record_bytes(name, type);
  for (const BaseTensor& it : checkpoint.base) index += record_bytes(it.name, it.type);
  return index;
}

Status check_storable(const CheckpointInfo& checkpoint) {
  uint64_t contents = 0;
  for (const auto& [name, type] : checkpoint.tensors)
    if (type.shape.is_concrete()) contents += static_cast<uint64_t>(bytes(type));
  if (contents / kShardBytes >= kMaxShards)
    return Status(StatusCode::kUnsupported,
                  format("a checkpoint of {} bytes needs more than {} files of {}", contents, kMaxShards,
                         bytes_text(static_cast<int64_t>(kShardBytes))));
  return check_index("checkpoint", index_bytes_bound(checkpoint));
}

}  // namespace tessera
