// Replica: a core, and the worker that steps it while it has requests. Commands of any thread wait for the worker, who takes
// them in between two steps; the core is the worker's, except for its constant parts and what says "any thread".
//
// Locks: a replica's own guards its commands and figures, and nothing is called with it held but `has_room`, which takes none.
// The worker calls the other hooks without it, so that these may take locks of their own and call replicas, this one too.
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
    std::function<bool()> has_room;                                       // for more events
    std::function<void(Replica&, std::vector<ServingEvent>)> put_events;  // they are the engine's
    std::function<void(Replica&)> rebalance;  // may take requests of `core()` away; empty: nobody would
  };

  // number: of the engine's replicas.
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
  // The worker calls it between two steps; its result.
  Status between_steps(const std::function<Status()>& call);
  void suggest_rebalance();  // the hook may find room elsewhere that was not there before
  void wake();               // hooks would answer otherwise than they did
  void close();              // the worker ends after its step, without further events
  void join();               // it has, and calls no hook any more

  bool has_commands() const;          // that the worker did not take in yet
  int64_t free_rows() const;        // sequences that could be computed beside those that it has
  int64_t expected_tokens() const;  // that are likely to be computed of what it has
  struct Report {
    ServingCore::Counts counts;
    double seconds = 0;                              // of computing
    std::vector<MemoryReport> memory, draft_memory;  // as of the last time without requests
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

  void work();  // until there is nothing to do
  void drain(Commands commands, std::vector<ServingEvent>& events);
  void wake_worker();  // with mutex_ held
  void note_memory();  // likewise
  void note_work();    // likewise: what the core has, and what waits for it

  const std::unique_ptr<ServingCore> core_;
  const Hooks hooks_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Commands commands_;
  Report report_;
  int64_t texts_ = 0, expected_tokens_ = 0;  // of the core and of commands
  bool busy_ = false;
  std::atomic<bool> closing_ = false;  // set under the lock
  // Last: everything above exists while it runs.
  OnCallThreads worker_;
};

}  // namespace tessera
