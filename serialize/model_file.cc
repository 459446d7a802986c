// The .tsr file: an envelope, the tensors' bytes, and at its end the index (schema/model.fbs).
#include <algorithm>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/envelope.h"
#include "serialize/file_limits.h"
#include "serialize/flatbuffer_reader.h"
#include "serialize/graph_file.h"
#include "serialize/model.h"
#include "serialize/model_format.h"
#include "serialize/schema/model_generated.h"
#include "serialize/tensor_record.h"

namespace tessera {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr std::string_view kWhat = "model file";

Offset<file::Tokenizer> write_tokenizer(FlatBufferBuilder& builder, const TokenizerData& data) {
  std::vector<uint8_t> types;
  for (TokenType type : data.types) types.push_back(static_cast<uint8_t>(type));
  auto tokens = builder.CreateVectorOfStrings(data.tokens);
  auto scores = builder.CreateVector(data.scores);
  auto stored_types = builder.CreateVector(types);
  auto merges = builder.CreateVectorOfStrings(data.merges);
  auto pre_tokenizer = builder.CreateString(data.pre_tokenizer);
  return file::CreateTokenizer(builder, static_cast<uint8_t>(data.kind), tokens, scores, stored_types, merges,
                               pre_tokenizer, data.bos, data.eos, data.unknown, data.pad, data.add_bos,
                               data.add_eos, data.add_space_prefix);
}

// Reads numbers and names only; Tokenizer::create checks them.
Result<TokenizerData> read_tokenizer(const file::Tokenizer& stored, FlatBufferReader& reader) {
  TokenizerData data;
  if (stored.kind() > static_cast<uint8_t>(TokenizerKind::kWordPiece)) {
    return Status(StatusCode::kUnsupported,
                  format("tokenizer kind {}; this version knows 0 to 3", stored.kind()));
  }
  data.kind = static_cast<TokenizerKind>(stored.kind());
  TSR_ASSIGN_OR_RETURN(data.tokens, reader.texts(stored.tokens()));
  TSR_ASSIGN_OR_RETURN(data.scores, reader.numbers<float>(stored.scores()));
  TSR_ASSIGN_OR_RETURN(std::vector<uint8_t> types, reader.numbers<uint8_t>(stored.types()));
  for (uint8_t type : types) {
    if (type < 1 || type > 6)
      return Status(StatusCode::kCorrupt, format("a token has type {}; types are 1 to 6", type));
    data.types.push_back(static_cast<TokenType>(type));
  }
  TSR_ASSIGN_OR_RETURN(data.merges, reader.texts(stored.merges()));
  TSR_ASSIGN_OR_RETURN(data.pre_tokenizer, reader.text(stored.pre_tokenizer()));
  data.bos = stored.bos();
  data.eos = stored.eos();
  data.unknown = stored.unknown();
  data.pad = stored.pad();
  data.add_bos = stored.add_bos();
  data.add_eos = stored.add_eos();
  data.add_space_prefix = stored.add_space_prefix();
  return data;
}

struct ModelIndex {
  IndexBytes bytes;
  const file::Model* model = nullptr;
  std::vector<TensorRecord> records;
};

Result<ModelIndex> read_model_index(const std::shared_ptr<const ByteSource>& source,
                                    FlatBufferReader* reader_out) {
  ModelIndex index;
  TSR_ASSIGN_OR_RETURN(index.bytes, read_index(source, kModelMagic, kWhat));
  TSR_ASSIGN_OR_RETURN(index.model,
                       FlatBufferReader::root<file::Model>(index.bytes, file::ModelIdentifier(), kWhat));
  FlatBufferReader reader(index.bytes);
  index.records.reserve(size_of(index.model->parameters()));
  for (size_t i = 0; i < size_of(index.model->parameters()); ++i) {
    const file::TensorData& stored = *index.model->parameters()->Get(static_cast<uint32_t>(i));
    TSR_ASSIGN_OR_RETURN(TensorRecord record, reader.record(stored));
    TSR_RETURN_IF_ERROR(check_record(record, sizeof(Envelope), index.bytes.offset));
    index.records.push_back(std::move(record));
  }
  TSR_RETURN_IF_ERROR(check_records(index.records));
  if (reader_out != nullptr) *reader_out = reader;
  return index;
}

}  // namespace

Result<Model> load_model(std::shared_ptr<const ByteSource> source) {
  FlatBufferReader reader(IndexBytes{});
  TSR_ASSIGN_OR_RETURN(ModelIndex index, read_model_index(source, &reader));
  Model model;
  TSR_ASSIGN_OR_RETURN(model.graph, read_graph(*index.model->graph(), reader));
  TSR_ASSIGN_OR_RETURN(model.metadata, reader.key_values(index.model->metadata()));
  if (index.model->tokenizer() != nullptr) {
    TSR_ASSIGN_OR_RETURN(model.tokenizer, read_tokenizer(*index.model->tokenizer(), reader));
  }
  std::map<std::string_view, TensorId> parameters;
  for (TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    parameters.emplace(model.graph.tensor(id).name, id);
  }
  std::map<std::string, StoredTensors> stored;
  for (const TensorRecord& record : index.records) {
    auto found = parameters.find(record.name);
    if (found == parameters.end() || model.graph.type(found->second) != record.type) {
      return Status(StatusCode::kCorrupt,
                    format("the file has data for '{}' {}, but the graph {}", record.name, record.type,
                           found == parameters.end() ? std::string("has no such parameter")
                                                     : "wants " + to_text(model.graph.type(found->second))));
    }
    TSR_ASSIGN_OR_RETURN(HostTensor tensor, read_tensor(source, record, false));
    model.parameters.emplace(record.name, std::move(tensor));
    const bool packed = record.codec == TensorCodec::kZstd;
    StoredTensors& sum = stored[to_text(record.type.dtype) + (packed ? ", compressed" : "")];
    ++sum.tensors;
    sum.bytes += static_cast<int64_t>(record.stored_bytes);
  }
  model.origin.format = "tsr";
  for (auto& [type, sum] : stored) {
    sum.type = type;
    model.origin.stored.push_back(std::move(sum));
  }
  return model;
}

Result<Model> load_model(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(path));
  Result<Model> model = load_model(std::move(source));
  if (!model.ok()) return model.status().with_context(path);
  return model;
}

Status verify_checksums(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(path));
  const Result<ModelFormat> format_of_file = model_format(*source);
  if (!format_of_file.ok()) return format_of_file.status().with_context(path);
  if (*format_of_file == ModelFormat::kGguf)
    return Status(StatusCode::kUnsupported,
                  format("{}: a GGUF file holds no checksums; import it to a .tsr file, which does", path));
  auto index = read_model_index(source, nullptr);
  if (!index.ok()) return index.status().with_context(path);
  for (const TensorRecord& record : index->records) {
    auto tensor = read_tensor(source, record, true);
    if (!tensor.ok()) return tensor.status().with_context(path);
  }
  return {};
}

namespace {

// `names` in the order of the file.
Status save_parameters(const Model& model, std::span<const std::string> names, const ReadParameter& read,
                       const std::string& path, SaveOptions options) {
  TSR_RETURN_IF_ERROR(model.graph.verify());
  TSR_RETURN_IF_ERROR(check_storable(model));
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const Envelope placeholder{};
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&placeholder, 1))));
  FlatBufferBuilder builder;
  builder.ForceDefaults(true);  // -0.0 is not the default 0.0
  std::vector<Offset<file::TensorData>> parameters;
  for (const std::string& name : names) {
    TSR_ASSIGN_OR_RETURN(const HostTensor tensor, read(name));
    auto id = model.graph.find_tensor(name);
    if (!id || model.graph.tensor(*id).kind != TensorKind::kParameter ||
        model.graph.type(*id) != tensor.type) {
      return Status(StatusCode::kInvalidArgument,
                    format("the model has a value {} for '{}', which is no such parameter of its graph",
                           tensor.type, name));
    }
    TSR_ASSIGN_OR_RETURN(TensorRecord record,
                         append_tensor(file, name, tensor.type, tensor.data, options.compress));
    parameters.push_back(write_record(builder, record));
  }
  auto graph = write_graph(builder, model.graph);
  auto metadata = write_key_values(builder, model.metadata);
  auto tokenizer = model.tokenizer ? write_tokenizer(builder, *model.tokenizer) : 0;
  auto stored_parameters = builder.CreateVector(parameters);
  file::FinishModelBuffer(builder, file::CreateModel(builder, graph, metadata, tokenizer, stored_parameters));

  const std::span<const std::byte> index = finished_bytes(builder);
  TSR_RETURN_IF_ERROR(file.pad_to(align_data(file.position())));
  const uint64_t index_offset = file.position();
  TSR_RETURN_IF_ERROR(file.append(index));
  const Envelope envelope = make_envelope(kModelMagic, file.position(), index_offset, index);
  TSR_RETURN_IF_ERROR(file.overwrite(0, std::as_bytes(std::span(&envelope, 1))));
  return file.commit();
}

}  // namespace

Status save_model(const Model& model, const std::string& path, SaveOptions options) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.parameters) names.push_back(name);
  const auto read = [&](const std::string& name) -> Result<HostTensor> {
    return model.parameters.find(name)->second;
  };
  return save_parameters(model, names, read, path, options);
}

Status save_model(const Model& model, const ReadParameter& read, const std::string& path,
                  SaveOptions options) {
  std::vector<std::string> names;
  for (const TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter))
    names.push_back(model.graph.tensor(id).name);
  std::ranges::sort(names);
  return save_parameters(model, names, read, path, options);
}

}  // namespace tessera
