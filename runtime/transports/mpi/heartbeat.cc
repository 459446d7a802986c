#include "runtime/transports/mpi/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "graph/base/text.h"

namespace tessera::mpi {

namespace {

enum Kind : int32_t { kBeat, kLeave, kEnd };
constexpr int kTag = 0;
constexpr auto kPeriod = std::chrono::milliseconds(5);

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Heartbeat::Heartbeat(MPI_Comm comm, double timeout_s, std::string previous)
    : comm_(comm), timeout_s_(timeout_s), previous_(std::move(previous)) {
  MPI_Comm_rank(comm_, &me_);
  MPI_Comm_size(comm_, &processes_);
  heard_s_ = now_s();
  active_s_ = heard_s_;
  if (processes_ > 1) thread_ = Thread([this] { run(); });
}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::stop() {
  closing_.store(true, std::memory_order_release);
  thread_ = {};
}

void Heartbeat::end(int64_t number, const Status& why) {
  Message message{number, kEnd, static_cast<int32_t>(why.code()), 0, {}};
  const std::string text(why.message());
  std::memcpy(message.text, text.data(), std::min(text.size(), sizeof message.text - 1));
  note(message);
}

Status Heartbeat::failure(int64_t number) const {
  if (!has_failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  auto found = ends_.find(number);
  if (found == ends_.end()) found = ends_.find(kAll);
  if (found == ends_.end()) return {};
  return Status(static_cast<StatusCode>(found->second.code), found->second.text);
}

void Heartbeat::note_activity(double ago_s) {
  const double then = now_s() - ago_s;
  for (double known = active_s_.load(); known < then && !active_s_.compare_exchange_weak(known, then);) {
  }
}

double Heartbeat::idle_s() const { return now_s() - active_s_.load(); }

void Heartbeat::note(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (ends_.contains(kAll)) return;
  if (ends_.emplace(message.channel, message).second) to_pass_on_.push_back(message);
  has_failed_.store(true, std::memory_order_release);
  if (message.channel == kAll) has_lost_world_.store(true, std::memory_order_release);
}

// ---- the thread

void Heartbeat::run() {
  while (!closing_.load(std::memory_order_acquire)) {
    receive();
    pass_on_all();
    beat();
    watch();
    drop_sent();
    std::this_thread::sleep_for(kPeriod);
  }
  pass_on_all();  // what ended this process ends the others
  post({kAll, kLeave, 0, 0, {}}, (me_ + 1) % processes_);
  constexpr double kPatience = 1;
  for (const double until = now_s() + kPatience; !sent_.empty() && now_s() < until; drop_sent())
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  for (Sent& sent : sent_) (void)MPI_Request_free(&sent.request);
}

void Heartbeat::receive() {
  for (int is_there = 1; is_there != 0;) {
    MPI_Status status{};
    if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &is_there, &status) != MPI_SUCCESS || is_there == 0) return;
    Message message{};
    if (MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kTag, comm_, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (status.MPI_SOURCE == (me_ + processes_ - 1) % processes_) heard_s_ = now_s();
    if (message.kind == kLeave) left_s_ = now_s();
    if (message.kind == kEnd) note(message);
    if (message.kind == kBeat) note_activity(message.idle_s);
  }
}

void Heartbeat::pass_on_all() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(to_pass_on_);
  }
  for (const Message& message : messages) pass_on(message);
}

void Heartbeat::pass_on(const Message& message) {
  for (int64_t distance = 1; distance < processes_; distance *= 2) post(message, static_cast<int>((me_ + distance) % processes_));
}

void Heartbeat::post(const Message& message, int process) {
  Sent& sent = sent_.emplace_back(Sent{message});
  if (MPI_Isend(&sent.message, sizeof sent.message, MPI_BYTE, process, kTag, comm_, &sent.request) != MPI_SUCCESS) sent_.pop_back();
}

void Heartbeat::drop_sent() {
  std::erase_if(sent_, [](Sent& sent) {
    int done = 0;
    return MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

// One beat at a time: a process that takes none has them counted once, when it goes on.
void Heartbeat::beat() {
  if (timeout_s_ <= 0 || !sent_.empty() || now_s() - beat_s_ < std::min(1.0, timeout_s_ / 5)) return;
  beat_s_ = now_s();
  pass_on({kAll, kBeat, 0, idle_s(), {}});
}

// Counts from its own last look: a process that was stopped blames nobody.
void Heartbeat::watch() {
  const double now = now_s();
  const double last_look = std::exchange(look_s_, now);
  if (timeout_s_ <= 0 || is_reported_) return;
  if (now - last_look > timeout_s_ / 4) heard_s_ = now;
  if (now - (left_s_ > 0 ? left_s_ : heard_s_) < timeout_s_) return;
  is_reported_ = true;
  const std::string process = format("process {} on {}", (me_ + processes_ - 1) % processes_, previous_);
  end(kAll, left_s_ > 0 ? Status(StatusCode::kTimeout, format("{} has ended, and others wait for it; its own message says why", process))
                        : Status(StatusCode::kTimeout, format("{} has not been heard of for {} s: it has died or hangs, or its machine "
                                                              "or the network is gone",
                                                              process, timeout_s_)));
}

}  // namespace tessera::mpi
