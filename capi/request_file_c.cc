// tsr_request_file.
#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_request_file_open(const char* path, const char* out_path, const tsr_options* options,
                                  tsr_request_file** out_file) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {out_path, "out_path"}, {out_file, "out_file"}}));
    TSR_ASSIGN_OR_RETURN(auto made, RequestRun::open(path, out_path, options ? options->value : Options{}));
    *out_file = new tsr_request_file{std::move(made)};
    return {};
  });
}

tsr_status* tsr_request_file_start(tsr_request_file* file, tsr_runtime* runtime, const tsr_model* model,
                                   const tsr_options* options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{file, "file"}, {runtime, "runtime"}, {model, "model"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    return file->value->start(runtime->value, model->value, options ? options->value : Options{});
  });
}

tsr_status* tsr_request_file_step(tsr_request_file* file, double* out_done) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{file, "file"}, {out_done, "out_done"}}));
    TSR_ASSIGN_OR_RETURN(*out_done, file->value->step());
    return {};
  });
}

tsr_status* tsr_request_file_report(const tsr_request_file* file, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{file, "file"}, {out_text, "out_text"}}));
    return give_text(file->value->report_json(), out_text);
  });
}

void tsr_request_file_free(tsr_request_file* file) {
  const Runtime* const runtime = file == nullptr ? nullptr : file->value->runtime();
  if (runtime == nullptr || runtime->in_creating_process()) delete file;
}
