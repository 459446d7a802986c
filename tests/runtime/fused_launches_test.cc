// FusedLaunches against a backend that fuses as requested and records its calls.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/step_issue.h"

namespace tessera {
namespace {

// Kernels are numbers: what fuses is of one tenth, at most `most` at once. The log is what was offered and
// taken.
struct Fuser {
  std::string log;
  int32_t most = 100;
  int alive = 0;
};
Fuser& fuser() {
  static Fuser fuser;
  return fuser;
}
uintptr_t number(const tsr_abi_kernel* kernel) { return reinterpret_cast<uintptr_t>(kernel); }
tsr_abi_kernel* kernel(uintptr_t number) { return reinterpret_cast<tsr_abi_kernel*>(number); }

tsr_backend_api fusing_api() {
  fuser() = {};
  tsr_backend_api api{};
  api.struct_size = sizeof(api);
  api.name = "fusing";
  api.kernel_destroy = [](tsr_abi_kernel*) { --fuser().alive; };
  api.kernel_fuse = [](tsr_abi_device*, const tsr_abi_launch* launches, int32_t count, int32_t* taken,
                       tsr_abi_kernel** out) -> tsr_abi_error* {
    *taken = 1;
    while (*taken < count && *taken < fuser().most &&
           number(launches[*taken].kernel) / 10 == number(launches[0].kernel) / 10)
      ++*taken;
    fuser().log += " " + std::to_string(*taken) + " of " + std::to_string(count) + ";";
    if (*taken < 2) {
      *taken = 0;
      return nullptr;
    }
    ++fuser().alive;
    *out = kernel(1000 + number(launches[0].kernel));
    return nullptr;
  };
  return api;
}

Step step(uintptr_t number, int32_t waits = 0) {
  Step step;
  step.kernel = kernel(number);
  step.wait_end = waits;
  return step;
}
Step collective() {
  Step step;
  step.kind = Step::Kind::kCollective;
  return step;
}

// "1011 - - 21": kernels that are launched, and those that are part of another launch.
std::string text(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    if (!text.empty()) text += " ";
    text += step.kind == Step::Kind::kFused    ? "-"
            : step.kind == Step::Kind::kKernel ? std::to_string(number(step.kernel))
                                               : "collective";
  }
  return text;
}

TEST_CASE("kernels_that_follow_one_another_become_the_launches_that_the_backend_makes_of_them") {
  const tsr_backend_api api = fusing_api();
  {
    FusedLaunches fused(api, nullptr);
    std::vector<Step> steps = {step(31), step(11), step(12), step(13), step(21), step(41), step(42)};
    REQUIRE(fused.fuse(steps).ok());
    CHECK(text(steps) == "31 1011 - - 21 1041 -");
    CHECK(fuser().log == " 1 of 7; 3 of 6; 1 of 3; 2 of 2;");
    CHECK(fused.count() == 2);
    CHECK(fuser().alive == 2);
  }
  CHECK(fuser().alive == 0);
}

TEST_CASE("a_kernel_that_waits_for_another_stream_and_what_follows_a_collective_begin_a_new_launch") {
  const tsr_backend_api api = fusing_api();
  FusedLaunches fused(api, nullptr);
  std::vector<Step> steps = {step(11, 1), step(12),     step(13, 2), step(14),
                             step(15),    collective(), step(16),    step(17)};
  REQUIRE(fused.fuse(steps).ok());
  CHECK(text(steps) == "1011 - 1013 - - collective 1016 -");
}

TEST_CASE("what_a_backend_leaves_of_a_run_is_offered_again") {
  const tsr_backend_api api = fusing_api();
  fuser().most = 2;
  FusedLaunches fused(api, nullptr);
  std::vector<Step> steps = {step(11), step(12), step(13), step(14), step(15)};
  REQUIRE(fused.fuse(steps).ok());
  CHECK(text(steps) == "1011 - 1013 - 15");
}

TEST_CASE("a_backend_without_fusing_launches_every_kernel_by_itself") {
  tsr_backend_api api = fusing_api();
  api.struct_size = offsetof(tsr_backend_api, kernel_fuse);
  FusedLaunches fused(api, nullptr);
  std::vector<Step> steps = {step(11), step(12)};
  REQUIRE(fused.fuse(steps).ok());
  CHECK(text(steps) == "11 12");
  CHECK(fuser().log.empty());
}

}  // namespace
}  // namespace tessera
