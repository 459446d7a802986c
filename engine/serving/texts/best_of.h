// BestOf: returns the likeliest texts of a request, after all have ended. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/serving/texts/serving_event.h"

namespace tessera {

class BestOf {
 public:
  // Holds back the request's events from now on.
  void watch(int64_t request, int64_t made, int64_t given);
  // Returns the events to emit now. When all texts of a request have ended, the
  // `given` ones with the largest mean log probability (end token excluded)
  // follow, renumbered in that order; ties: the lower index; empty texts last.
  std::vector<ServingEvent> filter(std::vector<ServingEvent> events);
  void forget(int64_t request) { held_.erase(request); }

 private:
  struct Held {
    int64_t given = 0, missing = 0;                // texts in progress
    std::vector<std::vector<ServingEvent>> texts;  // by index
  };
  std::map<int64_t, Held> held_;  // by request
};

}  // namespace tessera
