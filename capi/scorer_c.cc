// tsr_scorer.
#include <algorithm>
#include <span>

#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

// Texts: the caller's arrays; without lengths all ids are one text.
struct Texts {
  std::span<const int32_t> ids;
  std::span<const size_t> lengths;
};

Status check_texts(const int32_t* ids, size_t count, const size_t* lengths, size_t text_count) {
  if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
  if (lengths == nullptr && text_count > 1)
    return Status(StatusCode::kInvalidArgument, "lengths is NULL, which stands for one text");
  return {};
}

// `all`: the length of the only text.
Texts texts_of(const int32_t* ids, const size_t& all, const size_t* lengths, size_t text_count) {
  if (lengths == nullptr) return {{ids, all}, {&all, 1}};
  return {{ids, all}, {lengths, text_count}};
}

Status score(Scorer& scorer, const Texts& texts, float* out_logprobs, uint8_t* out_greedy) {
  const CancelScope scope(scorer.runtime().cancel_signal());
  TSR_RETURN_IF_ERROR(scorer.start(texts.ids, texts.lengths));
  TSR_RETURN_IF_ERROR(scorer.finish());
  TSR_ASSIGN_OR_RETURN(const std::span<const float> logprobs, scorer.logprobs());
  TSR_ASSIGN_OR_RETURN(const std::span<const uint8_t> greedy, scorer.greedy());
  std::ranges::copy(logprobs, out_logprobs);
  if (out_greedy != nullptr) std::ranges::copy(greedy, out_greedy);
  return {};
}

}  // namespace

tsr_status* tsr_scorer_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                           tsr_scorer** out_scorer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_scorer, "out_scorer"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto scorer,
                         Scorer::create(runtime->value, model->value, options ? options->value : Options{}));
    *out_scorer = new tsr_scorer{std::move(scorer)};
    return {};
  });
}

tsr_status* tsr_scorer_score(tsr_scorer* scorer, const int32_t* ids, size_t count, const size_t* lengths,
                             size_t text_count, float* out_logprobs, uint8_t* out_greedy) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{scorer, "scorer"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{out_logprobs, "out_logprobs"}}));
    TSR_RETURN_IF_ERROR(check_texts(ids, count, lengths, text_count));
    return score(*scorer->value, texts_of(ids, count, lengths, text_count), out_logprobs, out_greedy);
  });
}

tsr_status* tsr_scorer_start(tsr_scorer* scorer, const int32_t* ids, size_t count, const size_t* lengths,
                             size_t text_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{scorer, "scorer"}}));
    TSR_RETURN_IF_ERROR(check_texts(ids, count, lengths, text_count));
    const Texts texts = texts_of(ids, count, lengths, text_count);
    const CancelScope scope(scorer->value->runtime().cancel_signal());
    return scorer->value->start(texts.ids, texts.lengths);
  });
}

tsr_status* tsr_scorer_step(tsr_scorer* scorer, double* out_done) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{scorer, "scorer"}, {out_done, "out_done"}}));
    TSR_ASSIGN_OR_RETURN(*out_done, scorer->value->step());
    return {};
  });
}

tsr_status* tsr_scorer_logprobs(const tsr_scorer* scorer, float* items, size_t capacity, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{scorer, "scorer"}}));
    TSR_ASSIGN_OR_RETURN(const std::span<const float> logprobs, scorer->value->logprobs());
    return put_array<float>(logprobs, items, capacity, out_count);
  });
}

tsr_status* tsr_scorer_greedy(const tsr_scorer* scorer, uint8_t* items, size_t capacity, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{scorer, "scorer"}}));
    TSR_ASSIGN_OR_RETURN(const std::span<const uint8_t> greedy, scorer->value->greedy());
    return put_array<uint8_t>(greedy, items, capacity, out_count);
  });
}

tsr_status* tsr_scorer_report(const tsr_scorer* scorer, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{scorer, "scorer"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, scorer->value->report_json());
    return give_text(std::move(report), out_text);
  });
}

void tsr_scorer_cancel(tsr_scorer* scorer) {
  if (scorer && scorer->value->runtime().in_creating_process()) scorer->value->cancel();
}

void tsr_scorer_free(tsr_scorer* scorer) {
  if (scorer && scorer->value->runtime().in_creating_process()) delete scorer;
}

tsr_status* tsr_model_score(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                            const int32_t* ids, size_t count, const size_t* lengths, size_t text_count,
                            float* out_logprobs, uint8_t* out_greedy) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{out_logprobs, "out_logprobs"}}));
    TSR_RETURN_IF_ERROR(check_texts(ids, count, lengths, text_count));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(const auto scorer,
                         Scorer::create(runtime->value, model->value, options ? options->value : Options{}));
    return score(*scorer, texts_of(ids, count, lengths, text_count), out_logprobs, out_greedy);
  });
}
