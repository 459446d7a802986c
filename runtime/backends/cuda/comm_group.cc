#include "runtime/backends/cuda/comm_group.h"

#include <chrono>
#include <set>
#include <thread>

#include "runtime/backends/cuda/collective_kernels.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/notes.h"
#include "runtime/backends/cuda/scoped_device.h"

namespace tessera::cuda {

namespace {

Status make_event(int32_t ordinal, cudaEvent_t& event) {
  const ScopedDevice current(ordinal);
  return from_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
}

// Kernels of `from` read and write the memory of `to`.
Status reach(int32_t from, int32_t to) {
  int possible = 0;
  TSR_RETURN_IF_ERROR(from_cuda(cudaDeviceCanAccessPeer(&possible, from, to), "cudaDeviceCanAccessPeer"));
  if (possible == 0)
    return Status(
        StatusCode::kUnsupported,
        format(
            "CUDA devices {} and {} cannot reach each other's memory; run these ranks on one device, or on "
            "devices with peer access",
            from, to));
  const ScopedDevice current(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
    return {};
  }
  return from_cuda(error, "cudaDeviceEnablePeerAccess");
}

}  // namespace

Result<std::shared_ptr<CommGroup>> CommGroup::create(const std::vector<int32_t>& ordinals) {
  if (ordinals.empty() || ordinals.size() > static_cast<size_t>(kMostMembers))
    return Status(StatusCode::kUnsupported, format("a group of {} members, 1 to {} are possible",
                                                   static_cast<uint64_t>(ordinals.size()), kMostMembers));
  std::shared_ptr<CommGroup> group(new CommGroup(ordinals));
  TSR_RETURN_IF_ERROR(group->connect());
  return group;
}

Status CommGroup::connect() {
  for (int32_t i = 0; i < members(); ++i) {
    TSR_RETURN_IF_ERROR(make_event(ordinal(i), member(i).ready));
    TSR_RETURN_IF_ERROR(make_event(ordinal(i), member(i).done));
  }
  const std::set<int32_t> distinct(ordinals_.begin(), ordinals_.end());
  for (const int32_t from : distinct)
    for (const int32_t to : distinct)
      if (from != to) TSR_RETURN_IF_ERROR(reach(from, to));
  // NCCL refuses two ranks on one device, and one member needs nobody. Peers do without the library, and
  // where it cannot start: too little shared memory in a container, say.
  if (members() < 2 || distinct.size() != ordinals_.size()) return {};
  const Result<const Nccl*> library = cuda::nccl();
  if (!library.ok()) return {};
  std::vector<ncclComm_t> comms(ordinals_.size());
  const ncclResult_t result = (*library)->init_all(comms.data(), members(), ordinals_.data());
  if (result != ncclSuccess) {
    note(format("NCCL does not start, collectives go through peer memory: ncclCommInitAll of {} devices: {}",
                members(), (*library)->error_string(result)));
    return {};
  }
  nccl_comms_ = std::move(comms);
  nccl_ = *library;
  return {};
}

CommGroup::~CommGroup() {
  if (!is_aborted())
    for (const ncclComm_t comm : nccl_comms_) (void)nccl_->destroy(comm);
  const auto drop = [](cudaEvent_t event) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  };
  for (const Member& member : member_) {
    drop(member.ready);
    drop(member.done);
  }
  for (const Mailbox& box : mailboxes_) {
    for (const Mailbox::Slot& slot : box.slots) {
      drop(slot.posted);
      drop(slot.taken);
      if (slot.memory != nullptr) (void)cudaFree(slot.memory);
    }
  }
}

bool CommGroup::meet() {
  const int phase = phase_.load(std::memory_order_acquire);
  if (is_aborted()) return false;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members()) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_acq_rel);
    phase_.notify_all();
  } else {
    wait_while(phase_, phase, true);
  }
  return !is_aborted();
}

bool CommGroup::enter_nccl() {
  in_nccl_.fetch_add(1);
  if (!aborted_.load()) return true;
  in_nccl_.fetch_sub(1);
  return false;
}

void CommGroup::abort() {
  if (aborted_.exchange(true)) return;
  // Ends what waits on the devices; the communicators are gone afterwards. A call under way returns soon,
  // unless it connects to a peer that will not come: then only the abort itself ends it.
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!nccl_comms_.empty() && in_nccl_.load() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const ncclComm_t comm : nccl_comms_) (void)nccl_->abort(comm);
  phase_.fetch_add(1, std::memory_order_acq_rel);
  phase_.notify_all();
  for (Mailbox& box : mailboxes_) {
    // Counts are wrong from here on; nobody looks at them again.
    for (WaitWord* word : {&box.posted, &box.taken}) {
      word->fetch_add(1, std::memory_order_acq_rel);
      word->notify_all();
    }
  }
}

Status CommGroup::make_room(Mailbox::Slot& slot, int32_t from, int32_t to, int64_t bytes) {
  if (slot.posted == nullptr) TSR_RETURN_IF_ERROR(make_event(ordinal(from), slot.posted));
  if (slot.taken == nullptr) TSR_RETURN_IF_ERROR(make_event(ordinal(to), slot.taken));
  if (bytes <= slot.capacity) return {};
  const ScopedDevice current(ordinal(from));
  if (slot.memory != nullptr) {
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventSynchronize(slot.taken), "waiting for a message to be taken"));
    TSR_RETURN_IF_ERROR(from_cuda(cudaFree(slot.memory), "freeing memory"));
    slot.memory = nullptr;
    slot.capacity = 0;
  }
  TSR_RETURN_IF_ERROR(from_cuda(cudaMalloc(&slot.memory, static_cast<size_t>(bytes)),
                                format("memory for a message of {}", bytes_text(bytes))));
  slot.capacity = bytes;
  return {};
}

}  // namespace tessera::cuda
