// The transport over MPI: messages between two processes at a time, which can be given up. A group has a tag in each of its
// processes, by which the others send to it, so that groups and sessions need no communicators of their own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "graph/base/text.h"
#include "graph/base/thread.h"
#include "runtime/transport_abi.h"
#include "runtime/transports/mpi/heartbeat.h"
#include "runtime/transports/mpi/mpi_calls.h"

using tessera::Result;
using tessera::Status;
using tessera::StatusCode;
using tessera::format;
using tessera::mpi::check;
using tessera::mpi::Heartbeat;
using tessera::mpi::Requests;

namespace {

// Tags: a channel's own traffic, what its groups tell each other when they are joined, and the groups' parts.
enum TagKind : int { kWorldTag, kJoinTag, kGroupTag, kTagKinds };


// MPI can begin once in a process, and ends with it.
std::atomic<bool> may_finalize{true}, has_ended{false};
std::atomic<int64_t> calls{0};  // of MPI, in progress

template <class Body>
tsr_abi_error* guarded(const tsr_host_api& host, Body&& body) {
  const Status status = tessera::catch_status(body);
  return status.ok() ? nullptr
                     : host.make_error(host.host, static_cast<int32_t>(status.code()), std::string(status.message()).c_str());
}

// `guarded` for what calls MPI, which is refused once the process ends.
template <class Body>
tsr_abi_error* guarded_call(const tsr_host_api& host, Body&& body) {
  struct Call {
    Call() { ++calls; }
    ~Call() { --calls; }
  } const call;
  return guarded(host, [&]() -> Status {
    if (has_ended) return Status(StatusCode::kFailedPrecondition, "MPI has ended with the process, and joins no processes any more");
    return body();
  });
}

// Programs may end without freeing what they have. Never destroyed: they are used at the process's end.
struct OpenTransports {
  std::mutex mutex;
  std::set<tsr_transport*> all;
};
OpenTransports& open_transports() {
  static auto* const transports = new OpenTransports;
  return *transports;
}
void end_heartbeats();

// It waits for the other processes, which may be waiting for a program that has failed, or for a call that another thread has left unfinished: the
// launcher ends these then.
void finalize(int status, void*) {
  int is_over = 0;
  if (status != 0 || MPI_Finalized(&is_over) != MPI_SUCCESS || is_over != 0) return;
  has_ended = true;
  end_heartbeats();
  constexpr auto kPatience = std::chrono::seconds(1);
  for (const auto until = std::chrono::steady_clock::now() + kPatience; calls > 0 && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (calls == 0 && may_finalize) (void)MPI_Finalize();
}

Status begin() {
  int is_begun = 0, is_over = 0, level = MPI_THREAD_SINGLE;
  TSR_RETURN_IF_ERROR(check(MPI_Finalized(&is_over), "MPI_Finalized"));
  if (is_over != 0)
    return Status(StatusCode::kFailedPrecondition, "MPI is finalized in this process, and cannot begin again: make the runtime before MPI_Finalize");
  TSR_RETURN_IF_ERROR(check(MPI_Initialized(&is_begun), "MPI_Initialized"));
  if (is_begun == 0) {
    TSR_RETURN_IF_ERROR(check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread"));
    on_exit(finalize, nullptr);
  } else {
    TSR_RETURN_IF_ERROR(check(MPI_Query_thread(&level), "MPI_Query_thread"));
  }
  if (level == MPI_THREAD_MULTIPLE) return {};
  constexpr const char* kLevels[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED"};
  return Status(StatusCode::kFailedPrecondition,
                format("MPI has the thread level {}, wanted MPI_THREAD_MULTIPLE: call MPI_Init_thread with it, or leave MPI to the library",
                       kLevels[std::clamp(level - MPI_THREAD_SINGLE, 0, 2)]));
}

}  // namespace

struct tsr_transport {
  const tsr_host_api* host = nullptr;
  MPI_Comm world = MPI_COMM_NULL, beats = MPI_COMM_NULL;
  int process = 0, processes = 1, machine = 0, machines = 1;
  int most_tag = 0;
  char name[TSR_TRANSPORT_HOST_NAME_SIZE] = {};
  std::unique_ptr<Heartbeat> heartbeat;
  std::atomic<int64_t> channels{0}, groups{0};

  // Numbers come round again: what has the number before is long over.
  int tag(TagKind kind, int64_t number) const {
    return static_cast<int>(number % (most_tag / kTagKinds)) * kTagKinds + kind;
  }
};

struct tsr_transport_channel {
  tsr_transport* transport = nullptr;
  int64_t number = 0;

  int tag(TagKind kind) const { return transport->tag(kind, number); }
  Status failure() const { return transport->heartbeat->failure(number); }
  // The status of a wait; the error itself is `failure`.
  Status ended() const {
    return failure().ok() ? Status() : Status(StatusCode::kAborted, "the channel between the processes was ended");
  }
};

struct tsr_transport_group {
  tsr_transport_channel* channel = nullptr;
  std::vector<int> processes, tags;  // by position
  int my_tag = 0;
};

namespace {

void end_heartbeats() {
  OpenTransports& open = open_transports();
  const std::lock_guard lock(open.mutex);
  for (tsr_transport* const it : open.all) {
    if (it->heartbeat->has_lost_world()) may_finalize = false;
    it->heartbeat->stop();
  }
}

Status join_machines(tsr_transport& it) {
  MPI_Comm machine = MPI_COMM_NULL;
  TSR_RETURN_IF_ERROR(
      check(MPI_Comm_split_type(it.world, MPI_COMM_TYPE_SHARED, it.process, MPI_INFO_NULL, &machine), "MPI_Comm_split_type"));
  int first = it.process;
  TSR_RETURN_IF_ERROR(check(MPI_Bcast(&first, 1, MPI_INT, 0, machine), "MPI_Bcast"));
  MPI_Comm_free(&machine);
  std::vector<int> firsts(static_cast<size_t>(it.processes));
  TSR_RETURN_IF_ERROR(check(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, it.world), "MPI_Allgather"));
  std::vector<int> known(firsts);
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  it.machines = static_cast<int>(known.size());
  it.machine = static_cast<int>(std::ranges::lower_bound(known, first) - known.begin());
  return {};
}

Status open(const tsr_host_api& host, const tsr_transport_options& options, tsr_transport** out) {
  TSR_RETURN_IF_ERROR(begin());
  auto made = std::make_unique<tsr_transport>();
  made->host = &host;
  const MPI_Comm given = options.comm < 0 ? MPI_COMM_WORLD : MPI_Comm_f2c(static_cast<MPI_Fint>(options.comm));
  if (given == MPI_COMM_NULL)
    return Status(StatusCode::kInvalidArgument, format("the communicator {} does not exist; wanted one of MPI_Comm_c2f", options.comm));
  for (MPI_Comm* const copy : {&made->world, &made->beats}) {
    TSR_RETURN_IF_ERROR(check(MPI_Comm_dup(given, copy), "MPI_Comm_dup"));
    TSR_RETURN_IF_ERROR(check(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  }
  TSR_RETURN_IF_ERROR(check(MPI_Comm_rank(made->world, &made->process), "MPI_Comm_rank"));
  TSR_RETURN_IF_ERROR(check(MPI_Comm_size(made->world, &made->processes), "MPI_Comm_size"));
  int* most_tag = nullptr;
  int has_most = 0;
  TSR_RETURN_IF_ERROR(check(MPI_Comm_get_attr(made->world, MPI_TAG_UB, &most_tag, &has_most), "MPI_Comm_get_attr"));
  made->most_tag = has_most != 0 ? *most_tag : 32767;
  char name[MPI_MAX_PROCESSOR_NAME] = {}, previous[TSR_TRANSPORT_HOST_NAME_SIZE] = {};
  int length = 0;
  TSR_RETURN_IF_ERROR(check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name"));
  std::memcpy(made->name, name, std::min(static_cast<size_t>(length), sizeof made->name - 1));
  TSR_RETURN_IF_ERROR(join_machines(*made));
  const int next = (made->process + 1) % made->processes, before = (made->process + made->processes - 1) % made->processes;
  TSR_RETURN_IF_ERROR(check(MPI_Sendrecv(made->name, sizeof made->name, MPI_CHAR, next, 0, previous, sizeof previous, MPI_CHAR, before, 0,
                                         made->world, MPI_STATUS_IGNORE),
                            "MPI_Sendrecv"));
  made->heartbeat = std::make_unique<Heartbeat>(made->beats, options.timeout_s, previous);
  OpenTransports& open = open_transports();
  const std::lock_guard lock(open.mutex);
  open.all.insert(made.get());
  *out = made.release();
  return {};
}

// MPI's own start waits for all processes, and nothing ends it: a thread waits for it, and is left there where a process is
// lost before it has begun.
Status open_in_time(const tsr_host_api& host, const tsr_transport_options& options, tsr_transport** out) {
  if (options.timeout_s <= 0) return open(host, options, out);
  struct Opening {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> status;
    tsr_transport* made = nullptr;
  };
  const auto opening = std::make_shared<Opening>();
  auto thread = std::make_unique<tessera::Thread>([opening, host = &host, options] {
    tsr_transport* made = nullptr;
    Status status = tessera::catch_status([&] { return open(*host, options, &made); });
    const std::lock_guard lock(opening->mutex);
    opening->status = std::move(status);
    opening->made = made;
    opening->changed.notify_all();
  });
  std::unique_lock lock(opening->mutex);
  const auto is_done = [&] { return opening->status.has_value(); };
  if (!opening->changed.wait_for(lock, std::chrono::duration<double>(options.timeout_s), is_done)) {
    may_finalize = false;
    (void)thread.release();
    return Status(StatusCode::kTimeout, format("not all processes have started within {} s: one has died or hangs, or the launcher has not "
                                               "started it",
                                               options.timeout_s));
  }
  *out = opening->made;
  return *opening->status;
}

// Without all processes MPI does not end.
void close(tsr_transport* transport) {
  {
    OpenTransports& open = open_transports();
    const std::lock_guard lock(open.mutex);
    open.all.erase(transport);
  }
  if (transport->heartbeat->has_lost_world()) may_finalize = false;
  transport->heartbeat.reset();
  int is_over = 0;
  if (may_finalize && !has_ended && MPI_Finalized(&is_over) == MPI_SUCCESS && is_over == 0) {
    MPI_Comm_free(&transport->beats);
    MPI_Comm_free(&transport->world);
  }
  delete transport;
}

Status post(Requests& requests, const tsr_transport_group& group, const tsr_transport_part* sends, int32_t send_count,
            const tsr_transport_part* receives, int32_t receive_count) {
  const tsr_transport& it = *group.channel->transport;
  // Sends first: where large receives are posted before, Open MPI 4.1 moves one direction of a TCP link after the other.
  for (int32_t i = 0; i < send_count; ++i) {
    const auto to = static_cast<size_t>(sends[i].process);
    TSR_RETURN_IF_ERROR(requests.send(sends[i].data, sends[i].bytes, group.processes[to], group.tags[to], it.world));
  }
  for (int32_t i = 0; i < receive_count; ++i)
    TSR_RETURN_IF_ERROR(requests.receive(receives[i].data, receives[i].bytes, group.processes[static_cast<size_t>(receives[i].process)],
                                         group.my_tag, it.world));
  return {};
}

// A tree: process `root` + i gets it from i without its highest bit.
Status broadcast(const tsr_transport_channel& channel, int32_t root, void* data, int64_t bytes) {
  const tsr_transport& it = *channel.transport;
  const int me = (it.process - root + it.processes) % it.processes, tag = channel.tag(kWorldTag);
  const auto ended = [&] { return channel.ended(); };
  int reach = 1;
  while (reach <= me) reach *= 2;
  if (me > 0) {
    Requests from;
    TSR_RETURN_IF_ERROR(from.receive(data, bytes, (me - reach / 2 + root) % it.processes, tag, it.world));
    TSR_RETURN_IF_ERROR(from.wait(ended));
  }
  Requests to;
  for (; me + reach < it.processes; reach *= 2)
    TSR_RETURN_IF_ERROR(to.send(data, bytes, (me + reach + root) % it.processes, tag, it.world));
  return to.wait(ended);
}

// Bruck's all-gather: in each of log2 rounds as many blocks as are known go to a process that far away (Bruck et al., 1997).
Status gather(const tsr_transport_channel& channel, const void* in, int64_t bytes, void* out) {
  const tsr_transport& it = *channel.transport;
  const int count = it.processes, tag = channel.tag(kWorldTag);
  const auto size = static_cast<size_t>(bytes);
  std::vector<std::byte> blocks(size * static_cast<size_t>(count));  // from this process on
  if (size > 0) std::memcpy(blocks.data(), in, size);
  for (int known = 1; known < count; known *= 2) {
    const int64_t moved = std::min(known, count - known) * bytes;
    Requests requests;
    TSR_RETURN_IF_ERROR(requests.receive(blocks.data() + known * bytes, moved, (it.process + known) % count, tag, it.world));
    TSR_RETURN_IF_ERROR(requests.send(blocks.data(), moved, (it.process - known + count) % count, tag, it.world));
    TSR_RETURN_IF_ERROR(requests.wait([&] { return channel.ended(); }));
  }
  for (int i = 0; i < count && size > 0; ++i)
    std::memcpy(static_cast<std::byte*>(out) + static_cast<size_t>((it.process + i) % count) * size, blocks.data() + static_cast<size_t>(i) * size, size);
  return {};
}

// The first process hears every member's tag, and tells all of them.
Status join(tsr_transport_channel* channel, const int32_t* processes, int32_t count, tsr_transport_group** out) {
  tsr_transport& it = *channel->transport;
  auto made = std::make_unique<tsr_transport_group>();
  made->channel = channel;
  made->processes.assign(processes, processes + count);
  made->tags.resize(static_cast<size_t>(count));
  const int64_t number = it.groups++;
  made->my_tag = it.tag(kGroupTag, number);
  const int tag = channel->tag(kJoinTag), first = made->processes[0];
  const auto ended = [&] { return channel->ended(); };
  const int64_t table_bytes = static_cast<int64_t>(sizeof(int)) * count;
  Requests requests;
  if (it.process == first) {
    made->tags[0] = made->my_tag;
    for (size_t i = 1; i < made->processes.size(); ++i)
      TSR_RETURN_IF_ERROR(requests.receive(&made->tags[i], sizeof(int), made->processes[i], tag, it.world));
    TSR_RETURN_IF_ERROR(requests.wait(ended));
    for (size_t i = 1; i < made->processes.size(); ++i)
      TSR_RETURN_IF_ERROR(requests.send(made->tags.data(), table_bytes, made->processes[i], tag, it.world));
  } else {
    TSR_RETURN_IF_ERROR(requests.send(&made->my_tag, sizeof(int), first, tag, it.world));
    TSR_RETURN_IF_ERROR(requests.receive(made->tags.data(), table_bytes, first, tag, it.world));
  }
  TSR_RETURN_IF_ERROR(requests.wait(ended));
  *out = made.release();
  return {};
}

constexpr tsr_transport_api kApi = {
    .struct_size = sizeof(tsr_transport_api),
    .name = "mpi",
    .abi_version = 1,
    .unavailable_reason = []() -> const char* { return nullptr; },
    .open = [](const tsr_host_api* host, const tsr_transport_options* options,
               tsr_transport** out) { return guarded_call(*host, [&] { return open_in_time(*host, *options, out); }); },
    .close = close,
    .describe =
        [](tsr_transport* transport, tsr_transport_info* out) {
          out->process = transport->process;
          out->processes = transport->processes;
          out->host = transport->machine;
          out->hosts = transport->machines;
          std::memcpy(out->host_name, transport->name, sizeof out->host_name);
        },
    .open_channel =
        [](tsr_transport* transport, tsr_transport_channel** out) {
          return guarded(*transport->host, [&]() -> Status {
            *out = new tsr_transport_channel{transport, transport->channels++};
            return {};
          });
        },
    .close_channel = [](tsr_transport_channel* channel) { delete channel; },
    .broadcast =
        [](tsr_transport_channel* channel, int32_t root, void* data, int64_t bytes) {
          return guarded_call(*channel->transport->host, [&] { return broadcast(*channel, root, data, bytes); });
        },
    .gather =
        [](tsr_transport_channel* channel, const void* in, int64_t bytes, void* out) {
          return guarded_call(*channel->transport->host, [&] { return gather(*channel, in, bytes, out); });
        },
    .abort =
        [](tsr_transport_channel* channel, int32_t code, const char* message) {
          // The text may not fit into memory: then the end alone is told.
          try {
            channel->transport->heartbeat->end(channel->number, Status(static_cast<StatusCode>(code), message));
          } catch (...) {
            channel->transport->heartbeat->end(channel->number, Status::out_of_memory());
          }
        },
    .failure =
        [](tsr_transport_channel* channel) { return guarded(*channel->transport->host, [&] { return channel->failure(); }); },
    .join =
        [](tsr_transport_channel* channel, const int32_t* processes, int32_t count, tsr_transport_group** out) {
          return guarded_call(*channel->transport->host, [&] { return join(channel, processes, count, out); });
        },
    .leave = [](tsr_transport_group* group) { delete group; },
    .exchange =
        [](tsr_transport_group* group, const tsr_transport_part* sends, int32_t send_count, const tsr_transport_part* receives,
           int32_t receive_count) {
          return guarded_call(*group->channel->transport->host, [&]() -> Status {
            Requests requests;
            TSR_RETURN_IF_ERROR(post(requests, *group, sends, send_count, receives, receive_count));
            return requests.wait([&] { return group->channel->ended(); });
          });
        },
    .note_activity = [](tsr_transport* transport) { transport->heartbeat->note_activity(); },
    .idle_seconds = [](tsr_transport* transport) { return transport->heartbeat->idle_s(); },
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const tsr_transport_api* tsr_transport_v1(const tsr_host_api*) {
  return &kApi;
}
