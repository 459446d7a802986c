#include "engine/serving/pages/page_transfer.h"

#include <algorithm>
#include <cstring>

#include "graph/transform/row_adapters.h"
#include "graph/transform/serving.h"

namespace tessera {

namespace {

std::string rows_name(const PageState& state) { return state.name + ".rows"; }

}  // namespace

PageTransfer::PageTransfer(ProgramRunner& runner, const ServingSettings& settings)
    : runner_(runner),
      page_size_(settings.page_size),
      copied_(copied_slots(settings)),
      slots_(stored_slots(settings)) {
  const Graph& graph = *runner.record().entries.front().graph;
  const std::set<std::string> windows = window_states(graph), rows = tessera::row_states(graph);
  for (const auto& [name, type] : runner.states()) {
    if (is_adapter_state(name)) continue;
    if (rows.contains(name)) {  // [R, ...]
      const RowState& row = row_states_.emplace_back(RowState{name, {type.dtype, Shape(type.shape.dims().subspan(1))}});
      state_bytes_ += bytes(row.type);
      continue;
    }
    const PageState& state = states_.emplace_back(  // [P, S, KV, D]
        PageState{name, type.dtype, type.shape[2], type.shape[3], windows.contains(name)});
    row_bytes_ += state.row_bytes();
    if (!state.is_window) full_row_bytes_ += state.row_bytes();
  }
}

// Pads the slots with -1 to the entry's size.
Status PageTransfer::feed_slots(std::string_view entry, std::string_view input,
                                std::span<const int32_t> slots, int64_t count) {
  std::vector<int32_t> fed(static_cast<size_t>(count), -1);
  std::ranges::copy(slots, fed.begin());
  const Shape shape = input.ends_with("from") ? Shape{count} : Shape{count, 1};
  return runner_.feed(entry, input, HostTensor{{DType::kI32, shape}, std::as_bytes(std::span(fed)), nullptr});
}

Status PageTransfer::feed_both(std::string_view entry, std::string_view input, const Slots& slots,
                               int64_t count) {
  if (runner_.has_input(entry, input)) TSR_RETURN_IF_ERROR(feed_slots(entry, input, slots.pages, count));
  const std::string of_windows = "window_" + std::string(input);
  if (!runner_.has_input(entry, of_windows)) return {};
  return feed_slots(entry, of_windows, slots.windows, count);
}

Status PageTransfer::copy(std::span<const PageCopy> copies) {
  Slots from, to;
  const auto run = [&]() -> Status {
    if (from.pages.empty()) return {};
    TSR_RETURN_IF_ERROR(feed_both(kPageCopyEntry, "from", from, copied_));
    TSR_RETURN_IF_ERROR(feed_both(kPageCopyEntry, "slot", to, copied_));
    from = to = {};
    return runner_.run(kPageCopyEntry);
  };
  const auto slot = [&](int32_t page, int64_t place) {
    return page < 0 ? -1 : static_cast<int32_t>(page * page_size_ + place);
  };
  for (const PageCopy& it : copies) {
    if (std::ssize(from.pages) + it.count > copied_) TSR_RETURN_IF_ERROR(run());
    for (int64_t i = 0; i < it.count; ++i) {
      from.pages.push_back(slot(it.from, i));
      from.windows.push_back(slot(it.window_from, i));
      to.pages.push_back(slot(it.to, i));
      to.windows.push_back(slot(it.window_to, i));
    }
  }
  return run();
}

Status PageTransfer::copy(std::span<const StateCopy> copies) {
  std::vector<int32_t> from, to;
  const auto run = [&]() -> Status {
    if (from.empty()) return {};
    for (const auto& [name, rows] : {std::pair("from", &from), std::pair("to", &to)}) {
      rows->resize(static_cast<size_t>(kCopiedRows), -1);
      TSR_RETURN_IF_ERROR(runner_.feed(kRowCopyEntry, name,
                                       HostTensor{{DType::kI32, {kCopiedRows}}, std::as_bytes(std::span(*rows)), nullptr}));
    }
    from.clear(), to.clear();
    return runner_.run(kRowCopyEntry);
  };
  const auto contains = [](const std::vector<int32_t>& rows, int32_t row) { return std::ranges::find(rows, row) != rows.end(); };
  for (const StateCopy& it : copies) {
    // The copies of one run happen in any order, so none may read or write what another writes.
    if (std::ssize(from) == kCopiedRows || contains(to, it.from) || contains(to, it.to) || contains(from, it.to))
      TSR_RETURN_IF_ERROR(run());
    from.push_back(it.from);
    to.push_back(it.to);
  }
  return run();
}

Status PageTransfer::read(const Slots& slots, std::span<std::byte> rows) {
  const auto count = std::ssize(slots.pages);
  const int64_t row_bytes = this->row_bytes(slots.with_windows);
  TSR_CHECK(count <= slots_ && std::ssize(rows) == count * row_bytes);
  if (rows.empty()) return {};
  TSR_RETURN_IF_ERROR(feed_both(kPageReadEntry, "from", slots, slots_));
  TSR_RETURN_IF_ERROR(runner_.run(kPageReadEntry));
  std::byte* to = rows.data();
  for (const PageState& state : states_) {
    if (state.is_window && !slots.with_windows) continue;
    const int64_t bytes = state.row_bytes();
    scratch_.resize(static_cast<size_t>(slots_ * bytes));
    TSR_RETURN_IF_ERROR(runner_.session().fetch_into(kPageReadEntry, rows_name(state), scratch_));
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(to + i * row_bytes, scratch_.data() + i * bytes, static_cast<size_t>(bytes));
    to += bytes;
  }
  return {};
}

Status PageTransfer::write(const Slots& slots, std::span<const std::byte> rows) {
  const auto count = std::ssize(slots.pages);
  const int64_t row_bytes = this->row_bytes(slots.with_windows);
  TSR_CHECK(count <= slots_ && std::ssize(rows) == count * row_bytes);
  if (rows.empty()) return {};
  TSR_RETURN_IF_ERROR(feed_both(kPageWriteEntry, "slot", slots, slots_));
  const std::byte* from = rows.data();
  for (const PageState& state : states_) {
    const bool has_rows = slots.with_windows || !state.is_window;
    const int64_t bytes = state.row_bytes();
    scratch_.assign(static_cast<size_t>(slots_ * bytes), std::byte{0});
    for (int64_t i = 0; i < count && has_rows; ++i)
      std::memcpy(scratch_.data() + i * bytes, from + i * row_bytes, static_cast<size_t>(bytes));
    if (has_rows) from += bytes;
    const TensorType type{state.dtype, {slots_, 1, state.heads, state.width}};
    TSR_RETURN_IF_ERROR(runner_.feed(kPageWriteEntry, rows_name(state), HostTensor{type, scratch_, nullptr}));
  }
  return runner_.run(kPageWriteEntry);
}

Status PageTransfer::read_row(int32_t row, std::span<std::byte> state) {
  TSR_CHECK(std::ssize(state) == state_bytes_);
  for (const RowState& it : row_states_) {
    const auto size = static_cast<size_t>(bytes(it.type));
    TSR_RETURN_IF_ERROR(runner_.session().read_rows_into(it.name, row, state.first(size)));
    state = state.subspan(size);
  }
  return {};
}

Status PageTransfer::write_row(int32_t row, std::span<const std::byte> state) {
  TSR_CHECK(std::ssize(state) == state_bytes_);
  for (const RowState& it : row_states_) {
    TensorType type{it.type.dtype, {1}};
    for (const int64_t extent : it.type.shape.dims()) type.shape.push_back(extent);
    const auto size = static_cast<size_t>(bytes(type));
    TSR_RETURN_IF_ERROR(runner_.session().write_rows(it.name, row, HostTensor{type, state.first(size), nullptr}));
    state = state.subspan(size);
  }
  return {};
}

}  // namespace tessera
