// Streams and waits of hand-made programs, and their replay.
#include <doctest/doctest.h>

#include <string>

#include "graph/analysis/instructions.h"
#include "graph/analysis/replay.h"
#include "graph/base/text.h"

using namespace tessera;

namespace {

constexpr int64_t kBytes = 1 << 20;  // of every slot

// One rank whose slots have given offsets; "kernels" are copies inside the device tier.
struct Maker {
  RankProgram rank;
  Maker() {
    rank.entries.push_back({"step", {}, {}, {}});
    rank.groups.push_back({{0, 1}, 0, "dp"});
  }
  int32_t slot(int64_t offset, Tier tier = Tier::kDevice) {
    rank.slots.push_back({format("s{}", rank.slots.size()), SlotKind::kTransient, tier, kBytes, offset});
    return static_cast<int32_t>(rank.slots.size()) - 1;
  }
  std::vector<Instruction>& code() { return rank.entries[0].code; }
  void compute(int32_t in, int32_t out) {
    CopyInst copy;
    copy.in = {in, 0};
    copy.out = {out, 0};
    copy.row_bytes = kBytes;
    code().emplace_back(copy);
  }
  void move(int32_t in, int32_t out) { compute(in, out); }
  void reduce(int32_t in, int32_t out) {
    CollectiveInst reduce;
    reduce.group = 0;
    reduce.elements = kBytes / 4;
    reduce.in = {in, 0};
    reduce.out = {out, 0};
    code().emplace_back(reduce);
  }
  void send(int32_t peer, int32_t in) { code().emplace_back(SendInst{peer, kBytes, {in, 0}, kNoNode, 0}); }
  void recv(int32_t peer, int32_t out) { code().emplace_back(RecvInst{peer, kBytes, {out, 0}, kNoNode, 0}); }

  // "0 compute; 1 collectives after compute 0; ..."
  std::string text(const StreamOptions& options = {}) const {
    const Dependencies found = find_dependencies(rank, rank.entries[0], options);
    std::vector<std::string> lines;
    for (size_t i = 0; i < rank.entries[0].code.size(); ++i) {
      std::string line = to_text(found.streams[static_cast<size_t>(found.stream[i])].id);
      for (const StreamWait& wait : found.waits_of(static_cast<int32_t>(i))) {
        const Stream& other = found.streams[static_cast<size_t>(wait.stream)];
        line += format(" after {}", other.code[static_cast<size_t>(wait.position)]);
      }
      lines.push_back(line);
    }
    return join(lines, "; ");
  }
};

Result<Replay> replay_of(std::vector<Maker> makers) {
  Program program;
  std::vector<Dependencies> dependencies;
  for (size_t i = 0; i < makers.size(); ++i) {
    makers[i].rank.groups[0].position = static_cast<int32_t>(i);
    program.ranks.push_back(makers[i].rank);
    dependencies.push_back(find_dependencies(program.ranks[i], program.ranks[i].entries[0]));
  }
  return replay(program, 0, dependencies, [](int32_t, int32_t) { return 10; });
}

}  // namespace

TEST_CASE("a collective whose result nobody needs yet overlaps the computation") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes);
  m.compute(a, b);  // 0
  m.reduce(b, c);   // 1
  m.compute(a, d);  // 2: concurrent with it
  m.compute(c, d);  // 3
  CHECK(m.text() == "compute; collectives after 0; compute; compute after 1");
}

TEST_CASE("a collective between what it needs and what needs it stays on the compute stream") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes);
  m.compute(a, b);
  m.reduce(b, c);
  m.compute(c, d);
  CHECK(m.text() == "compute; compute; compute");
}

TEST_CASE("a small collective stays on the compute stream whatever could overlap it") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes);
  m.compute(a, b);
  m.reduce(b, c);
  m.compute(a, d);
  CHECK(m.text({.inline_below_bytes = kBytes + 1}) == "compute; compute; compute");
  CHECK(m.text({.inline_below_bytes = kBytes}) == "compute; collectives after 0; compute");
}

TEST_CASE("a small collective behind a large one of its communicator does not make computation wait") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes),
                e = m.slot(4 * kBytes);
  m.compute(a, b);  // 0
  m.reduce(b, c);   // 1
  m.reduce(a, d);   // 2: small
  std::get<CollectiveInst>(m.code().back()).elements = 4;
  m.compute(a, e);  // 3: concurrent with both
  m.compute(d, e);  // 4: now both are done
  m.reduce(b, d);   // 5: small
  std::get<CollectiveInst>(m.code().back()).elements = 4;
  m.compute(a, e);  // 6
  CHECK(m.text() == "compute; collectives after 0; collectives; compute; compute after 2; compute; compute");
}

TEST_CASE("bytes that another slot takes over are waited for") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes);
  const int32_t over_b = m.slot(kBytes + kBytes / 2);  // the second half of b, the first of c
  m.compute(a, b);                                     // 0
  m.reduce(b, c);                                      // 1 reads b, writes c
  m.compute(a, d);                                     // 2
  m.compute(a, over_b);                                // 3 writes over both
  CHECK(m.text() == "compute; collectives after 0; compute; compute after 1");
  // Reading what a collective reads needs no wait.
  Maker n = m;
  n.code().pop_back();
  n.compute(b, d);
  CHECK(n.text() == "compute; collectives after 0; compute; compute");
}

TEST_CASE("collectives of one communicator keep their order on any streams") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes),
                e = m.slot(4 * kBytes), f = m.slot(5 * kBytes);
  m.compute(a, b);  // 0
  m.reduce(b, c);   // 1: concurrent with 2
  m.compute(a, d);  // 2
  m.reduce(d, e);   // 3: between 2 and 4, so on the compute stream
  m.compute(e, f);  // 4
  CHECK(m.text() == "compute; collectives after 0; compute; compute after 1; compute");
}

TEST_CASE("moves between tiers have a stream of their own, copies inside one do not") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), host = m.slot(0, Tier::kHost);
  const int32_t c = m.slot(2 * kBytes);
  m.compute(a, b);  // 0
  m.move(b, host);  // 1 out
  m.compute(a, c);  // 2, concurrent with it
  m.compute(c, b);  // 3 over what is moved
  m.move(host, c);  // 4 back
  m.compute(a, b);  // 5
  m.compute(c, a);  // 6
  CHECK(m.text() ==
        "compute; copies after 0; compute; compute after 1; copies after 3; compute; compute after 4");
}

TEST_CASE("messages have a stream for each peer and direction") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes);
  m.compute(a, b);
  m.send(1, b);
  m.recv(2, c);
  m.compute(c, a);
  m.send(1, a);
  CHECK(m.text() == "compute; send to 1 after 0; receive from 2; compute after 2; send to 1 after 3");
}

TEST_CASE("waits that others imply are left out") {
  Maker m;
  const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes);
  const int32_t host = m.slot(0, Tier::kHost);
  m.compute(a, b);  // 0
  m.reduce(b, c);   // 1 after 0
  m.move(c, host);  // 2 after 1, which is after 0
  m.compute(a, d);  // 3
  m.compute(b, c);  // 4 after 2 (it reads c), which implies 1
  CHECK(m.text() == "compute; collectives after 0; copies after 1; compute; compute after 2");
}

TEST_CASE("a replay overlaps what may overlap and meets in collectives") {
  std::vector<Maker> ranks(2);
  for (size_t i = 0; i < 2; ++i) {
    Maker& m = ranks[i];
    const int32_t a = m.slot(0), b = m.slot(kBytes), c = m.slot(2 * kBytes), d = m.slot(3 * kBytes);
    if (i == 1) m.compute(a, d);  // rank 1 is late
    m.compute(a, b);
    m.reduce(b, c);
    m.compute(a, d);
    m.compute(c, d);
  }
  const Result<Replay> played = replay_of(ranks);
  REQUIRE(played.ok());
  const auto& first = played->ranks[0];
  CHECK(first[1].begin_ns == 20);  // when rank 1 arrives
  CHECK(first[1].end_ns == 30);
  CHECK(first[2].begin_ns == 10);
  CHECK(first[3].begin_ns == 30);
  CHECK(played->end_ns == 40);
}

TEST_CASE("where ranks fill the cores only what is long is handed over") {
  const StreamOptions spare = usual_streams(2, 4), full = usual_streams(4, 4), engines = usual_streams(8, 0);
  CHECK(spare.inline_below_bytes == StreamOptions{}.inline_below_bytes);
  CHECK(engines.inline_below_bytes == StreamOptions{}.inline_below_bytes);
  CHECK(full.inline_below_bytes == 1 << 20);
}

TEST_CASE("a send does not hold up the computation after it") {
  std::vector<Maker> ranks(2);
  Maker& m = ranks[0];
  const int32_t a = m.slot(0), b = m.slot(kBytes);
  m.send(1, a);
  m.compute(b, b);
  m.recv(1, b);
  Maker& n = ranks[1];
  const int32_t c = n.slot(0), d = n.slot(kBytes);
  n.send(0, c);
  n.compute(d, d);
  n.recv(0, d);
  const Result<Replay> played = replay_of(ranks);
  REQUIRE(played.ok());
  CHECK(played->ranks[0][1].begin_ns == 0);
}

TEST_CASE("receives over the bytes of sends that wait for each other are refused, with names") {
  std::vector<Maker> ranks(2);
  for (size_t i = 0; i < 2; ++i) {
    const int32_t peer = 1 - static_cast<int32_t>(i), a = ranks[i].slot(0),
                  over_a = ranks[i].slot(kBytes / 2);
    ranks[i].send(peer, a);
    ranks[i].recv(peer, over_a);
  }
  const Result<Replay> played = replay_of(ranks);
  REQUIRE(!played.ok());
  const std::string message(played.status().message());
  CHECK(message.find("rank 0 at instruction 0 (send to 1") != std::string::npos);
  CHECK(message.find("rank 1 at instruction 0 (send to 0") != std::string::npos);
}

TEST_CASE("a collective that one member never reaches is refused") {
  std::vector<Maker> ranks(2);
  for (Maker& m : ranks) m.slot(0), m.slot(kBytes);
  ranks[0].reduce(0, 1);
  const Result<Replay> played = replay_of(ranks);
  REQUIRE(!played.ok());
  CHECK(played.status().message().find("all_reduce dp, micro-batch 0) with ranks 1") != std::string::npos);
}
