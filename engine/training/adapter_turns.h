// AdapterTurns: who is next, and how many rows of a batch each gets: deficit round robin (Shreedhar and Varghese, Efficient
// Fair Queueing using Deficit Round Robin, 1995). Rows have equal width, and so equal cost.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

namespace tessera {

class AdapterTurns {
 public:
  void join(int64_t adapter) { ring_.push_back(adapter); }
  void leave(int64_t adapter);

  // The adapters in the order of their turns.
  const std::deque<int64_t>& order() const { return ring_; }

  struct Share {
    int64_t adapter = 0, rows = 0;
  };
  // Shares of a batch of `room` rows; `wanted` gives an adapter's waiting rows that can be in this batch.
  std::vector<Share> take(int64_t room, const std::function<int64_t(int64_t)>& wanted);
  // After a turn without a batch.
  void pass_on();

 private:
  std::deque<int64_t> ring_;
  std::map<int64_t, int64_t> deficits_;
};

}  // namespace tessera
