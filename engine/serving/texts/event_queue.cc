#include "engine/serving/texts/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

EventQueue::~EventQueue() {
  if (descriptor_ >= 0) (void)::close(descriptor_);
}

// Makes the descriptor readable exactly while events wait.
void EventQueue::show_state() {
  if (descriptor_ < 0 || is_readable_ == !events_.empty()) return;
  uint64_t number = 1;
  const ssize_t done = is_readable_ ? ::read(descriptor_, &number, sizeof number)
                                    : ::write(descriptor_, &number, sizeof number);
  if (done == ssize_t{sizeof number} || errno == EAGAIN) is_readable_ = !is_readable_;
}

void EventQueue::put(std::vector<ServingEvent> events) {
  events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                 std::make_move_iterator(events.end()));
  show_state();
}

std::optional<ServingEvent> EventQueue::take() {
  if (events_.empty()) return std::nullopt;
  ServingEvent event = std::move(events_.front());
  events_.pop_front();
  show_state();
  return event;
}

Result<int32_t> EventQueue::descriptor() {
  if (descriptor_ < 0) {
    descriptor_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor_ < 0) return Status(StatusCode::kIo, format("eventfd: {}", std::strerror(errno)));
    show_state();
  }
  return descriptor_;
}

}  // namespace tessera
