#include "graph/analysis/issue_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// Two ranks that run these, and a group of both.
Program of(std::vector<Instruction> first, std::vector<Instruction> second) {
  Program program;
  program.ranks.resize(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    program.ranks[static_cast<size_t>(rank)].groups = {Group{{0, 1}, rank, "dp"}, Group{{0, 1}, rank, "tp"}};
    EntryPoint entry;
    entry.name = "run";
    entry.code = rank == 0 ? std::move(first) : std::move(second);
    program.ranks[static_cast<size_t>(rank)].entries.push_back(std::move(entry));
  }
  return program;
}
Instruction send(int32_t peer) {
  SendInst what;
  what.peer = peer;
  what.bytes = 4;
  return what;
}
Instruction receive(int32_t peer) {
  RecvInst what;
  what.peer = peer;
  what.bytes = 4;
  return what;
}
Instruction collective(int32_t group) {
  CollectiveInst what;
  what.group = group;
  return what;
}

TEST_CASE("ranks_that_send_before_they_receive_run_from_one_thread_each") {
  CHECK(check_issue_order(of({send(1), receive(1)}, {send(0), receive(0)}), "run").ok());
  CHECK(check_issue_order(of({receive(1), send(1)}, {send(0), receive(0)}), "run").ok());
  CHECK(check_issue_order(
            of({collective(0), send(1), collective(1)}, {collective(0), collective(1), receive(0)}), "run")
            .ok());
}

TEST_CASE("ranks_that_hold_back_sends_behind_each_others_receives_stand_still") {
  const Status status = check_issue_order(of({receive(1), send(1)}, {receive(0), send(0)}), "run");
  CHECK(status.code() == StatusCode::kFailedPrecondition);
  CHECK(std::string(status.message()).find("rank 0 at instruction 0") != std::string::npos);
  CHECK(std::string(status.message()).find("rank 1 at instruction 0") != std::string::npos);
}

TEST_CASE("collectives_of_two_groups_in_another_order_stand_still") {
  CHECK(!check_issue_order(of({collective(0), collective(1)}, {collective(1), collective(0)}), "run").ok());
}

TEST_CASE("a_sender_waits_once_too_many_of_its_messages_are_under_way") {
  CHECK(check_issue_order(of({send(1), send(1), receive(1)}, {send(0), receive(0), receive(0)}), "run", 2)
            .ok());
  CHECK(!check_issue_order(
             of({send(1), send(1), receive(1)}, {send(0), send(0), receive(0), receive(0), receive(0)}),
             "run", 1)
             .ok());
}

// The same by its definition: what ranks do is ordered by each rank's program, a collective is one event of
// all its members, a receive comes after its send. It can be issued if and only if no event comes before
// itself.
struct Events {
  explicit Events(const Program& program) {
    using GroupKey = std::pair<std::vector<int32_t>, std::string>;
    std::map<std::tuple<GroupKey, int32_t>, int32_t> collectives;  // number -> event
    std::map<std::tuple<int32_t, int32_t, bool, int32_t>, int32_t>
        ends;  // of messages: from, to, sent, number
    const auto event = [&] {
      after.emplace_back();
      return static_cast<int32_t>(after.size()) - 1;
    };
    for (int32_t rank = 0; rank < static_cast<int32_t>(program.ranks.size()); ++rank) {
      const RankProgram& part = program.ranks[static_cast<size_t>(rank)];
      std::map<GroupKey, int32_t> calls;
      std::map<std::pair<int32_t, bool>, int32_t> messages;
      std::vector<std::pair<GroupKey, int32_t>>& mine = issued.emplace_back();
      int32_t before = -1;
      for (const Instruction& what : part.entries[0].code) {
        int32_t now = -1;
        if (const auto* collective = std::get_if<CollectiveInst>(&what)) {
          const Group& group = part.groups[static_cast<size_t>(collective->group)];
          const GroupKey key(group.ranks, group.axis);
          const auto [at, is_new] = collectives.emplace(std::tuple(key, calls[key]++), -1);
          if (is_new) at->second = event();
          now = at->second;
          mine.emplace_back(key, now);
        } else {
          const auto* sent = std::get_if<SendInst>(&what);
          const int32_t peer = sent != nullptr ? sent->peer : std::get<RecvInst>(what).peer;
          const int32_t number = messages[{peer, sent != nullptr}]++;
          now = event();
          ends[{sent != nullptr ? rank : peer, sent != nullptr ? peer : rank, sent != nullptr, number}] = now;
        }
        if (before >= 0) after[static_cast<size_t>(before)].push_back(now);
        before = now;
      }
    }
    for (const auto& [end, now] : ends) {
      const auto& [from, to, is_sent, number] = end;
      if (!is_sent) after[static_cast<size_t>(ends.at({from, to, true, number}))].push_back(now);
    }
  }
  // In an order that all ranks keep, as far as there is one: fewer than all events where some come before
  // themselves.
  std::vector<int32_t> sorted() const {
    std::vector<int32_t> left(after.size()), order;
    for (const auto& next : after)
      for (const int32_t at : next) ++left[static_cast<size_t>(at)];
    for (size_t at = 0; at < after.size(); ++at)
      if (left[at] == 0) order.push_back(static_cast<int32_t>(at));
    for (size_t done = 0; done < order.size(); ++done)
      for (const int32_t at : after[static_cast<size_t>(order[done])])
        if (--left[static_cast<size_t>(at)] == 0) order.push_back(at);
    return order;
  }
  std::vector<std::vector<int32_t>> after;  // by event
  std::vector<std::vector<std::pair<std::pair<std::vector<int32_t>, std::string>, int32_t>>>
      issued;  // by rank
};

// Ranks of a mesh of 2 x 2 x 2 with a communicator for each of its lines and planes, which do one list of
// things in its order, except `swaps` neighbours that are exchanged on one rank.
Program random_program(std::mt19937& random, int things, int swaps) {
  constexpr int32_t kRanks = 8;
  const auto below = [&](int32_t end) { return static_cast<int32_t>(random() % static_cast<uint32_t>(end)); };
  Program program;
  program.ranks.resize(kRanks);
  for (RankProgram& part : program.ranks) part.entries.emplace_back().name = "run";
  for (int32_t axes = 1; axes < kRanks; ++axes)
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      Group group;
      for (int32_t other = 0; other < kRanks; ++other)
        if ((other & ~axes) == (rank & ~axes)) {
          if (other == rank) group.position = static_cast<int32_t>(group.ranks.size());
          group.ranks.push_back(other);
        }
      group.axis = std::to_string(axes);
      program.ranks[static_cast<size_t>(rank)].groups.push_back(group);
    }
  for (int thing = 0; thing < things; ++thing) {
    const int32_t rank = below(kRanks);
    if (below(4) == 0) {
      const int32_t peer = (rank + 1 + below(kRanks - 1)) % kRanks;
      program.ranks[static_cast<size_t>(rank)].entries[0].code.push_back(send(peer));
      program.ranks[static_cast<size_t>(peer)].entries[0].code.push_back(receive(rank));
    } else {
      const int32_t axes = below(kRanks - 1);
      for (const int32_t member :
           program.ranks[static_cast<size_t>(rank)].groups[static_cast<size_t>(axes)].ranks)
        program.ranks[static_cast<size_t>(member)].entries[0].code.push_back(collective(axes));
    }
  }
  for (int swap = 0; swap < swaps; ++swap) {
    std::vector<Instruction>& code = program.ranks[static_cast<size_t>(below(kRanks))].entries[0].code;
    if (code.size() < 2) continue;
    const auto at = static_cast<size_t>(below(static_cast<int32_t>(code.size()) - 1));
    std::swap(code[at], code[at + 1]);
  }
  return program;
}

// NCCL's kernels wait for those of other ranks: were two communicators used in one order here and in another
// there, they could wait for each other for ever, and no emulator would.
TEST_CASE("a_program_that_is_let_through_uses_communicators_in_one_order_on_all_ranks") {
  std::mt19937 random(3);
  int passed = 0, refused = 0;
  for (int program_number = 0; program_number < 3000; ++program_number) {
    const Program program = random_program(random, 2 + static_cast<int>(random() % 20), program_number % 4);
    const Events events(program);
    const std::vector<int32_t> order = events.sorted();
    const bool can_run = order.size() == events.after.size();
    CHECK(check_issue_order(program, "run", 1 << 20).ok() == can_run);
    ++(can_run ? passed : refused);
    if (!can_run) continue;
    // Pair by pair: ranks that share two communicators.
    for (size_t a = 0; a < events.issued.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        const auto shared = [&](size_t rank, size_t other) {
          std::vector<int32_t> mine;
          for (const auto& [key, event] : events.issued[rank])
            if (std::ranges::count(key.first, static_cast<int32_t>(other)) > 0) mine.push_back(event);
          return mine;
        };
        CHECK(shared(a, b) == shared(b, a));
      }
  }
  CHECK(passed > 1000);
  CHECK(refused > 500);
}

}  // namespace
}  // namespace tessera
