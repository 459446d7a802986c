#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "runtime/entry_capture.h"

namespace tessera {
namespace {

// Every member's answers, by round, and its verdicts.
using Rounds = std::vector<std::vector<bool>>;

Rounds collect_verdicts(CaptureVote& vote, const Rounds& answers) {
  Rounds verdicts(answers.size());
  std::vector<std::thread> members;
  for (size_t member = 0; member < answers.size(); ++member)
    members.emplace_back([&, member] {
      for (const bool mine : answers[member]) verdicts[member].push_back(vote.vote(mine));
    });
  for (std::thread& member : members) member.join();
  return verdicts;
}

TEST_CASE("all_members_are_told_in_every_round_whether_all_said_yes_in_it") {
  constexpr size_t kMembers = 5, kRounds = 400;
  std::mt19937 random(7);
  CaptureVote vote;
  Rounds answers(kMembers);
  for (size_t member = 0; member < kMembers; ++member) {
    vote.add_member(true);
    for (size_t round = 0; round < kRounds; ++round) answers[member].push_back(random() % 8 != 0);
  }
  const Rounds verdicts = collect_verdicts(vote, answers);
  size_t agreed = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    bool wanted = true;
    for (const auto& member : answers) wanted = wanted && member[round];
    agreed += wanted;
    for (const auto& member : verdicts) CHECK(member[round] == wanted);
  }
  CHECK(agreed > 0);
  CHECK(agreed < kRounds);
}

TEST_CASE("it_is_impossible_once_one_member_never_can") {
  CaptureVote vote;
  vote.add_member(true);
  CHECK(vote.is_possible());
  vote.add_member(false);
  vote.add_member(true);
  CHECK(!vote.is_possible());
}

TEST_CASE("one_member_alone_agrees_with_itself") {
  CaptureVote vote;
  vote.add_member(true);
  CHECK(vote.vote(true));
  CHECK(!vote.vote(false));
  CHECK(vote.vote(true));
}

TEST_CASE("a_stop_wakes_who_waits_and_holds_until_it_is_renewed") {
  CaptureVote vote;
  for (int member = 0; member < 3; ++member) vote.add_member(true);
  for (int round = 0; round < 50; ++round) {
    // Two wait for a third that fails instead; whether they have come by then or not.
    bool verdicts[2] = {true, true};
    std::atomic<int> coming = 0;
    const auto come = [&](bool& mine, bool answer) {
      ++coming;
      mine = vote.vote(answer);
    };
    std::thread first([&] { come(verdicts[0], true); });
    std::thread second([&] { come(verdicts[1], false); });
    while (round % 2 == 0 && coming < 2) std::this_thread::yield();
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // most wait by then
    vote.stop();
    first.join();
    second.join();
    CHECK(!verdicts[0]);
    CHECK(!verdicts[1]);
    CHECK(!vote.vote(true));  // at once
    vote.reset();
    // Neither who had come nor what they said counts any more.
    for (const auto& member : collect_verdicts(vote, {{true, false}, {true, true}, {true, true}}))
      CHECK(member == std::vector<bool>{true, false});
    CHECK(vote.is_possible());
  }
}

TEST_CASE("a_stop_that_meets_the_last_member_leaves_nobody_waiting") {
  CaptureVote vote;
  for (int member = 0; member < 2; ++member) vote.add_member(true);
  for (int round = 0; round < 500; ++round) {
    std::thread other([&] { (void)vote.vote(true); });
    std::thread stopper([&] { vote.stop(); });
    (void)vote.vote(true);
    other.join();
    stopper.join();
    vote.reset();
  }
  CHECK(vote.is_possible());
}

}  // namespace
}  // namespace tessera
