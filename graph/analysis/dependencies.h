// Dependencies: the instructions of one rank that may run concurrently. Every instruction has a stream, runs
// in its stream's order, and waits for what it depends on in the others. Pure: executor and simulator use the
// same answer.
//
// Dependencies come from bytes, in any arena, whichever slots the bytes belong to at the time. An instruction
// waits for earlier ones, in program order, that write what it reads, read what it writes or write what it
// writes. Every wait is thus on an earlier instruction. Waits in program order cannot deadlock where the
// whole program, run in order, does not; sends alone are outside of that argument (see
// graph/analysis/replay.h).
//
// Kernels and copies inside a tier compute. Collectives, and copies between tiers, have a stream of their own
// kind unless nothing could overlap with them: neither the computation before (which they need) nor the one
// after (which needs them). Then, and when they are small, they stay on the compute stream and need no stream
// switch. Every peer has one stream for sends to it and one for receives from it, so that neither ever blocks
// anything else and the messages of a pair match in program order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"

namespace tessera {

enum class StreamKind : uint8_t { kCompute = 0, kCollectives = 1, kCopies = 2, kSend = 3, kReceive = 4 };

struct StreamId {
  StreamKind kind = StreamKind::kCompute;
  int32_t peer = -1;  // of kSend and kReceive: a global rank
  friend auto operator<=>(const StreamId&, const StreamId&) = default;
};
std::string to_text(const StreamId& id);  // "compute", "collectives", "copies", "send to 1", "receive from 1"

// The row of the stream in a trace: the same for every entry of a program.
int32_t track_of(const StreamId& id);

struct Stream {
  StreamId id;
  std::vector<int32_t> code;  // its instructions, in program order
};

// A wait until the instruction at `position` of the stream's code is done.
struct StreamWait {
  int32_t stream = 0, position = 0;
  friend bool operator==(const StreamWait&, const StreamWait&) = default;
};

struct Dependencies {
  std::vector<Stream> streams;            // sorted by id; [0] is compute, which is always there
  std::vector<int32_t> stream, position;  // stream of each instruction, and its position there
  std::vector<int32_t> wait_begin;        // by instruction, with a final end: range in `waits`
  std::vector<StreamWait> waits;          // on other streams only; none is implied by another

  std::span<const StreamWait> waits_of(int32_t instruction) const {
    const auto at = static_cast<size_t>(instruction);
    return std::span(waits).subspan(static_cast<size_t>(wait_begin[at]),
                                    static_cast<size_t>(wait_begin[at + 1] - wait_begin[at]));
  }
};

struct StreamOptions {
  // Collectives and tier copies below this size stay on the compute stream, where they cost less
  // than a stream switch, except behind one of the same communicator that is still in flight.
  int64_t inline_below_bytes = int64_t{32} << 10;
};

// Ranks that have instructions: plans may leave devices idle, which then cost the others nothing.
size_t working_ranks(const Program& program);

// The options of executor and simulator. Where `ranks` at work fill the cores that they
// share, a thread for another stream has to wait for the scheduler's next slice, and a
// copy by a core overlaps nothing. So only instructions that take longer than such a
// wait move to another stream. `shared_cores` 0: devices have engines of their own.
StreamOptions usual_streams(size_t ranks, int32_t shared_cores);

// `entry` belongs to the program and has passed verify().
Dependencies find_dependencies(const RankProgram& rank, const EntryPoint& entry,
                               const StreamOptions& options = {});

}  // namespace tessera
