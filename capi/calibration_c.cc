// tsr_calibration.
#include "capi/guard.h"
#include "capi/work.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_calibration_begin(tsr_runtime* runtime, const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {out_work, "out_work"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    const Options none;
    OptionReader reader(options ? options->value : none, "calibration");
    const std::string devices = reader.text("devices", "cpu");
    const double seconds = reader.f64("seconds", 60, 0, 1e5);
    TSR_RETURN_IF_ERROR(reader.finish());
    TSR_ASSIGN_OR_RETURN(auto made, Calibration::create(runtime->value, devices, seconds));
    return give_work(out_work, std::shared_ptr<Calibration>(std::move(made)));
  });
}

tsr_status* tsr_calibration_finish(tsr_work* work, tsr_calibration** out_calibration) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}, {out_calibration, "out_calibration"}}));
    using Measured = std::shared_ptr<Calibration>;
    TSR_RETURN_IF_ERROR(
        finish_work<Measured>(work, [](const Calibration& job) { return job.profile().status(); }));
    *out_calibration = new tsr_calibration{std::get<Measured>(work->job)};
    return {};
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
