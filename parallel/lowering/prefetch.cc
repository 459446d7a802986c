#include "parallel/lowering/prefetch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "parallel/lowering/touched_slots.h"

namespace tessera {

namespace {

// Hoister: the new order as rows, one per kernel: the transfers issued before it.
class Hoister {
 public:
  explicit Hoister(int32_t kernels) : kernels_(kernels) {}

  void add(Instruction&& instruction) {
    const TouchedSlots t = touched_slots(instruction);
    const bool is_kernel = std::holds_alternative<KernelInst>(instruction);
    const bool is_copy = std::holds_alternative<CopyInst>(instruction);
    const bool is_collective = std::holds_alternative<CollectiveInst>(instruction);
    // Rows are numbered by their final kernel; the last row is open.
    size_t row = rows_.size() - 1;
    if (is_copy || is_collective) {
      size_t earliest = row > static_cast<size_t>(kernels_) ? row - static_cast<size_t>(kernels_) : 0;
      if (is_collective) earliest = std::max(earliest, last_exchange_);
      for (const int32_t slot : t.reads) earliest = std::max(earliest, free_after(written_, slot));
      for (const int32_t slot : t.writes)
        earliest = std::max({earliest, free_after(written_, slot), free_after(read_, slot)});
      row = earliest;
    }
    if (!is_copy && !is_kernel) last_exchange_ = row;
    // A kernel releases its slots for the next row, a transfer for later instructions of its own row.
    const size_t after = is_kernel ? row + 1 : row;
    for (const int32_t slot : t.reads) note(read_, slot, after);
    for (const int32_t slot : t.writes) note(written_, slot, after);
    if (is_kernel) {
      rows_[row].kernel = std::move(instruction);
      rows_.emplace_back();
    } else {
      rows_[row].before.push_back(std::move(instruction));
    }
  }

  std::vector<Instruction> take() {
    std::vector<Instruction> code;
    for (Row& row : rows_) {
      for (Instruction& instruction : row.before) code.push_back(std::move(instruction));
      if (row.kernel) code.push_back(std::move(*row.kernel));
    }
    return code;
  }

 private:
  static size_t free_after(const std::map<int32_t, size_t>& rows, int32_t slot) {
    const auto at = rows.find(slot);
    return at == rows.end() ? 0 : at->second;
  }
  static void note(std::map<int32_t, size_t>& rows, int32_t slot, size_t row) {
    size_t& at = rows[slot];
    at = std::max(at, row);
  }

  struct Row {
    std::vector<Instruction> before;
    std::optional<Instruction> kernel;  // the last row has none
  };

  int32_t kernels_;
  size_t last_exchange_ = 0;
  std::vector<Row> rows_ = std::vector<Row>(1);
  std::map<int32_t, size_t> read_, written_;
};

}  // namespace

void prefetch(EntryPoint& entry, int32_t kernels) {
  if (kernels <= 0) return;
  Hoister hoister(kernels);
  for (Instruction& instruction : entry.code) hoister.add(std::move(instruction));
  entry.code = hoister.take();
}

}  // namespace tessera
