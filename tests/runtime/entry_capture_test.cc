// EntryCapture against a backend that writes down what it is called with: ranks are threads.
#include "runtime/entry_capture.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "graph/base/result.h"
#include "recording_api.h"

namespace tessera {
namespace {

using test::is_capturing;
using test::recorder;
using test::recording_api;
using test::two_streams;

constexpr size_t kAllReduce = 0, kCapturable = std::size(tsr_abi_comm_counters{}.calls) - 1;

// The effect of one issue of a rank's entry, next to one collective.
struct Behaviour {
  bool by_way_of_host = false;    // the collective is none that a capture may hold
  bool fails_in_capture = false;  // with an error
  bool throws_in_capture = false;
  bool stops_in_capture = false;  // the run, of which everybody hears before it has come to the vote
};

// An end that counts what its rank says.
class CountingEnd : public CommEnd {
 public:
  explicit CountingEnd(const tsr_abi_comm_counters& counters) : counters_(counters) {}
  Status collective(tsr_abi_stream*, const tsr_abi_collective&, const void*, void*) override { return {}; }
  Status send(tsr_abi_stream*, int32_t, const void*, int64_t) override { return {}; }
  Status receive(tsr_abi_stream*, int32_t, void*, int64_t) override { return {}; }
  void abort() override {}
  Status perturb(uint64_t) override { return {}; }
  tsr_abi_comm_counters counters() const override { return counters_; }

 private:
  const tsr_abi_comm_counters& counters_;
};

// Ranks of a run that all communicate in one entry.
struct Ranks {
  explicit Ranks(size_t count) : behaviours(count), counters(count), ends(count), log(count) {
    for (size_t rank = 0; rank < count; ++rank) {
      ends[rank].end = std::make_unique<CountingEnd>(counters[rank]);
      vote.add_member(true);
      captures.push_back(std::make_unique<EntryCapture>(
          api, nullptr, two_streams(), [this, rank](CollectiveOrder&) { return issue(rank); },
          [this, rank](int32_t, const std::string& what) { log[rank] += what + "; "; }));
      captures.back()->set_vote(vote);
      captures.back()->allow();
    }
  }
  Status issue(size_t rank) {
    if (is_capturing && behaviours[rank].throws_in_capture) throw std::bad_alloc();
    if (is_capturing && behaviours[rank].stops_in_capture) stop();
    if (is_stopped) return Status(StatusCode::kAborted, "stopped");
    if (is_capturing && behaviours[rank].fails_in_capture)
      return Status(StatusCode::kUnsupported, "not in a graph");
    counters[rank].calls[kAllReduce] += 1;
    if (!behaviours[rank].by_way_of_host) counters[rank].calls[kCapturable] += 1;
    issued[is_capturing ? 1 : 0] += 1;
    return {};
  }
  // One run of all; who fails stops the others, as a session does.
  std::vector<Status> run() {
    std::vector<Status> statuses(captures.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < captures.size(); ++rank)
      threads.emplace_back([this, rank, &statuses] {
        CommMember* const mine[] = {&ends[rank]};
        statuses[rank] = catch_status([&] { return captures[rank]->run(mine); });
        if (!statuses[rank].ok()) stop();
      });
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  void run_well() {
    for (const Status& status : run()) CHECK_MESSAGE(status.ok(), status.to_string());
  }
  // As a session does after a failed run.
  void stop() {
    is_stopped = true;
    for (const auto& capture : captures) capture->stop();
  }
  void restore() {
    is_stopped = false;
    for (const auto& capture : captures) capture->release_comms();
  }
  size_t count_captured() const {
    size_t count = 0;
    for (const auto& capture : captures) count += capture->is_captured() ? 1 : 0;
    return count;
  }
  int64_t calls(size_t rank) const {
    return counters[rank].calls[kAllReduce] + ends[rank].replayed.calls[kAllReduce];
  }

  const tsr_backend_api api = recording_api();
  std::vector<Behaviour> behaviours;
  std::vector<tsr_abi_comm_counters> counters;
  std::vector<CommMember> ends;
  std::vector<std::string> log;
  std::array<std::atomic<int>, 2> issued{};  // outside of captures, inside
  std::atomic<bool> is_stopped = false;
  CaptureVote vote;
  std::vector<std::unique_ptr<EntryCapture>> captures;
};

TEST_CASE("an_entry_is_issued_then_captured_and_launched_then_launched") {
  const tsr_backend_api api = recording_api();
  std::string log;
  {
    EntryCapture capture(
        api, nullptr, two_streams(),
        [](CollectiveOrder&) {
          recorder().note(" work;");
          return Status();
        },
        [&](int32_t level, const std::string& what) { log += std::to_string(level) + " " + what; });
    capture.allow();
    for (const char* wanted :
         {" work;",
          " begin on 1; record 100 on 1; 2 waits for 100; work; record 101 on 2; 1 waits for 101; end on 1;"
          " replay on 1;",
          " replay on 1;"}) {
      recorder().log.clear();
      CHECK(capture.run({}).ok());
      CHECK(recorder().log == wanted);
    }
    CHECK(log == "1 captured: it is one launch from here on");
    capture.release_comms();  // it holds none
    CHECK(capture.is_captured());
  }
  CHECK(recorder().graphs == 0);
  CHECK(recorder().events == 0);
}

TEST_CASE("an_entry_that_is_refused_is_issued_every_time_and_says_so_once") {
  const tsr_backend_api api = recording_api();
  int issued = 0;
  std::string log;
  EntryCapture capture(
      api, nullptr, two_streams(),
      [&](CollectiveOrder&) {
        CHECK(!is_capturing);
        ++issued;
        return Status();
      },
      [&](int32_t level, const std::string& what) { log += std::to_string(level) + " " + what; });
  capture.refuse("it reads or writes a file");
  for (int run = 0; run < 3; ++run) {
    CHECK(capture.run({}).ok());
    // With the run that would have been captured.
    CHECK(log ==
          (run == 0 ? "" : "1 not captured, and is issued kernel by kernel: it reads or writes a file"));
  }
  CHECK(issued == 3);
  CHECK(recorder().log.empty());
}

TEST_CASE("collectives_follow_one_another_whatever_their_streams") {
  const tsr_backend_api api = recording_api();
  const auto streams = two_streams();
  CollectiveOrder order(api, nullptr);
  for (int run = 0; run < 2; ++run) {
    recorder().log.clear();
    order.begin();
    for (const size_t stream : {0, 0, 1, 0}) {
      CHECK(order.before(streams[stream]).ok());
      recorder().note(" work;");
      CHECK(order.after(streams[stream]).ok());
    }
    CHECK(recorder().log ==
          " work; record 100 on 1; work; record 100 on 1; 2 waits for 100; work; record 100 on 2;"
          " 1 waits for 100; work; record 100 on 1;");
  }
}

TEST_CASE("ranks_that_communicate_capture_together_and_launches_count_as_calls") {
  Ranks ranks(3);
  for (int64_t run = 1; run <= 4; ++run) {
    ranks.run_well();
    CHECK(ranks.count_captured() == (run > 1 ? 3 : 0));
    for (size_t rank = 0; rank < 3; ++rank) CHECK(ranks.calls(rank) == run);
  }
  CHECK(ranks.issued[0] == 3);
  CHECK(ranks.issued[1] == 3);
  for (const std::string& log : ranks.log) CHECK(log == "captured: it is one launch from here on; ");
}

TEST_CASE("one_rank_by_way_of_the_host_keeps_all_from_beginning_a_capture") {
  Ranks ranks(3);
  ranks.behaviours[1].by_way_of_host = true;
  for (int64_t run = 1; run <= 3; ++run) {
    ranks.run_well();
    for (size_t rank = 0; rank < 3; ++rank) CHECK(ranks.calls(rank) == run);
  }
  CHECK(ranks.count_captured() == 0);
  CHECK(ranks.issued[1] == 0);
  for (const std::string& log : ranks.log)
    CHECK(log ==
          "not captured, and is issued kernel by kernel: it communicates by way of the host, or through a "
          "library that cannot be captured; ");
}

TEST_CASE("a_rank_that_never_can_keeps_the_others_from_asking") {
  Ranks ranks(2);
  ranks.vote.add_member(false);  // and never comes
  for (int run = 0; run < 3; ++run) ranks.run_well();
  CHECK(ranks.count_captured() == 0);
  for (const std::string& log : ranks.log)
    CHECK(
        log ==
        "not captured, and is issued kernel by kernel: another rank sends, receives or uses a file in it; ");
}

TEST_CASE("where_the_capture_of_one_rank_fails_none_launches_its_own") {
  Ranks ranks(3);
  ranks.behaviours[2].fails_in_capture = true;
  for (int64_t run = 1; run <= 4; ++run) {
    ranks.run_well();
    for (size_t rank = 0; rank < 3; ++rank) CHECK(ranks.calls(rank) == run);
  }
  CHECK(ranks.count_captured() == 0);
  CHECK(recorder().graphs == 0);
  CHECK(recorder().log.find("replay") == std::string::npos);
  CHECK(ranks.issued[0] == 12);
  for (size_t rank = 0; rank < 2; ++rank)
    CHECK(ranks.log[rank].find("it could not be on another rank") != std::string::npos);
  CHECK(ranks.log[2].find("not in a graph") != std::string::npos);
}

TEST_CASE("a_capture_that_throws_is_ended_and_the_entry_issued_on_all_ranks") {
  Ranks ranks(3);
  ranks.behaviours[1].throws_in_capture = true;
  for (int run = 0; run < 3; ++run) ranks.run_well();
  CHECK(ranks.count_captured() == 0);
  CHECK(recorder().captures == 0);
  CHECK(recorder().graphs == 0);
  CHECK(ranks.log[1].find("out of memory") != std::string::npos);
}

TEST_CASE("a_rank_that_fails_between_its_two_agreements_leaves_nobody_waiting_and_nothing_open") {
  for (int round = 0; round < 20; ++round) {
    Ranks ranks(3);
    ranks.run_well();
    ranks.behaviours[1].stops_in_capture = true;
    for (const Status& status : ranks.run()) CHECK(status.code() == StatusCode::kAborted);
    CHECK(ranks.count_captured() == 0);
    CHECK(recorder().captures == 0);
    CHECK(recorder().graphs == 0);
    // As after `restore`: a first run again.
    ranks.behaviours[1] = {};
    ranks.restore();
    for (int run = 0; run < 3; ++run) {
      ranks.run_well();
      CHECK(ranks.count_captured() == (run > 0 ? 3 : 0));
    }
  }
}

}  // namespace
}  // namespace tessera
