// run_ordered_tasks: computes results on several threads and consumes them in order on the caller's.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "graph/base/cancellation.h"
#include "graph/base/result.h"
#include "graph/base/thread.h"

namespace tessera {

// Calls make(i), which returns Result<Made>, for every i below `count`, on at most `at_once` threads and at
// most that far ahead of use(i, made). Stops at the first error. With at_once 1 everything runs on this thread.
template <class Made, class Make, class Use>
Status run_ordered_tasks(size_t count, size_t at_once, const Make& make, const Use& use) {
  struct Coming {
    std::optional<Result<Made>> made;
    Thread thread;  // last: it writes `made`
  };
  std::deque<Coming> coming;
  for (size_t done = 0, next = 0; done < count; ++done) {
    for (; next < count && coming.size() < at_once; ++next) {
      Coming& one = coming.emplace_back();
      const auto work = [&make, &one, next] {
        const Status status = catch_status([&] {
          one.made.emplace(make(next));
          return Status();
        });
        if (!status.ok()) one.made.emplace(status);
      };
      if (at_once > 1)
        one.thread = Thread(work);
      else
        work();
    }
    cancellation_point();
    coming.front().thread.join();
    TSR_ASSIGN_OR_RETURN(Made made, std::move(*coming.front().made));
    coming.pop_front();
    TSR_RETURN_IF_ERROR(use(done, std::move(made)));
  }
  return {};
}

}  // namespace tessera
