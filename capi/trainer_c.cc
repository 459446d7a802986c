// tsr_trainer, tsr_checkpoint.
#include "capi/guard.h"
#include "capi/public_structs.h"
#include "capi/token_batch.h"
#include "capi/work.h"
#include "engine/base/run_outputs.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

void copy_step(const StepInfo& info, tsr_step* out_step) {
  const PreferenceMetrics& preference = info.preference;
  copy_struct({sizeof(tsr_step), info.step, info.loss, info.grad_norm, info.lr, info.seconds,
               preference.chosen_reward, preference.rejected_reward, preference.margin, preference.accuracy},
              out_step);
}

// The option `optimizer` of tsr_trainer_save_state and _load_state.
Result<bool> has_optimizer(const tsr_options* options) {
  const Options none;
  OptionReader reader(options ? options->value : none, "state");
  const bool optimizer = reader.flag("optimizer", true);
  TSR_RETURN_IF_ERROR(reader.finish());
  return optimizer;
}

}  // namespace

tsr_status* tsr_trainer_new(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                            const tsr_options* options, tsr_trainer** out_trainer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_trainer, "out_trainer"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto trainer,
                         Trainer::create(runtime->value, model->value, dataset ? dataset->value : nullptr,
                                         options ? options->value : Options{}));
    *out_trainer = new tsr_trainer{std::move(trainer)};
    return {};
  });
}

tsr_status* tsr_trainer_begin(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                              const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_work, "out_work"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    const auto make = [runtime = runtime->value, model = model->value,
                       dataset = dataset ? dataset->value : nullptr,
                       chosen = options ? options->value : Options{}] {
      return Trainer::create(runtime, model, dataset, chosen);
    };
    return give_work(out_work, std::make_unique<Preparation>("preparation", runtime->value, make));
  });
}

tsr_status* tsr_trainer_finish(tsr_work* work, tsr_trainer** out_trainer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}, {out_trainer, "out_trainer"}}));
    TSR_ASSIGN_OR_RETURN(auto trainer, finish_work<Preparation>(work));
    *out_trainer = new tsr_trainer{std::move(trainer)};
    return {};
  });
}

tsr_status* tsr_trainer_feed(tsr_trainer* trainer, const char* input, const tsr_tensor* value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {input, "input"}, {value, "value"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->feed(input, value->value);
  });
}

tsr_status* tsr_trainer_step(tsr_trainer* trainer, tsr_step* out_step) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    if (out_step) TSR_RETURN_IF_ERROR(check_struct(out_step));
    TSR_ASSIGN_OR_RETURN(const StepInfo info, trainer->value->step());
    if (out_step) copy_step(info, out_step);
    return {};
  });
}

tsr_status* tsr_trainer_set_lr(tsr_trainer* trainer, double lr) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->set_lr(lr);
  });
}

tsr_status* tsr_trainer_evaluate(tsr_trainer* trainer, double* out_loss) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_loss, "out_loss"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const Evaluation found, trainer->value->evaluate());
    *out_loss = found.loss;
    return {};
  });
}

tsr_status* tsr_trainer_evaluate_all(tsr_trainer* trainer, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const Evaluation found, trainer->value->evaluate());
    return give_text(evaluation_json(found), out_text);
  });
}

tsr_status* tsr_trainer_forward(tsr_trainer* trainer, const tsr_batch* batch, float* items, size_t capacity,
                                size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {batch, "batch"}, {out_count, "out_count"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const TokenBatch read, token_batch(batch));
    TSR_ASSIGN_OR_RETURN(const std::vector<float> logprobs, trainer->value->forward(read));
    return put_array<float>(logprobs, items, capacity, out_count);
  });
}

tsr_status* tsr_trainer_forward_backward(tsr_trainer* trainer, const tsr_batch* batch, const char* loss,
                                         const tsr_options* options, double* out_loss, float* items,
                                         size_t capacity, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {batch, "batch"}, {loss, "loss"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const TokenBatch read, token_batch(batch));
    TSR_ASSIGN_OR_RETURN(const LossValue value,
                         trainer->value->forward_backward(read, loss, options ? options->value : Options{}));
    if (out_loss) *out_loss = value.loss;
    size_t count = 0;
    return put_array<float>(value.logprobs, items, capacity, out_count ? out_count : &count);
  });
}

tsr_status* tsr_trainer_backward(tsr_trainer* trainer, const tsr_batch* batch, const float* gradients,
                                 size_t count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {batch, "batch"}, {gradients, "gradients"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const TokenBatch read, token_batch(batch));
    return trainer->value->backward(read, std::span(gradients, count));
  });
}

tsr_status* tsr_trainer_optimizer_step(tsr_trainer* trainer, const tsr_options* options, tsr_step* out_step) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    if (out_step) TSR_RETURN_IF_ERROR(check_struct(out_step));
    TSR_ASSIGN_OR_RETURN(const StepInfo info,
                         trainer->value->optimizer_step(options ? options->value : Options{}));
    if (out_step) copy_step(info, out_step);
    return {};
  });
}

tsr_status* tsr_trainer_save(tsr_trainer* trainer, const char* folder) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->save(folder);
  });
}

tsr_status* tsr_checkpoint_begin(tsr_trainer* trainer, const char* folder, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(auto saving, Saving::create(trainer->value, folder));
    return give_work(out_work, std::move(saving));
  });
}

tsr_status* tsr_checkpoint_begin_snapshot(tsr_trainer* trainer, const char* folder, const tsr_options* notes,
                                          tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}, {out_work, "out_work"}}));
    TSR_ASSIGN_OR_RETURN(
        auto saving, Saving::create_of_snapshot(trainer->value, folder, notes ? notes->value : Options{}));
    return give_work(out_work, std::move(saving));
  });
}

tsr_status* tsr_checkpoint_finish(tsr_work* work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}}));
    return finish_work<Saving>(work);
  });
}

tsr_status* tsr_trainer_check_folder(const char* folder) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{folder, "folder"}}));
    return Trainer::check_folder(folder);
  });
}

tsr_status* tsr_trainer_resume(tsr_trainer* trainer, const char* folder) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->resume(folder);
  });
}

tsr_status* tsr_trainer_save_state(tsr_trainer* trainer, const char* folder, const tsr_options* options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const bool optimizer, has_optimizer(options));
    return trainer->value->save(folder, optimizer);
  });
}

tsr_status* tsr_trainer_load_state(tsr_trainer* trainer, const char* folder, const tsr_options* options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const bool optimizer, has_optimizer(options));
    return optimizer ? trainer->value->resume(folder) : trainer->value->load_parameters(folder);
  });
}

tsr_status* tsr_checkpoint_info(const char* folder, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{folder, "folder"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string info, checkpoint_json(folder));
    return give_text(std::move(info), out_text);
  });
}

tsr_status* tsr_run_check_paths(const char* out, const char* checkpoint, const char* resumed) {
  return guard([&]() -> Status {
    const auto text = [](const char* path) { return std::string(path ? path : ""); };
    return check_no_earlier_run(text(out), text(checkpoint), text(resumed));
  });
}

tsr_status* tsr_trainer_store(tsr_trainer* trainer, tsr_model* model) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {model, "model"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->store(*model->value);
  });
}

tsr_status* tsr_trainer_save_model(tsr_trainer* trainer, const tsr_model* model, const char* path,
                                   const tsr_options* options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {model, "model"}, {path, "path"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->save_model(model->value, path, options ? options->value : Options{});
  });
}

tsr_status* tsr_trainer_read(const tsr_trainer* trainer, const char* name, tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {name, "name"}, {out_tensor, "out_tensor"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(HostTensor value, trainer->value->read(name));
    *out_tensor = new tsr_tensor{std::move(value), nullptr, name};
    return {};
  });
}

tsr_status* tsr_trainer_write(tsr_trainer* trainer, const char* name, const tsr_tensor* value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {name, "name"}, {value, "value"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->write(name, value->value);
  });
}

tsr_status* tsr_trainer_report(const tsr_trainer* trainer, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return give_text(trainer->value->report_json(), out_text);
  });
}

tsr_status* tsr_trainer_take_trace(tsr_trainer* trainer, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return give_text(trainer->value->trace_json(), out_text);
  });
}

tsr_status* tsr_trainer_plan(const tsr_trainer* trainer, tsr_plan** out_plan) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_plan, "out_plan"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    *out_plan = new tsr_plan{trainer->value->plan()};
    return {};
  });
}

void tsr_trainer_cancel(tsr_trainer* trainer) {
  if (trainer && trainer->value->runtime()->in_creating_process()) trainer->value->cancel();
}

void tsr_trainer_free(tsr_trainer* trainer) {
  if (trainer && trainer->value->runtime()->in_creating_process()) delete trainer;
}
