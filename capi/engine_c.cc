// tsr_engine.
#include <span>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

static_assert(TSR_EVENT_TOKEN == static_cast<int>(ServingEvent::Kind::kToken));
static_assert(TSR_EVENT_LOGITS == static_cast<int>(ServingEvent::Kind::kLogits));
static_assert(TSR_FINISH_CANCELLED == static_cast<int>(ServingEvent::Finish::kCancelled));
static_assert(TSR_FINISH_FAILED == static_cast<int>(ServingEvent::Finish::kFailed));

namespace {

const Options& options_or_none(const tsr_options* options) {
  static const Options none;
  return options ? options->value : none;
}

}  // namespace

tsr_status* tsr_engine_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                           tsr_engine** out_engine) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_engine, "out_engine"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto engine, Engine::create(runtime->value, model->value, options_or_none(options)));
    *out_engine = new tsr_engine{std::move(engine), {}, {}};
    return {};
  });
}

tsr_status* tsr_engine_new_for_trainer(tsr_trainer* trainer, const tsr_options* options,
                                       tsr_engine** out_engine) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{trainer, "trainer"}, {out_engine, "out_engine"}}));
    const CancelScope scope(trainer->value->runtime()->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto engine, Engine::create(trainer->value, options_or_none(options)));
    *out_engine = new tsr_engine{std::move(engine), {}, {}};
    return {};
  });
}

tsr_status* tsr_engine_submit(tsr_engine* engine, const tsr_options* options, const char* prompt, size_t size,
                              int64_t* out_request) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {prompt, "prompt"}, {out_request, "out_request"}}));
    TSR_ASSIGN_OR_RETURN(*out_request,
                         engine->value->submit(text_of(prompt, size), options_or_none(options)));
    return {};
  });
}

tsr_status* tsr_engine_submit_tokens(tsr_engine* engine, const tsr_options* options, const int32_t* ids,
                                     size_t count, int64_t* out_request) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {ids, "ids"}, {out_request, "out_request"}}));
    TSR_ASSIGN_OR_RETURN(*out_request, engine->value->submit_tokens(std::vector<int32_t>(ids, ids + count),
                                                                    options_or_none(options)));
    return {};
  });
}

tsr_status* tsr_engine_submit_messages(tsr_engine* engine, const tsr_options* options, const char* messages,
                                       size_t size, int64_t* out_request) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {messages, "messages"}, {out_request, "out_request"}}));
    TSR_ASSIGN_OR_RETURN(*out_request,
                         engine->value->submit_messages(text_of(messages, size), options_or_none(options)));
    return {};
  });
}

tsr_status* tsr_engine_submit_sequence(tsr_engine* engine, const tsr_options* options,
                                       const tsr_sequence* sequence, const int32_t* ids, size_t count,
                                       int64_t* out_request) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {sequence, "sequence"}, {out_request, "out_request"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    TSR_ASSIGN_OR_RETURN(*out_request, engine->value->submit_sequence(sequence->value, {ids, count},
                                                                      options_or_none(options)));
    return {};
  });
}

tsr_status* tsr_engine_take_sequence(tsr_engine* engine, int64_t request, int32_t index,
                                     tsr_sequence** out_sequence) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {out_sequence, "out_sequence"}}));
    TSR_ASSIGN_OR_RETURN(KeptSequence sequence, engine->value->take_sequence(request, index));
    *out_sequence = new tsr_sequence{std::move(sequence)};
    return {};
  });
}

tsr_status* tsr_engine_take_embedding(tsr_engine* engine, int64_t request, float* items, size_t capacity,
                                      size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}}));
    const std::span<float> out(items, items == nullptr ? 0 : capacity);
    TSR_ASSIGN_OR_RETURN(const size_t count, engine->value->take_embedding(request, out));
    if (out_count) *out_count = count;
    return {};
  });
}

tsr_status* tsr_engine_embedding_width(const tsr_engine* engine, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {out_count, "out_count"}}));
    TSR_ASSIGN_OR_RETURN(*out_count, engine->value->embedding_width());
    return {};
  });
}

tsr_status* tsr_engine_take_scores(tsr_engine* engine, int64_t request, float* items, size_t capacity,
                                   uint8_t* greedy, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}}));
    const size_t room = items == nullptr ? 0 : capacity;
    TSR_ASSIGN_OR_RETURN(const size_t count,
                         engine->value->take_scores(request, {items, room}, {greedy, greedy ? room : 0}));
    if (out_count) *out_count = count;
    return {};
  });
}

tsr_status* tsr_engine_save_sequence(tsr_engine* engine, const tsr_sequence* sequence, const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {sequence, "sequence"}, {path, "path"}}));
    return engine->value->save_sequence(sequence->value, path);
  });
}

tsr_status* tsr_engine_restore_sequence(tsr_engine* engine, const char* path, tsr_sequence** out_sequence) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {path, "path"}, {out_sequence, "out_sequence"}}));
    TSR_ASSIGN_OR_RETURN(KeptSequence sequence, engine->value->restore_sequence(path));
    *out_sequence = new tsr_sequence{std::move(sequence)};
    return {};
  });
}

tsr_status* tsr_sequence_fork(const tsr_sequence* sequence, tsr_sequence** out_sequence) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{sequence, "sequence"}, {out_sequence, "out_sequence"}}));
    *out_sequence = new tsr_sequence{sequence->value};
    return {};
  });
}

tsr_status* tsr_sequence_rewind(tsr_sequence* sequence, size_t count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{sequence, "sequence"}}));
    std::vector<int32_t>& tokens = sequence->value.tokens;
    if (count < 1 || count > tokens.size())
      return Status(
          StatusCode::kInvalidArgument,
          format("count is {}, the sequence has {} tokens: wanted 1 to as many", count, tokens.size()));
    tokens.resize(count);
    return {};
  });
}

tsr_status* tsr_sequence_tokens(const tsr_sequence* sequence, int32_t* items, size_t capacity,
                                size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{sequence, "sequence"}}));
    return put_array<int32_t>(sequence->value.tokens, items, capacity, out_count);
  });
}

void tsr_sequence_free(tsr_sequence* sequence) { delete sequence; }

tsr_status* tsr_engine_load_adapter(tsr_engine* engine, const char* path, int64_t* out_adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {path, "path"}, {out_adapter, "out_adapter"}}));
    TSR_ASSIGN_OR_RETURN(*out_adapter, engine->value->load_adapter(path));
    return {};
  });
}

tsr_status* tsr_engine_load_adapter_from_model(tsr_engine* engine, const tsr_model* model, int64_t* out_adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {model, "model"}, {out_adapter, "out_adapter"}}));
    TSR_ASSIGN_OR_RETURN(*out_adapter, engine->value->load_adapter(*model->value));
    return {};
  });
}

tsr_status* tsr_engine_load_adapter_from_trainer(tsr_engine* engine, tsr_trainer* trainer, int64_t* out_adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {trainer, "trainer"}, {out_adapter, "out_adapter"}}));
    TSR_ASSIGN_OR_RETURN(*out_adapter, engine->value->load_adapter(*trainer->value));
    return {};
  });
}

tsr_status* tsr_engine_drop_adapter(tsr_engine* engine, int64_t adapter) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}}));
    return engine->value->drop_adapter(adapter);
  });
}

tsr_status* tsr_engine_next(tsr_engine* engine, double timeout_s, tsr_event* out_event) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {out_event, "out_event"}}));
    TSR_RETURN_IF_ERROR(check_struct(out_event));
    TSR_ASSIGN_OR_RETURN(ServingEvent event, engine->value->next(timeout_s));
    engine->details = engine->value->details_json(event);
    engine->text = std::move(event.text);
    copy_struct({sizeof(tsr_event), static_cast<int32_t>(event.kind), static_cast<int32_t>(event.finish),
                 event.request, event.index, event.token, engine->text.c_str(), engine->text.size(),
                 engine->details.c_str(), engine->details.size()},
                out_event);
    return {};
  });
}

tsr_status* tsr_engine_descriptor(tsr_engine* engine, int32_t* out_descriptor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {out_descriptor, "out_descriptor"}}));
    TSR_ASSIGN_OR_RETURN(*out_descriptor, engine->value->descriptor());
    return {};
  });
}

tsr_status* tsr_engine_logits(const tsr_engine* engine, int64_t request, int32_t index, float* items,
                              size_t capacity, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {out_count, "out_count"}}));
    TSR_ASSIGN_OR_RETURN(const std::vector<float> logits, engine->value->logits(request, index));
    return put_array<float>(logits, items, capacity, out_count);
  });
}

tsr_status* tsr_engine_answer(tsr_engine* engine, int64_t request, int32_t index, const float* items,
                              size_t count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}}));
    if (items == nullptr && count > 0) TSR_RETURN_IF_ERROR(required({{items, "items"}}));
    std::vector<float> logits;
    if (items != nullptr) logits.assign(items, items + count);
    return engine->value->answer(request, index, std::move(logits));
  });
}

tsr_status* tsr_engine_report(const tsr_engine* engine, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{engine, "engine"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, engine->value->report_json());
    return give_text(std::move(report), out_text);
  });
}

void tsr_engine_cancel(tsr_engine* engine, int64_t request) {
  if (engine) engine->value->cancel(request);
}

void tsr_engine_free(tsr_engine* engine) {
  if (engine && engine->value->runtime().in_creating_process()) delete engine;
}
