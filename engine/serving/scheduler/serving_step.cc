#include "engine/serving/scheduler/serving_step.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "graph/transform/draft_block.h"

namespace tessera {

namespace {

HostTensor view(std::span<const int32_t> values, Shape shape) {
  return HostTensor{{DType::kI32, shape}, std::as_bytes(values), nullptr};
}

}  // namespace

ServingStep::ServingStep(const ServingEntry& entry) : entry_(entry) {
  const auto tokens = static_cast<size_t>(entry.tokens);
  ids_.assign(tokens, 0);
  position_.assign(tokens, 0);
  row_.assign(tokens, -1);
  slot_.assign(tokens, -1);
  window_slot_.assign(tokens, -1);
  adapter_.assign(tokens, -1);
  wanted_.assign(static_cast<size_t>(entry.wanted), -1);
}

void ServingStep::add(const Token& token) {
  ids_[tokens_] = token.id;
  row_[tokens_] = token.row;
  position_[tokens_] = token.position;
  slot_[tokens_] = token.slot;
  window_slot_[tokens_] = token.window_slot;
  adapter_[tokens_] = token.adapter_slot;
  ++tokens_;
}

void ServingStep::add_hidden(std::span<const float> rows, size_t width) {
  hidden_width_ = width;
  hidden_.insert(hidden_.end(), rows.begin(), rows.end());
}

void ServingStep::want() { wanted_[chosen_++] = static_cast<int32_t>(tokens_) - 1; }

Result<double> ServingStep::run(ProgramRunner& runner, const PageTables& tables, int64_t rows,
                                int64_t vocabulary, std::vector<float>& logits) const {
  const auto feed = [&](std::string_view name, std::span<const int32_t> values, const Shape& shape) {
    return runner.feed(entry_.name, name, view(values, shape));
  };
  const Shape per_token{1, entry_.tokens};
  TSR_RETURN_IF_ERROR(feed("tokens", ids_, per_token));
  TSR_RETURN_IF_ERROR(feed("row", row_, per_token));
  TSR_RETURN_IF_ERROR(feed("positions", position_, per_token));
  if (runner.has_input(entry_.name, "adapter")) TSR_RETURN_IF_ERROR(feed("adapter", adapter_, per_token));
  const Shape per_row{rows, std::ssize(tables.pages) / rows};
  if (runner.has_input(entry_.name, "slot")) {
    TSR_RETURN_IF_ERROR(feed("slot", slot_, per_token));
    TSR_RETURN_IF_ERROR(feed("page_table", tables.pages, per_row));
  }
  if (runner.has_input(entry_.name, "window_slot")) {
    TSR_RETURN_IF_ERROR(feed("window_slot", window_slot_, per_token));
    TSR_RETURN_IF_ERROR(feed("window_page_table", tables.windows, per_row));
  }
  if (runner.has_input(entry_.name, "rope_row"))
    TSR_RETURN_IF_ERROR(feed("rope_row", std::span(&rope_row_, 1), Shape{1}));
  if (hidden_width_ > 0) {
    std::vector<float> hidden = hidden_;
    hidden.resize(static_cast<size_t>(entry_.tokens) * hidden_width_);  // zeros for padding
    const HostTensor given{{DType::kF32, {1, entry_.tokens, static_cast<int64_t>(hidden_width_)}},
                           std::as_bytes(std::span(std::as_const(hidden))), nullptr};
    TSR_RETURN_IF_ERROR(runner.feed(entry_.name, kDraftHidden, given));
  }
  TSR_RETURN_IF_ERROR(feed("wanted", wanted_, Shape{entry_.wanted}));
  const auto begin = std::chrono::steady_clock::now();
  TSR_RETURN_IF_ERROR(runner.run(entry_.name));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (chosen_ == 0) return seconds;
  logits.resize(static_cast<size_t>(entry_.wanted * vocabulary));
  TSR_RETURN_IF_ERROR(
      runner.session().fetch_into(entry_.name, "logits", std::as_writable_bytes(std::span(logits))));
  return seconds;
}

Status ServingStep::fetch_hidden(ProgramRunner& runner, size_t width, std::vector<float>& hidden) const {
  hidden.resize(static_cast<size_t>(entry_.tokens) * width);
  return runner.session().fetch_into(entry_.name, "hidden", std::as_writable_bytes(std::span(hidden)));
}

}  // namespace tessera
