// SessionValues: a session's named tensors: their pieces on the ranks, whether
// they are written, and copies in and out. One thread at a time, not during a run.
//
// With several processes, each writes its own pieces of the same value, and copies out are collective: a piece
// that not all processes hold goes from its owner to the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/program.h"
#include "runtime/box_owners.h"
#include "runtime/executable_impl.h"
#include "runtime/rank_executor.h"
#include "runtime/session_comms.h"
#include "runtime/session_memory.h"

namespace tessera {

// SessionTensor: a named tensor and its pieces on the ranks.
struct SessionTensor {
  std::string name;
  TensorType global;
  SlotKind kind = SlotKind::kParameter;
  std::vector<std::pair<size_t, const Binding*>> bindings;  // of the ranks that live here, by ascending index of Program::ranks
  bool written = false;
};

// SessionEntry: an entry point and its index on each rank that lives here.
struct SessionEntry {
  std::string name;
  std::vector<int32_t> index;  // by Program::ranks; -1: the rank lacks the entry
  std::vector<SessionTensor> inputs, outputs;
  bool ran = false;  // completed at least once; before that its outputs are empty
};

class SessionValues {
 public:
  // Reads the bindings of the executable's program. Borrows `ranks`, which may be filled later, and `memory`.
  SessionValues(Executable::Impl& executable, const RankExecutors& ranks, SessionComms& comms, SessionMemory& memory);

  // An error names the nearest known names.
  Result<SessionEntry*> find_entry(std::string_view name);
  Result<SessionTensor*> find_tensor(std::string_view name);  // parameters, states, constants
  Result<SessionTensor*> find_input(std::string_view entry, std::string_view name);
  const SessionEntry* look_up_entry(std::string_view name) const;  // null: there is none
  // kFailedPrecondition before the entry's first run.
  Result<SessionTensor*> find_output(std::string_view entry, std::string_view name);

  // Checks that all parameters, constants and inputs of this entry have a value.
  Status check_written(const SessionEntry& entry) const;

  // Adds the tensors that only other processes have. Collective over the channel's world.
  Status learn_names(Channel& channel);
  // The types of all tensors of a kind, by name.
  std::map<std::string, TensorType> types(SlotKind kind) const;

  // Call after the ranks have memory: shared weights have values.
  void note_shared();
  bool is_shared(const SessionTensor& tensor) const;
  bool has_rows(const SessionTensor& placed) const;  // on all ranks

  Status copy_in(SessionTensor& tensor, const HostTensor& value);
  // Copies rows of a state, from `first` on.
  Status copy_rows_in(const SessionTensor& tensor, int64_t first, const HostTensor& value);
  Status copy_out(const SessionTensor& tensor, std::span<std::byte> out);
  // Copies as many rows of a state as `out` has bytes for, from `first` on.
  Status copy_rows_out(const SessionTensor& tensor, int64_t first, std::span<std::byte> out);
  Result<HostTensor> read(const SessionTensor& tensor);
  Status zero_states();

 private:
  Status synchronize();
  // Copies the rows [first, first + rows.shape[0]) that the ranks hold, each box from its owner.
  Status copy_boxes_out(const SessionTensor& tensor, int64_t first, const TensorType& rows, std::span<std::byte> out);

  // Copies a box that some rank here holds.
  Status copy_box_out(const SessionTensor& tensor, const Box& box, int64_t first, const TensorType& rows, std::byte* out);
  Result<const std::vector<BoxOwner>*> owners_of(const SessionTensor& tensor, Channel& channel);
  Status copy_boxes_of_all(const SessionTensor& tensor, int64_t first, const TensorType& rows, std::span<std::byte> out,
                           Channel& channel);

  Executable::Impl& executable_;
  const Program& program_;
  const RankExecutors& ranks_;
  SessionComms& comms_;
  SessionMemory& memory_;
  std::vector<SessionTensor> tensors_;  // parameters, states, constants
  std::unordered_map<std::string, size_t> tensor_index_;
  std::vector<SessionEntry> entries_;
  std::map<const SessionTensor*, std::vector<BoxOwner>> owners_;  // of tensors that were copied out; empty in one process
  size_t unwritten_ = 0;  // parameters and constants without a value
};

}  // namespace tessera
