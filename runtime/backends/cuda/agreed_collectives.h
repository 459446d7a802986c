// AgreedCollectives: descriptions that all members of a group have compared and found equal. Members compare
// a description on the host the first time it is used. Later the collective itself synchronizes them on their
// devices, and no host waits. Owned by one member and its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/backend_collective.h"

namespace tessera::cuda {

class AgreedCollectives {
 public:
  bool contains(const tsr_abi_collective& what) const {
    return std::ranges::any_of(all_,
                               [&](const Agreed& agreed) { return same_collective(agreed.what, what); });
  }
  void add(const tsr_abi_collective& what) {
    const auto kept = [&](const int64_t* extents) {
      return extents == nullptr ? std::vector<int64_t>()
                                : std::vector<int64_t>(extents, extents + what.member_count);
    };
    Agreed& agreed = all_.emplace_back(Agreed{what, kept(what.extents), kept(what.extents2)});
    // A vector's elements stay where they are when the vector moves.
    if (what.extents != nullptr) agreed.what.extents = agreed.extents.data();
    if (what.extents2 != nullptr) agreed.what.extents2 = agreed.extents2.data();
  }

 private:
  struct Agreed {
    tsr_abi_collective what;
    std::vector<int64_t> extents, extents2;
  };
  std::vector<Agreed> all_;  // one for each different description of a program: some ten
};

}  // namespace tessera::cuda
