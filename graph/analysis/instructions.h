// Descriptions of instructions, for people and for analyses: names in traces and messages, bytes moved, bytes
// of the arenas read and written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/program.h"
#include "graph/trace.h"

namespace tessera {

// "matmul block.0.mlp", "all_reduce dp", "send to 3", "copy host -> device w1".
std::string instruction_label(const RankProgram& rank, const Instruction& instruction);
// "kernel", "collective", "p2p" or "copy".
std::string_view instruction_category(const Instruction& instruction);
// Bytes of a collective's whole tensor, of a message or copy, or of a kernel's operands and results.
int64_t instruction_bytes(const RankProgram& rank, const Instruction& instruction);
int32_t micro_batch_of(const Instruction& instruction);
// The trace event of the instruction, complete except time, rank and stream.
TraceEvent traced(const RankProgram& rank, const EntryPoint& entry, const Instruction& instruction);
// "rank 3 at instruction 17 (all_reduce dp), waiting for ranks 0, 1, 2". No ranks are named where it waits
// for none.
std::string waiting_text(const RankProgram& rank, int32_t rank_index, const EntryPoint& entry,
                         int32_t instruction);

// Bytes [begin, end) of one tier's arena.
struct ByteAccess {
  Tier tier = Tier::kDevice;
  int64_t begin = 0, end = 0;
  bool is_write = false;
};
// Finds the bytes that the instruction accesses, reads before writes. Strided rows count with the gaps
// between them. `out` is emptied first; its memory is reused.
void find_accesses(const RankProgram& rank, const Instruction& instruction, std::vector<ByteAccess>& out);

}  // namespace tessera
