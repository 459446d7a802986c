// kv_write(pages, new, slot): the pages with the rows of new at their slots: new[b, t] goes to slot[b, t] mod S of page
// slot[b, t] / S. Slots outside the pages take nothing; no two tokens have the same slot.
//   pages [P, S, KV, D], new [B, T, KV, D], slot [B, T] i32 -> pages, in place. Pages of 16-bit floats take rows of f32,
//   rounded to the nearest.  Jointly linear in pages and new where types are the same. For serving: no gradient.

#include "graph/ops/attention_support.h"

namespace tessera {

using namespace ops;

namespace kv_write {

constexpr std::string_view kName = "kv_write";
const int kInPlace[] = {0};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 1, "new"));
  TSR_RETURN_IF_ERROR(check_pages(kName, in, 0, "pages", in[1].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "new", 4));
  for (int dim : {2, 3}) TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "new", dim, in[0].shape[dim]));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "slot", Shape{in[1].shape[0], in[1].shape[1]}));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const bool is_linear = view.inputs[0].dtype == view.inputs[1].dtype;
  return make_rule("pskd,btkd,bt->pskd", is_linear ? LinearSets{{0, 1}} : LinearSets{}, "psbt");
}

// In place, so only the new rows move.
OpCost cost(const OpView& view) {
  const auto moved = static_cast<double>(bytes(view.inputs[1]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}

}  // namespace kv_write

extern const OpDef kKvWrite = {.name = kv_write::kName,
                               .infer = kv_write::infer,
                               .sharding = kv_write::sharding,
                               .cost = kv_write::cost,
                               .in_place = kv_write::kInPlace};

}  // namespace tessera
