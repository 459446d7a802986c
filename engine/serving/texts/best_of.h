// BestOf: of the texts that a request makes, the likeliest are given, once all have ended. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/serving/texts/serving_event.h"

namespace tessera {

class BestOf {
 public:
  // From here on events of the request are held back.
  void watch(int64_t request, int64_t made, int64_t given);
  // Events without those that are held back, and with those whose request has all its texts: the `given` ones whose
  // tokens, without one that ends the text, have the largest mean log probability, numbered by that; on a tie the lower
  // index. A text without tokens comes last.
  std::vector<ServingEvent> filter(std::vector<ServingEvent> events);
  void forget(int64_t request) { held_.erase(request); }

 private:
  struct Held {
    int64_t given = 0, missing = 0;                // texts that have not ended
    std::vector<std::vector<ServingEvent>> texts;  // by index
  };
  std::map<int64_t, Held> held_;  // by request
};

}  // namespace tessera
