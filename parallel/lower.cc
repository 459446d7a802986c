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
                                   size_t place, int32_t position) {
  RankBuilder builder(catalog, layouts[0].places[place], position);
  SharedSlots shared;
  for (size_t e = 0; e < layouts.size(); ++e) {
    TSR_ASSIGN_OR_RETURN(EntryPoint entry, EntryEmitter(layouts[e], static_cast<int32_t>(place), builder,
                                                        shared, static_cast<int32_t>(e))
                                               .emit());
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
  const std::vector<DeviceMesh>& places = layouts[0].places;
  Program program;
  program.catalog_fingerprint = catalog.fingerprint();
  program.plan_fingerprint = plan_fingerprint(entries);
  int32_t last = 0;
  for (const DeviceMesh& mesh : places) last = std::max(last, *std::ranges::max_element(mesh.devices));
  program.ranks.resize(static_cast<size_t>(last) + 1);
  for (size_t place = 0; place < places.size(); ++place)
    for (int32_t position = 0; position < places[place].size(); ++position) {
      const int32_t rank = places[place].devices[static_cast<size_t>(position)];
      TSR_ASSIGN_OR_RETURN(program.ranks[static_cast<size_t>(rank)],
                           lower_position(layouts, catalog, place, position));
    }
  return program;
}

Result<RankProgram> lower_rank(std::span<const EntrySpec> entries, const KernelCatalog& catalog,
                               int32_t rank) {
  TSR_ASSIGN_OR_RETURN(const std::vector<EntryLayout> layouts, make_layouts(entries));
  for (size_t place = 0; place < layouts[0].places.size(); ++place) {
    const std::vector<int32_t>& devices = layouts[0].places[place].devices;
    const auto at = std::ranges::find(devices, rank);
    if (at != devices.end())
      return lower_position(layouts, catalog, place, static_cast<int32_t>(at - devices.begin()));
  }
  return Status(StatusCode::kInvalidArgument,
                format("{} times the mesh '{}' has no rank {}", layouts[0].places.size(),
                       to_text(layouts[0].mesh), rank));
}

}  // namespace tessera
