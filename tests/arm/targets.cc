// Functions of Highway's library that tests call, for programs with one instruction set: cross compilers come
// without the library.
#include "runtime/backends/cpu/kernels/simd_targets.h"
// After what chooses its targets:
#include "hwy/targets.h"

static_assert((HWY_TARGETS & (HWY_TARGETS - 1)) == 0);

namespace hwy {

int64_t SupportedTargets() { return HWY_TARGETS; }
void SetSupportedTargetsForTest(int64_t) {}

}  // namespace hwy
