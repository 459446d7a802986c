#include "parallel/lower.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/entry_emitter.h"
#include "parallel/entry_layout.h"
#include "parallel/prefetch.h"
#include "parallel/rank_builder.h"
#include "parallel/slot_allocation.h"

namespace tessera {

namespace {

Result<std::vector<EntryLayout>> make_layouts(std::span<const EntrySpec> entries) {
  if (entries.empty())
    return Status(StatusCode::kInvalidArgument, "lowering wants at least one entry point, found none");
  std::vector<EntryLayout> layouts;
  for (const EntrySpec& entry : entries) {
    TSR_ASSIGN_OR_RETURN(EntryLayout layout, make_layout(entry));
    if (!layouts.empty() && layout.mesh != layouts[0].mesh)
      return Status(StatusCode::kInvalidArgument,
                    format("entry '{}' is planned on the mesh '{}' and '{}' on '{}'; plan them alike",
                           layouts[0].name, to_text(layouts[0].mesh), layout.name, to_text(layout.mesh)));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

Result<RankProgram> lower_position(std::span<const EntryLayout> layouts, const KernelCatalog& catalog,
                                   int32_t position) {
  RankBuilder builder(catalog, layouts[0].mesh, position);
  SharedSlots shared;
  for (size_t e = 0; e < layouts.size(); ++e) {
    TSR_ASSIGN_OR_RETURN(
        EntryPoint entry,
        EntryEmitter(layouts[e], layouts[e].tasks, builder, shared, static_cast<int32_t>(e)).emit());
    prefetch(entry, layouts[e].plan->prefetch);
    builder.program.entries.push_back(std::move(entry));
  }
  allocate_slots(builder);
  return std::move(builder.program);
}

// FNV-1a over the plans in text form.
uint64_t plan_fingerprint(std::span<const EntrySpec> entries) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const EntrySpec& entry : entries)
    for (const char c : entry.name + "\n" + print(*entry.plan, *entry.graph))
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

Result<Program> lower(std::span<const EntrySpec> entries, const KernelCatalog& catalog) {
  TSR_ASSIGN_OR_RETURN(const std::vector<EntryLayout> layouts, make_layouts(entries));
  const DeviceMesh& mesh = layouts[0].mesh;
  Program program;
  program.catalog_fingerprint = catalog.fingerprint();
  program.plan_fingerprint = plan_fingerprint(entries);
  program.ranks.resize(static_cast<size_t>(*std::ranges::max_element(mesh.devices)) + 1);
  for (int32_t position = 0; position < mesh.size(); ++position) {
    TSR_ASSIGN_OR_RETURN(program.ranks[static_cast<size_t>(mesh.devices[static_cast<size_t>(position)])],
                         lower_position(layouts, catalog, position));
  }
  return program;
}

Result<RankProgram> lower_rank(std::span<const EntrySpec> entries, const KernelCatalog& catalog,
                               int32_t rank) {
  TSR_ASSIGN_OR_RETURN(const std::vector<EntryLayout> layouts, make_layouts(entries));
  const std::vector<int32_t>& devices = layouts[0].mesh.devices;
  const auto at = std::ranges::find(devices, rank);
  if (at == devices.end())
    return Status(StatusCode::kInvalidArgument,
                  format("the mesh '{}' has no rank {}", to_text(layouts[0].mesh), rank));
  return lower_position(layouts, catalog, static_cast<int32_t>(at - devices.begin()));
}

}  // namespace tessera
