// tsr_imatrix.
#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_imatrix_new(tsr_runtime* runtime, tsr_model* model, const int32_t* ids, size_t count,
                            const char* out_path, const tsr_options* options, tsr_imatrix** out_imatrix) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required(
        {{runtime, "runtime"}, {model, "model"}, {out_path, "out_path"}, {out_imatrix, "out_imatrix"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto collector,
                         ImportanceCollector::create(runtime->value, model->value, {ids, count}, out_path,
                                                     options ? options->value : Options{}));
    *out_imatrix = new tsr_imatrix{runtime->value, std::move(collector)};
    return {};
  });
}

tsr_status* tsr_imatrix_step(tsr_imatrix* imatrix, double* out_done) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{imatrix, "imatrix"}}));
    const CancelScope scope(imatrix->runtime->cancel_signal());
    TSR_RETURN_IF_ERROR(imatrix->value->step());
    if (out_done) *out_done = imatrix->value->done();
    return {};
  });
}

tsr_status* tsr_imatrix_finish(tsr_imatrix* imatrix, tsr_text** out_report) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{imatrix, "imatrix"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, imatrix->value->finish());
    return out_report ? give_text(std::move(report), out_report) : Status();
  });
}

void tsr_imatrix_free(tsr_imatrix* imatrix) { delete imatrix; }
