// What a session makes of an NCCL that is too old, that does not start for some ranks, or whose calls fail:
// in the emulator, which does so when asked.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "collective_steps.h"
#include "graph/base/status_codes.h"
#include "tests/skip.h"

namespace tessera {
namespace {

using test::kRanks;
using test::Shape4;
using test::Steps;

// NCCL as it is said, while this lives.
class EmulatedNccl {
 public:
  explicit EmulatedNccl(const char* state) { setenv("TESSERA_EMULATED_NCCL", state, 1); }
  ~EmulatedNccl() { unsetenv("TESSERA_EMULATED_NCCL"); }
  EmulatedNccl(const EmulatedNccl&) = delete;
  EmulatedNccl& operator=(const EmulatedNccl&) = delete;
};

// Four devices of the emulator, with an NCCL that has nothing wrong with it.
bool can_be_emulated() {
  const bool can = test::test_backend() == "cuda" && std::getenv("TESSERA_EMULATOR_SEED") != nullptr &&
                   Steps(false).expects_graphs;
  if (!can) test::skip("it wants four emulated GPUs and their NCCL");
  return can;
}

int count(const std::string& text, std::string_view part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Both run on, step by step with the same bits.
void check_runs(Steps& steps, Steps& wanted, bool is_captured) {
  for (int step = 0; step < 3; ++step) {
    for (Steps* each : {&steps, &wanted}) each->run();
    steps.check_same(wanted);
    CHECK(steps.is_captured() == (is_captured && step > 0));
  }
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("with_an_nccl_that_is_too_old_steps_are_issued_and_the_log_says_which_would_do") {
  if (!can_be_emulated()) return;
  const EmulatedNccl old("old");
  Steps steps(true), wanted(false);
  check_runs(steps, wanted, false);
  CHECK(
      count(steps.logged(),
            "NCCL is 2.25.1, steps that communicate are graphs with 2.26.0 or later: they are issued kernel "
            "by kernel\n") == 1);
  CHECK(count(steps.logged(),
              "entry 'step' is not captured, and is issued kernel by kernel: it communicates by way of the "
              "host, or through a library that cannot be captured\n") == kRanks);
}

TEST_CASE("where_nccl_does_not_start_with_one_device_its_groups_meet_in_peer_memory") {
  if (!can_be_emulated()) return;
  Steps wanted(false);
  const EmulatedNccl fails("fails_on=2");
  Steps steps(true);  // two addends have one sum in whatever order
  check_runs(steps, wanted, false);
  CHECK(
      count(steps.logged(),
            "NCCL does not start, collectives go through peer memory: ncclCommInitAll of 2 devices: an error "
            "of the emulated NCCL\n") == 2);
  CHECK(count(steps.logged(), "NCCL does") == 2);
}

TEST_CASE("nccl_is_started_for_collectives_that_it_carries_and_for_no_messages") {
  if (!can_be_emulated()) return;
  const EmulatedNccl fails("fails");
  for (const Shape4& shape : {Shape4{.sends = true}, Shape4{.sends = true, .reduces = false}}) {
    Steps steps(true, shape);
    steps.run();
    // Two groups of either axis, the first of which may only gather uneven pieces.
    CHECK(count(steps.logged(), "NCCL does not start") == (shape.reduces ? 4 : 2));
  }
}

// Only the emulator's devices are used by nobody else. Its NCCL takes memory when a rank first calls.
TEST_CASE("no_step_allocates_memory_of_a_device") {
  if (!can_be_emulated()) return;
  for (const Shape4& shape : {Shape4{}, Shape4{.sends = true}, Shape4{.uneven = true}}) {
    Steps steps(false, shape);
    const auto used = [&] {
      std::vector<int64_t> bytes;
      for (const MemoryReport& report : steps.session->memory())
        bytes.push_back(report.device_measured_bytes);
      return bytes;
    };
    const std::vector<int64_t> begin = used();
    CHECK(begin[0] > 0);
    for (int step = 0; step < 20; ++step) steps.run();  // a mailbox comes round
    const std::vector<int64_t> end = used();
    for (size_t rank = 0; rank < begin.size(); ++rank) CHECK(end[rank] == begin[rank]);
  }
}

TEST_CASE("a_call_of_nccl_that_fails_is_the_error_of_every_rank_and_no_later_session_feels_it") {
  if (!can_be_emulated()) return;
  for (const int32_t failing : {0, 2, 3})
    for (const int runs : {0, 1}) {  // the first run fails, or the second, which would be captured
      Steps steps(true), fresh(true);
      for (int run = 0; run < runs; ++run) steps.run();
      {
        const EmulatedNccl fails(("call_fails_on=" + std::to_string(failing)).c_str());
        const Status status = steps.session->run("step");
        CHECK(status.code() == StatusCode::kInternal);
        CHECK(std::string(status.message()) ==
              format("rank {} (cuda:{}), entry 'step', instruction 1 (all_reduce dp): NCCL: an error of the "
                     "emulated NCCL",
                     failing, failing));
        CHECK(steps.session->failed());
        CHECK(!steps.is_captured());
      }
      CHECK(steps.session->run("step").code() == kValuesLost);
      Steps other(true);
      check_runs(other, fresh, true);
      REQUIRE(steps.session->restore().ok());
      Steps again(false);
      check_runs(steps, again, true);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera
