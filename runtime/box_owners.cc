#include "runtime/box_owners.h"

#include <algorithm>
#include <map>

namespace tessera {

namespace {

// Ends of the ranges of a box, so that boxes sort and travel.
using Ends = std::vector<int64_t>;

Ends ends_of(const Box& box) {
  Ends ends;
  for (const Range& range : box) ends.insert(ends.end(), {range.begin, range.end});
  return ends;
}

Box box_of(const Ends& ends) {
  Box box;
  for (size_t at = 0; at + 1 < ends.size(); at += 2) box.push_back({ends[at], ends[at + 1]});
  return box;
}

std::span<std::byte> bytes_of(std::vector<int64_t>& list) { return std::as_writable_bytes(std::span(list)); }

}  // namespace

// A process sends each of its boxes once, with its lowest rank; all send as much as the one with the most.
Result<std::vector<BoxOwner>> find_box_owners(Channel& channel, std::span<const std::pair<int32_t, Box>> held) {
  std::map<Ends, int32_t> mine;
  for (const auto& [rank, box] : held) {
    const auto [at, is_new] = mine.try_emplace(ends_of(box), rank);
    if (!is_new) at->second = std::min(at->second, rank);
  }
  std::vector<int64_t> sent = {std::ssize(mine), mine.empty() ? 0 : std::ssize(mine.begin()->first)};
  for (const auto& [ends, rank] : mine) {
    sent.push_back(rank);
    sent.insert(sent.end(), ends.begin(), ends.end());
  }
  const auto processes = static_cast<size_t>(channel.transport().processes());
  std::vector<int64_t> size = {std::ssize(sent)}, sizes(processes);
  TSR_RETURN_IF_ERROR(channel.gather(bytes_of(size), bytes_of(sizes)));
  const auto most = static_cast<size_t>(std::ranges::max(sizes));
  sent.resize(most);
  std::vector<int64_t> all(processes * most);
  TSR_RETURN_IF_ERROR(channel.gather(bytes_of(sent), bytes_of(all)));

  std::map<Ends, std::pair<int32_t, size_t>> found;  // -> lowest rank, processes that hold it
  for (size_t process = 0; process < processes; ++process) {
    const int64_t* at = all.data() + process * most;
    const int64_t count = at[0], dims = at[1];
    at += 2;
    for (int64_t box = 0; box < count; ++box, at += 1 + dims) {
      auto& [rank, holders] = found.try_emplace(Ends(at + 1, at + 1 + dims), static_cast<int32_t>(*at), 0).first->second;
      rank = std::min(rank, static_cast<int32_t>(*at));
      holders += 1;
    }
  }
  std::vector<BoxOwner> owners;
  for (const auto& [ends, owner] : found) owners.push_back({box_of(ends), owner.first, owner.second == processes});
  return owners;
}

}  // namespace tessera
