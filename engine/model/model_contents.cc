#include "engine/model/model_contents.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/read_paths.h"
#include "engine/model/conversion.h"
#include "graph/base/text.h"
#include "serialize/output_name.h"

namespace tessera {

namespace {

TensorSource source_of(const ModelContents& contents, const std::string& name, const TensorType& type) {
  TensorSource source{name, type, {}, 1, {}, {}};
  source.read = [read = contents.read, holds = contents.holds, name, value = std::make_shared<HostTensor>()](
                    int64_t offset, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    if (offset == 0) {
      TSR_ASSIGN_OR_RETURN(*value, read(name));
    }
    const auto from = value->data.subspan(static_cast<size_t>(offset), buffer.size());
    std::ranges::copy(from, buffer.begin());
    if (static_cast<size_t>(offset) + buffer.size() == value->data.size()) *value = HostTensor();
    return std::span<const std::byte>(buffer);
  };
  return source;
}

}  // namespace

ModelContents contents_of(std::shared_ptr<const SharedModel> model) {
  Model shown = model->snapshot();
  shown.parameters.clear();
  const auto read = [from = model.get()](const std::string& name) {
    return from->read_uncached(name, from->seed());
  };
  std::vector<std::string> read_paths = model->read_paths();
  std::string resumed = model->resumed();
  return {std::move(shown), read, std::move(model), std::move(read_paths), std::move(resumed)};
}

Json stored_json(const std::vector<StoredTensors>& stored) {
  Json list = Json::array();
  for (const StoredTensors& it : stored)
    list.push_back({{"type", it.type}, {"tensors", it.tensors}, {"bytes", it.bytes}});
  return list;
}

Json origin_json(const Model& model) {
  int64_t values = 0;
  for (const StoredTensors& it : model.origin.stored) values += it.bytes;
  const bool in_memory = model.origin.format == "memory";
  return {{"format", model.origin.format},
          {"bytes", in_memory || !model.source ? values : model.source->size()},
          {"stored", stored_json(model.origin.stored)}};
}

Status save_contents(const ModelContents& contents, const std::string& path, const Options& options) {
  OptionReader reader(options, "save");
  const bool compress = reader.flag("compress", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(check_file_name(path));
  TSR_RETURN_IF_ERROR(check_not_read(contents.read_paths, path, contents.resumed));
  if (is_gguf_name(path)) {
    TSR_ASSIGN_OR_RETURN(const auto work, Conversion::create(contents, path, options));
    while (work->done() < 1) TSR_RETURN_IF_ERROR(work->step());
    return work->finish().status();
  }
  return save_model(contents.model, contents.read, path, SaveOptions{.compress = compress});
}

Status save_shared_model(const std::shared_ptr<const SharedModel>& model, const std::string& path, const Options& options) {
  ModelContents contents = contents_of(model);
  if (!is_gguf_name(path)) contents.read_paths = model->lost_paths();
  return save_contents(contents, path, options);
}

OpenedModel opened_in_memory(const ModelContents& contents) {
  OpenedModel opened;
  opened.model = contents.model;
  std::map<std::string, StoredTensors> stored;
  for (const TensorId id : opened.model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const TensorType& type = opened.model.graph.type(id);
    opened.parameters.push_back(source_of(contents, opened.model.graph.tensor(id).name, type));
    StoredTensors& of_type = stored[std::string(to_text(type.dtype))];
    of_type.type = to_text(type.dtype);
    ++of_type.tensors;
    of_type.bytes += bytes(type);
  }
  opened.model.origin = {};
  opened.model.origin.format = "memory";
  for (auto& [name, it] : stored) opened.model.origin.stored.push_back(it);
  return opened;
}

}  // namespace tessera
