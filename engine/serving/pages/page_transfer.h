// PageTransfer: copies positions between pages, and between pages and host memory,
// bit for bit in all attentions. A slot is page * page_size + offset in the page, for
// pages and window pages alike; -1: no slot. One thread at a time, between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/program/program_runner.h"
#include "engine/program/serving_settings.h"
#include "engine/serving/pages/page_pool.h"
#include "graph/page_state.h"

namespace tessera {

class PageTransfer {
 public:
  // `runner`: of a program with the entries of serving_settings.h; it must outlive the transfer.
  PageTransfer(ProgramRunner& runner, const ServingSettings& settings);

  std::span<const PageState> states() const { return states_; }  // by name
  // Bytes of one position over all states; without `with_windows` only those of full-attention pages.
  int64_t row_bytes(bool with_windows) const { return with_windows ? row_bytes_ : full_row_bytes_; }
  int64_t slots() const { return slots_; }                       // slots per `read` or `write`, at most

  // Copies in the given order.
  Status copy(std::span<const PageCopy> copies);
  // Slots: the same positions in both pools; `windows` may be empty.
  struct Slots {
    std::vector<int32_t> pages, windows;
    bool with_windows = false;
  };
  // Reads rows [slots, states, KV, D] of the states that have slots.
  Status read(const Slots& slots, std::span<std::byte> rows);
  Status write(const Slots& slots, std::span<const std::byte> rows);

 private:
  Status feed_slots(std::string_view entry, std::string_view input, std::span<const int32_t> slots,
                    int64_t count);
  // Feeds "from" or "slot", and the corresponding input of window pages.
  Status feed_both(std::string_view entry, std::string_view input, const Slots& slots, int64_t count);

  ProgramRunner& runner_;
  const int64_t page_size_, copied_, slots_;
  std::vector<PageState> states_;
  int64_t row_bytes_ = 0, full_row_bytes_ = 0;
  std::vector<std::byte> scratch_;  // rows of a state
};

}  // namespace tessera
