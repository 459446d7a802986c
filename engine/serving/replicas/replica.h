// Replica: a serving core and the worker thread that steps it. Commands from any thread are queued; the worker drains the
// queue between steps. Only the worker uses the core, except for its constant parts and the functions marked "any thread".
//
// Locks: the replica's lock guards its commands and counters. Of the hooks only `has_room`, which takes no lock, is called
// with it held; the others may take locks and call any replica.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/serving/scheduler/serving_core.h"
#include "engine/serving/texts/serving_event.h"
#include "graph/base/status.h"
#include "runtime/on_call_threads.h"
#include "runtime/session.h"

namespace tessera {

class Replica {
 public:
  struct Hooks {
    std::function<bool()> has_room;                                       // for more events; takes no lock
    std::function<void(Replica&, std::vector<ServingEvent>)> put_events;  // they are the engine's
    std::function<void(Replica&)> rebalance;  // may move requests of `core()` to another replica; empty: there is none
  };

  // number: index among the engine's replicas.
  Replica(std::unique_ptr<ServingCore> core, int32_t number, Hooks hooks);
  // Waits for the worker.
  ~Replica();

  ServingCore& core() { return *core_; }
  const ServingCore& core() const { return *core_; }

  // Any thread:
  // Throws where the system refuses a thread; then nothing is submitted, and `texts` stay the caller's.
  void submit(ServingCore::Texts& texts);
  void cancel(int64_t request);
  void answer(int64_t request, int32_t index, std::vector<float> logits);
  // Runs `call` on the worker between two steps and returns its result.
  Status between_steps(const std::function<Status()>& call);
  void suggest_rebalance();  // the hook may now find room elsewhere
  void wake();               // a hook's answer has changed
  void close();              // ends the worker after its step, without further events
  void join();               // waits until the worker has ended and calls no hook

  bool has_commands() const;          // not drained yet
  int64_t free_rows() const;        // sequences that could run in addition to the present ones
  int64_t expected_tokens() const;  // estimate for all requests it has
  struct Report {
    ServingCore::Counts counts;
    double seconds = 0;                              // of computing
    std::vector<MemoryReport> memory, draft_memory;  // sampled when it was last idle
  };
  Report report() const;

 private:
  struct Answer {
    int64_t request;
    int32_t index;
    std::vector<float> logits;
  };
  struct Commands {
    std::vector<ServingCore::Texts> requests;
    std::vector<int64_t> cancelled;
    std::vector<Answer> answers;
    std::vector<std::function<void()>> calls;
    bool rebalance = false;
    bool is_empty() const {
      return requests.empty() && cancelled.empty() && answers.empty() && calls.empty() && !rebalance;
    }
  };

  void work();  // steps until nothing is left to compute
  void drain(Commands commands, std::vector<ServingEvent>& events);
  void wake_worker();  // with mutex_ held
  void note_memory();  // likewise
  void note_work();    // likewise: counts texts and tokens of the core and the queue

  const std::unique_ptr<ServingCore> core_;
  const Hooks hooks_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Commands commands_;
  Report report_;
  int64_t texts_ = 0, expected_tokens_ = 0;  // of the core and the commands
  bool busy_ = false;
  std::atomic<bool> closing_ = false;  // set under the lock
  // Last: destroyed first, since its thread uses all members above.
  OnCallThreads worker_;
};

}  // namespace tessera
