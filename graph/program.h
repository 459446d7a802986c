// Program: the result of lowering (Graph, Plan, KernelCatalog), and the only form
// that is priced, sized, executed and traced. Per rank: slots with fixed arena
// offsets and flat lists of instructions from a small closed set. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/attr.h"
#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "graph/rank_set.h"
#include "graph/sharding_spec.h"

namespace tessera {

// Stored in program files: append, never renumber.
enum class SlotKind : uint8_t {
  kParameter = 0,  // outlives a run; may be shared read-only between sessions
  kState = 1,      // outlives a run; owned by one session (optimizer moments, KV cache, accumulators)
  kConstant = 2,
  kInput = 3,      // fed before a run
  kOutput = 4,     // fetched after a run; holds its value until the next
  kTransient = 5,  // activations, gradients, gathered parameters, communication buffers
  kWorkspace = 6,  // scratch of one kernel
};

// Bytes [offset, offset + bytes) of the rank's arena for its tier. Slots whose lifetimes do not overlap share
// bytes.
struct Slot {
  std::string name;  // tensor name, or purpose: "gather(w1)", "workspace(matmul 7)"
  SlotKind kind = SlotKind::kTransient;
  Tier tier = Tier::kDevice;
  int64_t bytes = 0;
  int64_t offset = -1;
};

// A position in a slot: micro-batch j of an input begins at j times its bytes.
struct SlotRef {
  int32_t slot = -1;
  int64_t offset = 0;  // bytes from the slot's start
  friend bool operator==(const SlotRef&, const SlotRef&) = default;
};

// KernelDesc: the input of `prepare`; shared by all instructions that launch the same kernel.
struct KernelDesc {
  const OpDef* op = nullptr;
  std::vector<Attr> attrs;
  std::vector<TensorType> inputs, outputs;  // local
  std::vector<FactorView> factors;
  std::string variant;
  int64_t workspace_bytes = 0;
  double seconds = 0;
};

struct KernelInst {
  int32_t kernel = -1;  // index into RankProgram::kernels
  std::vector<SlotRef> inputs, outputs;
  SlotRef workspace;    // slot -1 when the kernel needs none
  NodeId node = kNoNode;
  int32_t micro_batch = 0;
};

enum class CollectiveKind : uint8_t { kAllReduce = 0, kAllGather = 1, kReduceScatter = 2, kAllToAll = 3, kBroadcast = 4 };

// Layout. The group's whole tensor is seen as [outer, whole, inner] where `whole` is the split dim and member
// i owns extents[i] of it (in group order), so a local piece is [outer, extents[i], inner], contiguous.
//   all_reduce:      in, out: the whole tensor; outer = inner = 1.
//   all_gather:      in: my piece; out: the whole.
//   reduce_scatter:  in: the whole; out: my piece, reduced in group order.
//   all_to_all:      two split dims: the tensor is [outer, first, middle, second, inner]; in: whole in one and
//                    split in the other, out: the reverse. `extents` belongs to the dim split in `in`,
//                    `extents2` to the one split in `out`; `in_split_first` says which of the two comes first.
//   broadcast:       `root` (group position) to all; outer = inner = 1, extents unused.
struct CollectiveInst {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int32_t group = -1;  // index into RankProgram::groups
  ReduceKind reduce = ReduceKind::kSum;
  DType dtype = DType::kF32;
  int64_t outer = 1, middle = 1, inner = 1;
  std::vector<int64_t> extents, extents2;
  bool in_split_first = true;
  int32_t root = 0;
  int64_t elements = 0;  // of the group's whole tensor
  SlotRef in, out;       // all_reduce may run in place
  NodeId node = kNoNode; // the consumer that requires it
  int32_t micro_batch = 0;
};

// Messages from one rank to another match in program order, and block only accesses to their bytes: each peer
// and direction has a stream of its own (graph/analysis/dependencies.h). A send is done when the receiver has
// the bytes; until then an instruction that overwrites them waits. `peer` is a global rank.
struct SendInst { int32_t peer = -1; int64_t bytes = 0; SlotRef in; NodeId node = kNoNode; int32_t micro_batch = 0; };
struct RecvInst { int32_t peer = -1; int64_t bytes = 0; SlotRef out; NodeId node = kNoNode; int32_t micro_batch = 0; };

// Strided copy between slots of any tiers: `rows` rows of row_bytes. Slices, zero-filled partials and tier moves.
struct CopyInst {
  SlotRef in, out;  // in.slot -1: fill with zero bytes
  int64_t rows = 1, row_bytes = 0, in_stride_bytes = 0, out_stride_bytes = 0;
  NodeId node = kNoNode;
  int32_t micro_batch = 0;
};

using Instruction = std::variant<KernelInst, CollectiveInst, SendInst, RecvInst, CopyInst>;  // closed

// Piece: the correspondence of a global tensor and this rank's slots: `box` of the
// global tensor, row-major and contiguous at `at`. An input of m micro-batches has m
// pieces. Ranks that replicate a box all list it; a fetch reads from the lowest rank.
struct Piece {
  SlotRef at;
  Box box;
};

struct Binding {
  std::string name;
  TensorType global;  // concrete
  std::vector<Piece> pieces;
};

struct EntryPoint {
  std::string name;  // "train_step", "eval", "serve.16"
  std::vector<Instruction> code;
  std::vector<Binding> inputs, outputs;
};

// A communicator that this rank belongs to.
struct Group {
  std::vector<int32_t> ranks;  // global rank ids, in group order
  int32_t position = 0;        // of this rank
  std::string axis;            // "dp", "dp+tp"; for counters and traces
};

struct RankProgram {
  std::vector<Slot> slots;
  std::vector<KernelDesc> kernels;
  std::vector<Group> groups;
  std::vector<EntryPoint> entries;
  std::vector<Binding> parameters, states, constants;  // shared by all entries
  int64_t arena_bytes = 0;       // device tier: highest slot end
  int64_t host_arena_bytes = 0;
  int64_t file_arena_bytes = 0;
  int64_t max_live_bytes = 0;    // lower bound on any arena for this order
  std::string peak;              // a text: instruction and the largest slots live at the peak
};

struct Program {
  // Programs of this process' ranks (rank_set.h): ranks[i] is that of rank first + i. Equal groups list equal ranks in
  // equal order on every member.
  std::vector<RankProgram> ranks;
  int32_t first = 0;  // ranks of other processes before these
  int32_t after = 0;  // and after them
  uint64_t plan_fingerprint = 0;
  uint64_t catalog_fingerprint = 0;

  RankSet rank_set() const {
    const auto here = static_cast<int32_t>(ranks.size());
    return {first + here + after, first, here};
  }
  int32_t rank_of(size_t index) const { return first + static_cast<int32_t>(index); }
  // The entry of a rank that lives here; null without it.
  const EntryPoint* find_entry(int32_t rank, std::string_view name) const;
};

uint64_t fingerprint(const Program& program);
std::string print(const RankProgram& program);  // one line an instruction; for tests and --dump

// Checks the structure alone, against hostile files: indices, offsets, sizes, layouts, and what ranks must agree on as far as
// they live here (graph/verify_program.cc).
Status verify(const Program& program);

}  // namespace tessera
