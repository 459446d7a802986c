// CommGroup: the state that the members of a communicator share. See communicator.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "graph/base/barrier.h"
#include "graph/base/waiting.h"
#include "runtime/backends/cuda/communicator.h"
#include "runtime/backends/cuda/library.h"

namespace tessera::cuda {

class CommGroup {
 public:
  // Creates events, enables peer access between the devices where possible,
  // and starts NCCL if requested and every member has its own device.
  static Result<std::shared_ptr<CommGroup>> create(const std::vector<int32_t>& ordinals, bool wants_nccl);
  ~CommGroup();
  CommGroup(const CommGroup&) = delete;
  CommGroup& operator=(const CommGroup&) = delete;

  int32_t members() const { return static_cast<int32_t>(ordinals_.size()); }
  int32_t ordinal(int32_t position) const { return ordinals_[static_cast<size_t>(position)]; }
  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }

  // Whether every member's kernels and copies reach the memory of all. Otherwise (cards without peer access,
  // virtual machines that hide it) members read each other's data from pinned memory of the host.
  bool shares_memory() const { return shares_memory_; }

  // Member: the data that one member publishes.
  struct Member {
    const tsr_abi_collective* what = nullptr;
    const void* in = nullptr;
    void* out = nullptr;
    cudaEvent_t ready = nullptr, done = nullptr;
    void* staged = nullptr;  // of the host, where memory is not shared: a copy of `in`
    int64_t staged_bytes = 0;
  };
  Member& member(int32_t position) { return member_[static_cast<size_t>(position)]; }
  const Member& member(int32_t position) const { return member_[static_cast<size_t>(position)]; }

  // Makes room for `bytes` in the member's staged memory, which no member reads any more.
  Status make_stage(int32_t position, int64_t bytes);

  // Barrier of all members; false after an abort.
  bool barrier();
  // Wakes the members that wait on the host, and returns. A separate thread frees NCCL's communicators: that waits for the
  // CUDA graphs that use them, and their threads may wait for kernels of other communicators.
  void abort();

  // Mailbox: messages from one member to another, in order. The sender copies into the mailbox and returns: two threads
  // that issue for several streams never wait for each other. The receiver waits for the message. Memory and events are
  // created for announced messages, else by the sender at first use and for a larger message.
  struct Mailbox {
    static constexpr int kSlots = 16;  // messages in flight; the sender waits for a free one
    struct Slot {
      void* memory = nullptr;
      int64_t capacity = 0, bytes = 0;
      cudaEvent_t posted = nullptr, taken = nullptr;
    };
    // Message numbers wrap around. The first number is close to the wrap, so that every run tests it.
    static constexpr int kFirst = INT32_MAX - 4;
    Slot slots[kSlots];
    uint32_t slot_count = kSlots;            // slots in use; a power of 2
    WaitWord posted{kFirst}, taken{kFirst};  // the number of the next message
    static uint32_t since(int earlier, int later) {
      return static_cast<uint32_t>(later) - static_cast<uint32_t>(earlier);
    }
    Slot& slot(int number) { return slots[static_cast<uint32_t>(number) % slot_count]; }
  };
  // The slots stay in order across the wrap.
  static_assert((Mailbox::kSlots & (Mailbox::kSlots - 1)) == 0);
  Mailbox& mailbox(int32_t from, int32_t to) {
    return mailboxes_[static_cast<size_t>(from) * ordinals_.size() + static_cast<size_t>(to)];
  }
  // Announces, before the first message, that at most `messages` of at most `bytes` are in flight at once.
  Status expect_messages(int32_t from, int32_t to, int32_t messages, int64_t bytes);
  // Gives the slot events and room for `bytes`.
  Status make_room(Mailbox::Slot& slot, int32_t from, int32_t to, int64_t bytes);

  const Nccl* nccl() const { return nccl_; }  // null: collectives go through memory of the host
  // Disables NCCL because `what` failed. Call before the first collective.
  void give_up_nccl(std::string_view what, ncclResult_t result);
  ncclComm_t nccl_comm(int32_t position) const { return nccl_comms_[static_cast<size_t>(position)]; }
  // Whether NCCL's calls may be captured: from 2.26 on a communicator outlives the graphs that hold it, even
  // when it is aborted while they run.
  bool can_be_captured() const { return can_be_captured_; }
  // Called before and after a call of NCCL: `abort` waits for calls to return before it frees the
  // communicators. False after an abort.
  bool enter_nccl();
  void leave_nccl() { in_nccl_.fetch_sub(1); }

 private:
  explicit CommGroup(const std::vector<int32_t>& ordinals)
      : ordinals_(ordinals), member_(ordinals.size()), mailboxes_(ordinals.size() * ordinals.size()), barrier_(members(), true) {}
  Status connect(bool wants_nccl);
  void start_nccl();
  Status reach_each_other();
  void abort_nccl();

  const std::vector<int32_t> ordinals_;
  std::vector<Member> member_;
  std::vector<Mailbox> mailboxes_;
  bool shares_memory_ = true;
  const Nccl* nccl_ = nullptr;
  std::vector<ncclComm_t> nccl_comms_;
  bool can_be_captured_ = false;
  std::thread aborting_;
  Barrier barrier_;
  std::atomic<int32_t> in_nccl_{0};
  std::atomic<bool> aborted_{false};
};

}  // namespace tessera::cuda
