// tsr_generator.
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"

using namespace tessera;
using namespace tessera::capi;

static_assert(TSR_PENDING == static_cast<int>(TextPiece::Kind::kPending));
static_assert(TSR_END == static_cast<int>(TextPiece::Kind::kEnd));
static_assert(TSR_FINISH_CANCELLED == static_cast<int>(Finish::kCancelled));

tsr_status* tsr_generator_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                              tsr_generator** out_generator) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_generator, "out_generator"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto generator, Generator::create(runtime->value, model->value,
                                                           options ? options->value : Options{}));
    *out_generator = new tsr_generator{std::move(generator), {}};
    return {};
  });
}

tsr_status* tsr_generator_new_for_trainer(tsr_trainer* trainer, const tsr_options* options,
                                          tsr_generator** out_generator) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_generator, "out_generator"}}));
    const CancelScope scope(trainer->value->runtime()->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto generator,
                         Generator::create(trainer->value, options ? options->value : Options{}));
    *out_generator = new tsr_generator{std::move(generator), {}};
    return {};
  });
}

tsr_status* tsr_generator_start(tsr_generator* generator, const char* prompt, size_t size) {
  return tsr_generator_start_with(generator, nullptr, prompt, size);
}

tsr_status* tsr_generator_start_with(tsr_generator* generator, const tsr_options* options, const char* prompt,
                                     size_t size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{generator, "generator"}, {prompt, "prompt"}}));
    return generator->value->start(text_of(prompt, size), options ? options->value : Options{});
  });
}

tsr_status* tsr_generator_start_tokens(tsr_generator* generator, const int32_t* ids, size_t count) {
  return tsr_generator_start_tokens_with(generator, nullptr, ids, count);
}

tsr_status* tsr_generator_start_tokens_with(tsr_generator* generator, const tsr_options* options,
                                            const int32_t* ids, size_t count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{generator, "generator"}, {ids, "ids"}}));
    return generator->value->start(std::vector<int32_t>(ids, ids + count),
                                   options ? options->value : Options{});
  });
}

tsr_status* tsr_generator_next(tsr_generator* generator, double timeout_s, tsr_piece* out_piece) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{generator, "generator"}, {out_piece, "out_piece"}}));
    TSR_RETURN_IF_ERROR(check_struct(out_piece));
    TSR_ASSIGN_OR_RETURN(TextPiece piece, generator->value->next(timeout_s));
    generator->text = std::move(piece.text);
    copy_struct({sizeof(tsr_piece), static_cast<int32_t>(piece.kind), static_cast<int32_t>(piece.finish),
                 piece.token, generator->text.c_str(), generator->text.size()},
                out_piece);
    return {};
  });
}

tsr_status* tsr_generator_report(const tsr_generator* generator, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{generator, "generator"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, generator->value->report_json());
    return give_text(std::move(report), out_text);
  });
}

tsr_status* tsr_generator_take_trace(tsr_generator* generator, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{generator, "generator"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string trace, generator->value->trace_json());
    return give_text(std::move(trace), out_text);
  });
}

tsr_status* tsr_generator_logits(tsr_generator* generator, tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{generator, "generator"}, {out_tensor, "out_tensor"}}));
    TSR_ASSIGN_OR_RETURN(HostTensor value, generator->value->logits());
    *out_tensor = new tsr_tensor{std::move(value), nullptr, "logits"};
    return {};
  });
}

void tsr_generator_cancel(tsr_generator* generator) {
  if (generator) generator->value->cancel();
}

void tsr_generator_free(tsr_generator* generator) {
  if (generator && generator->value->runtime().in_creating_process()) delete generator;
}
