// EventQueue: what an engine has to say, until its caller asks. Its users hold a lock of their own around every call but
// `descriptor`'s reads by others.
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

  // A file descriptor that can be read while events wait; made by the first call. kIo where the system gives none.
  Result<int32_t> descriptor();

 private:
  void show_state();

  std::deque<ServingEvent> events_;
  int32_t descriptor_ = -1;
  bool is_readable_ = false;
};

}  // namespace tessera
