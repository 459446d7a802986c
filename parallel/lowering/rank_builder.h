// RankBuilder: the program of one rank while it is made. Slots are handed out freely, each with one writer;
// `allocate_slots` then lets those share bytes that may and gives out offsets.
#pragma once

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "graph/device_mesh.h"
#include "graph/kernel_catalog.h"
#include "graph/program.h"
#include "parallel/sharding/reshard.h"

namespace tessera {

// A tensor seen through a window: only `range` of dim `dim`, in global elements. dim -1: all of it.
struct Cut {
  int dim = -1;
  Range range;
};

class RankBuilder {
 public:
  // `position`: of this rank in `mesh.devices`.
  RankBuilder(const KernelCatalog& catalog, DeviceMesh mesh, int32_t position)
      : catalog_(catalog),
        mesh_(std::move(mesh)),
        position_(position),
        coordinates_(mesh_.coordinates(position)) {}

  RankProgram program;
  std::vector<int32_t>
      slot_entry;  // by slot: the entry whose run it lives in, -1 for those that outlive runs
  // By entry: kernels behind a copy to another tier for which its source stays where it is, so that what
  // would lie there next need not wait for the copy.
  std::vector<int32_t> copy_out_delays;

  const DeviceMesh& mesh() const { return mesh_; }
  int32_t position() const { return position_; }
  std::span<const int32_t> coordinates() const { return coordinates_; }

  SlotRef add_slot(std::string name, SlotKind kind, int64_t bytes, int32_t entry, Tier tier = Tier::kDevice);
  const KernelCatalog& catalog() const { return catalog_; }

  // Index of the kernel, asked from the catalog once per distinct one; says which op on which operands was
  // declined.
  Result<int32_t> kernel(const OpDef& op, std::span<const Attr> attrs, std::vector<TensorType> inputs,
                         std::vector<TensorType> outputs, std::vector<FactorView> factors);
  // The same on operands that are taken for whole: what an op does of which no rank knows a part.
  Result<int32_t> local_kernel(const OpDef& op, std::span<const Attr> attrs, std::vector<TensorType> inputs,
                               std::vector<TensorType> outputs);
  int32_t group(std::span<const AxisId> axes);

  TensorType local_type(const TensorType& global, const ShardingSpec& spec, const Cut& cut = {}) const;
  // This rank's part of one dim, in global elements.
  Range local_dim(const TensorType& global, const ShardingSpec& spec, int dim, const Cut& cut = {}) const;
  // Extent of `dim` on every member of the group over `axes`, in group order.
  std::vector<int64_t> member_extents(const ShardingSpec& spec, int64_t extent, int dim,
                                      std::span<const AxisId> axes, const Cut& cut = {}) const;

  // What a move does on this rank. `in` holds the local part of `before`; the result is where that of `after`
  // lies: a part of `in` where nothing has to move, else a new slot or `destination` when given.
  struct MoveContext {
    std::string tensor;  // name, for slots
    NodeId node = kNoNode;
    int32_t micro_batch = 0;
    int32_t entry = 0;
    Cut cut = {};  // the move takes place inside it
  };
  SlotRef emit_move(const Move& move, const TensorType& global, SlotRef in, const SlotRef* destination,
                    const MoveContext& context, std::vector<Instruction>& code);

 private:
  SlotRef emit_slice(const Move& move, const TensorType& global, SlotRef in, const SlotRef* destination,
                     const MoveContext& context, std::vector<Instruction>& code);
  SlotRef emit_partialize(const Move& move, const TensorType& global, SlotRef in, const SlotRef* destination,
                          const MoveContext& context, std::vector<Instruction>& code);
  SlotRef target(const Move& move, const TensorType& local, const SlotRef* destination,
                 const MoveContext& context);

  const KernelCatalog& catalog_;
  DeviceMesh mesh_;
  int32_t position_;
  std::vector<int32_t> coordinates_;
  std::map<std::string, int32_t> kernels_;  // by a key that spells out op, attributes, types and factors
  std::map<std::vector<AxisId>, int32_t> groups_;
};

}  // namespace tessera
