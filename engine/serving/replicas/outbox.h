// Outbox: what an engine's replicas have to say, in one queue, until its caller asks; and what waits for the caller by
// request: logits, kept sequences, vectors and scores. One lock, which no other is taken under: any thread.
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
  // Before anything is said of the request: of `made` texts `given` are the caller's. `withdraw`: nothing ever will be.
  void begin(int64_t request, int64_t made, int64_t given);
  void withdraw(int64_t request);

  // Events of a core, whose logits of texts that wait are copied. The core's thread. Returns the requests that have ended.
  std::vector<int64_t> put(std::vector<ServingEvent> events, const ServingCore& core);
  // Whether replicas should go on; no lock.
  bool has_room() const { return events_.load(std::memory_order_acquire) < kEventsAhead; }

  struct Taken {
    ServingEvent event;       // kPending: none
    bool makes_room = false;  // replicas that wait for `has_room` are to be told
  };
  // Waits at most `timeout_s` seconds; where that is negative, as long as a request is in progress.
  Taken take(double timeout_s);
  Result<int32_t> descriptor();

  // kNotFound where the text does not wait for the caller's logits.
  Result<std::vector<float>> logits(int64_t request, int32_t index);
  Status take_logits(int64_t request, int32_t index);  // it waits no longer
  // Once each, of texts that have ended and are kept; else kNotFound.
  Result<KeptSequence> take_sequence(int64_t request, int32_t index);
  // What the request computed of its prompt, scores or vectors: as much as fits is copied, and what fits whole is the
  // caller's from here on. The count of all of it. greedy: as many as items, or empty. kNotFound where there is none.
  Result<size_t> take_result(int64_t request, bool scores, std::span<float> items, std::span<uint8_t> greedy);
  int64_t generated() const;  // tokens, since the beginning

 private:
  static constexpr size_t kEventsAhead = 4096;
  using Text = std::pair<int64_t, int32_t>;  // request and index

  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  EventQueue queue_;
  std::atomic<size_t> events_ = 0;  // in the queue; written under the lock
  BestOf best_of_;
  std::map<Text, std::vector<float>> waiting_logits_;  // from their events on
  std::map<Text, KeptSequence> kept_;                  // until they are taken
  std::map<int64_t, PromptResult> results_;            // by request, likewise
  std::map<int64_t, int64_t> in_progress_;             // texts without an end in the queue, by request
  int64_t generated_ = 0;
};

}  // namespace tessera
