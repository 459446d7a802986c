// RankMemory: a rank's arenas, one per tier: device and host memory from the backend,
// and a file. Read-only parameters at the bottom of the device arena may be in memory
// shared with other sessions; that part of the arena is then not allocated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/program.h"
#include "runtime/backend_abi.h"
#include "runtime/file_arena.h"
#include "runtime/shared_weights.h"

namespace tessera {

class RankMemory {
 public:
  // `file_folder`: see FileArena. `weights`: of all read-only parameters of this rank, by slot; or empty.
  static Result<std::unique_ptr<RankMemory>> create(const tsr_backend_api& api, tsr_abi_device* device,
                                                    const RankProgram& program,
                                                    const std::string& file_folder,
                                                    std::vector<SharedWeight> weights = {});
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  // Address of offset 0 of the tier's arena; bytes below
  // `shared_bytes` are not allocated. Null for the file tier.
  void* arena(Tier tier) const { return arenas_[static_cast<size_t>(tier)]; }
  int64_t shared_bytes() const { return shared_bytes_; }  // of the device arena; a multiple of its alignment
  bool is_shared(const SlotRef& ref) const {
    return !weights_.empty() && ref.slot >= 0 && weights_[static_cast<size_t>(ref.slot)].data != nullptr &&
           !is_own_[static_cast<size_t>(ref.slot)];
  }
  // Moves the slot to its own memory, with its contents. Addresses change.
  Status unshare(int32_t slot);
  FileArena* file() const { return file_.get(); }  // null when the file tier is empty
  const Slot& slot(const SlotRef& ref) const { return program_.slots[static_cast<size_t>(ref.slot)]; }
  bool in_file(const SlotRef& ref) const { return ref.slot >= 0 && slot(ref).tier == Tier::kFile; }
  void* address(const SlotRef& ref) const;  // null for slot -1 and in the file
  int64_t offset(const SlotRef& ref) const { return slot(ref).offset + ref.offset; }

  // Copies one piece of a whole tensor from or to host memory. Issued
  // on `stream` without waiting, except for pieces in the file.
  Status write(tsr_abi_stream* stream, const std::byte* global, const TensorType& type, const Piece& piece);
  Status read(tsr_abi_stream* stream, const TensorType& type, const Piece& piece, std::byte* global) const;
  Status zero(tsr_abi_stream* stream, const SlotRef& at, int64_t bytes);

 private:
  RankMemory(const tsr_backend_api& api, tsr_abi_device* device, const RankProgram& program)
      : api_(api), device_(device), program_(program) {}
  Status allocate(const std::string& file_folder);
  Status take_weights(std::vector<SharedWeight> weights);

  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  const RankProgram& program_;
  void* arenas_[3] = {nullptr, nullptr, nullptr};
  int64_t shared_bytes_ = 0;
  std::vector<SharedWeight> weights_;  // by slot; empty: all are in the arena
  std::vector<bool> is_own_;           // by slot: no other session uses it
  std::unique_ptr<FileArena> file_;
};

}  // namespace tessera
