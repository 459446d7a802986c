// tsr_run.
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

Options options_or_none(const tsr_options* options) { return options ? options->value : Options{}; }

}  // namespace

tsr_status* tsr_run_check(const tsr_options* options, const tsr_model* model, const tsr_dataset* dataset) {
  return guard([&]() -> Status {
    return TrainingRun::check(options_or_none(options), model ? model->value : nullptr, dataset ? dataset->value : nullptr);
  });
}

tsr_status* tsr_run_resumed_folder(const char* name, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{name, "name"}}));
    TSR_ASSIGN_OR_RETURN(const std::string folder, resumed_folder(name));
    return put_text(folder, buffer, capacity, out_size);
  });
}

tsr_status* tsr_run_new(tsr_trainer* trainer, const tsr_options* options, tsr_run** out_run) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_run, "out_run"}}));
    TSR_ASSIGN_OR_RETURN(auto run, TrainingRun::create(trainer->value, options_or_none(options)));
    *out_run = new tsr_run{std::move(run), {}};
    return {};
  });
}

tsr_status* tsr_run_next(tsr_run* run, tsr_run_event* out_event) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{run, "run"}, {out_event, "out_event"}}));
    TSR_RETURN_IF_ERROR(check_struct(out_event));
    TSR_ASSIGN_OR_RETURN(const RunEvent event, run->value->next());
    run->details = dump(event.details);
    copy_struct({sizeof(tsr_run_event), static_cast<int32_t>(event.kind), event.step, event.loss, run->details.c_str(),
                 run->details.size()},
                out_event);
    return {};
  });
}

tsr_status* tsr_run_finish(tsr_run* run) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{run, "run"}}));
    return run->value->finish();
  });
}

void tsr_run_stop(tsr_run* run) {
  if (run) run->value->stop();
}

tsr_status* tsr_run_evaluate(tsr_run* run, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{run, "run"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(const Evaluation evaluation, run->value->evaluate());
    return give_text(evaluation_json(evaluation), out_text);
  });
}

tsr_status* tsr_run_save(tsr_run* run) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{run, "run"}}));
    return run->value->save();
  });
}

tsr_status* tsr_run_load_best(tsr_run* run) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{run, "run"}}));
    TSR_ASSIGN_OR_RETURN(const bool is_loaded, run->value->load_best());
    return is_loaded ? Status()
                     : Status(StatusCode::kNotFound,
                              "the run has no checkpoint of a best step: options keep_best and eval_every make one");
  });
}

tsr_status* tsr_run_report(const tsr_run* run, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{run, "run"}, {out_text, "out_text"}}));
    return give_text(run->value->report_json(), out_text);
  });
}

void tsr_run_free(tsr_run* run) {
  if (run && run->value->in_creating_process()) delete run;
}
