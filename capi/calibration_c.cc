// tsr_calibration.
#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_calibration_new(tsr_runtime* runtime, const tsr_options* options,
                                tsr_calibration** out_calibration) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {out_calibration, "out_calibration"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    const Options none;
    OptionReader reader(options ? options->value : none, "calibration");
    const std::string devices = reader.text("devices", "cpu");
    const double seconds = reader.f64("seconds", 60, 0, 1e5);
    TSR_RETURN_IF_ERROR(reader.finish());
    TSR_ASSIGN_OR_RETURN(auto made, Calibration::create(runtime->value, devices, seconds));
    *out_calibration = new tsr_calibration{std::move(made)};
    return {};
  });
}

tsr_status* tsr_calibration_step(tsr_calibration* calibration, double* out_done) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{calibration, "calibration"}}));
    TSR_RETURN_IF_ERROR(calibration->value->step());
    if (out_done) *out_done = calibration->value->done();
    return {};
  });
}

tsr_status* tsr_calibration_next(const tsr_calibration* calibration, char* buffer, size_t capacity,
                                 size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{calibration, "calibration"}}));
    return put_text(calibration->value->next(), buffer, capacity, out_size);
  });
}

tsr_status* tsr_calibration_text(const tsr_calibration* calibration, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{calibration, "calibration"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string text, calibration->value->text());
    return give_text(std::move(text), out_text);
  });
}

tsr_status* tsr_calibration_save(const tsr_calibration* calibration, const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{calibration, "calibration"}}));
    return calibration->value->save(path ? path : "");
  });
}

tsr_status* tsr_calibration_default_path(const tsr_calibration* calibration, char* buffer, size_t capacity,
                                         size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{calibration, "calibration"}}));
    return put_text(calibration->value->default_path(), buffer, capacity, out_size);
  });
}

void tsr_calibration_free(tsr_calibration* calibration) { delete calibration; }
