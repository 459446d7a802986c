#include "graph/analysis/issue_order.h"

#include <doctest/doctest.h>

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

}  // namespace
}  // namespace tessera
