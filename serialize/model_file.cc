// Reads .tsr files: an envelope, tensor bytes, and the index at the end (schema/model.fbs).
#include <map>
#include <utility>

#include "graph/base/text.h"
#include "serialize/envelope.h"
#include "serialize/flatbuffer_reader.h"
#include "serialize/graph_file.h"
#include "serialize/import/huggingface_folder.h"
#include "serialize/model.h"
#include "serialize/model_format.h"
#include "serialize/opened_model.h"
#include "serialize/schema/model_generated.h"
#include "serialize/tensor_record.h"

namespace tessera {
namespace {

constexpr std::string_view kWhat = "model file";

// Reads numbers and names only; Tokenizer::create checks them.
Result<TokenizerData> read_tokenizer(const file::Tokenizer& stored, FlatBufferReader& reader) {
  TokenizerData data;
  if (stored.kind() > static_cast<uint8_t>(TokenizerKind::kSentencePieceModel)) {
    return Status(StatusCode::kUnsupported,
                  format("tokenizer kind {}; this version knows 0 to 6", stored.kind()));
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
  TSR_ASSIGN_OR_RETURN(data.end_ids, reader.numbers<int32_t>(stored.end_ids()));
  TSR_ASSIGN_OR_RETURN(data.pipeline, reader.text(stored.pipeline()));
  TSR_ASSIGN_OR_RETURN(data.merge_ids, reader.numbers<int32_t>(stored.merge_ids()));
  TSR_ASSIGN_OR_RETURN(data.log_probabilities, reader.numbers<double>(stored.log_probabilities()));
  TSR_ASSIGN_OR_RETURN(data.lstrip_ids, reader.numbers<int32_t>(stored.lstrip_ids()));
  TSR_ASSIGN_OR_RETURN(data.rstrip_ids, reader.numbers<int32_t>(stored.rstrip_ids()));
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

std::vector<StoredTensors> stored_tensors(std::span<const TensorRecord> records) {
  std::map<std::string, StoredTensors> by_type;
  for (const TensorRecord& record : records) {
    const bool packed = record.codec == TensorCodec::kZstd;
    StoredTensors& sum = by_type[to_text(record.type.dtype) + (packed ? ", compressed" : "")];
    ++sum.tensors;
    sum.bytes += static_cast<int64_t>(record.stored_bytes);
  }
  std::vector<StoredTensors> stored;
  for (auto& [type, sum] : by_type) {
    sum.type = type;
    stored.push_back(std::move(sum));
  }
  return stored;
}

Result<OpenedModel> open_tsr(std::shared_ptr<const ByteSource> source) {
  FlatBufferReader reader(IndexBytes{});
  TSR_ASSIGN_OR_RETURN(ModelIndex index, read_model_index(source, &reader));
  OpenedModel opened;
  Model& model = opened.model;
  TSR_ASSIGN_OR_RETURN(model.graph, read_graph(*index.model->graph(), reader));
  TSR_ASSIGN_OR_RETURN(model.metadata, reader.key_values(index.model->metadata()));
  if (index.model->tokenizer() != nullptr) {
    TSR_ASSIGN_OR_RETURN(model.tokenizer, read_tokenizer(*index.model->tokenizer(), reader));
  }
  std::map<std::string_view, TensorId> parameters;
  for (TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    parameters.emplace(model.graph.tensor(id).name, id);
  }
  for (const TensorRecord& record : index.records) {
    auto found = parameters.find(record.name);
    if (found == parameters.end() || model.graph.type(found->second) != record.type) {
      return Status(StatusCode::kCorrupt,
                    format("the file has data for '{}' {}, but the graph {}", record.name, record.type,
                           found == parameters.end() ? std::string("has no such parameter")
                                                     : "wants " + to_text(model.graph.type(found->second))));
    }
    opened.parameters.push_back(tensor_source(source, record));
  }
  model.origin.format = "tsr";
  model.origin.stored = stored_tensors(index.records);
  model.source = std::move(source);
  return opened;
}

Result<OpenedModel> open_model(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(const ModelFormat format, model_format(*source));
  switch (format) {
    case ModelFormat::kGguf: return open_gguf(std::move(source));
    case ModelFormat::kSafetensors: return open_huggingface(source);
    case ModelFormat::kTsr: break;
  }
  return open_tsr(std::move(source));
}

Status verify_checksums(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(path));
  const Result<ModelFormat> format_of_file = model_format(*source);
  if (!format_of_file.ok()) return format_of_file.status().with_context(path);
  if (*format_of_file != ModelFormat::kTsr)
    return Status(StatusCode::kUnsupported,
                  format("{}: such a file holds no checksums; import it to a .tsr file, which does", path));
  auto index = read_model_index(source, nullptr);
  if (!index.ok()) return index.status().with_context(path);
  std::vector<std::byte> buffer;
  for (const TensorRecord& record : index->records) {
    const TensorSource tensor = tensor_source(source, record);
    for (TensorReader reader(tensor, true); !reader.is_done();) {
      buffer.resize(reader.next_bytes());
      const auto slice = reader.next(buffer);
      if (!slice.ok()) return slice.status().with_context(path);
    }
  }
  return {};
}

}  // namespace tessera
