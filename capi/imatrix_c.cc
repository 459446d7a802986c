// tsr_imatrix.
#include "capi/guard.h"
#include "capi/work.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_imatrix_begin(tsr_runtime* runtime, const tsr_model* model, const int32_t* ids, size_t count,
                              const char* out_path, const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{runtime, "runtime"}, {model, "model"}, {out_path, "out_path"}, {out_work, "out_work"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto collector,
                         ImportanceCollector::create(runtime->value, model->value, {ids, count}, out_path,
                                                     options ? options->value : Options{}));
    return give_work(out_work, std::move(collector), runtime->value);
  });
}

tsr_status* tsr_imatrix_finish(tsr_work* work, tsr_text** out_report) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, finish_work<ImportanceCollector>(work));
    return out_report ? give_text(std::move(report), out_report) : Status();
  });
}
