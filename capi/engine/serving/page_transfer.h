// PageTransfer: moves positions of pages: from page to page, to the host and back, in all attentions at once and bit for bit.
// A slot is page * page_size + place in the page. One thread at a time, and between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "capi/engine/program_runner.h"
#include "capi/engine/serving/scheduler.h"
#include "capi/engine/serving/serving_settings.h"
#include "graph/page_state.h"

namespace tessera {

class PageTransfer {
 public:
  // Of a program with the entries of serving_settings.h; the runner outlives it.
  PageTransfer(ProgramRunner& runner, const ServingSettings& settings);

  std::span<const PageState> states() const { return states_; }  // by name
  int64_t row_bytes() const { return row_bytes_; }               // of a position in all states
  int64_t slots() const { return slots_; }                       // that `read` and `write` take at most

  // In this order.
  Status copy(std::span<const PageCopy> copies);
  // rows [slots, states, KV, D]
  Status read(std::span<const int32_t> slots, std::span<std::byte> rows);
  Status write(std::span<const int32_t> slots, std::span<const std::byte> rows);

 private:
  Status feed_slots(std::string_view entry, std::string_view input, std::span<const int32_t> slots,
                    int64_t count);

  ProgramRunner& runner_;
  const int64_t page_size_, copied_, slots_;
  std::vector<PageState> states_;
  int64_t row_bytes_ = 0;
  std::vector<std::byte> scratch_;  // rows of a state
};

}  // namespace tessera
