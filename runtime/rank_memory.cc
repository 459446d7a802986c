#include "runtime/rank_memory.h"

#include <cstring>
#include <utility>
#include <vector>

#include "graph/analysis/read_only_parameters.h"
#include "graph/base/text.h"
#include "runtime/box_copy.h"
#include "runtime/host_services.h"

namespace tessera {

Result<std::unique_ptr<RankMemory>> RankMemory::create(const tsr_backend_api& api, tsr_abi_device* device,
                                                       const RankProgram& program,
                                                       const std::string& file_folder,
                                                       std::vector<SharedWeight> weights) {
  std::unique_ptr<RankMemory> made(new RankMemory(api, device, program));
  TSR_RETURN_IF_ERROR(made->take_weights(std::move(weights)));
  TSR_RETURN_IF_ERROR(made->allocate(file_folder));
  return made;
}

RankMemory::~RankMemory() {
  if (arenas_[0] != nullptr)
    api_.memory_free(device_, 0, static_cast<std::byte*>(arenas_[0]) + shared_bytes_,
                     program_.arena_bytes - shared_bytes_);
  api_.memory_free(device_, 1, arenas_[1], program_.host_arena_bytes);
}

Status RankMemory::take_weights(std::vector<SharedWeight> weights) {
  if (weights.empty()) return {};
  const ReadOnlyParameters shared = find_read_only_parameters(program_);
  for (const int32_t slot : shared.slots)
    if (weights[static_cast<size_t>(slot)].data == nullptr)
      return Status(StatusCode::kInternal, format("parameter '{}' is shared by name and has no memory",
                                                  program_.slots[static_cast<size_t>(slot)].name));
  shared_bytes_ = shared.bytes;
  weights_ = std::move(weights);
  is_own_.resize(weights_.size());
  return {};
}

Status RankMemory::unshare(int32_t slot) {
  const auto at = static_cast<size_t>(slot);
  const int64_t bytes = program_.slots[at].bytes;
  void* memory = nullptr;
  TSR_RETURN_IF_ERROR(take_error(api_.memory_alloc(device_, 0, bytes, 0, &memory))
                          .with_context(format("parameter '{}'", program_.slots[at].name)));
  std::memcpy(memory, weights_[at].data, static_cast<size_t>(bytes));
  weights_[at].data = static_cast<const std::byte*>(memory);
  weights_[at].owner =
      std::shared_ptr<const void>(memory, [&api = api_, device = device_, bytes](const void* own) {
        api.memory_free(device, 0, const_cast<void*>(own), bytes);
      });
  is_own_[at] = true;
  return {};
}

Status RankMemory::allocate(const std::string& file_folder) {
  const int64_t bytes[2] = {program_.arena_bytes - shared_bytes_, program_.host_arena_bytes};
  for (int32_t tier = 0; tier < 2; ++tier) {
    if (tier == 1 && bytes[1] == 0) continue;
    TSR_RETURN_IF_ERROR(
        take_error(api_.memory_alloc(device_, tier, bytes[tier], TSR_ALLOC_GUARDED, &arenas_[tier]))
            .with_context(format("{} arena of {}", tier == 0 ? "device" : "host", bytes_text(bytes[tier]))));
    if (tier == 0) arenas_[0] = static_cast<std::byte*>(arenas_[0]) - shared_bytes_;
  }
  if (program_.file_arena_bytes > 0) {
    TSR_ASSIGN_OR_RETURN(file_, FileArena::create(file_folder, program_.file_arena_bytes));
  }
  return {};
}

void* RankMemory::address(const SlotRef& ref) const {
  if (ref.slot < 0 || in_file(ref)) return nullptr;
  if (!weights_.empty())
    // Kernels take read-only operands as `void*` too.
    if (const std::byte* at = weights_[static_cast<size_t>(ref.slot)].data; at != nullptr)
      return const_cast<std::byte*>(at) + ref.offset;
  return static_cast<std::byte*>(arena(slot(ref).tier)) + offset(ref);
}

Status RankMemory::write(tsr_abi_stream* stream, const std::byte* global, const TensorType& type,
                         const Piece& piece) {
  if (!in_file(piece.at)) return copy_into_slot(api_, stream, global, type, piece.box, address(piece.at));
  std::vector<std::byte> local(static_cast<size_t>(dtype_bytes(type.dtype, box_elements(piece.box))));
  TSR_RETURN_IF_ERROR(copy_into_slot(api_, stream, global, type, piece.box, local.data()));
  TSR_RETURN_IF_ERROR(take_error(api_.stream_synchronize(stream)));
  return file_->write(offset(piece.at), local.data(), static_cast<int64_t>(local.size()));
}

Status RankMemory::read(tsr_abi_stream* stream, const TensorType& type, const Piece& piece,
                        std::byte* global) const {
  if (!in_file(piece.at)) return copy_out_of_slot(api_, stream, address(piece.at), type, piece.box, global);
  std::vector<std::byte> local(static_cast<size_t>(dtype_bytes(type.dtype, box_elements(piece.box))));
  TSR_RETURN_IF_ERROR(file_->read(offset(piece.at), local.data(), static_cast<int64_t>(local.size())));
  TSR_RETURN_IF_ERROR(copy_out_of_slot(api_, stream, local.data(), type, piece.box, global));
  return take_error(api_.stream_synchronize(stream));
}

Status RankMemory::zero(tsr_abi_stream* stream, const SlotRef& at, int64_t bytes) {
  if (bytes == 0) return {};
  if (in_file(at)) return file_->write(offset(at), nullptr, bytes);
  return take_error(api_.fill(stream, address(at), 0, bytes));
}

}  // namespace tessera
