// tsr_loading, tsr_conversion, tsr_export, tsr_model_quantize.
#include <memory>
#include <optional>
#include <utility>

#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

template <class Handle>
tsr_status* step(Handle* handle, const char* name, double* out_done) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{handle, name}}));
    std::optional<CancelScope> scope;
    if (handle->runtime) scope.emplace(handle->runtime->cancel_signal());
    TSR_RETURN_IF_ERROR(handle->value->step());
    if (out_done) *out_done = handle->value->done();
    return {};
  });
}

}  // namespace

tsr_status* tsr_loading_new(tsr_runtime* runtime, const char* path, const tsr_options* options,
                            tsr_loading** out_loading) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {out_loading, "out_loading"}}));
    TSR_ASSIGN_OR_RETURN(auto loading, Loading::create(path, options ? options->value : Options{}));
    *out_loading = new tsr_loading{runtime ? runtime->value : nullptr, std::move(loading)};
    return {};
  });
}

tsr_status* tsr_loading_step(tsr_loading* loading, double* out_done) {
  return step(loading, "loading", out_done);
}

tsr_status* tsr_loading_finish(tsr_loading* loading, tsr_model** out_model) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{loading, "loading"}, {out_model, "out_model"}}));
    TSR_ASSIGN_OR_RETURN(auto model, loading->value->finish());
    *out_model = new tsr_model{std::move(model)};
    return {};
  });
}

void tsr_loading_free(tsr_loading* loading) { delete loading; }

tsr_status* tsr_conversion_new(tsr_runtime* runtime, const char* in_path, const char* out_path,
                               const tsr_options* options, tsr_conversion** out_conversion) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{in_path, "in_path"}, {out_path, "out_path"}, {out_conversion, "out_conversion"}}));
    TSR_ASSIGN_OR_RETURN(auto conversion,
                         Conversion::create(in_path, out_path, options ? options->value : Options{}));
    *out_conversion = new tsr_conversion{runtime ? runtime->value : nullptr, nullptr, std::move(conversion)};
    return {};
  });
}

tsr_status* tsr_conversion_new_for_model(tsr_runtime* runtime, tsr_model* model, const char* out_path,
                                         const tsr_options* options, tsr_conversion** out_conversion) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{model, "model"}, {out_path, "out_path"}, {out_conversion, "out_conversion"}}));
    TSR_ASSIGN_OR_RETURN(auto conversion, Conversion::create(contents_of(model->value), out_path,
                                                             options ? options->value : Options{}));
    *out_conversion = new tsr_conversion{runtime ? runtime->value : nullptr, nullptr, std::move(conversion)};
    return {};
  });
}

tsr_status* tsr_conversion_new_for_trainer(tsr_trainer* trainer, tsr_model* model, const char* out_path,
                                           const tsr_options* options, tsr_conversion** out_conversion) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"},
                                  {model, "model"},
                                  {out_path, "out_path"},
                                  {out_conversion, "out_conversion"}}));
    TSR_ASSIGN_OR_RETURN(auto lease, trainer->value->lease("tsr_conversion_new_for_trainer"));
    TSR_ASSIGN_OR_RETURN(ModelContents contents, trainer->value->contents(model->value));
    contents.holds = std::make_shared<std::pair<std::shared_ptr<Trainer>, std::shared_ptr<const void>>>(
        trainer->value, std::move(contents.holds));
    TSR_ASSIGN_OR_RETURN(auto conversion, Conversion::create(std::move(contents), out_path,
                                                             options ? options->value : Options{}));
    *out_conversion = new tsr_conversion{trainer->value->runtime(), std::move(lease), std::move(conversion)};
    return {};
  });
}

tsr_status* tsr_conversion_step(tsr_conversion* conversion, double* out_done) {
  return step(conversion, "conversion", out_done);
}

tsr_status* tsr_conversion_finish(tsr_conversion* conversion, tsr_text** out_report) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{conversion, "conversion"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, conversion->value->finish());
    conversion->lease = nullptr;
    return out_report ? give_text(std::move(report), out_report) : Status();
  });
}

void tsr_conversion_free(tsr_conversion* conversion) {
  const bool uses_trainer = conversion && conversion->lease;
  if (!uses_trainer || conversion->runtime->in_creating_process()) delete conversion;
}

tsr_status* tsr_export_new(tsr_runtime* runtime, const char* in_path, const char* out_path,
                           const tsr_options* options, tsr_export** out_export) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{in_path, "in_path"}, {out_path, "out_path"}, {out_export, "out_export"}}));
    TSR_ASSIGN_OR_RETURN(auto made, Export::create(in_path, out_path, options ? options->value : Options{}));
    *out_export = new tsr_export{runtime ? runtime->value : nullptr, std::move(made)};
    return {};
  });
}

tsr_status* tsr_export_new_for_model(tsr_runtime* runtime, tsr_model* model, const char* out_path,
                                     const tsr_options* options, tsr_export** out_export) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_path, "out_path"}, {out_export, "out_export"}}));
    TSR_ASSIGN_OR_RETURN(auto made,
                         Export::create(model->value, out_path, options ? options->value : Options{}));
    *out_export = new tsr_export{runtime ? runtime->value : nullptr, std::move(made)};
    return {};
  });
}

tsr_status* tsr_export_step(tsr_export* work, double* out_done) { return step(work, "export", out_done); }

tsr_status* tsr_export_finish(tsr_export* work, tsr_text** out_report) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "export"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, work->value->finish());
    return out_report ? give_text(std::move(report), out_report) : Status();
  });
}

void tsr_export_free(tsr_export* work) { delete work; }

tsr_status* tsr_model_quantize(tsr_runtime* runtime, tsr_model* model, const char* path,
                               const tsr_options* options, tsr_text** out_report) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {path, "path"}}));
    std::optional<CancelScope> scope;
    if (runtime) scope.emplace(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(std::string report,
                         quantize_model(model->value, path, options ? options->value : Options{}));
    return out_report ? give_text(std::move(report), out_report) : Status();
  });
}
