#include "tests/thread_world.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/base/status.h"

using tessera::Status;
using tessera::StatusCode;
using tessera::test::ThreadWorld;

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// A channel, once for all of its processes.
struct SharedChannel {
  struct Post {
    const void* data;
    int64_t bytes;
    bool is_taken = false;
  };
  using GroupKey = std::pair<std::vector<int32_t>, int32_t>;  // processes, and which of their groups
  using Key = std::tuple<GroupKey, int64_t, int32_t, int32_t, int32_t>;  // group, its exchange, from, to, which part

  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, Post*> posts;
  int32_t code = 0;  // of the abort
  std::string message;
};

struct ThreadWorld::Impl {
  explicit Impl(int32_t given) : processes(given) {}
  const int32_t processes;
  std::vector<ThreadWorld::End*> ends;
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<SharedChannel>> channels;  // by number
  std::atomic<int64_t> active_ns{now_ns()};                    // when some process last did something
};

struct ThreadWorld::End {
  ThreadWorld::Impl* world;
  int32_t process;
};

struct tsr_transport {
  ThreadWorld::End end;
  const tsr_host_api* host;
  int64_t channels = 0;  // opened
};

struct tsr_transport_channel {
  tsr_transport* transport;
  std::shared_ptr<SharedChannel> shared;
  tsr_transport_group* world = nullptr;
  std::map<std::vector<int32_t>, int32_t> groups = {};  // joined, by processes
};

struct tsr_transport_group {
  tsr_transport_channel* channel;
  SharedChannel::GroupKey key;
  int32_t me = 0;  // position
  // Exchanges with each process so far, by direction: sends and receives between two match in their order.
  std::map<int32_t, int64_t> sent, received;
};

namespace {

tsr_abi_error* error_of(const tsr_transport& transport, int32_t code, const std::string& message) {
  return transport.host->make_error(transport.host->host, code, message.c_str());
}

tsr_abi_error* aborted(const tsr_transport_channel& channel) {
  return error_of(*channel.transport, static_cast<int32_t>(StatusCode::kAborted), "the channel was aborted");
}

tsr_abi_error* exchange(tsr_transport_group* group, const tsr_transport_part* sends, int32_t send_count,
                        const tsr_transport_part* receives, int32_t receive_count) {
  SharedChannel& shared = *group->channel->shared;
  std::vector<SharedChannel::Post> mine(static_cast<size_t>(send_count));
  std::unique_lock lock(shared.mutex);
  const auto numbers = [](std::map<int32_t, int64_t>& counts, const tsr_transport_part* parts, int32_t count) {
    std::map<int32_t, int64_t> now;
    for (int32_t i = 0; i < count; ++i)
      if (!now.contains(parts[i].process)) now[parts[i].process] = counts[parts[i].process]++;
    return now;
  };
  const auto sent = numbers(group->sent, sends, send_count), received = numbers(group->received, receives, receive_count);
  std::map<int32_t, int32_t> parts_to, parts_from;  // so far, in this exchange
  for (int32_t i = 0; i < send_count; ++i) {
    mine[static_cast<size_t>(i)] = {sends[i].data, sends[i].bytes};
    shared.posts[{group->key, sent.at(sends[i].process), group->me, sends[i].process, parts_to[sends[i].process]++}] =
        &mine[static_cast<size_t>(i)];
  }
  shared.changed.notify_all();
  tsr_abi_error* failed = nullptr;
  int32_t got = 0;
  for (int32_t i = 0; i < receive_count && failed == nullptr; ++i) {
    const SharedChannel::Key key{group->key, received.at(receives[i].process), receives[i].process, group->me, parts_from[receives[i].process]++};
    shared.changed.wait(lock, [&] { return shared.code != 0 || shared.posts.contains(key); });
    if (!shared.posts.contains(key)) break;
    ++got;
    SharedChannel::Post& post = *shared.posts.at(key);
    if (post.bytes != receives[i].bytes)
      failed = error_of(*group->channel->transport, static_cast<int32_t>(StatusCode::kInternal),
                        std::to_string(post.bytes) + " bytes were sent, " + std::to_string(receives[i].bytes) + " expected");
    else if (post.bytes > 0)
      std::memcpy(receives[i].data, post.data, static_cast<size_t>(post.bytes));
    post.is_taken = true;
    shared.posts.erase(key);
    shared.changed.notify_all();
  }
  const auto is_taken = [](const SharedChannel::Post& post) { return post.is_taken; };
  shared.changed.wait(lock, [&] { return shared.code != 0 || failed != nullptr || std::ranges::all_of(mine, is_taken); });
  std::erase_if(shared.posts, [&](const auto& it) {
    return std::ranges::any_of(mine, [&](const SharedChannel::Post& post) { return it.second == &post; });
  });
  if (failed != nullptr) return failed;
  const bool is_done = got == receive_count && std::ranges::all_of(mine, is_taken);
  return is_done ? nullptr : aborted(*group->channel);
}

tsr_abi_error* join(tsr_transport_channel* channel, const int32_t* processes, int32_t count, tsr_transport_group** out) {
  const std::vector<int32_t> members(processes, processes + count);
  auto* group = new tsr_transport_group{channel, {members, channel->groups[members]++}, 0, {}, {}};
  while (members[static_cast<size_t>(group->me)] != channel->transport->end.process) ++group->me;
  *out = group;
  return nullptr;
}

tsr_abi_error* broadcast(tsr_transport_channel* channel, int32_t root, void* data, int64_t bytes) {
  std::vector<tsr_transport_part> sends, receives;
  const ThreadWorld::End& end = channel->transport->end;
  if (end.process == root) {
    for (int32_t process = 0; process < end.world->processes; ++process)
      if (process != root) sends.push_back({process, data, bytes});
  } else {
    receives.push_back({root, data, bytes});
  }
  return exchange(channel->world, sends.data(), static_cast<int32_t>(sends.size()), receives.data(),
                  static_cast<int32_t>(receives.size()));
}

tsr_abi_error* gather(tsr_transport_channel* channel, const void* in, int64_t bytes, void* out) {
  std::vector<tsr_transport_part> sends, receives;
  const ThreadWorld::End& end = channel->transport->end;
  for (int32_t process = 0; process < end.world->processes; ++process) {
    auto* at = static_cast<std::byte*>(out) + process * bytes;
    if (process == end.process) {
      std::memcpy(at, in, static_cast<size_t>(bytes));
      continue;
    }
    sends.push_back({process, const_cast<void*>(in), bytes});
    receives.push_back({process, at, bytes});
  }
  return exchange(channel->world, sends.data(), static_cast<int32_t>(sends.size()), receives.data(),
                  static_cast<int32_t>(receives.size()));
}

tsr_abi_error* open_channel(tsr_transport* transport, tsr_transport_channel** out) {
  auto* channel = new tsr_transport_channel{transport, nullptr};
  {
    const std::lock_guard lock(transport->end.world->mutex);
    auto& shared = transport->end.world->channels[transport->channels++];
    if (shared == nullptr) shared = std::make_shared<SharedChannel>();
    channel->shared = shared;
  }
  std::vector<int32_t> all;
  for (int32_t process = 0; process < transport->end.world->processes; ++process) all.push_back(process);
  *out = channel;
  return join(channel, all.data(), static_cast<int32_t>(all.size()), &channel->world);
}

constexpr tsr_transport_api kApi = {
    .struct_size = sizeof(tsr_transport_api),
    .name = "threads",
    .abi_version = 1,
    .unavailable_reason = []() -> const char* { return nullptr; },
    .open = [](const tsr_host_api* host, const tsr_transport_options* options, tsr_transport** out) -> tsr_abi_error* {
      *out = new tsr_transport{*reinterpret_cast<const ThreadWorld::End*>(options->comm), host};
      return nullptr;
    },
    .close = [](tsr_transport* transport) { delete transport; },
    .describe =
        [](tsr_transport* transport, tsr_transport_info* out) {
          out->process = transport->end.process;
          out->processes = transport->end.world->processes;
          out->hosts = 1;
        },
    .open_channel = open_channel,
    .close_channel =
        [](tsr_transport_channel* channel) {
          delete channel->world;
          delete channel;
        },
    .broadcast = broadcast,
    .gather = gather,
    .abort =
        [](tsr_transport_channel* channel, int32_t code, const char* message) {
          const std::lock_guard lock(channel->shared->mutex);
          if (channel->shared->code == 0) channel->shared->code = code, channel->shared->message = message;
          channel->shared->changed.notify_all();
        },
    .failure = [](tsr_transport_channel* channel) -> tsr_abi_error* {
      const std::lock_guard lock(channel->shared->mutex);
      return channel->shared->code == 0 ? nullptr
                                        : error_of(*channel->transport, channel->shared->code, channel->shared->message);
    },
    .join = join,
    .leave = [](tsr_transport_group* group) { delete group; },
    .exchange = exchange,
    .note_activity = [](tsr_transport* transport) { transport->end.world->active_ns = now_ns(); },
    .idle_seconds = [](tsr_transport* transport) { return static_cast<double>(now_ns() - transport->end.world->active_ns) / 1e9; },
};

}  // namespace

namespace tessera::test {

ThreadWorld::ThreadWorld(int32_t processes) : impl_(std::make_unique<Impl>(processes)) {
  for (int32_t process = 0; process < processes; ++process) impl_->ends.push_back(new End{impl_.get(), process});
}

ThreadWorld::~ThreadWorld() {
  for (End* end : impl_->ends) delete end;
}

const tsr_transport_api& ThreadWorld::api() { return kApi; }

TransportOptions ThreadWorld::options_of(int32_t process) {
  return {.comm = reinterpret_cast<int64_t>(impl_->ends[static_cast<size_t>(process)])};
}

void ThreadWorld::run(int32_t processes, const tsr_host_api& host,
                      const std::function<void(const std::shared_ptr<Transport>&)>& body) {
  ThreadWorld world(processes);
  std::vector<std::thread> threads;
  for (int32_t process = 0; process < processes; ++process)
    threads.emplace_back([&, process] { body(Transport::open(api(), host, world.options_of(process)).value()); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tessera::test
