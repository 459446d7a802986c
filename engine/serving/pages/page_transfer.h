// PageTransfer: copies positions between pages, and between pages and host memory, for every attention layer, and rows of state
// likewise, for every recurrent layer. A slot is the place of one position in a pool: page * page_size + offset; -1: none. There
// are two pools: pages of full attention and pages of windows. One thread at a time, between steps.
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
#include "graph/row_state.h"

namespace tessera {

class PageTransfer {
 public:
  // `runner`: of a program with the entries of serving_settings.h; it must outlive the transfer.
  PageTransfer(ProgramRunner& runner, const ServingSettings& settings);

  std::span<const PageState> states() const { return states_; }        // by name
  std::span<const RowState> row_states() const { return row_states_; }  // by name
  // Bytes of one position over all states; without `with_windows` only those of full-attention pages.
  int64_t row_bytes(bool with_windows) const { return with_windows ? row_bytes_ : full_row_bytes_; }
  int64_t slots() const { return slots_; }                       // slots per `read` or `write`, at most

  // Copies in the given order.
  Status copy(std::span<const PageCopy> copies);
  // Copies rows of state in the given order.
  Status copy(std::span<const StateCopy> copies);
  // Slots: the places of some positions in each pool; `windows` may be empty.
  struct Slots {
    std::vector<int32_t> pages, windows;
    bool with_windows = false;
  };
  // rows: [slots, states, KV, D], the states of the pools in use.
  Status read(const Slots& slots, std::span<std::byte> rows);
  Status write(const Slots& slots, std::span<const std::byte> rows);
  // state: a row of every state, in their order.
  Status read_row(int32_t row, std::span<std::byte> state);
  Status write_row(int32_t row, std::span<const std::byte> state);

 private:
  Status feed_slots(std::string_view entry, std::string_view input, std::span<const int32_t> slots,
                    int64_t count);
  // Feeds the slots of both pools; `input`: "from" or "slot".
  Status feed_both(std::string_view entry, std::string_view input, const Slots& slots, int64_t count);

  ProgramRunner& runner_;
  const int64_t page_size_, copied_, slots_;
  std::vector<PageState> states_;
  std::vector<RowState> row_states_;
  int64_t row_bytes_ = 0, full_row_bytes_ = 0, state_bytes_ = 0;
  std::vector<std::byte> scratch_;  // rows of a state
};

}  // namespace tessera
