// Outbox: the event queue of an engine, and results that wait for the caller:
// logits, sequences, vectors and scores, by request. Any thread; its lock is a leaf.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "engine/serving/scheduler/serving_core.h"
#include "engine/serving/texts/best_of.h"
#include "engine/serving/texts/event_queue.h"
#include "engine/serving/texts/kept_sequence.h"
#include "engine/serving/texts/prompt_reader.h"
#include "engine/serving/texts/serving_event.h"
#include "graph/base/result.h"

namespace tessera {

class Outbox {
 public:
  // Registers a request before its first event: `made` texts are generated, `given` of them returned. `withdraw` unregisters it.
  void begin(int64_t request, int64_t made, int64_t given);
  void withdraw(int64_t request);

  // Queues events of a core, and copies the logits of waiting texts. The core's thread. Returns the ended requests.
  std::vector<int64_t> put(std::vector<ServingEvent> events, const ServingCore& core);
  // Whether replicas should continue; takes no lock.
  bool has_room() const { return events_.load(std::memory_order_acquire) < kEventsAhead; }

  struct Taken {
    ServingEvent event;       // kPending: none
    bool makes_room = false;  // the replicas that wait for `has_room` must be woken
  };
  // Waits at most `timeout_s` seconds; if negative, while a request is in progress.
  Taken take(double timeout_s);
  Result<int32_t> descriptor();

  // kNotFound unless the text waits for the caller's logits.
  Result<std::vector<float>> logits(int64_t request, int32_t index);
  Status take_logits(int64_t request, int32_t index);  // the text stops waiting
  // Returns a kept sequence of an ended text once; kNotFound otherwise.
  Result<KeptSequence> take_sequence(int64_t request, int32_t index);
  // Moves the prompt's result, scores or vectors, to `items` and returns its full size. A result that does
  // not fit is copied in part and kept. greedy: as many as items, or empty. kNotFound without a result.
  Result<size_t> take_result(int64_t request, bool scores, std::span<float> items, std::span<uint8_t> greedy);
  int64_t generated() const;  // tokens, since the beginning

 private:
  static constexpr size_t kEventsAhead = 4096;
  using Text = std::pair<int64_t, int32_t>;  // request and index

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  EventQueue queue_;
  std::atomic<size_t> events_ = 0;  // queued events; written under the lock
  BestOf best_of_;
  std::map<Text, std::vector<float>> waiting_logits_;  // from their events on
  std::map<Text, KeptSequence> kept_;                  // until they are taken
  std::map<int64_t, PromptResult> results_;            // by request, until they are taken
  std::map<int64_t, int64_t> in_progress_;             // texts without a queued end event, by request
  int64_t generated_ = 0;
};

}  // namespace tessera
