#include "parallel/lowering/lower.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/lowering/entry_emitter.h"
#include "parallel/lowering/entry_layout.h"
#include "parallel/lowering/fusible_kernels.h"
#include "parallel/lowering/kernel_fusion.h"
#include "parallel/lowering/prefetch.h"
#include "parallel/lowering/rank_builder.h"
#include "parallel/lowering/slot_allocation.h"

namespace tessera {

namespace {

Result<std::vector<EntryLayout>> make_layouts(std::span<const EntrySpec> entries) {
  if (entries.empty())
    return Status(StatusCode::kInvalidArgument, "lowering wants at least one entry point, found none");
  std::vector<EntryLayout> layouts;
  for (const EntrySpec& entry : entries) {
    TSR_ASSIGN_OR_RETURN(EntryLayout layout, make_layout(entry));
    if (!layouts.empty() && layout.places != layouts[0].places)
      return Status(StatusCode::kInvalidArgument,
                    format("entry '{}' is planned on {} times the mesh '{}' and '{}' on {} times '{}'; plan "
                           "them alike",
                           layouts[0].name, layouts[0].places.size(), to_text(layouts[0].mesh), layout.name,
                           layout.places.size(), to_text(layout.mesh)));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

Result<RankProgram> lower_position(std::span<const EntryLayout> layouts, const KernelCatalog& catalog,
                                   size_t place, int32_t position, bool packs = true) {
  RankBuilder builder(catalog, layouts[0].places[place], position);
  SharedSlots shared;
  for (size_t e = 0; e < layouts.size(); ++e) {
    TSR_ASSIGN_OR_RETURN(EntryPoint entry, EntryEmitter(layouts[e], static_cast<int32_t>(place), builder,
                                                        shared, static_cast<int32_t>(e))
                                               .emit());
    if (catalog.fuses_exactly()) fuse_kernels(entry, static_cast<int32_t>(e), builder);
    if (catalog.fuses()) group_fusible_kernels(entry, builder.program);
    prefetch(entry, layouts[e].plan->prefetch);
    builder.copy_out_delays.push_back(layouts[e].plan->prefetch - 1);
    builder.program.entries.push_back(std::move(entry));
  }
  if (catalog.fuses_exactly()) drop_unused_kernels(builder.program);
  allocate_slots(builder, packs);
  return std::move(builder.program);
}

// FNV-1a hash of the plans' texts.
uint64_t plan_fingerprint(std::span<const EntrySpec> entries) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const EntrySpec& entry : entries)
    for (const char c : entry.name + "\n" + print(*entry.plan, *entry.graph))
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// The device whose offset from `mine` equals that of `at` from the first rank, per coordinate.
int32_t shifted(const DeviceMesh& mesh, int32_t at, std::span<const int32_t> mine) {
  const std::vector<int32_t> coordinates = mesh.coordinates(at);
  int32_t position = 0;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const int32_t size = mesh.axes[axis].size;
    position = position * size + (coordinates[axis] + mine[axis]) % size;
  }
  return position;
}

// RepresentativeCopy: converts the program of a place's first rank to another rank's.
class RepresentativeCopy {
 public:
  RepresentativeCopy(const EntryLayout& layout, size_t place, int32_t position)
      : places_(layout.places), mesh_(layout.places[place]), mine_(mesh_.coordinates(position)) {}

  void turn(RankProgram& program) const {
    for (Group& group : program.groups) turn(group);
    for (EntryPoint& entry : program.entries)
      for (Instruction& instruction : entry.code) {
        if (auto* send = std::get_if<SendInst>(&instruction)) send->peer = turned(send->peer);
        if (auto* recv = std::get_if<RecvInst>(&instruction)) recv->peer = turned(recv->peer);
      }
  }

 private:
  int32_t turned(int32_t rank) const {
    for (const DeviceMesh& mesh : places_) {
      const auto at = std::ranges::find(mesh.devices, rank);
      if (at == mesh.devices.end()) continue;
      const auto position = static_cast<int32_t>(at - mesh.devices.begin());
      return mesh.devices[static_cast<size_t>(shifted(mesh, position, mine_))];
    }
    return rank;
  }

  // Members keep the order of their coordinates along the group's axes, in which they differ.
  void turn(Group& group) const {
    std::vector<std::vector<int32_t>> members;
    for (const int32_t rank : group.ranks)
      members.push_back(mesh_.coordinates(
          static_cast<int32_t>(std::ranges::find(mesh_.devices, rank) - mesh_.devices.begin())));
    for (size_t i = 0; i < members.size(); ++i) {
      int32_t position = 0;
      bool is_mine = true;
      for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
        const bool along = members.front()[axis] != members.back()[axis];
        const int32_t at = along ? members[i][axis] : mine_[axis];
        is_mine = is_mine && at == mine_[axis];
        position = position * mesh_.axes[axis].size + at;
      }
      group.ranks[i] = mesh_.devices[static_cast<size_t>(position)];
      if (is_mine) group.position = static_cast<int32_t>(i);
    }
  }

  const std::vector<DeviceMesh>& places_;
  const DeviceMesh& mesh_;
  const std::vector<int32_t> mine_;
};

bool may_differ(const EntryLayout& layout) {
  return std::ranges::any_of(layout.plan->nodes, [](const NodePlan& node) {
    return node.chunk_order == ChunkOrder::kRotating ||
           !node.factor_firsts.empty();  // an owner has work that others lack
  });
}

int32_t rank_count(const std::vector<DeviceMesh>& places) {
  int32_t last = 0;
  for (const DeviceMesh& mesh : places) last = std::max(last, *std::ranges::max_element(mesh.devices));
  return last + 1;
}

// Binds those of `theirs` that `ranks` lack, without pieces.
void bind_elsewhere(std::vector<RankProgram>& ranks, const RankProgram& theirs) {
  const auto add = [&](const auto& list_of) {
    for (const Binding& binding : list_of(theirs)) {
      const auto binds = [&](auto& rank) {
        return std::ranges::find(list_of(rank), binding.name, &Binding::name) != list_of(rank).end();
      };
      if (std::ranges::none_of(ranks, binds)) list_of(ranks[0]).push_back({binding.name, binding.global, {}});
    }
  };
  for (const auto member : {&RankProgram::parameters, &RankProgram::states, &RankProgram::constants})
    add([&](auto& rank) -> auto& { return rank.*member; });
  for (size_t entry = 0; entry < theirs.entries.size(); ++entry)
    for (const auto member : {&EntryPoint::inputs, &EntryPoint::outputs})
      add([&](auto& rank) -> auto& { return rank.entries[entry].*member; });
}

}  // namespace

Result<Program> lower_representatives(const EntrySpec& entry, const KernelCatalog& catalog) {
  TSR_ASSIGN_OR_RETURN(const std::vector<EntryLayout> layouts, make_layouts(std::span(&entry, 1)));
  const std::vector<DeviceMesh>& places = layouts[0].places;
  const bool all = may_differ(layouts[0]);
  Program program;
  program.ranks.resize(static_cast<size_t>(rank_count(places)));
  for (size_t place = 0; place < places.size(); ++place)
    for (int32_t position = 0; position < places[place].size(); ++position) {
      const auto rank = static_cast<size_t>(places[place].devices[static_cast<size_t>(position)]);
      if (all || position == 0) {
        TSR_ASSIGN_OR_RETURN(program.ranks[rank], lower_position(layouts, catalog, place, position));
      } else {
        program.ranks[rank] = program.ranks[static_cast<size_t>(places[place].devices[0])];
        RepresentativeCopy(layouts[0], place, position).turn(program.ranks[rank]);
      }
    }
  return program;
}

Result<Program> lower(std::span<const EntrySpec> entries, const KernelCatalog& catalog, std::optional<RankSet> only) {
  TSR_ASSIGN_OR_RETURN(const std::vector<EntryLayout> layouts, make_layouts(entries));
  const std::vector<DeviceMesh>& places = layouts[0].places;
  const int32_t planned = rank_count(places);
  const RankSet set = only.value_or(RankSet::all(planned));
  if (planned > set.world || set.first < 0 || set.count < 1 || set.first > set.world - set.count)
    return Status(StatusCode::kInvalidArgument, format("ranks {} to {} of {} are lowered, the plan is for {} devices", set.first,
                                                       set.first + set.count - 1, set.world, planned));
  Program program;
  program.catalog_fingerprint = catalog.fingerprint();
  program.plan_fingerprint = plan_fingerprint(entries);
  program.ranks.resize(static_cast<size_t>(set.count));
  program.first = set.first;
  program.after = set.world - set.first - set.count;
  for (size_t place = 0; place < places.size(); ++place)
    for (int32_t position = 0; position < places[place].size(); ++position) {
      const int32_t rank = places[place].devices[static_cast<size_t>(position)];
      if (!set.has(rank)) continue;
      TSR_ASSIGN_OR_RETURN(program.ranks[static_cast<size_t>(rank - set.first)],
                           lower_position(layouts, catalog, place, position));
    }
  if (set.is_whole()) return program;
  for (RankProgram& rank : program.ranks)  // one that the plan leaves idle
    if (rank.entries.empty())
      for (const EntryLayout& layout : layouts) rank.entries.push_back({layout.name, {}, {}, {}});
  for (size_t place = 0; place < places.size(); ++place) {
    if (std::ranges::any_of(places[place].devices, [&](int32_t rank) { return set.has(rank); })) continue;
    TSR_ASSIGN_OR_RETURN(const RankProgram theirs, lower_position(layouts, catalog, place, 0));
    bind_elsewhere(program.ranks, theirs);
  }
  return program;
}

Result<RankProgram> lower_place(const EntryLayout& layout, const KernelCatalog& catalog, size_t place,
                                bool packs) {
  return lower_position(std::span(&layout, 1), catalog, place, 0, packs);
}

}  // namespace tessera
