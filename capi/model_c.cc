// tsr_model.
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"
#include "engine/base/byte_sources.h"
#include "engine/model/adapters.h"
#include "engine/model/loading.h"
#include "engine/model/model_contents.h"
#include "engine/model/resize_tokens.h"
#include "engine/planning/method.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

const Options& options_or_none(const tsr_options* options) {
  static const Options none;
  return options ? options->value : none;
}

// `make` returns Result<shared_ptr<SharedModel>>.
template <class Make>
tsr_status* make_model(tsr_model** out_model, Make&& make) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_model, "out_model"}}));
    TSR_ASSIGN_OR_RETURN(auto model, make());
    *out_model = new tsr_model{std::move(model)};
    return {};
  });
}

}  // namespace

tsr_status* tsr_model_load(const char* path, tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{path, "path"}}));
    return load_shared_model(path);
  });
}

tsr_status* tsr_model_load_bytes(const void* data, size_t size, void (*release)(void* context), void* context,
                                 tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    std::shared_ptr<const void> owner = releasing(release, context);
    TSR_RETURN_IF_ERROR(required({{data, "data"}}));
    return load_shared_model(bytes_in_memory({static_cast<const std::byte*>(data), size}, std::move(owner)),
                             {});
  });
}

tsr_status* tsr_model_load_reader(const tsr_reader* reader, tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{reader, "reader"}}));
    TSR_RETURN_IF_ERROR(check_struct(reader));
    std::shared_ptr<const void> owner = releasing(reader->release, reader->context);
    TSR_ASSIGN_OR_RETURN(const tsr_reader known, copy_struct<tsr_reader>(reader));
    TSR_RETURN_IF_ERROR(required({{reinterpret_cast<const void*>(known.read_at), "reader.read_at"}}));
    return load_shared_model(callback_source({known.context, known.size, known.read_at, std::move(owner)}),
                             {});
  });
}

tsr_status* tsr_model_new(const char* description, const tsr_options* options, tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{description, "description"}}));
    return SharedModel::describe(description, options_or_none(options));
  });
}

tsr_status* tsr_model_new_from_graph(const tsr_graph* graph, const tsr_options* options,
                                     tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}}));
    return SharedModel::from_graph(graph->value, options_or_none(options));
  });
}

tsr_status* tsr_model_add_adapters(const tsr_model* model, const tsr_options* options,
                                   tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{model, "model"}}));
    return add_adapters(*model->value, options_or_none(options));
  });
}

tsr_status* tsr_model_load_adapters(const tsr_model* model, const char* path, const tsr_options* options,
                                    tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {path, "path"}}));
    return load_adapters(*model->value, path, options_or_none(options));
  });
}

tsr_status* tsr_model_for_method(tsr_model* model, const char* method, const tsr_options* adapters,
                                 tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {method, "method"}}));
    return model_for_method(model->value, method, options_or_none(adapters));
  });
}

tsr_status* tsr_model_merge_adapters(const tsr_model* model, tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{model, "model"}}));
    return merge_adapters(*model->value);
  });
}

tsr_status* tsr_model_resize_tokens(const tsr_model* model, int64_t rows, const tsr_options* options,
                                    tsr_model** out_model) {
  return make_model(out_model, [&]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_RETURN_IF_ERROR(required({{model, "model"}}));
    if (rows < 0)
      return Status(StatusCode::kInvalidArgument, format("rows is {}, wanted 0 or more", rows));
    return resize_tokens(*model->value, rows, options_or_none(options));
  });
}

tsr_status* tsr_model_save(const tsr_model* model, const char* path, const tsr_options* options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {path, "path"}}));
    return save_shared_model(model->value, path, options_or_none(options));
  });
}

tsr_status* tsr_model_check_path(const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}}));
    return SharedModel::check_path(path);
  });
}

tsr_status* tsr_model_verify(const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}}));
    return verify_checksums(path);
  });
}

tsr_status* tsr_model_info(const tsr_model* model, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_text, "out_text"}}));
    return give_text(model->value->info_json(), out_text);
  });
}

tsr_status* tsr_model_metadata(const tsr_model* model, const char* key, char* buffer, size_t capacity,
                               size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {key, "key"}}));
    const std::string value = model->value->metadata(key);
    TSR_RETURN_IF_ERROR(put_text(value, buffer, capacity, out_size));
    if (value.empty() && out_size) *out_size = 0;
    return {};
  });
}

tsr_status* tsr_model_set_metadata(tsr_model* model, const char* key, const char* value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {key, "key"}, {value, "value"}}));
    model->value->set_metadata(key, value);
    return {};
  });
}

tsr_status* tsr_model_parameter_count(const tsr_model* model, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_count, "out_count"}}));
    *out_count = model->value->parameter_names().size();
    return {};
  });
}

tsr_status* tsr_model_parameter_name(const tsr_model* model, size_t number, char* buffer, size_t capacity,
                                     size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}}));
    const std::vector<std::string> names = model->value->parameter_names();
    if (number >= names.size())
      return Status(StatusCode::kInvalidArgument, format("parameter number {}, the model has {}",
                                                         static_cast<uint64_t>(number), names.size()));
    return put_text(names[number], buffer, capacity, out_size);
  });
}

tsr_status* tsr_model_read(const tsr_model* model, const char* parameter, tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {parameter, "parameter"}, {out_tensor, "out_tensor"}}));
    TSR_ASSIGN_OR_RETURN(HostTensor value, model->value->read(parameter));
    *out_tensor = new tsr_tensor{std::move(value), nullptr, parameter};
    return {};
  });
}

tsr_status* tsr_model_write(tsr_model* model, const char* parameter, const tsr_tensor* value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {parameter, "parameter"}, {value, "value"}}));
    return model->value->write(parameter, value->value);
  });
}

tsr_status* tsr_model_graph(const tsr_model* model, tsr_graph** out_graph) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_graph, "out_graph"}}));
    *out_graph = new tsr_graph{model->value->graph()};
    return {};
  });
}

tsr_status* tsr_model_tokenizer(const tsr_model* model, tsr_tokenizer** out_tokenizer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_tokenizer, "out_tokenizer"}}));
    std::shared_ptr<const Tokenizer> tokenizer = model->value->tokenizer();
    if (!tokenizer)
      return Status(StatusCode::kNotFound,
                    "the model has no tokenizer; give it one with tsr_model_set_tokenizer");
    *out_tokenizer = new tsr_tokenizer{std::move(tokenizer), model->value->logit_rows()};
    return {};
  });
}

tsr_status* tsr_model_set_tokenizer(tsr_model* model, const tsr_tokenizer* tokenizer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}}));
    model->value->set_tokenizer(tokenizer ? tokenizer->value : nullptr);
    return {};
  });
}

void tsr_model_free(tsr_model* model) { delete model; }
