// NCCL's collectives as its documentation says, between the devices of one process. Sums go round a ring, as
// the library's may: each part of the result begins at another rank, and is rounded at every one. A call
// waits until every rank has made its own, which the library's does not: a program that would hang here where
// it need not there is refused by issue_order.h. Whether a call is captured is the same for all ranks, and
// so is which capture a launched graph comes from; a communicator ends after all graphs that hold it, and the
// end of one that was aborted waits for theirs (NCCL's user guide, "Using NCCL with CUDA Graphs"; its
// commDestroySync).
// TESSERA_EMULATED_NCCL=missing: as if there were none; fails: as if it could not start; fails_on=2: not with
// that device; call_fails_on=2: calls of the rank there fail; old: as if it were 2.25.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/backends/cuda/library.h"
#include "tests/cuda_emulator/runtime.h"

namespace {

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

struct Call {
  Kind kind;
  const void* in;
  void* out;
  size_t count;  // as the function takes it
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  uint64_t capture = 0;  // which of its communicator's captured calls it is, from 1; 0: not captured
  bool means(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

struct Group {
  struct Round {
    std::vector<Call> calls;
    std::vector<cudaStream_t> streams;
    size_t arrived = 0, left = 0;
  };
  explicit Group(int members) : members(static_cast<size_t>(members)) {}
  const size_t members;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, Round> rounds;  // by number
  bool is_aborted = false;
  size_t ends_aborted = 0;
  int64_t held = 0;  // captured calls in graphs that are still there
};

// A captured call's reference to its group, in the capture, its graph and all their executables.
class Hold {
 public:
  explicit Hold(std::shared_ptr<Group> group) : group_(std::move(group)) {
    const std::lock_guard lock(group_->mutex);
    ++group_->held;
  }
  ~Hold() {
    const std::lock_guard lock(group_->mutex);
    --group_->held;
    group_->changed.notify_all();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  std::shared_ptr<Group> group_;
};

std::string_view state() {
  const char* said = std::getenv("TESSERA_EMULATED_NCCL");
  return said != nullptr ? said : "";
}

// The state is `what` and this device.
bool is_on(std::string_view what, int device) {
  const std::string_view said = state();
  return said.starts_with(what) && said.substr(what.size()) == std::to_string(device);
}

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr, "cuda emulator: NCCL: %s\n", what);
  std::abort();
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  size_t rank;
  int device;
  std::map<Kind, void*> connections = {};  // memory of the device, from the first call of a kind on
  uint64_t issued = 0, captured = 0;
  bool is_gone = false;
};

namespace {

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
  }
}

template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  if constexpr (sizeof(T) == 2) {
    const float x = static_cast<float>(a), y = static_cast<float>(b);
    return static_cast<T>(op == ncclMax ? std::max(x, y) : x + y);
  } else {
    return op == ncclMax ? std::max(a, b) : static_cast<T>(a + b);
  }
}

// Elements [begin, begin + count) of all ranks' inputs, into memory of their own.
template <class T>
std::vector<char> reduced(const std::vector<Call>& calls, size_t begin, size_t count) {
  const size_t members = calls.size(), part = std::max<size_t>(1, (count + members - 1) / members);
  std::vector<char> bytes(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const size_t first = (i / part + 1) % members;
    T value{};
    for (size_t step = 0; step < members; ++step) {
      T next;
      std::memcpy(&next, static_cast<const T*>(calls[(first + step) % members].in) + begin + i, sizeof(T));
      value = step == 0 ? next : combined(value, next, calls[0].op);
    }
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}
std::vector<char> reduced(const std::vector<Call>& calls, size_t begin, size_t count) {
  switch (calls[0].type) {
    case ncclFloat32: return reduced<float>(calls, begin, count);
    case ncclFloat64: return reduced<double>(calls, begin, count);
    case ncclFloat16: return reduced<__half>(calls, begin, count);
    case ncclBfloat16: return reduced<__nv_bfloat16>(calls, begin, count);
    case ncclInt32: return reduced<int32_t>(calls, begin, count);
    case ncclInt64: return reduced<int64_t>(calls, begin, count);
    case ncclInt8: return reduced<int8_t>(calls, begin, count);
    default: refuse("a type that nobody reduces");
  }
}

void carry_out(const std::vector<Call>& calls) {
  const Call& any = calls[0];
  const size_t bytes = any.count * bytes_of(any.type);
  const auto put = [](const Call& call, const std::vector<char>& from) {
    if (!from.empty()) std::memcpy(call.out, from.data(), from.size());
  };
  std::vector<std::vector<char>> results;  // of all, before any is written: in and out may be one place
  switch (any.kind) {
    case Kind::kAllReduce: results.assign(calls.size(), reduced(calls, 0, any.count)); break;
    case Kind::kReduceScatter:
      for (size_t i = 0; i < calls.size(); ++i) results.push_back(reduced(calls, i * any.count, any.count));
      break;
    case Kind::kAllGather: {
      std::vector<char> whole(bytes * calls.size());
      for (size_t i = 0; i < calls.size(); ++i)
        if (bytes > 0) std::memcpy(whole.data() + i * bytes, calls[i].in, bytes);
      results.assign(calls.size(), whole);
      break;
    }
    case Kind::kBroadcast: {
      const auto* from = static_cast<const char*>(calls[static_cast<size_t>(any.root)].in);
      results.assign(calls.size(), std::vector<char>(from, from + bytes));
      break;
    }
  }
  for (size_t i = 0; i < calls.size(); ++i) put(calls[i], results[i]);
}

// Kernels of NCCL wait on their device for those of others. Two that have no order there may begin in one
// order here and in another there, and then wait for ever where there is room for one.
void meet_in_order(cudaStream_t stream) {
  if (!emulator::follows_meetings(stream)) refuse("two collectives have no order on their device");
  emulator::note_meeting(stream);
}

// The rank comes to the next round, whose number this is.
uint64_t arrive(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  Group& group = *comm->group;
  const std::lock_guard lock(group.mutex);
  const uint64_t number = comm->issued++;
  if (group.is_aborted) return number;
  Group::Round& round = group.rounds[number];
  round.calls.resize(group.members, call);
  round.streams.resize(group.members);
  round.calls[comm->rank] = call;
  round.streams[comm->rank] = stream;
  if (++round.arrived == group.members) {
    for (const Call& other : round.calls) {
      if (!other.means(call)) refuse("the ranks' calls are not the same");
      if ((other.capture == 0) != (call.capture == 0)) refuse("one rank captured what another issues");
      if (other.capture != call.capture) refuse("the ranks' graphs come from different captures");
    }
    for (const cudaStream_t each : round.streams) meet_in_order(each);
    emulator::enqueue_meeting(round.streams, [calls = round.calls] { carry_out(calls); });
    group.changed.notify_all();
  }
  return number;
}

// Returns when all have come to it.
ncclResult_t leave(ncclComm_t comm, uint64_t number) {
  Group& group = *comm->group;
  std::unique_lock lock(group.mutex);
  const auto found = group.rounds.find(number);
  if (found == group.rounds.end()) return ncclInternalError;  // aborted: kernels of a graph end at once
  Group::Round& round = found->second;
  group.changed.wait(lock, [&] { return round.arrived == group.members || group.is_aborted; });
  if (round.arrived < group.members) return ncclInternalError;
  if (++round.left == group.members) group.rounds.erase(number);
  return ncclSuccess;
}

// Between ncclGroupStart and ncclGroupEnd nobody waits: a thread calls for all ranks.
bool is_complete(Group& group, uint64_t number) {
  const std::lock_guard lock(group.mutex);
  const auto found = group.rounds.find(number);
  return found != group.rounds.end() && found->second.arrived == group.members;
}
thread_local bool t_in_group = false;
thread_local std::vector<std::pair<ncclComm_t, uint64_t>> t_arrived;

ncclResult_t take_part(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  {
    const std::lock_guard lock(comm->group->mutex);
    if (comm->group->is_aborted) return ncclInternalError;
  }
  const uint64_t number = arrive(comm, call, stream);
  if (!t_in_group) return leave(comm, number);
  t_arrived.emplace_back(comm, number);
  return ncclSuccess;
}

// As in the library, at a rank's first call.
ncclResult_t connect(ncclComm_t comm, Kind kind) {
  if (comm->connections.contains(kind)) return ncclSuccess;
  constexpr size_t kBytes = size_t{1} << 16;
  return cudaMalloc(&comm->connections[kind], kBytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// At once, or whenever a graph that holds it is launched.
ncclResult_t issue(ncclComm_t comm, Call call, cudaStream_t stream) {
  if (comm->is_gone) refuse("a communicator is used after its end");
  if (is_on("call_fails_on=", comm->device)) return ncclSystemError;
  const Group& group = *comm->group;
  const bool reads = call.kind != Kind::kBroadcast || call.root == static_cast<int>(comm->rank);
  if (call.count > 0 &&
      (!emulator::is_device_memory(call.out) || (reads && !emulator::is_device_memory(call.in))))
    return ncclInvalidArgument;
  if (call.root < 0 || call.root >= static_cast<int>(group.members)) return ncclInvalidArgument;
  if (const ncclResult_t connected = connect(comm, call.kind); connected != ncclSuccess) return connected;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  (void)cudaStreamIsCapturing(stream, &status);
  if (status != cudaStreamCaptureStatusActive) return take_part(comm, call, stream);
  call.capture = ++comm->captured;
  meet_in_order(stream);
  emulator::capture_issue(stream, [comm, call, hold = std::make_shared<Hold>(comm->group)](
                                      cudaStream_t where) { (void)take_part(comm, call, where); });
  return ncclSuccess;
}

// The last of the ends to be aborted returns when no graph holds any: the library's frees them all then.
void disconnect(ncclComm_t comm) {
  for (const auto& [kind, memory] : comm->connections) (void)cudaFree(memory);
  comm->connections.clear();
}
void abort_end(ncclComm_t comm) {
  if (std::exchange(comm->is_gone, true)) refuse("a communicator ends twice");
  disconnect(comm);
  Group& group = *comm->group;
  std::unique_lock lock(group.mutex);
  group.is_aborted = true;
  group.changed.notify_all();
  if (++group.ends_aborted < group.members) return;
  // The library's waits for ever. Counts polls, not time, so that a stopped process does not end the wait.
  constexpr int kLooks = 200;
  for (int look = 0; look < kLooks && group.held > 0; ++look)
    group.changed.wait_for(lock, std::chrono::milliseconds(100));
  if (group.held > 0) refuse("an abort waits for graphs that hold the communicator");
}

tessera::cuda::Nccl make_nccl() {
  tessera::cuda::Nccl nccl{};
  nccl.init_all = [](ncclComm_t* out, int members, const int* devices) {
    if (state() == "fails") return ncclSystemError;
    for (int i = 0; i < members; ++i) {
      if (is_on("fails_on=", devices[i])) return ncclSystemError;
      if (std::count(devices, devices + members, devices[i]) > 1) return ncclInvalidUsage;
    }
    const auto group = std::make_shared<Group>(members);
    for (int i = 0; i < members; ++i) out[i] = new ncclComm{group, static_cast<size_t>(i), devices[i]};
    return ncclSuccess;
  };
  // The struct stays, to tell that it is used again.
  nccl.destroy = [](ncclComm_t comm) {
    if (std::exchange(comm->is_gone, true)) refuse("a communicator ends twice");
    const std::lock_guard lock(comm->group->mutex);
    if (comm->group->held > 0) refuse("a communicator ends before a graph that holds it");
    disconnect(comm);
    return ncclSuccess;
  };
  nccl.abort = [](ncclComm_t comm) {
    abort_end(comm);
    return ncclSuccess;
  };
  nccl.version = [](int* out) {
    *out = state() == "old" ? NCCL_VERSION(2, 25, 1) : NCCL_VERSION_CODE;
    return ncclSuccess;
  };
  nccl.all_reduce = [](const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
    return issue(comm, {Kind::kAllReduce, in, out, count, type, op, 0}, stream);
  };
  nccl.all_gather = [](const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
    return issue(comm, {Kind::kAllGather, in, out, count, type, ncclSum, 0}, stream);
  };
  nccl.reduce_scatter = [](const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return issue(comm, {Kind::kReduceScatter, in, out, count, type, op, 0}, stream);
  };
  nccl.broadcast = [](const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                      cudaStream_t stream) {
    return issue(comm, {Kind::kBroadcast, in, out, count, type, ncclSum, root}, stream);
  };
  nccl.group_start = [] {
    if (std::exchange(t_in_group, true)) refuse("a group in a group");
    return ncclSuccess;
  };
  nccl.group_end = [] {
    if (!std::exchange(t_in_group, false)) refuse("the end of a group that has not begun");
    ncclResult_t result = ncclSuccess;
    for (const auto& [comm, number] : std::exchange(t_arrived, {})) {
      if (!is_complete(*comm->group, number)) return ncclInternalError;  // the call of another rank failed
      if (const ncclResult_t left = leave(comm, number); left != ncclSuccess) result = left;
    }
    return result;
  };
  nccl.error_string = [](ncclResult_t result) -> const char* {
    return result == ncclInvalidArgument ? "invalid argument" : "an error of the emulated NCCL";
  };
  return nccl;
}

}  // namespace

namespace tessera::cuda {

Result<const Nccl*> nccl() {
  if (state() == "missing") return Status(StatusCode::kUnsupported, "NCCL: missing, as the environment says");
  static const Nccl made = make_nccl();
  return &made;
}

}  // namespace tessera::cuda
