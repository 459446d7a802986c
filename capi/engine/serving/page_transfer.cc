#include "capi/engine/serving/page_transfer.h"

#include <algorithm>
#include <cstring>

#include "graph/transform/row_adapters.h"

namespace tessera {

namespace {

std::string rows_name(const PageState& state) { return state.name + ".rows"; }

}  // namespace

PageTransfer::PageTransfer(ProgramRunner& runner, const ServingSettings& settings)
    : runner_(runner),
      page_size_(settings.page_size),
      copied_(copied_slots(settings)),
      slots_(stored_slots(settings)) {
  for (const auto& [name, type] : runner.states()) {  // [P, S, KV, D]
    if (is_adapter_state(name)) continue;
    states_.push_back({name, type.dtype, type.shape[2], type.shape[3]});
    row_bytes_ += states_.back().row_bytes();
  }
}

// Followed by -1 up to what the entry takes.
Status PageTransfer::feed_slots(std::string_view entry, std::string_view input,
                                std::span<const int32_t> slots, int64_t count) {
  std::vector<int32_t> fed(static_cast<size_t>(count), -1);
  std::ranges::copy(slots, fed.begin());
  const Shape shape = input == "from" ? Shape{count} : Shape{count, 1};
  return runner_.feed(entry, input, HostTensor{{DType::kI32, shape}, std::as_bytes(std::span(fed)), nullptr});
}

Status PageTransfer::copy(std::span<const PageCopy> copies) {
  std::vector<int32_t> from, to;
  const auto run = [&]() -> Status {
    if (from.empty()) return {};
    TSR_RETURN_IF_ERROR(feed_slots(kPageCopyEntry, "from", from, copied_));
    TSR_RETURN_IF_ERROR(feed_slots(kPageCopyEntry, "slot", to, copied_));
    from.clear();
    to.clear();
    return runner_.run(kPageCopyEntry);
  };
  for (const PageCopy& it : copies) {
    if (std::ssize(from) + it.count > copied_) TSR_RETURN_IF_ERROR(run());
    for (int64_t i = 0; i < it.count; ++i) {
      from.push_back(static_cast<int32_t>(it.from * page_size_ + i));
      to.push_back(static_cast<int32_t>(it.to * page_size_ + i));
    }
  }
  return run();
}

Status PageTransfer::read(std::span<const int32_t> slots, std::span<std::byte> rows) {
  TSR_CHECK(std::ssize(slots) <= slots_ && std::ssize(rows) == std::ssize(slots) * row_bytes_);
  TSR_RETURN_IF_ERROR(feed_slots(kPageReadEntry, "from", slots, slots_));
  TSR_RETURN_IF_ERROR(runner_.run(kPageReadEntry));
  std::byte* to = rows.data();
  for (const PageState& state : states_) {
    const int64_t bytes = state.row_bytes();
    scratch_.resize(static_cast<size_t>(slots_ * bytes));
    TSR_RETURN_IF_ERROR(runner_.session().fetch_into(kPageReadEntry, rows_name(state), scratch_));
    for (int64_t i = 0; i < std::ssize(slots); ++i)
      std::memcpy(to + i * row_bytes_, scratch_.data() + i * bytes, static_cast<size_t>(bytes));
    to += bytes;
  }
  return {};
}

Status PageTransfer::write(std::span<const int32_t> slots, std::span<const std::byte> rows) {
  TSR_CHECK(std::ssize(slots) <= slots_ && std::ssize(rows) == std::ssize(slots) * row_bytes_);
  TSR_RETURN_IF_ERROR(feed_slots(kPageWriteEntry, "slot", slots, slots_));
  const std::byte* from = rows.data();
  for (const PageState& state : states_) {
    const int64_t bytes = state.row_bytes();
    scratch_.assign(static_cast<size_t>(slots_ * bytes), std::byte{0});
    for (int64_t i = 0; i < std::ssize(slots); ++i)
      std::memcpy(scratch_.data() + i * bytes, from + i * row_bytes_, static_cast<size_t>(bytes));
    from += bytes;
    const TensorType type{state.dtype, {slots_, 1, state.heads, state.width}};
    TSR_RETURN_IF_ERROR(runner_.feed(kPageWriteEntry, rows_name(state), HostTensor{type, scratch_, nullptr}));
  }
  return runner_.run(kPageWriteEntry);
}

}  // namespace tessera
