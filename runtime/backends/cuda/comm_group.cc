#include "runtime/backends/cuda/comm_group.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "runtime/backends/cuda/collective_kernels.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/notes.h"
#include "runtime/backends/cuda/scoped_device.h"

namespace tessera::cuda {

namespace {

// Older versions destroy communicators that graphs still hold.
constexpr int kOldestCaptured = NCCL_VERSION(2, 26, 0);
std::string version_text(int version) {
  return format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Status make_event(int32_t ordinal, cudaEvent_t& event) {
  const ScopedDevice current(ordinal);
  return from_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
}

// Allocates memory that all members read: on the current device, or pinned on the host.
Status allocate_shared(void*& memory, int64_t bytes, bool on_device) {
  const auto size = static_cast<size_t>(bytes);
  return from_cuda(on_device ? cudaMalloc(&memory, size)
                             : cudaHostAlloc(&memory, size, cudaHostAllocPortable | cudaHostAllocMapped),
                   on_device ? "cudaMalloc" : "cudaHostAlloc");
}
void free_shared(void* memory, bool on_device) {
  if (memory != nullptr) (void)(on_device ? cudaFree(memory) : cudaFreeHost(memory));
}

Result<bool> can_reach(int32_t from, int32_t to) {
  int possible = 0;
  TSR_RETURN_IF_ERROR(from_cuda(cudaDeviceCanAccessPeer(&possible, from, to), "cudaDeviceCanAccessPeer"));
  return possible != 0;
}

// Lets kernels of device `from` access the memory of device `to`.
Status reach(int32_t from, int32_t to) {
  const ScopedDevice current(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
    return {};
  }
  return from_cuda(error, "cudaDeviceEnablePeerAccess");
}

}  // namespace

Result<std::shared_ptr<CommGroup>> CommGroup::create(const std::vector<int32_t>& ordinals, bool wants_nccl) {
  if (ordinals.empty() || ordinals.size() > static_cast<size_t>(kMostMembers))
    return Status(StatusCode::kUnsupported, format("a group of {} members, 1 to {} are possible",
                                                   static_cast<uint64_t>(ordinals.size()), kMostMembers));
  std::shared_ptr<CommGroup> group(new CommGroup(ordinals));
  TSR_RETURN_IF_ERROR(group->connect(wants_nccl));
  return group;
}

Status CommGroup::connect(bool wants_nccl) {
  for (int32_t i = 0; i < members(); ++i) {
    TSR_RETURN_IF_ERROR(make_event(ordinal(i), member(i).ready));
    TSR_RETURN_IF_ERROR(make_event(ordinal(i), member(i).done));
  }
  TSR_RETURN_IF_ERROR(reach_each_other());
  if (wants_nccl) start_nccl();
  return {};
}

// Members work without NCCL too, for example where a container has too little shared memory for it.
void CommGroup::start_nccl() {
  // NCCL refuses two ranks on one device, and a single member needs no communication.
  const std::set<int32_t> distinct(ordinals_.begin(), ordinals_.end());
  if (members() < 2 || distinct.size() != ordinals_.size()) return;
  const Result<const Nccl*> library = cuda::nccl();
  const std::string_view instead = shares_memory_ ? "peer memory" : "memory of the host";
  if (!library.ok()) {
    static std::once_flag said;
    std::call_once(said, [&] {
      note(format("collectives go through {}, slower than they could: {}", instead,
                  library.status().to_string()));
    });
    return;
  }
  std::vector<ncclComm_t> comms(ordinals_.size());
  const ncclResult_t result = (*library)->init_all(comms.data(), members(), ordinals_.data());
  nccl_ = *library;
  if (result != ncclSuccess) return give_up_nccl("ncclCommInitAll", result);
  nccl_comms_ = std::move(comms);
  int version = 0;
  can_be_captured_ = nccl_->version(&version) == ncclSuccess && version >= kOldestCaptured;
  static std::once_flag said;
  if (!can_be_captured_)
    std::call_once(said, [&] {
      note(format(
          "NCCL is {}, steps that communicate are graphs with {} or later: they are issued kernel by kernel",
          version_text(version), version_text(kOldestCaptured)));
    });
}

void CommGroup::give_up_nccl(std::string_view what, ncclResult_t result) {
  note(format("NCCL does not start, collectives go through {}: {} of {} devices: {}",
              shares_memory_ ? "peer memory" : "memory of the host", what, members(),
              nccl_->error_string(result)));
  for (const ncclComm_t comm : nccl_comms_) (void)nccl_->abort(comm);
  nccl_comms_.clear();
  nccl_ = nullptr;
  can_be_captured_ = false;
}

Status CommGroup::reach_each_other() {
  const std::set<int32_t> distinct(ordinals_.begin(), ordinals_.end());
  for (const int32_t from : distinct)
    for (const int32_t to : distinct) {
      if (from == to) continue;
      TSR_ASSIGN_OR_RETURN(const bool possible, can_reach(from, to));
      if (!possible) {
        static std::once_flag said;
        std::call_once(said, [&] {
          note(
              format("CUDA devices {} and {} cannot reach each other's memory: what ranks exchange without "
                     "NCCL goes "
                     "through memory of the host",
                     from, to));
        });
        shares_memory_ = false;
        return {};
      }
    }
  for (const int32_t from : distinct)
    for (const int32_t to : distinct)
      if (from != to) TSR_RETURN_IF_ERROR(reach(from, to));
  return {};
}

CommGroup::~CommGroup() {
  if (aborting_.joinable()) aborting_.join();
  if (!is_aborted())
    for (const ncclComm_t comm : nccl_comms_) (void)nccl_->destroy(comm);
  const auto drop = [](cudaEvent_t event) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  };
  for (const Member& member : member_) {
    drop(member.ready);
    drop(member.done);
    free_shared(member.staged, false);
  }
  for (const Mailbox& box : mailboxes_) {
    for (const Mailbox::Slot& slot : box.slots) {
      drop(slot.posted);
      drop(slot.taken);
      free_shared(slot.memory, shares_memory_);
    }
  }
}

bool CommGroup::barrier() { return barrier_.wait(); }

bool CommGroup::enter_nccl() {
  in_nccl_.fetch_add(1);
  if (!aborted_.load()) return true;
  in_nccl_.fetch_sub(1);
  return false;
}

void CommGroup::abort() {
  if (aborted_.exchange(true)) return;
  barrier_.abort();
  for (Mailbox& box : mailboxes_) {
    // Counts are wrong from here on, and never read again.
    for (WaitWord* word : {&box.posted, &box.taken}) {
      word->fetch_add(1, std::memory_order_acq_rel);
      word->notify_all();
    }
  }
  if (nccl_comms_.empty()) return;
  try {
    aborting_ = std::thread([this] { abort_nccl(); });
  } catch (const std::system_error&) {  // no thread is to be had
    abort_nccl();
  }
}

// Ends waits on the devices and destroys the communicators. A call in progress returns soon, unless it
// connects to a peer that will not come: then only the abort itself ends it.
void CommGroup::abort_nccl() {
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (in_nccl_.load() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const ncclComm_t comm : nccl_comms_) (void)nccl_->abort(comm);
}

Status CommGroup::expect_messages(int32_t from, int32_t to, int32_t messages, int64_t bytes) {
  Mailbox& box = mailbox(from, to);
  box.slot_count = std::bit_ceil(static_cast<uint32_t>(std::clamp(messages, 1, Mailbox::kSlots)));
  for (uint32_t i = 0; i < box.slot_count; ++i) TSR_RETURN_IF_ERROR(make_room(box.slots[i], from, to, bytes));
  return {};
}

Status CommGroup::make_room(Mailbox::Slot& slot, int32_t from, int32_t to, int64_t bytes) {
  if (slot.posted == nullptr) TSR_RETURN_IF_ERROR(make_event(ordinal(from), slot.posted));
  if (slot.taken == nullptr) TSR_RETURN_IF_ERROR(make_event(ordinal(to), slot.taken));
  if (bytes <= slot.capacity) return {};
  const ScopedDevice current(ordinal(from));
  if (slot.memory != nullptr) {
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventSynchronize(slot.taken), "waiting for a message to be taken"));
    free_shared(slot.memory, shares_memory_);
    slot.memory = nullptr;
    slot.capacity = 0;
  }
  TSR_RETURN_IF_ERROR(allocate_shared(slot.memory, bytes, shares_memory_)
                          .with_context(format("memory for a message of {}", bytes_text(bytes))));
  slot.capacity = bytes;
  return {};
}

Status CommGroup::make_stage(int32_t position, int64_t bytes) {
  Member& mine = member(position);
  if (bytes <= mine.staged_bytes) return {};
  // Other members may still read its memory.
  for (const Member& other : member_)
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventSynchronize(other.done), "waiting for a collective"));
  const ScopedDevice current(ordinal(position));
  free_shared(mine.staged, false);
  mine.staged = nullptr;
  mine.staged_bytes = 0;
  TSR_RETURN_IF_ERROR(
      allocate_shared(mine.staged, bytes, false)
          .with_context(format("pinned memory of the host for {} that others read", bytes_text(bytes))));
  mine.staged_bytes = bytes;
  return {};
}

}  // namespace tessera::cuda
