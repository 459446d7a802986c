// EventQueue: events of an engine until the caller takes them. Callers hold
// their own lock around every call; only the descriptor is read without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/serving/texts/serving_event.h"
#include "graph/base/result.h"

namespace tessera {

class EventQueue {
 public:
  EventQueue() = default;
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  void put(std::vector<ServingEvent> events);
  std::optional<ServingEvent> take();
  size_t size() const { return events_.size(); }

  // A file descriptor, readable while events wait; created on first use. kIo if the system has none left.
  Result<int32_t> descriptor();

 private:
  void show_state();

  std::deque<ServingEvent> events_;
  int32_t descriptor_ = -1;
  bool is_readable_ = false;
};

}  // namespace tessera
