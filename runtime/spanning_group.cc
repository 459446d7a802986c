#include "runtime/spanning_group.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "graph/base/barrier.h"
#include "graph/base/dtype.h"
#include "graph/base/perturbation.h"
#include "graph/base/text.h"
#include "runtime/backend_collective.h"
#include "runtime/collective_blocks.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

// Whole buffers of at most so many bytes go to all, and every process adds them: one exchange in place of two.
constexpr int64_t kSmallReduction = 4096;

// Larger ones go part by part, so that what others send takes no more memory than that, and is still in the cache when it is added.
constexpr int64_t kReducedPart = int64_t{1} << 20;

int64_t elements_of_part(const tsr_abi_collective& what) {
  const int64_t most = kReducedPart / dtype_bytes(static_cast<DType>(what.dtype), 1);
  return what.kind == kAllReduce ? std::min(what.elements, most) : what.elements;
}

bool is_small_reduction(const tsr_abi_collective& what) {
  return what.kind == kAllReduce &&
         dtype_bytes(static_cast<DType>(what.dtype), what.elements) <= kSmallReduction;
}

// Whether every member gets the same of a member.
bool is_same_for_all(const tsr_abi_collective& what) {
  return what.kind == kAllGather || what.kind == kBroadcast || is_small_reduction(what);
}

CollectiveBlock block_sent(const tsr_abi_collective& what, int32_t from, int32_t to) {
  if (!is_small_reduction(what)) return sent_block(what, from, to);
  return {.run = dtype_bytes(static_cast<DType>(what.dtype), what.elements)};
}

// Host memory that an end's device is copied to and from, where it is not host memory itself.
class HostCopies {
 public:
  HostCopies(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~HostCopies() { release(); }
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  Status reserve(int64_t in_bytes, int64_t out_bytes) {
    if (in_bytes <= in_bytes_ && out_bytes <= out_bytes_) return {};
    release();
    in_bytes_ = std::max(in_bytes, in_bytes_), out_bytes_ = std::max(out_bytes, out_bytes_);
    TSR_RETURN_IF_ERROR(take_error(api_.memory_alloc(device_, 1, std::max<int64_t>(in_bytes_, 1), 0, &in_)));
    return take_error(api_.memory_alloc(device_, 1, std::max<int64_t>(out_bytes_, 1), 0, &out_));
  }
  Status take(tsr_abi_stream* stream, const void* in, int64_t bytes) {
    if (bytes > 0) TSR_RETURN_IF_ERROR(take_error(api_.copy(stream, in, in_, 1, bytes, bytes, bytes)));
    return take_error(api_.stream_synchronize(stream));
  }
  Status give(tsr_abi_stream* stream, void* out, int64_t bytes) {
    if (bytes > 0) TSR_RETURN_IF_ERROR(take_error(api_.copy(stream, out_, out, 1, bytes, bytes, bytes)));
    return take_error(api_.stream_synchronize(stream));  // the next call writes to this memory
  }
  void* in() const { return in_; }
  void* out() const { return out_; }

 private:
  void release() {
    if (in_ != nullptr) api_.memory_free(device_, 1, in_, std::max<int64_t>(in_bytes_, 1));
    if (out_ != nullptr) api_.memory_free(device_, 1, out_, std::max<int64_t>(out_bytes_, 1));
    in_ = out_ = nullptr;
  }

  const tsr_backend_api& api_;
  tsr_abi_device* const device_;
  void *in_ = nullptr, *out_ = nullptr;
  int64_t in_bytes_ = 0, out_bytes_ = 0;
};

int64_t output_bytes(const tsr_abi_collective& what, int32_t position) {
  const auto dtype = static_cast<DType>(what.dtype);
  switch (what.kind) {
    case kReduceScatter: return dtype_bytes(dtype, what.outer * what.extents[position] * what.inner);
    case kAllToAll:
      return dtype_bytes(dtype, what.outer * sum_of_extents(what.extents, what.member_count) * what.middle *
                                    what.extents2[position] * what.inner);
    default: return dtype_bytes(dtype, what.elements);
  }
}

// The members of one group that live here, and the group's end of the transport.
class SpanningGroup {
 public:
  SpanningGroup(Channel& channel, const tsr_host_api& host, std::span<const int32_t> processes)
      : channel_(channel), host_(host), home_(processes.begin(), processes.end()), processes_(home_) {
    std::ranges::sort(processes_);
    processes_.erase(std::ranges::unique(processes_).begin(), processes_.end());
    for (int32_t& home : home_) home = static_cast<int32_t>(std::ranges::lower_bound(processes_, home) - processes_.begin());
    me_ = static_cast<int32_t>(std::ranges::lower_bound(processes_, channel.transport().process()) - processes_.begin());
    for (int32_t position = 0; position < members(); ++position)
      if (home_[static_cast<size_t>(position)] == me_) here_.push_back(position);
    barrier_.emplace(static_cast<int32_t>(here_.size()), std::ssize(here_) <= host.thread_count(host.host));
    calls_.resize(here_.size());
    received_.resize(home_.size());
  }
  ~SpanningGroup() {
    if (group_ != nullptr) channel_.transport().api().leave(group_);
  }
  SpanningGroup(const SpanningGroup&) = delete;
  SpanningGroup& operator=(const SpanningGroup&) = delete;

  // Joins, and makes memory for the calls in `use`.
  Status join(const tsr_abi_comm_use& use) {
    TSR_RETURN_IF_ERROR(take_error(channel_.transport().api().join(
        channel_.get(), processes_.data(), static_cast<int32_t>(processes_.size()), &group_)));
    for (int32_t i = 0; i < use.collective_count; ++i) {
      tsr_abi_collective part = use.collectives[i];
      part.elements = elements_of_part(part);
      what_ = &part;
      lay_out(nullptr);
    }
    what_ = nullptr;
    if (memory_.size() > 1) memory_.erase(memory_.begin(), memory_.end() - 1);
    return {};
  }

  int32_t members() const { return static_cast<int32_t>(home_.size()); }
  const std::vector<int32_t>& here() const { return here_; }
  void abort() { barrier_->abort(); }

  // Called by the thread of each member that lives here; `index` into here().
  Status collective(size_t index, const tsr_abi_collective& what, const void* in, void* out, Perturbation& perturbation) {
    const int32_t position = here_[index];
    TSR_RETURN_IF_ERROR(check_collective(what, position, members(), in, out, [](int32_t dtype, int32_t reduce) {
      return find_reduce(dtype, reduce) != nullptr;
    }));
    return run(index, what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out), perturbation);
  }

  Status send(int32_t peer, const void* in, int64_t bytes) {
    const tsr_transport_part part{home_[static_cast<size_t>(peer)], const_cast<void*>(in), bytes};
    return take_error(channel_.transport().api().exchange(group_, &part, 1, nullptr, 0));
  }
  Status receive(int32_t peer, void* out, int64_t bytes) {
    const tsr_transport_part part{home_[static_cast<size_t>(peer)], out, bytes};
    return take_error(channel_.transport().api().exchange(group_, nullptr, 0, &part, 1));
  }

 private:
  struct Call {
    const tsr_abi_collective* what = nullptr;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
  };

  static Status aborted() { return Status(StatusCode::kAborted, "the communicator was aborted"); }

  Status run(size_t index, const tsr_abi_collective& what, const std::byte* in, std::byte* out, Perturbation& perturbation) {
    perturbation.pause();
    calls_[index] = {&what, in, out};
    if (!barrier_->wait()) return aborted();
    perturbation.pause();
    // Every member here reaches the same verdict, and leaves only when all have read the descriptions.
    Status status = check_agreement(static_cast<int32_t>(index), static_cast<int32_t>(here_.size()),
                                    [&](int32_t other) -> const tsr_abi_collective& { return *calls_[static_cast<size_t>(other)].what; });
    if (status.ok()) TSR_RETURN_IF_ERROR(exchange(index, what));
    perturbation.pause();
    if (!barrier_->wait()) return aborted();
    return status;
  }

  // One thread at a time; an error ends the waits of the others here.
  Status exchange_parts() {
    Status status = take_error(channel_.transport().api().exchange(group_, sends_.data(), static_cast<int32_t>(sends_.size()),
                                                                   receives_.data(), static_cast<int32_t>(receives_.size())));
    if (!status.ok()) abort();
    return status;
  }

  // The block that member `from`, of another process, sent to the member here_[index].
  const std::byte*& received(int32_t from, size_t index) {
    return received_[static_cast<size_t>(from)][is_same_for_all(*what_) ? 0 : index];
  }

  // Lists the parts of the exchange, in the same order on both sides, and where they lie; without calls, memory alone is made.
  void lay_out(const Call* calls) {
    sends_.clear(), receives_.clear();
    const tsr_abi_collective& what = *what_;
    const bool is_same = is_same_for_all(what);
    size_t used = 0;
    for (auto& slots : received_) slots.assign(is_same ? 1 : here_.size(), nullptr);
    for (int32_t process = 0; process < static_cast<int32_t>(processes_.size()); ++process) {
      if (process == me_) continue;
      for (size_t index = 0; index < here_.size(); ++index) {
        for (int32_t to = 0; to < members(); ++to) {
          if (home_[static_cast<size_t>(to)] != process) continue;
          const CollectiveBlock block = block_sent(what, here_[index], to);
          std::byte* data = nullptr;
          if (block.is_contiguous()) {
            if (calls != nullptr && block.run > 0) data = const_cast<std::byte*>(calls[index].in) + block.offset;
          } else {
            data = room(used, block.bytes());
            if (calls != nullptr) pack(block, calls[index].in, data);
          }
          if (block.bytes() > 0) sends_.push_back({process, data, block.bytes()});
          if (is_same) break;
        }
      }
      for (int32_t from = 0; from < members(); ++from) {
        if (home_[static_cast<size_t>(from)] != process) continue;
        for (size_t index = 0; index < (is_same ? 1 : here_.size()); ++index) {
          const CollectiveBlock block = block_sent(what, from, here_[index]);
          if (block.bytes() == 0) continue;
          std::byte* data = nullptr;
          if (const CollectiveBlock placed = placed_block(what, from, here_[index]); is_placed(what) && placed.is_contiguous())
            data = calls != nullptr ? calls[index].out + placed.offset : nullptr;
          else
            data = room(used, block.bytes());
          received_[static_cast<size_t>(from)][index] = data;
          receives_.push_back({process, data, block.bytes()});
        }
      }
    }
  }

  // Whether what is received has a place in the output.
  static bool is_placed(const tsr_abi_collective& what) { return what.kind != kAllReduce && what.kind != kReduceScatter; }

  // Memory for one part, behind what is used of it. Grows while the group is made; addresses of earlier parts of a call must hold,
  // so a call that needs more takes blocks of its own.
  std::byte* room(size_t& used, int64_t bytes) {
    constexpr size_t kAlignment = 64;
    const size_t begin = (used + kAlignment - 1) / kAlignment * kAlignment;
    used = begin + static_cast<size_t>(bytes);
    if (memory_.empty() || used > memory_bytes_) {
      memory_.emplace_back(new std::byte[used + kAlignment]);
      memory_bytes_ = used;
    }
    std::byte* base = memory_.back().get();
    base += (kAlignment - reinterpret_cast<uintptr_t>(base) % kAlignment) % kAlignment;
    return base + begin;
  }

  Status exchange(size_t index, const tsr_abi_collective& what) {
    if (what.kind == kAllReduce && !is_small_reduction(what)) return all_reduce(index, what);
    if (index == 0) {
      what_ = &what;
      now_ = calls_;
      lay_out(now_.data());
      TSR_RETURN_IF_ERROR(exchange_parts());
    }
    if (!barrier_->wait()) return aborted();
    switch (what.kind) {
      case kAllReduce:
        if (index == 0 && what.elements > 0) reduce(index, what, 0, what.elements);
        return {};
      case kReduceScatter: reduce_scatter(index, what); return {};
      default: place(index, what); return {};
    }
  }

  // The inputs of all members as they add: `offset` in those that live here, `in_received` in what others sent.
  const void* const* inputs(std::vector<const void*>& list, size_t index, int64_t offset, int64_t in_received) {
    list.clear();
    size_t local = 0;
    for (int32_t position = 0; position < members(); ++position) {
      if (home_[static_cast<size_t>(position)] == me_)
        list.push_back(now_[local++].in + offset);
      else
        list.push_back(received(position, index) + in_received);
    }
    return list.data();
  }

  // Adds elements of all members, from `begin` on, into the outputs here.
  void reduce(size_t index, const tsr_abi_collective& what, int64_t begin, int64_t count) {
    std::vector<void*> outs;
    for (const Call& call : now_) outs.push_back(call.out);
    std::vector<const void*> ins;
    reduce_on_pool(host_, find_reduce(what.dtype, what.reduce),
                   {inputs(ins, index, dtype_bytes(static_cast<DType>(what.dtype), begin), 0), members(), outs.data(),
                    static_cast<int32_t>(outs.size()), 0, begin, count},
                   static_cast<int32_t>(here_.size()));
  }

  // The calls for a part of the buffers, from element `at` on.
  std::vector<Call> calls_from(int64_t at, DType dtype) const {
    std::vector<Call> part = calls_;
    for (Call& call : part) call.in += dtype_bytes(dtype, at), call.out += dtype_bytes(dtype, at);
    return part;
  }

  // Part by part: inputs go to the owners of their sums, with the sums of the part before to all.
  Status all_reduce(size_t index, const tsr_abi_collective& what) {
    const auto dtype = static_cast<DType>(what.dtype);
    const int64_t size = elements_of_part(what), parts = (what.elements + size - 1) / size;
    for (int64_t i = 0; i <= parts; ++i) {
      const auto part_at = [&](int64_t number) {
        tsr_abi_collective part = what;
        part.elements = std::min(size, what.elements - number * size);
        return part;
      };
      if (index == 0) {
        sends_.clear(), receives_.clear();
        if (i < parts) {
          part_ = part_at(i);
          what_ = &part_;
          now_ = calls_from(i * size, dtype);
          lay_out(now_.data());
        }
        if (i > 0) add_sums(part_at(i - 1), calls_[0].out + dtype_bytes(dtype, (i - 1) * size));
        TSR_RETURN_IF_ERROR(exchange_parts());
      }
      if (!barrier_->wait()) return aborted();
      if (i < parts)
        if (const MemberShare mine = all_reduce_share(part_.elements, members(), here_[index]); mine.count > 0)
          reduce(index, part_, mine.begin, mine.count);
      if (i > 0 && index > 0) copy_sums(part_at(i - 1), index, dtype_bytes(dtype, (i - 1) * size));
      if (!barrier_->wait()) return aborted();
    }
    return {};
  }

  // Each sum goes from its owner to every other process, into the first output there.
  void add_sums(const tsr_abi_collective& what, std::byte* out) {
    for (int32_t position = 0; position < members(); ++position) {
      const int32_t home = home_[static_cast<size_t>(position)];
      const CollectiveBlock sum = sent_block(what, position, position);
      if (sum.run == 0) continue;
      for (int32_t process = 0; process < static_cast<int32_t>(processes_.size()); ++process)
        if (process != me_ && home == me_) sends_.push_back({process, out + sum.offset, sum.run});
      if (home != me_) receives_.push_back({home, out + sum.offset, sum.run});
    }
  }

  // Sums of other processes, from the first output here into another one. `at`: of the part in the buffers.
  void copy_sums(const tsr_abi_collective& what, size_t index, int64_t at) {
    for (int32_t position = 0; position < members(); ++position) {
      const CollectiveBlock sum = sent_block(what, position, position);
      if (sum.run > 0 && home_[static_cast<size_t>(position)] != me_)
        std::memcpy(calls_[index].out + at + sum.offset, calls_[0].out + at + sum.offset, static_cast<size_t>(sum.run));
    }
  }

  void reduce_scatter(size_t index, const tsr_abi_collective& what) {
    const ReduceFn add = find_reduce(what.dtype, what.reduce);
    const CollectiveBlock rows = sent_block(what, here_[index], here_[index]);  // of my part in a whole tensor
    const int64_t count = what.extents[here_[index]] * what.inner;
    if (count == 0) return;
    std::vector<const void*> ins;
    for (int64_t row = 0; row < what.outer; ++row) {
      void* out = calls_[index].out + row * rows.run;
      reduce_on_pool(host_, add,
                     {inputs(ins, index, rows.offset + row * rows.strides[0], row * rows.run), members(), &out, 1, 0, 0, count},
                     static_cast<int32_t>(here_.size()));
    }
  }

  // Puts every member's block into this one's output.
  void place(size_t index, const tsr_abi_collective& what) {
    const Call& mine = calls_[index];
    if (mine.out == nullptr) return;
    size_t local = 0;
    for (int32_t from = 0; from < members(); ++from) {
      const CollectiveBlock placed = placed_block(what, from, here_[index]);
      if (home_[static_cast<size_t>(from)] == me_) {
        const Call& theirs = calls_[local++];
        if (placed.bytes() > 0) copy_block(block_sent(what, from, here_[index]), theirs.in, placed, mine.out);
      } else if (placed.bytes() > 0) {
        unpack(placed, received(from, index), mine.out);
      }
    }
  }

  Channel& channel_;
  const tsr_host_api& host_;
  std::vector<int32_t> home_;  // by position: the member's process, as an index of the next
  std::vector<int32_t> processes_;
  int32_t me_ = 0;
  std::vector<int32_t> here_;  // positions of the members that live here
  tsr_transport_group* group_ = nullptr;
  std::optional<Barrier> barrier_;
  std::vector<Call> calls_;  // of the members here
  std::vector<Call> now_;    // of the part of their buffers that is in progress
  tsr_abi_collective part_{};
  // State of the call in progress; the first member here writes it between two barriers.
  const tsr_abi_collective* what_ = nullptr;
  std::vector<tsr_transport_part> sends_, receives_;
  std::vector<std::vector<const std::byte*>> received_;  // by position and index here
  std::vector<std::unique_ptr<std::byte[]>> memory_;     // the last is of memory_bytes_
  size_t memory_bytes_ = 0;
};

class SpanningEnd : public CommEnd {
 public:
  SpanningEnd(std::shared_ptr<SpanningGroup> group, size_t index, const tsr_backend_api& api, tsr_abi_device* device)
      : group_(std::move(group)), index_(index) {
    counters_.struct_size = sizeof(counters_);
    if (!has_flag(api, TSR_BACKEND_BLOCKING)) copies_ = std::make_unique<HostCopies>(api, device);
  }

  Status reserve(const tsr_abi_comm_use& use) {
    if (copies_ == nullptr) return {};
    int64_t in = use.message_bytes, out = use.message_bytes;
    for (int32_t i = 0; i < use.collective_count; ++i) {
      in = std::max(in, input_bytes(use.collectives[i]));
      out = std::max(out, output_bytes(use.collectives[i], position()));
    }
    return copies_->reserve(in, out);
  }

  Status collective(tsr_abi_stream* stream, const tsr_abi_collective& what, const void* in, void* out) override {
    if (copies_ == nullptr) {
      TSR_RETURN_IF_ERROR(group_->collective(index_, what, in, out, perturbation_));
    } else {
      const int64_t in_bytes = input_bytes(what), out_bytes = output_bytes(what, position());
      TSR_RETURN_IF_ERROR(copies_->reserve(in_bytes, out_bytes));
      TSR_RETURN_IF_ERROR(copies_->take(stream, in, in_bytes));
      TSR_RETURN_IF_ERROR(group_->collective(index_, what, copies_->in(), copies_->out(), perturbation_));
      if (out != nullptr) TSR_RETURN_IF_ERROR(copies_->give(stream, out, out_bytes));
    }
    count_message(counters_, what.kind, ring_bytes(what, position()));
    return {};
  }

  Status send(tsr_abi_stream* stream, int32_t peer, const void* in, int64_t bytes) override {
    perturbation_.pause();
    if (copies_ != nullptr) {
      TSR_RETURN_IF_ERROR(copies_->reserve(bytes, bytes));
      TSR_RETURN_IF_ERROR(copies_->take(stream, in, bytes));
      in = copies_->in();
    }
    TSR_RETURN_IF_ERROR(group_->send(peer, in, bytes));
    count_message(counters_, kSend, bytes);
    return {};
  }

  Status receive(tsr_abi_stream* stream, int32_t peer, void* out, int64_t bytes) override {
    perturbation_.pause();
    if (copies_ != nullptr) TSR_RETURN_IF_ERROR(copies_->reserve(bytes, bytes));
    TSR_RETURN_IF_ERROR(group_->receive(peer, copies_ != nullptr ? copies_->out() : out, bytes));
    if (copies_ != nullptr) TSR_RETURN_IF_ERROR(copies_->give(stream, out, bytes));
    count_message(counters_, kReceive, 0);  // the bytes are the sender's
    return {};
  }

  void abort() override { group_->abort(); }
  Status perturb(uint64_t seed) override {
    perturbation_ = Perturbation(seed);
    return {};
  }
  tsr_abi_comm_counters counters() const override { return counters_; }

 private:
  int32_t position() const { return group_->here()[index_]; }
  int64_t input_bytes(const tsr_abi_collective& what) const {
    return dtype_bytes(static_cast<DType>(what.dtype), input_elements(what, position()));
  }

  std::shared_ptr<SpanningGroup> group_;  // shared by its ends here
  const size_t index_;
  std::unique_ptr<HostCopies> copies_;  // null where device memory is host memory
  tsr_abi_comm_counters counters_{};
  Perturbation perturbation_;
};

}  // namespace

Result<std::vector<std::unique_ptr<CommEnd>>> join_spanning_group(Channel& channel, const tsr_backend_api& api,
                                                                  const tsr_host_api& host, const SpanningMembers& members,
                                                                  const tsr_abi_comm_use& use) {
  const auto group = std::make_shared<SpanningGroup>(channel, host, members.processes);
  TSR_CHECK(group->here().size() == members.devices.size(), "one device for each member here");
  TSR_RETURN_IF_ERROR(group->join(use));
  std::vector<std::unique_ptr<CommEnd>> ends;
  for (size_t index = 0; index < members.devices.size(); ++index) {
    auto end = std::make_unique<SpanningEnd>(group, index, api, members.devices[index]);
    TSR_RETURN_IF_ERROR(end->reserve(use));
    ends.push_back(std::move(end));
  }
  return ends;
}

}  // namespace tessera
