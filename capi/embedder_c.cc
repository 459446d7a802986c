// tsr_embedder.
#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

// The texts that lie one after another in `text`.
Result<std::vector<std::string_view>> texts_of(const char* text, size_t size, const size_t* lengths,
                                               size_t text_count) {
  if (size > 0) TSR_RETURN_IF_ERROR(required({{text, "text"}}));
  if (text_count > 0) TSR_RETURN_IF_ERROR(required({{lengths, "lengths"}}));
  std::vector<std::string_view> texts;
  std::string_view rest(text == nullptr ? "" : text, size);
  for (size_t i = 0; i < text_count; ++i) {
    if (lengths[i] > rest.size())
      return Status(StatusCode::kInvalidArgument,
                    format("lengths[{}] is {}, {} of {} bytes are left", i, lengths[i], rest.size(), size));
    texts.push_back(rest.substr(0, lengths[i]));
    rest.remove_prefix(lengths[i]);
  }
  if (!rest.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("there are {} bytes of text, the lengths are of {}", size, size - rest.size()));
  return texts;
}

}  // namespace

tsr_status* tsr_embedder_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                             tsr_embedder** out_embedder) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_embedder, "out_embedder"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(
        auto embedder, Embedder::create(runtime->value, model->value, options ? options->value : Options{}));
    *out_embedder = new tsr_embedder{std::move(embedder)};
    return {};
  });
}

tsr_status* tsr_embedder_width(const tsr_embedder* embedder, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}, {out_count, "out_count"}}));
    *out_count = embedder->value->width();
    return {};
  });
}

tsr_status* tsr_embedder_embed(tsr_embedder* embedder, const char* text, size_t size, const size_t* lengths,
                               size_t text_count, float* items, size_t capacity, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}}));
    TSR_ASSIGN_OR_RETURN(const auto texts, texts_of(text, size, lengths, text_count));
    const CancelScope scope(embedder->value->runtime().cancel_signal());
    TSR_RETURN_IF_ERROR(embedder->value->start(texts));
    TSR_RETURN_IF_ERROR(embedder->value->finish());
    TSR_ASSIGN_OR_RETURN(const std::span<const float> rows, embedder->value->rows());
    return put_array(rows, items, capacity, out_count);
  });
}

tsr_status* tsr_embedder_start(tsr_embedder* embedder, const char* text, size_t size, const size_t* lengths,
                               size_t text_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}}));
    TSR_ASSIGN_OR_RETURN(const auto texts, texts_of(text, size, lengths, text_count));
    const CancelScope scope(embedder->value->runtime().cancel_signal());
    return embedder->value->start(texts);
  });
}

tsr_status* tsr_embedder_start_ids(tsr_embedder* embedder, const int32_t* ids, size_t count,
                                   const size_t* lengths, size_t text_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    if (text_count > 0) TSR_RETURN_IF_ERROR(required({{lengths, "lengths"}}));
    return embedder->value->start_ids({ids, count}, {lengths, text_count});
  });
}

tsr_status* tsr_embedder_step(tsr_embedder* embedder, double* out_done) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}, {out_done, "out_done"}}));
    TSR_ASSIGN_OR_RETURN(*out_done, embedder->value->step());
    return {};
  });
}

tsr_status* tsr_embedder_rows(const tsr_embedder* embedder, float* items, size_t capacity,
                              size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}}));
    TSR_ASSIGN_OR_RETURN(const std::span<const float> rows, embedder->value->rows());
    return put_array<float>(rows, items, capacity, out_count);
  });
}

tsr_status* tsr_embedder_report(const tsr_embedder* embedder, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{embedder, "embedder"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, embedder->value->report_json());
    return give_text(std::move(report), out_text);
  });
}

void tsr_embedder_cancel(tsr_embedder* embedder) {
  if (embedder && embedder->value->runtime().in_creating_process()) embedder->value->cancel();
}

void tsr_embedder_free(tsr_embedder* embedder) {
  if (embedder && embedder->value->runtime().in_creating_process()) delete embedder;
}
