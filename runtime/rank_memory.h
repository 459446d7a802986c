// RankMemory: the arenas of one rank, one for each tier: device and host memory from the backend, and a file.
#pragma once

#include <memory>
#include <string>

#include "graph/program.h"
#include "runtime/backend_abi.h"
#include "runtime/file_arena.h"

namespace tessera {

class RankMemory {
 public:
  // `file_folder`: see FileArena.
  static Result<std::unique_ptr<RankMemory>> create(const tsr_backend_api& api, tsr_abi_device* device,
                                                    const RankProgram& program,
                                                    const std::string& file_folder);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  void* arena(Tier tier) const { return arenas_[static_cast<size_t>(tier)]; }  // null for the file tier
  FileArena* file() const { return file_.get(); }  // null when the file tier is empty
  const Slot& slot(const SlotRef& ref) const { return program_.slots[static_cast<size_t>(ref.slot)]; }
  bool in_file(const SlotRef& ref) const { return ref.slot >= 0 && slot(ref).tier == Tier::kFile; }
  void* address(const SlotRef& ref) const;  // null for slot -1 and in the file
  int64_t offset(const SlotRef& ref) const { return slot(ref).offset + ref.offset; }

  // Copies one piece of a whole tensor from or to host memory. Issued on `stream`, not waited for, except for
  // pieces in the file.
  Status write(tsr_abi_stream* stream, const std::byte* global, const TensorType& type, const Piece& piece);
  Status read(tsr_abi_stream* stream, const TensorType& type, const Piece& piece, std::byte* global) const;
  Status zero(tsr_abi_stream* stream, const SlotRef& at, int64_t bytes);

 private:
  RankMemory(const tsr_backend_api& api, tsr_abi_device* device, const RankProgram& program)
      : api_(api), device_(device), program_(program) {}
  Status allocate(const std::string& file_folder);

  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  const RankProgram& program_;
  void* arenas_[3] = {nullptr, nullptr, nullptr};
  std::unique_ptr<FileArena> file_;
};

}  // namespace tessera
