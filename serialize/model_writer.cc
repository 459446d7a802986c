#include "serialize/model_writer.h"

#include <algorithm>
#include <utility>

#include "graph/base/text.h"
#include "serialize/envelope.h"
#include "serialize/file_limits.h"
#include "serialize/flatbuffer_reader.h"
#include "serialize/graph_file.h"
#include "serialize/schema/model_generated.h"

namespace tessera {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Offset<file::Tokenizer> write_tokenizer(FlatBufferBuilder& builder, const TokenizerData& data) {
  std::vector<uint8_t> types;
  for (TokenType type : data.types) types.push_back(static_cast<uint8_t>(type));
  auto tokens = builder.CreateVectorOfStrings(data.tokens);
  auto scores = builder.CreateVector(data.scores);
  auto stored_types = builder.CreateVector(types);
  auto merges = builder.CreateVectorOfStrings(data.merges);
  auto pre_tokenizer = builder.CreateString(data.pre_tokenizer);
  auto end_ids = builder.CreateVector(data.end_ids);
  auto pipeline = builder.CreateString(data.pipeline);
  auto merge_ids = builder.CreateVector(data.merge_ids);
  auto log_probabilities = builder.CreateVector(data.log_probabilities);
  auto lstrip_ids = builder.CreateVector(data.lstrip_ids);
  auto rstrip_ids = builder.CreateVector(data.rstrip_ids);
  return file::CreateTokenizer(builder, static_cast<uint8_t>(data.kind), tokens, scores, stored_types, merges,
                               pre_tokenizer, data.bos, data.eos, data.unknown, data.pad, data.add_bos,
                               data.add_eos, data.add_space_prefix, end_ids, pipeline, merge_ids,
                               log_probabilities, lstrip_ids, rstrip_ids);
}

}  // namespace

Result<std::unique_ptr<ModelWriter>> ModelWriter::create(const Model& model, const std::string& path,
                                                         SaveOptions options) {
  TSR_RETURN_IF_ERROR(model.graph.verify());
  TSR_RETURN_IF_ERROR(check_storable(model));
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const Envelope placeholder{};
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&placeholder, 1))));
  return std::unique_ptr<ModelWriter>(new ModelWriter(model, std::move(file), options));
}

Status ModelWriter::begin(TensorSource parameter) {
  TSR_CHECK(!tensor_, "a tensor is written to its end before the next");
  const auto id = model_.graph.find_tensor(parameter.name);
  if (!id || model_.graph.tensor(*id).kind != TensorKind::kParameter ||
      model_.graph.type(*id) != parameter.type) {
    return Status(StatusCode::kInvalidArgument,
                  format("the model has a value {} for '{}', which is no such parameter of its graph",
                         parameter.type, parameter.name));
  }
  tensor_.emplace(file_, std::move(parameter), options_.compress);
  return {};
}

Status ModelWriter::write_slice() {
  TSR_RETURN_IF_ERROR(tensor_->write_slice());
  if (!tensor_->is_done()) return {};
  records_.push_back(tensor_->record());
  tensor_.reset();
  return {};
}

Status ModelWriter::write(TensorSource parameter) {
  TSR_RETURN_IF_ERROR(begin(std::move(parameter)));
  while (is_writing()) TSR_RETURN_IF_ERROR(write_slice());
  return {};
}

Status ModelWriter::finish() {
  FlatBufferBuilder builder;
  builder.ForceDefaults(true);  // -0.0 differs from the default 0.0
  std::vector<Offset<file::TensorData>> parameters;
  for (const TensorRecord& record : records_) parameters.push_back(write_record(builder, record));
  auto graph = write_graph(builder, model_.graph);
  auto metadata = write_key_values(builder, model_.metadata);
  auto tokenizer = model_.tokenizer ? write_tokenizer(builder, *model_.tokenizer) : 0;
  auto stored_parameters = builder.CreateVector(parameters);
  file::FinishModelBuffer(builder, file::CreateModel(builder, graph, metadata, tokenizer, stored_parameters));

  const std::span<const std::byte> index = finished_bytes(builder);
  TSR_RETURN_IF_ERROR(file_.pad_to(align_data(file_.position())));
  const uint64_t index_offset = file_.position();
  TSR_RETURN_IF_ERROR(file_.append(index));
  const Envelope envelope = make_envelope(kModelMagic, file_.position(), index_offset, index);
  return file_.overwrite(0, std::as_bytes(std::span(&envelope, 1)));
}

Status ModelWriter::commit() { return file_.commit(); }

namespace {

// `names` in file order.
Status save_parameters(const Model& model, std::span<const std::string> names, const ReadParameter& read,
                       const std::string& path, SaveOptions options) {
  TSR_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWriter> writer, ModelWriter::create(model, path, options));
  for (const std::string& name : names) {
    TSR_ASSIGN_OR_RETURN(HostTensor tensor, read(name));
    TSR_RETURN_IF_ERROR(writer->write(source_in_memory(name, std::move(tensor))));
  }
  TSR_RETURN_IF_ERROR(writer->finish());
  return writer->commit();
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
