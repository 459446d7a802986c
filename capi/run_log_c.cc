// tsr_run_log: the C functions.
#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_run_log_new(tsr_trainer* trainer, const tsr_options* options, tsr_run_log** out_log) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_log, "out_log"}}));
    TSR_ASSIGN_OR_RETURN(auto log, RunLog::create(trainer->value, options ? options->value : Options{}));
    *out_log = new tsr_run_log{std::move(log)};
    return {};
  });
}

tsr_status* tsr_run_log_step(tsr_run_log* log) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}}));
    return log->value->add_step();
  });
}

tsr_status* tsr_run_log_evaluation(tsr_run_log* log, double loss, double accuracy) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}}));
    return log->value->add_evaluation(loss, accuracy);
  });
}

tsr_status* tsr_run_log_value(tsr_run_log* log, const char* name, double value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}, {name, "name"}}));
    return log->value->add_value(name, value);
  });
}

tsr_status* tsr_run_log_sample(tsr_run_log* log, const char* prompt, const char* text, size_t size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}, {prompt, "prompt"}, {text, "text"}}));
    return log->value->add_sample(prompt, text_of(text, size));
  });
}

tsr_status* tsr_run_log_checkpoint(tsr_run_log* log, const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}, {path, "path"}}));
    return log->value->add_checkpoint(path);
  });
}

tsr_status* tsr_run_log_summary(const tsr_run_log* log, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}, {out_text, "out_text"}}));
    return give_text(log->value->summary_json(), out_text);
  });
}

tsr_status* tsr_run_log_finish(tsr_run_log* log, const char* outcome) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{log, "log"}}));
    return log->value->finish(outcome ? outcome : "");
  });
}

void tsr_run_log_free(tsr_run_log* log) {
  if (log && log->value->in_creating_process()) delete log;
}
