// Heartbeat: tells each process whether the others live and do something, and ends what they do together once one fails. A thread of
// each sends beats along distances of 1, 2, 4, ... around the world, so that each process sends as many messages as the world has bits, and
// misses those of the process before it. An end is passed on likewise.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/base/thread.h"
#include "runtime/transports/mpi/mpi_calls.h"

namespace tessera::mpi {

class Heartbeat {
 public:
  // `comm` is its own. `timeout_s`: 0 watches nobody. `previous`: the machine of the process before this one. Throws
  // std::system_error where there is no thread.
  Heartbeat(MPI_Comm comm, double timeout_s, std::string previous);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Tells the others that this process leaves, and sends no more. Not at the same time as another stop.
  void stop();
  // Ends channel `number` in all processes. The first end counts, and no end after the loss of a process does. Any thread.
  void end(int64_t number, const Status& why);
  // Why the channel has ended here; ok: it has not. Any thread.
  Status failure(int64_t number) const;
  // This process, or one that it hears of, has done something; see tsr_transport_api.
  void note_activity(double ago_s = 0);
  double idle_s() const;
  bool has_lost_world() const { return has_lost_world_.load(std::memory_order_acquire); }  // a process is lost

 private:
  struct Message {
    int64_t channel;  // -1: all
    int32_t kind;     // a beat, a leave or an end
    int32_t code;
    double idle_s;    // of a beat
    char text[480];
  };
  static constexpr int64_t kAll = -1;

  void run();
  void beat();
  void receive();
  void watch();
  void note(const Message& message);
  void pass_on_all();
  void pass_on(const Message& message);
  void post(const Message& message, int process);
  void drop_sent();

  const MPI_Comm comm_;
  const double timeout_s_;
  const std::string previous_;
  int me_ = 0, processes_ = 1;
  mutable std::mutex mutex_;            // guards the next two
  std::map<int64_t, Message> ends_;     // by channel
  std::vector<Message> to_pass_on_;     // by the thread
  std::atomic<bool> has_failed_{false};  // some channel, or the world
  std::atomic<bool> has_lost_world_{false}, closing_{false};
  std::atomic<double> active_s_;  // when some process last did something
  // State of the thread.
  struct Sent {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::list<Sent> sent_;
  bool is_reported_ = false;                                 // the loss of the process before this one
  double heard_s_ = 0, left_s_ = 0, beat_s_ = 0, look_s_ = 0;  // left_s_: that process has ended; 0: it has not
  Thread thread_;
};

}  // namespace tessera::mpi
