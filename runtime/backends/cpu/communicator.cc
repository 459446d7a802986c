#include "runtime/backends/cpu/communicator.h"

#include <algorithm>
#include <cstring>

#include "graph/base/barrier.h"
#include "graph/base/dtype.h"
#include "graph/base/reduce.h"
#include "graph/base/text.h"
#include "runtime/backend_collective.h"

namespace tessera::cpu {

namespace {

// Messages arrive late, at the end of another stage. A spinning thread would only make a
// core look busy, and the system would then put two computing threads on another core.
constexpr bool kSpinsForMessages = false;

Status aborted() { return Status(StatusCode::kAborted, "the communicator was aborted"); }

}  // namespace

class CommGroup {
 public:
  CommGroup(const tsr_host_api& host, int32_t members)
      : host_(host),
        members_(members),
        barrier_(members, members <= host.thread_count(host.host)),
        what_(static_cast<size_t>(members)),
        in_(static_cast<size_t>(members)),
        out_(static_cast<size_t>(members)),
        mailboxes_(static_cast<size_t>(members) * static_cast<size_t>(members)) {}

  int32_t members() const { return members_; }
  bool is_aborted() const { return barrier_.is_aborted(); }

  void publish(int32_t position, const tsr_abi_collective& what, const void* in, void* out) {
    const auto at = static_cast<size_t>(position);
    what_[at] = &what;
    in_[at] = in;
    out_[at] = out;
  }
  const tsr_abi_collective& what(int32_t position) const { return *what_[static_cast<size_t>(position)]; }
  const void* const* in() const { return in_.data(); }
  void* const* out() const { return out_.data(); }
  const std::byte* in(int32_t position) const {
    return static_cast<const std::byte*>(in_[static_cast<size_t>(position)]);
  }

  // Barrier of all members; false after an abort.
  bool barrier() { return barrier_.wait(); }

  void abort() {
    barrier_.abort();
    for (Mailbox& box : mailboxes_) {
      box.turn.fetch_add(1, std::memory_order_acq_rel);
      box.turn.notify_all();
    }
  }

  // Mailbox of one ordered pair. `turn` is even while the sender may post and odd while the receiver may
  // take.
  struct Mailbox {
    WaitWord turn{0};
    const void* data = nullptr;
    int64_t bytes = 0;
  };
  Mailbox& mailbox(int32_t from, int32_t to) {
    return mailboxes_[static_cast<size_t>(from) * static_cast<size_t>(members_) + static_cast<size_t>(to)];
  }

  // Reduces `count` elements of all members in group order.
  void reduce(ReduceFn fn, void* const* out, int32_t out_count, int64_t in_begin, int64_t out_begin,
              int64_t count) const {
    reduce_on_pool(host_, fn, {in_.data(), members_, out, out_count, in_begin, out_begin, count}, members_);
  }

 private:
  const tsr_host_api& host_;
  const int32_t members_;
  Barrier barrier_;
  std::vector<const tsr_abi_collective*> what_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<Mailbox> mailboxes_;
};

std::vector<std::unique_ptr<Communicator>> Communicator::create(const tsr_host_api& host, int32_t members) {
  const auto group = std::make_shared<CommGroup>(host, members);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int32_t i = 0; i < members; ++i)
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

namespace {

// out [outer, whole, inner] <- each member's [outer, extent, inner].
void gather(const CommGroup& group, const tsr_abi_collective& what, std::byte* out) {
  const auto dtype = static_cast<DType>(what.dtype);
  const int64_t whole_bytes =
      dtype_bytes(dtype, sum_of_extents(what.extents, what.member_count) * what.inner);
  int64_t at = 0;
  for (int32_t member = 0; member < what.member_count; ++member) {
    const int64_t row_bytes = dtype_bytes(dtype, what.extents[member] * what.inner);
    const std::byte* in = group.in(member);
    for (int64_t o = 0; o < what.outer && row_bytes > 0; ++o) {
      const std::byte* row = in + o * row_bytes;
      std::byte* target = out + o * whole_bytes + at;
      if (row != target) std::memcpy(target, row, static_cast<size_t>(row_bytes));
    }
    at += row_bytes;
  }
}

// out of member i <- from each member j, the block where j's range of the dim split in `in` overlaps i's
// range of the dim split in `out`.
void exchange_blocks(const CommGroup& group, const tsr_abi_collective& what, int32_t position,
                     std::byte* out) {
  const auto dtype = static_cast<DType>(what.dtype);
  const int32_t members = what.member_count;
  const int64_t in_whole = sum_of_extents(what.extents, members),
                out_whole = sum_of_extents(what.extents2, members);
  const int64_t mine = what.extents2[position], mine_at = sum_of_extents(what.extents2, position);
  int64_t at = 0;  // where j's range begins in the dim that `in` splits
  for (int32_t member = 0; member < members; at += what.extents[member++]) {
    const int64_t theirs = what.extents[member];
    if (theirs == 0 || mine == 0 || what.inner == 0) continue;
    const std::byte* in = group.in(member);
    // The block has `first` x middle rows of `run` elements of the second dim times inner each.
    const int64_t first = what.in_split_first ? theirs : mine;
    const int64_t run = (what.in_split_first ? mine : theirs) * what.inner;
    const size_t run_bytes = static_cast<size_t>(dtype_bytes(dtype, run));
    for (int64_t o = 0; o < what.outer; ++o) {
      for (int64_t f = 0; f < first; ++f) {
        for (int64_t m = 0; m < what.middle; ++m) {
          int64_t from = 0, to = 0;  // elements
          if (what.in_split_first) {
            from = (((o * theirs + f) * what.middle + m) * out_whole + mine_at) * what.inner;
            to = (((o * in_whole + at + f) * what.middle + m) * mine) * what.inner;
          } else {
            from = (((o * out_whole + mine_at + f) * what.middle + m) * theirs) * what.inner;
            to = (((o * mine + f) * what.middle + m) * in_whole + at) * what.inner;
          }
          std::memcpy(out + dtype_bytes(dtype, to), in + dtype_bytes(dtype, from), run_bytes);
        }
      }
    }
  }
}

}  // namespace

// Between the two barriers every member's buffers are published, and only the writes below change them.
Status Communicator::exchange(const tsr_abi_collective& what) {
  const CommGroup& group = *group_;
  void* const* all_out = group.out();
  auto* out = static_cast<std::byte*>(all_out[position_]);
  switch (what.kind) {
    case kAllReduce: {
      // No other member reads or writes this share, so it works in place and needs no scratch.
      const MemberShare share = all_reduce_share(what.elements, what.member_count, position_);
      if (share.count > 0)
        group.reduce(find_reduce(what.dtype, what.reduce), all_out, what.member_count, share.begin,
                     share.begin, share.count);
      break;
    }
    case kAllGather: gather(group, what, out); break;
    case kReduceScatter: {
      const ReduceFn fn = find_reduce(what.dtype, what.reduce);
      const int64_t row = sum_of_extents(what.extents, what.member_count) * what.inner;
      const int64_t mine = what.extents[position_] * what.inner;
      const int64_t at = sum_of_extents(what.extents, position_) * what.inner;
      for (int64_t o = 0; o < what.outer && mine > 0; ++o)
        group.reduce(fn, &all_out[position_], 1, o * row + at, o * mine, mine);
      break;
    }
    case kAllToAll: exchange_blocks(group, what, position_, out); break;
    case kBroadcast: {
      const std::byte* in = group.in(what.root);
      const int64_t bytes = dtype_bytes(static_cast<DType>(what.dtype), what.elements);
      if (out != nullptr && out != in && bytes > 0) std::memcpy(out, in, static_cast<size_t>(bytes));
      break;
    }
    default: break;
  }
  return {};
}

Status Communicator::collective(const tsr_abi_collective& what, const void* in, void* out) {
  if (group_->is_aborted()) return aborted();
  TSR_RETURN_IF_ERROR(
      check_collective(what, position_, group_->members(), in, out,
                       [](int32_t dtype, int32_t reduce) { return find_reduce(dtype, reduce) != nullptr; }));
  perturbation_.pause();
  group_->publish(position_, what, in, out);
  if (!group_->barrier()) return aborted();
  perturbation_.pause();
  // Every member reaches the same verdict, and leaves only when all have read the descriptions.
  Status status =
      check_agreement(position_, group_->members(),
                      [&](int32_t member) -> const tsr_abi_collective& { return group_->what(member); });
  if (status.ok()) status = exchange(what);
  perturbation_.pause();
  if (!group_->barrier()) return aborted();
  if (status.ok()) count_message(counters_, what.kind, ring_bytes(what, position_));
  return status;
}

Status Communicator::check_peer(int32_t peer, int64_t bytes, std::string_view what) const {
  if (peer >= 0 && peer < group_->members() && peer != position_ && bytes >= 0) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{} of {} bytes between position {} and {} in a group of {}", what, bytes, position_,
                       peer, group_->members()));
}

Status Communicator::post(int32_t peer, const void* in, int64_t bytes) {
  perturbation_.pause();
  CommGroup::Mailbox& box = group_->mailbox(position_, peer);
  int turn = box.turn.load(std::memory_order_acquire);
  if (group_->is_aborted()) return aborted();
  box.data = in;
  box.bytes = bytes;
  if (!box.turn.compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel)) return aborted();
  box.turn.notify_all();
  count_message(counters_, kSend, bytes);
  return {};
}

Status Communicator::wait_taken(int32_t peer) {
  CommGroup::Mailbox& box = group_->mailbox(position_, peer);
  const int turn = box.turn.load(std::memory_order_acquire);
  if (turn % 2 == 1 && !group_->is_aborted()) wait_while(box.turn, turn, kSpinsForMessages);
  return group_->is_aborted() ? aborted() : Status();
}

Status Communicator::send(int32_t peer, const void* in, int64_t bytes) {
  TSR_RETURN_IF_ERROR(check_peer(peer, bytes, "send"));
  if (in_exchange_) {
    const auto same_way = [&](const Transfer& other) { return other.is_send && other.peer == peer; };
    const auto round = static_cast<int32_t>(std::count_if(transfers_.begin(), transfers_.end(), same_way));
    transfers_.push_back({true, peer, in, nullptr, bytes, round});
    return {};
  }
  TSR_RETURN_IF_ERROR(post(peer, in, bytes));
  return wait_taken(peer);
}

Status Communicator::receive(int32_t peer, void* out, int64_t bytes) {
  TSR_RETURN_IF_ERROR(check_peer(peer, bytes, "receive"));
  if (in_exchange_) {
    const auto same_way = [&](const Transfer& other) { return !other.is_send && other.peer == peer; };
    const auto round = static_cast<int32_t>(std::count_if(transfers_.begin(), transfers_.end(), same_way));
    transfers_.push_back({false, peer, nullptr, out, bytes, round});
    return {};
  }
  CommGroup::Mailbox& box = group_->mailbox(peer, position_);
  int turn = box.turn.load(std::memory_order_acquire);
  while (turn % 2 == 0) {
    if (group_->is_aborted()) return aborted();
    wait_while(box.turn, turn, kSpinsForMessages);
    turn = box.turn.load(std::memory_order_acquire);
  }
  if (group_->is_aborted()) return aborted();
  perturbation_.pause();
  const int64_t sent = box.bytes;
  if (sent == bytes && bytes > 0) std::memcpy(out, box.data, static_cast<size_t>(bytes));
  if (!box.turn.compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel)) return aborted();
  box.turn.notify_all();
  if (sent != bytes)
    return Status(StatusCode::kInternal, format("position {} expects {} bytes from {}, which sent {}",
                                                position_, bytes, peer, sent));
  count_message(counters_, kReceive, 0);  // the bytes are the sender's
  return {};
}

Status Communicator::begin_exchange() {
  TSR_CHECK(!in_exchange_, "exchanges do not nest");
  in_exchange_ = true;
  transfers_.clear();
  return {};
}

// Rounds: a mailbox holds one message, so the k-th message to every peer is posted, the k-th of every peer
// taken, and the k-th posted waited for. All messages of round k are posted before any member waits in it.
Status Communicator::end_exchange() {
  TSR_CHECK(in_exchange_, "no exchange was begun");
  in_exchange_ = false;
  int32_t rounds = 0;
  for (const Transfer& transfer : transfers_) rounds = std::max(rounds, transfer.round + 1);
  for (int32_t round = 0; round < rounds; ++round) {
    for (const Transfer& transfer : transfers_)
      if (transfer.round == round && transfer.is_send)
        TSR_RETURN_IF_ERROR(post(transfer.peer, transfer.in, transfer.bytes));
    for (const Transfer& transfer : transfers_)
      if (transfer.round == round && !transfer.is_send)
        TSR_RETURN_IF_ERROR(receive(transfer.peer, transfer.out, transfer.bytes));
    for (const Transfer& transfer : transfers_)
      if (transfer.round == round && transfer.is_send) TSR_RETURN_IF_ERROR(wait_taken(transfer.peer));
  }
  return {};
}

}  // namespace tessera::cpu
