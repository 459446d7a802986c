#include "runtime/capture_agreement.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace tessera {
namespace {

// Every member's answers, by round, and what it was told.
using Rounds = std::vector<std::vector<bool>>;

Rounds told_by(CaptureAgreement& agreement, const Rounds& answers) {
  Rounds told(answers.size());
  std::vector<std::thread> members;
  for (size_t member = 0; member < answers.size(); ++member)
    members.emplace_back([&, member] {
      for (const bool mine : answers[member]) told[member].push_back(agreement.all(mine));
    });
  for (std::thread& member : members) member.join();
  return told;
}

TEST_CASE("all_members_are_told_in_every_round_whether_all_said_yes_in_it") {
  constexpr size_t kMembers = 5, kRounds = 400;
  std::mt19937 random(7);
  CaptureAgreement agreement;
  Rounds answers(kMembers);
  for (size_t member = 0; member < kMembers; ++member) {
    agreement.join(true);
    for (size_t round = 0; round < kRounds; ++round) answers[member].push_back(random() % 8 != 0);
  }
  const Rounds told = told_by(agreement, answers);
  size_t agreed = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    bool wanted = true;
    for (const auto& member : answers) wanted = wanted && member[round];
    agreed += wanted;
    for (const auto& member : told) CHECK(member[round] == wanted);
  }
  CHECK(agreed > 0);
  CHECK(agreed < kRounds);
}

TEST_CASE("it_is_impossible_once_one_member_never_can") {
  CaptureAgreement agreement;
  agreement.join(true);
  CHECK(agreement.is_possible());
  agreement.join(false);
  agreement.join(true);
  CHECK(!agreement.is_possible());
}

TEST_CASE("one_member_alone_agrees_with_itself") {
  CaptureAgreement agreement;
  agreement.join(true);
  CHECK(agreement.all(true));
  CHECK(!agreement.all(false));
  CHECK(agreement.all(true));
}

TEST_CASE("a_stop_wakes_who_waits_and_holds_until_it_is_renewed") {
  CaptureAgreement agreement;
  for (int member = 0; member < 3; ++member) agreement.join(true);
  for (int round = 0; round < 50; ++round) {
    // Two wait for a third that fails instead; whether they have come by then or not.
    bool told[2] = {true, true};
    std::atomic<int> coming = 0;
    const auto come = [&](bool& mine, bool answer) {
      ++coming;
      mine = agreement.all(answer);
    };
    std::thread first([&] { come(told[0], true); });
    std::thread second([&] { come(told[1], false); });
    while (round % 2 == 0 && coming < 2) std::this_thread::yield();
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // most wait by then
    agreement.stop();
    first.join();
    second.join();
    CHECK(!told[0]);
    CHECK(!told[1]);
    CHECK(!agreement.all(true));  // at once
    agreement.renew();
    // Neither who had come nor what they said counts any more.
    for (const auto& member : told_by(agreement, {{true, false}, {true, true}, {true, true}}))
      CHECK(member == std::vector<bool>{true, false});
    CHECK(agreement.is_possible());
  }
}

TEST_CASE("a_stop_that_meets_the_last_member_leaves_nobody_waiting") {
  CaptureAgreement agreement;
  for (int member = 0; member < 2; ++member) agreement.join(true);
  for (int round = 0; round < 500; ++round) {
    std::thread other([&] { (void)agreement.all(true); });
    std::thread stopper([&] { agreement.stop(); });
    (void)agreement.all(true);
    other.join();
    stopper.join();
    agreement.renew();
  }
  CHECK(agreement.is_possible());
}

}  // namespace
}  // namespace tessera
