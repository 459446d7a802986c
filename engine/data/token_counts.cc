#include "engine/data/token_counts.h"

#include <iterator>

namespace tessera {

void TokenCounts::add(int32_t token, bool is_generated) {
  const auto [place, is_new] = index_.try_emplace(token, counts_.size());
  if (is_new) counts_.push_back({token, 0, 0});
  Count& count = counts_[place->second];
  ++count.all;
  if (is_generated) ++count.generated;
  if (window_ == 0) return;
  recent_.push_back({token, is_generated});
  if (std::ssize(recent_) <= window_) return;
  remove(recent_.front());
  recent_.pop_front();
}

void TokenCounts::remove(Recent recent) {
  const auto place = index_.find(recent.token);
  const size_t at = place->second;
  Count& count = counts_[at];
  if (recent.is_generated) --count.generated;
  if (--count.all > 0) return;
  index_.erase(place);
  if (at + 1 < counts_.size()) {
    counts_[at] = counts_.back();
    index_[counts_[at].token] = at;
  }
  counts_.pop_back();
}

}  // namespace tessera
