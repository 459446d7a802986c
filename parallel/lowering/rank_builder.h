// RankBuilder: the program of one rank during lowering. Slots are created freely,
// each with one writer; `allocate_slots` then merges them and assigns offsets.
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

// DimWindow: `range` of dim `dim` of a tensor, in global elements. dim -1: all of it.
struct DimWindow {
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
      slot_entry;  // by slot: the entry that it lives in; -1: it outlives runs
  // By entry: kernels after a copy to another tier during which its source
  // is not reused, so that the next buffer there need not wait for the copy.
  std::vector<int32_t> copy_out_delays;

  const DeviceMesh& mesh() const { return mesh_; }
  int32_t position() const { return position_; }
  std::span<const int32_t> coordinates() const { return coordinates_; }

  SlotRef add_slot(std::string name, SlotKind kind, int64_t bytes, int32_t entry, Tier tier = Tier::kDevice);
  const KernelCatalog& catalog() const { return catalog_; }

  // Index of the kernel, queried from the catalog
  // once. An error names the declined op and operands.
  Result<int32_t> kernel(const OpDef& op, std::span<const Attr> attrs, std::vector<TensorType> inputs,
                         std::vector<TensorType> outputs, std::vector<FactorView> factors);
  // Likewise for operands taken as whole, for ops on values without sharding.
  Result<int32_t> local_kernel(const OpDef& op, std::span<const Attr> attrs, std::vector<TensorType> inputs,
                               std::vector<TensorType> outputs);
  int32_t group(std::span<const AxisId> axes);

  TensorType local_type(const TensorType& global, const ShardingSpec& spec, const DimWindow& window = {}) const;
  // This rank's range of one dim, in global elements.
  Range local_dim(const TensorType& global, const ShardingSpec& spec, int dim, const DimWindow& window = {}) const;
  // Extents of `dim` on all members of the group over `axes`, in group order.
  std::vector<int64_t> member_extents(const ShardingSpec& spec, int64_t extent, int dim,
                                      std::span<const AxisId> axes, const DimWindow& window = {}) const;

  // Performs a move on this rank. `in`: the local part of `before`. The result is the local part
  // of `after`: a part of `in` if nothing moves, else a new slot, or `destination` if given.
  struct MoveContext {
    std::string tensor;  // name of slots
    NodeId node = kNoNode;
    int32_t micro_batch = 0;
    int32_t entry = 0;
    DimWindow window = {};  // the window that moves
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
  std::map<std::string, int32_t> kernels_;  // keyed by op, attributes, types and factors
  std::map<std::vector<AxisId>, int32_t> groups_;
};

}  // namespace tessera
