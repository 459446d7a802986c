#include "runtime/backends/cuda/communicator.h"

#include <algorithm>
#include <functional>

#include "graph/base/dtype.h"
#include "graph/base/text.h"
#include "runtime/backend_collective.h"
#include "runtime/backends/cuda/collective_kernels.h"
#include "runtime/backends/cuda/comm_group.h"
#include "runtime/backends/cuda/copies.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/nccl_calls.h"

namespace tessera::cuda {

namespace {

Status aborted() { return Status(StatusCode::kAborted, "the communicator was aborted"); }

// Called before members wait for each other: a capturing member would issue nothing that the others wait for.
Status check_not_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TSR_RETURN_IF_ERROR(from_cuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing"));
  if (capture == cudaStreamCaptureStatusNone) return {};
  return Status(StatusCode::kUnsupported, "what members meet for on the host cannot be captured");
}

// out [outer, whole, inner] <- each member's [outer, extent, inner].
Status gather(cudaStream_t stream, const CommGroup& group, const tsr_abi_collective& what, char* out) {
  const int64_t whole_bytes = bytes_of(what, sum_of_extents(what.extents, what.member_count) * what.inner);
  int64_t at = 0;
  for (int32_t member = 0; member < what.member_count; ++member) {
    const int64_t row_bytes = bytes_of(what, what.extents[member] * what.inner);
    const void* in = group.member(member).in;
    // Skip a piece that the member already holds in place, where there is one row.
    if (row_bytes > 0 && !(what.outer == 1 && in == out + at))
      TSR_RETURN_IF_ERROR(from_cuda(
          copy_rows(stream, in, out + at, what.outer, row_bytes, row_bytes, whole_bytes), "all_gather"));
    at += row_bytes;
  }
  return {};
}

// out of member i <- from each member j, the block where j's range of the dim split in `in` overlaps i's
// range of the dim split in `out`.
Status exchange_blocks(cudaStream_t stream, const CommGroup& group, const tsr_abi_collective& what,
                       int32_t position, char* out) {
  const int32_t members = what.member_count;
  const int64_t in_whole = sum_of_extents(what.extents, members),
                out_whole = sum_of_extents(what.extents2, members);
  const int64_t mine = what.extents2[position], mine_at = sum_of_extents(what.extents2, position);
  int64_t at = 0;  // where j's range begins in the dim that `in` splits
  for (int32_t member = 0; member < members; at += what.extents[member++]) {
    const int64_t theirs = what.extents[member];
    if (theirs == 0 || mine == 0 || what.inner == 0) continue;
    // Strides in elements of [outer, first, middle, second, inner] on either side, and the block's start.
    const bool first = what.in_split_first != 0;
    const int64_t in_row = (first ? out_whole : theirs) * what.inner,
                  out_row = (first ? mine : in_whole) * what.inner;
    const int64_t in_first = first ? theirs : out_whole, out_first = first ? in_whole : mine;
    const int64_t from = first ? mine_at * what.inner : mine_at * what.middle * in_row;
    const int64_t to = first ? at * what.middle * out_row : at * what.inner;
    BlockTask task{};
    task.in = static_cast<const char*>(group.member(member).in) + bytes_of(what, from);
    task.out = out + bytes_of(what, to);
    task.outer = what.outer;
    task.first = first ? theirs : mine;
    task.middle = what.middle;
    task.run_bytes = bytes_of(what, (first ? mine : theirs) * what.inner);
    const int64_t in_strides[3] = {in_first * what.middle * in_row, what.middle * in_row, in_row};
    const int64_t out_strides[3] = {out_first * what.middle * out_row, what.middle * out_row, out_row};
    for (int i = 0; i < 3; ++i) {
      task.in_strides[i] = bytes_of(what, in_strides[i]);
      task.out_strides[i] = bytes_of(what, out_strides[i]);
    }
    TSR_RETURN_IF_ERROR(from_cuda(launch_blocks(stream, task), "all_to_all"));
  }
  return {};
}

// Allocates memory for what NCCL cannot express. An allocation in the middle of a step may wait for kernels,
// also of devices that reach the memory, and these for a member that has not issued yet.
Status prepare(CommGroup& group, const tsr_abi_comm_use& use) {
  for (int32_t member = 0; member < group.members() && !group.shares_memory(); ++member) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < use.collective_count; ++i) {
      const tsr_abi_collective& what = use.collectives[i];
      if (group.nccl() == nullptr || !nccl_can(what))
        bytes = std::max(bytes, bytes_of(what, input_elements(what, member)));
    }
    TSR_RETURN_IF_ERROR(group.make_stage(member, bytes));
  }
  if (use.messages == 0) return {};
  if (group.members() != 2)
    return Status(StatusCode::kInvalidArgument,
                  format("{} messages in a group of {}, they go between two", use.messages, group.members()));
  return group.expect_messages(0, 1, use.messages, use.message_bytes);
}

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> Communicator::create(const std::vector<int32_t>& ordinals,
                                                                        const tsr_abi_comm_use* use) {
  const bool wants_nccl =
      use == nullptr || std::any_of(use->collectives, use->collectives + use->collective_count, nccl_can);
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<CommGroup> group, CommGroup::create(ordinals, wants_nccl));
  if (use != nullptr && group->nccl() != nullptr) TSR_RETURN_IF_ERROR(connect_nccl(*group, *use));
  if (use != nullptr) TSR_RETURN_IF_ERROR(prepare(*group, *use));
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int32_t i = 0; i < group->members(); ++i)
    ends.push_back(std::unique_ptr<Communicator>(new Communicator(group, i)));
  return ends;
}

Communicator::Communicator(std::shared_ptr<CommGroup> group, int32_t position)
    : group_(std::move(group)), position_(position) {
  counters_.struct_size = sizeof(counters_);
  transfers_.reserve(64);  // longer exchanges grow it once
}

Communicator::~Communicator() = default;

void Communicator::abort() { group_->abort(); }
int32_t Communicator::ordinal() const { return group_->ordinal(position_); }

// Issued after this stream waits for every member's stream: their
// buffers are ready, and only the writes below change them.
Status Communicator::exchange(cudaStream_t stream, const tsr_abi_collective& what) {
  const CommGroup& group = *group_;
  const int32_t members = what.member_count;
  auto* out = static_cast<char*>(group.member(position_).out);
  ReduceTask task{};
  task.in_count = members;
  for (int32_t i = 0; i < members; ++i) task.in[i] = group.member(i).in;
  switch (what.kind) {
    case kAllReduce: {
      // No other member reads or writes this share, so it works in place and needs no scratch. Where others'
      // results are out of reach each member adds up all of it, in the same order.
      const bool all = !group.shares_memory();
      const MemberShare share =
          all ? MemberShare{0, what.elements} : all_reduce_share(what.elements, members, position_);
      const int64_t at = bytes_of(what, share.begin);
      for (int32_t i = 0; i < members; ++i) task.in[i] = static_cast<const char*>(group.member(i).in) + at;
      task.out_count = all ? 1 : members;
      task.out[0] = out;
      if (!all)
        for (int32_t i = 0; i < members; ++i) task.out[i] = static_cast<char*>(group.member(i).out) + at;
      task.rows = 1;
      task.count = share.count;
      return from_cuda(launch_reduce(stream, what.dtype, what.reduce, task), "all_reduce");
    }
    case kAllGather: return gather(stream, group, what, out);
    case kReduceScatter: {
      const int64_t at = bytes_of(what, sum_of_extents(what.extents, position_) * what.inner);
      task.out_count = 1;
      task.out[0] = out;
      for (int32_t i = 0; i < members; ++i) task.in[i] = static_cast<const char*>(group.member(i).in) + at;
      task.rows = what.outer;
      task.in_stride = sum_of_extents(what.extents, members) * what.inner;
      task.out_stride = task.count = what.extents[position_] * what.inner;
      return from_cuda(launch_reduce(stream, what.dtype, what.reduce, task), "reduce_scatter");
    }
    case kAllToAll: return exchange_blocks(stream, group, what, position_, out);
    case kBroadcast: {
      const void* in = group.member(what.root).in;
      const int64_t bytes = bytes_of(what, what.elements);
      if (out == nullptr || out == in || bytes == 0) return {};
      return from_cuda(copy_rows(stream, in, out, 1, bytes, bytes, bytes), "broadcast");
    }
    default: return {};
  }
}

Status Communicator::through_nccl(cudaStream_t stream, const tsr_abi_collective& what, const void* in,
                                  void* out) {
  // NCCL writes its result on every rank; a broadcast's root may have no output of its own.
  if (out == nullptr) out = const_cast<void*>(in);
  const Nccl& nccl = *group_->nccl();
  if (!group_->enter_nccl()) return aborted();
  const ncclResult_t result =
      call_nccl(nccl, what, nccl_count(what), in, out, group_->nccl_comm(position_), stream);
  group_->leave_nccl();
  if (result == ncclSuccess) {
    count_message(counters_, what.kind, ring_bytes(what, position_));
    if (group_->can_be_captured()) count_message(counters_, kCapturable, 0);
    return {};
  }
  return group_->is_aborted() ? aborted()
                              : Status(StatusCode::kInternal, format("NCCL: {}", nccl.error_string(result)));
}

Status Communicator::collective(cudaStream_t stream, const tsr_abi_collective& what, const void* in,
                                void* out) {
  if (group_->is_aborted()) return aborted();
  TSR_RETURN_IF_ERROR(check_collective(what, position_, group_->members(), in, out, can_reduce));
  // The choice between NCCL and peer memory follows from the description alone.
  const bool by_nccl = group_->nccl() != nullptr && nccl_can(what);
  if (by_nccl && agreed_.contains(what)) return through_nccl(stream, what, in, out);
  TSR_RETURN_IF_ERROR(check_not_captured(stream));
  CommGroup::Member& mine = group_->member(position_);
  mine.what = &what;
  mine.in = in;
  mine.out = out;
  Status status;
  if (!by_nccl && !group_->shares_memory()) TSR_RETURN_IF_ERROR(stage(stream, what));
  if (!by_nccl) status = from_cuda(cudaEventRecord(mine.ready, stream), "an event");
  if (!group_->barrier()) return aborted();
  // Every member reaches the same verdict, and leaves only when all have read the descriptions. (NCCL alone
  // would wait for ever, or take other bytes.)
  if (status.ok())
    status = check_agreement(position_, group_->members(), [&](int32_t member) -> const tsr_abi_collective& {
      return *group_->member(member).what;
    });
  const auto wait_for_others = [&](cudaEvent_t CommGroup::Member::*event) {
    for (int32_t i = 0; i < group_->members() && status.ok(); ++i)
      if (i != position_)
        status = from_cuda(cudaStreamWaitEvent(stream, group_->member(i).*event, 0), "waiting");
  };
  if (!by_nccl) {
    wait_for_others(&CommGroup::Member::ready);
    if (status.ok()) status = exchange(stream, what);
    if (status.ok()) status = from_cuda(cudaEventRecord(mine.done, stream), "an event");
  }
  if (!group_->barrier()) return aborted();
  if (!status.ok()) return status;
  if (by_nccl) {
    agreed_.add(what);
    return through_nccl(stream, what, in, out);
  }
  wait_for_others(&CommGroup::Member::done);
  if (status.ok()) count_message(counters_, what.kind, ring_bytes(what, position_));
  return status;
}

// Copies this member's input to host memory, from which the others read it.
Status Communicator::stage(cudaStream_t stream, const tsr_abi_collective& what) {
  CommGroup::Member& mine = group_->member(position_);
  const int64_t bytes = bytes_of(what, input_elements(what, position_));
  // Wait until the others have read the copy before.
  Status status = group_->make_stage(position_, bytes);
  for (int32_t i = 0; i < group_->members() && status.ok(); ++i)
    if (i != position_) status = from_cuda(cudaStreamWaitEvent(stream, group_->member(i).done, 0), "waiting");
  if (status.ok())
    status = from_cuda(copy_rows(stream, mine.in, mine.staged, 1, bytes, bytes, bytes), "a copy to the host");
  if (!status.ok()) group_->abort();  // nobody may read memory that is not filled
  mine.in = mine.staged;
  return status;
}

Status Communicator::check_peer(int32_t peer, int64_t bytes, std::string_view what) const {
  if (peer >= 0 && peer < group_->members() && peer != position_ && bytes >= 0) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{} of {} bytes between position {} and {} in a group of {}", what, bytes, position_,
                       peer, group_->members()));
}

Status Communicator::post(cudaStream_t stream, int32_t peer, const void* in, int64_t bytes) {
  TSR_RETURN_IF_ERROR(check_not_captured(stream));
  CommGroup::Mailbox& box = group_->mailbox(position_, peer);
  const int number = box.posted.load(std::memory_order_acquire);
  for (int taken = box.taken.load(std::memory_order_acquire);
       CommGroup::Mailbox::since(taken, number) >= box.slot_count;
       taken = box.taken.load(std::memory_order_acquire)) {
    if (group_->is_aborted()) return aborted();
    wait_while(box.taken, taken, true);
  }
  if (group_->is_aborted()) return aborted();
  CommGroup::Mailbox::Slot& slot = box.slot(number);
  TSR_RETURN_IF_ERROR(group_->make_room(slot, position_, peer, bytes));
  // Wait until the slot's old bytes have been copied out; an event that was never recorded is no wait.
  TSR_RETURN_IF_ERROR(from_cuda(cudaStreamWaitEvent(stream, slot.taken, 0), "waiting"));
  TSR_RETURN_IF_ERROR(from_cuda(copy_rows(stream, in, slot.memory, 1, bytes, bytes, bytes), "a message"));
  TSR_RETURN_IF_ERROR(from_cuda(cudaEventRecord(slot.posted, stream), "an event"));
  slot.bytes = bytes;
  box.posted.fetch_add(1, std::memory_order_acq_rel);
  box.posted.notify_all();
  count_message(counters_, kSend, bytes);
  return {};
}

Status Communicator::take(cudaStream_t stream, int32_t peer, void* out, int64_t bytes) {
  TSR_RETURN_IF_ERROR(check_not_captured(stream));
  CommGroup::Mailbox& box = group_->mailbox(peer, position_);
  const int number = box.taken.load(std::memory_order_acquire);
  if (!group_->is_aborted()) wait_while(box.posted, number, true);
  if (group_->is_aborted()) return aborted();
  const CommGroup::Mailbox::Slot& slot = box.slot(number);
  const int64_t sent = slot.bytes;
  Status status = from_cuda(cudaStreamWaitEvent(stream, slot.posted, 0), "waiting");
  if (status.ok() && sent == bytes)
    status = from_cuda(copy_rows(stream, slot.memory, out, 1, bytes, bytes, bytes), "a message");
  if (status.ok()) status = from_cuda(cudaEventRecord(slot.taken, stream), "an event");
  box.taken.fetch_add(1, std::memory_order_acq_rel);
  box.taken.notify_all();
  if (status.ok() && sent != bytes)
    status = Status(StatusCode::kInternal, format("position {} expects {} bytes from {}, which sent {}",
                                                  position_, bytes, peer, sent));
  if (status.ok()) count_message(counters_, kReceive, 0);  // the bytes are the sender's
  return status;
}

Status Communicator::send(cudaStream_t stream, int32_t peer, const void* in, int64_t bytes) {
  TSR_RETURN_IF_ERROR(check_peer(peer, bytes, "send"));
  if (!in_exchange_) return post(stream, peer, in, bytes);
  transfers_.push_back({true, peer, in, nullptr, bytes});
  return {};
}

Status Communicator::receive(cudaStream_t stream, int32_t peer, void* out, int64_t bytes) {
  TSR_RETURN_IF_ERROR(check_peer(peer, bytes, "receive"));
  if (!in_exchange_) return take(stream, peer, out, bytes);
  transfers_.push_back({false, peer, nullptr, out, bytes});
  return {};
}

Status Communicator::begin_exchange() {
  TSR_CHECK(!in_exchange_, "exchanges do not nest");
  in_exchange_ = true;
  transfers_.clear();
  return {};
}

// Every send is posted before any wait.
Status Communicator::end_exchange(cudaStream_t stream) {
  TSR_CHECK(in_exchange_, "no exchange was begun");
  in_exchange_ = false;
  for (const Transfer& transfer : transfers_)
    if (transfer.is_send) TSR_RETURN_IF_ERROR(post(stream, transfer.peer, transfer.in, transfer.bytes));
  for (const Transfer& transfer : transfers_)
    if (!transfer.is_send) TSR_RETURN_IF_ERROR(take(stream, transfer.peer, transfer.out, transfer.bytes));
  return {};
}

}  // namespace tessera::cuda
