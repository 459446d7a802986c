// run_ordered_tasks: results that take long, made on several threads and used in order on this one.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "graph/base/cancellation.h"
#include "graph/base/result.h"
#include "graph/base/thread.h"

namespace tessera {

// Calls make(i), which returns Result<Made>, for every i below `count`, at most `at_once` of them at a time and
// no more than that ahead of use(i, made); stops at the first error. With one at a time all is done here.
template <class Made, class Make, class Use>
Status run_ordered_tasks(size_t count, size_t at_once, const Make& make, const Use& use) {
  struct Coming {
    std::optional<Result<Made>> made;
    Thread thread;  // last: it writes to the other
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
