// tsr_adapter_trainer.
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"
#include "capi/token_batch.h"
#include "engine/training/adapter_trainer.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

Options given(const tsr_options* options) { return options ? options->value : Options{}; }

}  // namespace

tsr_status* tsr_adapter_trainer_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                    tsr_adapter_trainer** out_trainer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_trainer, "out_trainer"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto made, AdapterTrainer::create(runtime->value, model->value, given(options)));
    *out_trainer = new tsr_adapter_trainer{std::move(made), {}};
    return {};
  });
}

tsr_status* tsr_adapter_trainer_add(tsr_adapter_trainer* trainer, const tsr_options* options, int64_t* out_adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_adapter, "out_adapter"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(*out_adapter, trainer->value->add(given(options)));
    return {};
  });
}

tsr_status* tsr_adapter_trainer_drop(tsr_adapter_trainer* trainer, int64_t adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->drop(adapter);
  });
}

tsr_status* tsr_adapter_trainer_forward(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_batch* batch,
                                        int64_t* out_pass) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {batch, "batch"}, {out_pass, "out_pass"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const TokenBatch read, token_batch(batch));
    TSR_ASSIGN_OR_RETURN(*out_pass, trainer->value->queue_forward(adapter, read));
    return {};
  });
}

tsr_status* tsr_adapter_trainer_forward_backward(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_batch* batch,
                                                 const char* loss, const tsr_options* options, int64_t* out_pass) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{trainer, "trainer"}, {batch, "batch"}, {loss, "loss"}, {out_pass, "out_pass"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const TokenBatch read, token_batch(batch));
    TSR_ASSIGN_OR_RETURN(*out_pass, trainer->value->queue_loss(adapter, read, loss, given(options)));
    return {};
  });
}

tsr_status* tsr_adapter_trainer_backward(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_batch* batch,
                                         const float* gradients, size_t count, int64_t* out_pass) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{trainer, "trainer"}, {batch, "batch"}, {gradients, "gradients"}, {out_pass, "out_pass"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(const TokenBatch read, token_batch(batch));
    TSR_ASSIGN_OR_RETURN(*out_pass, trainer->value->queue_gradients(adapter, read, std::span(gradients, count)));
    return {};
  });
}

tsr_status* tsr_adapter_trainer_update(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_options* options,
                                       int64_t* out_pass) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_pass, "out_pass"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(*out_pass, trainer->value->queue_update(adapter, given(options)));
    return {};
  });
}

tsr_status* tsr_adapter_trainer_cancel_pass(tsr_adapter_trainer* trainer, int64_t pass) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->cancel_pass(pass);
  });
}

tsr_status* tsr_adapter_trainer_next(tsr_adapter_trainer* trainer, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(std::optional<FinishedPass> found, trainer->value->next());
    TSR_RETURN_IF_ERROR(give_text(found ? to_json(*found) : std::string(), out_text));
    trainer->logprobs = found ? std::move(found->logprobs) : std::vector<float>();
    return {};
  });
}

tsr_status* tsr_adapter_trainer_logprobs(const tsr_adapter_trainer* trainer, float* items, size_t capacity,
                                         size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_count, "out_count"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return put_array<float>(trainer->logprobs, items, capacity, out_count);
  });
}

tsr_status* tsr_adapter_trainer_save(tsr_adapter_trainer* trainer, int64_t adapter, const char* folder) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return trainer->value->save(adapter, folder);
  });
}

tsr_status* tsr_adapter_trainer_load(tsr_adapter_trainer* trainer, const char* folder, const tsr_options* options,
                                     int64_t* out_adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {folder, "folder"}, {out_adapter, "out_adapter"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    const Options all = given(options);
    OptionReader reader(all, "state");
    const bool optimizer = reader.flag("optimizer", true);
    TSR_RETURN_IF_ERROR(reader.finish());
    TSR_ASSIGN_OR_RETURN(*out_adapter, trainer->value->load(folder, optimizer));
    return {};
  });
}

tsr_status* tsr_adapter_trainer_model(tsr_adapter_trainer* trainer, int64_t adapter, tsr_model** out_model) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_model, "out_model"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    TSR_ASSIGN_OR_RETURN(auto model, trainer->value->model_of(adapter));
    *out_model = new tsr_model{std::move(model)};
    return {};
  });
}

tsr_status* tsr_adapter_trainer_report(const tsr_adapter_trainer* trainer, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(trainer->value->usable());
    return give_text(trainer->value->report_json(), out_text);
  });
}

void tsr_adapter_trainer_cancel(tsr_adapter_trainer* trainer) {
  if (trainer && trainer->value->runtime().in_creating_process()) trainer->value->cancel();
}

void tsr_adapter_trainer_free(tsr_adapter_trainer* trainer) {
  if (trainer && trainer->value->runtime().in_creating_process()) delete trainer;
}
