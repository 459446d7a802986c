// A group's agreements are identified by their contents, not by their address.
#include "runtime/backends/cuda/agreed_collectives.h"

#include <doctest/doctest.h>

#include <vector>

namespace tessera::cuda {
namespace {

tsr_abi_collective gather_of(const std::vector<int64_t>& extents) {
  tsr_abi_collective what{};
  what.kind = kAllGather;
  what.member_count = static_cast<int32_t>(extents.size());
  what.outer = what.middle = what.inner = 1;
  what.elements = sum_of_extents(extents.data(), what.member_count);
  what.extents = extents.data();
  return what;
}

TEST_CASE("what_was_agreed_on_is_known_again_by_its_contents") {
  AgreedCollectives agreed;
  {
    const std::vector<int64_t> gone{4, 4};
    CHECK_FALSE(agreed.contains(gather_of(gone)));
    agreed.add(gather_of(gone));
  }
  for (int64_t i = 0; i < 20; ++i) agreed.add(gather_of({100 + i, 100 + i, 100 + i}));
  const std::vector<int64_t> same{4, 4}, uneven{2, 6}, longer{4, 4, 0}, last{119, 119, 119};
  CHECK(agreed.contains(gather_of(same)));
  CHECK(agreed.contains(gather_of(last)));
  CHECK_FALSE(agreed.contains(gather_of(uneven)));
  CHECK_FALSE(agreed.contains(gather_of(longer)));
  for (auto change :
       {+[](tsr_abi_collective& what) { what.kind = kReduceScatter; },
        +[](tsr_abi_collective& what) { what.reduce = 1; }, +[](tsr_abi_collective& what) { what.dtype = 1; },
        +[](tsr_abi_collective& what) { what.outer = 2; }, +[](tsr_abi_collective& what) { what.middle = 2; },
        +[](tsr_abi_collective& what) { what.inner = 2; },
        +[](tsr_abi_collective& what) { what.elements = 9; },
        +[](tsr_abi_collective& what) { what.root = 1; },
        +[](tsr_abi_collective& what) { what.in_split_first = 1; },
        +[](tsr_abi_collective& what) { what.extents2 = what.extents; },
        +[](tsr_abi_collective& what) { what.extents = nullptr; }}) {
    tsr_abi_collective what = gather_of(same);
    change(what);
    CHECK_FALSE(agreed.contains(what));
  }
}

}  // namespace
}  // namespace tessera::cuda
