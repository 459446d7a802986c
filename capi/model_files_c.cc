// tsr_model_begin_load, tsr_conversion, tsr_export, tsr_model_quantize.
#include <memory>
#include <optional>
#include <utility>

#include "capi/guard.h"
#include "capi/work.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

std::shared_ptr<Runtime> runtime_or_none(const tsr_runtime* runtime) {
  return runtime ? runtime->value : nullptr;
}

// The finish of work whose result is a file, with a report.
template <class Kind>
tsr_status* give_report(tsr_work* work, tsr_text** out_report) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, finish_work<Kind>(work));
    return out_report ? give_text(std::move(report), out_report) : Status();
  });
}

}  // namespace

tsr_status* tsr_model_begin_load(tsr_runtime* runtime, const char* path, const tsr_options* options,
                                 tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto loading, Loading::create(path, options ? options->value : Options{}));
    return give_work(out_work, std::move(loading), runtime_or_none(runtime));
  });
}

tsr_status* tsr_model_finish(tsr_work* work, tsr_model** out_model) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}, {out_model, "out_model"}}));
    TSR_ASSIGN_OR_RETURN(auto model, finish_work<Loading>(work));
    *out_model = new tsr_model{std::move(model)};
    return {};
  });
}

tsr_status* tsr_conversion_begin(tsr_runtime* runtime, const char* in_path, const char* out_path,
                                 const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{in_path, "in_path"}, {out_path, "out_path"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto conversion,
                         Conversion::create(in_path, out_path, options ? options->value : Options{}));
    return give_work(out_work, std::move(conversion), runtime_or_none(runtime));
  });
}

tsr_status* tsr_conversion_begin_for_model(tsr_runtime* runtime, const tsr_model* model, const char* out_path,
                                           const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_path, "out_path"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto conversion, Conversion::create(contents_of(model->value), out_path,
                                                             options ? options->value : Options{}));
    return give_work(out_work, std::move(conversion), runtime_or_none(runtime));
  });
}

tsr_status* tsr_conversion_begin_for_trainer(tsr_trainer* trainer, const tsr_model* model,
                                             const char* out_path, const tsr_options* options,
                                             tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{trainer, "trainer"}, {model, "model"}, {out_path, "out_path"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto lease, trainer->value->lease("tsr_conversion_begin_for_trainer"));
    TSR_ASSIGN_OR_RETURN(ModelContents contents, trainer->value->contents(model->value));
    contents.holds = std::make_shared<std::pair<std::shared_ptr<Trainer>, std::shared_ptr<const void>>>(
        trainer->value, std::move(contents.holds));
    TSR_ASSIGN_OR_RETURN(auto conversion, Conversion::create(std::move(contents), out_path,
                                                             options ? options->value : Options{}));
    return give_work(out_work, std::move(conversion), trainer->value->runtime(), std::move(lease));
  });
}

tsr_status* tsr_conversion_finish(tsr_work* work, tsr_text** out_report) {
  return give_report<Conversion>(work, out_report);
}

tsr_status* tsr_export_begin(tsr_runtime* runtime, const char* in_path, const char* out_path,
                             const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{in_path, "in_path"}, {out_path, "out_path"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto made, Export::create(in_path, out_path, options ? options->value : Options{}));
    return give_work(out_work, std::move(made), runtime_or_none(runtime));
  });
}

tsr_status* tsr_export_begin_for_model(tsr_runtime* runtime, const tsr_model* model, const char* out_path,
                                       const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_path, "out_path"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto made,
                         Export::create(model->value, out_path, options ? options->value : Options{}));
    return give_work(out_work, std::move(made), runtime_or_none(runtime));
  });
}

tsr_status* tsr_export_finish(tsr_work* work, tsr_text** out_report) {
  return give_report<Export>(work, out_report);
}

tsr_status* tsr_model_quantize(tsr_runtime* runtime, const tsr_model* model, const char* path,
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
