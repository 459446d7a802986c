// Steps that communicate as graphs: of sessions on the backend under test, which captures where every rank
// has a device of its own (cuda, and NCCL there), and issues elsewhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective_steps.h"
#include "runtime/device_run_lock.h"
#include "tests/skip.h"

namespace tessera {
namespace {

using test::kRanks;
using test::kStepMany;
using test::Shape4;
using test::Steps;
using test::test_backend;

bool says(const std::vector<CommReport>& left, const std::vector<CommReport>& right) {
  return std::ranges::equal(left, right, [](const CommReport& a, const CommReport& b) {
    return a.collective == b.collective && a.axis == b.axis && a.calls == b.calls && a.bytes == b.bytes;
  });
}

TEST_CASE("a_captured_step_with_collectives_leaves_the_bits_and_counts_of_one_that_is_issued") {
  Steps captured(true), issued(false);
  for (int step = 0; step < 5; ++step) {
    for (Steps* each : {&captured, &issued}) {
      each->feed(0.001F * static_cast<float>(step + 1));
      each->run();
    }
    captured.check_same(issued);
    CHECK(captured.is_captured() == (captured.expects_graphs && step > 0));
    CHECK(!issued.is_captured());
    CHECK(says(captured.session->communication(), issued.session->communication()));
  }
  const std::vector<CommReport> reports = captured.session->communication();
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].calls == 5);
  CHECK(reports[0].bytes ==
        5 * (kRanks * kStepMany * 4));  // 2 (N - 1) / N each way, of 2 members, by 4 ranks
  if (captured.expects_graphs) CHECK(captured.log.find("captured: it is one launch") != std::string::npos);
}

TEST_CASE("a_step_that_goes_by_way_of_the_host_anywhere_is_captured_on_no_rank") {
  for (const Shape4& shape : {Shape4{.sends = true}, Shape4{.uneven = true}}) {
    Steps wanted(true, shape), issued(false, shape);
    for (int step = 0; step < 3; ++step) {
      for (Steps* each : {&wanted, &issued}) each->run();
      wanted.check_same(issued);
      CHECK(!wanted.is_captured());
    }
    CHECK(says(wanted.session->communication(), issued.session->communication()));
    // Known before anybody begins a capture.
    CHECK(wanted.log.find("could not be on another rank") == std::string::npos);
    if (!wanted.expects_graphs) continue;
    for (int32_t rank = 0; rank < kRanks; ++rank)
      CHECK(wanted.log.find(format("rank {}, entry 'step' is not captured, and is issued kernel by kernel: "
                                   "it {} by way of the host",
                                   rank, shape.sends ? "sends and receives" : "communicates")) !=
            std::string::npos);
  }
}

TEST_CASE("where_one_rank_cannot_capture_none_does" * doctest::test_suite("gpu")) {
  Steps wanted(true), issued(false);
  if (!wanted.expects_graphs) {
    test::skip("it wants four emulated GPUs and their NCCL");
    return;
  }
  setenv("TESSERA_EMULATED_GRAPHS_FAIL_ON", "2", 1);
  for (int step = 0; step < 4; ++step) {
    for (Steps* each : {&wanted, &issued}) each->run();
    wanted.check_same(issued);
  }
  unsetenv("TESSERA_EMULATED_GRAPHS_FAIL_ON");
  if (wanted.is_captured()) {
    test::skip("nothing fails on a real GPU when it is told to");
    return;
  }
  CHECK(wanted.log.find("rank 2, entry 'step' is not captured, and is issued kernel by kernel: ") !=
        std::string::npos);
  CHECK(wanted.log.find("it could not be on another rank") != std::string::npos);
  CHECK(says(wanted.session->communication(), issued.session->communication()));
}

TEST_CASE("after_an_abort_no_graph_of_before_is_launched") {
  Steps aborted(true), fresh(true);
  for (int round = 0; round < 6; ++round) {
    for (int step = 0; step < 3; ++step) aborted.run();
    CHECK(aborted.is_captured() == aborted.expects_graphs);
    Status status;
    while (status.ok()) {  // however it comes to meet the run
      std::thread other([&] { aborted.session->cancel(); });
      status = aborted.session->run("step");
      other.join();
    }
    CHECK(status.code() == StatusCode::kCancelled);
    if (round == 5) break;  // a session may also end as it is
    REQUIRE(aborted.session->restore().ok());
    CHECK(!aborted.is_captured());
  }
  REQUIRE(aborted.session->restore().ok());
  for (int step = 0; step < 3; ++step) {
    for (Steps* each : {&aborted, &fresh}) each->run();
    aborted.check_same(fresh);
    CHECK(aborted.is_captured() == (aborted.expects_graphs && step > 0));
  }
  std::thread other([&] { fresh.session->cancel(); });
  (void)fresh.session->run("step");
  other.join();
}

// Each runs as if it were alone; concurrently their collectives would have no order on the devices.
TEST_CASE("a_session_gives_memory_back_when_nobody_runs_on_its_devices" * doctest::test_suite("gpu")) {
  Steps steps(false);
  if (test_backend() == "cpu") {
    test::skip("it wants a backend whose devices go on by themselves");
    return;
  }
  steps.run();
  const std::atomic<bool> never = false;
  std::atomic<bool> is_gone = false;
  const std::vector<int32_t> one_of_them = {0};
  std::optional<DeviceRunLock::Guard> turn;
  turn.emplace(steps.registry.run_lock(), *steps.registry.find(test_backend()).value(), one_of_them, never);
  std::thread end([&] {
    steps.session.reset();
    is_gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(!is_gone);
  turn.reset();
  end.join();
  CHECK(is_gone);
}

TEST_CASE("sessions_on_the_same_devices_take_turns") {
  for (const bool capture : {false, true}) {
    Steps first(capture), alone(capture);
    const auto second =
        Session::create(first.executable, {.capture = capture, .streams = StreamOptions{}}).value();
    first.feed(*second, 0.001F);
    const auto run = [](Session& session, Status& status) {
      for (int step = 0; step < 20 && status.ok(); ++step) status = session.run("step");
    };
    Status status, other_status;
    std::thread other([&] { run(*second, other_status); });
    run(*first.session, status);
    other.join();
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    REQUIRE_MESSAGE(other_status.ok(), other_status.to_string());
    for (int step = 0; step < 20; ++step) alone.run();
    first.check_same(*alone.session);
    alone.check_same(*second);
  }
}

}  // namespace
}  // namespace tessera
