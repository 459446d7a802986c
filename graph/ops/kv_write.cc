// kv_write(pages, new, slot): the pages with the rows of new at their slots: new[b, t] goes to slot[b, t] mod S of page
// slot[b, t] / S. Slots outside the pages take nothing; no two tokens have the same slot.
//   pages [P, S, KV, D], new [B, T, KV, D], slot [B, T] i32 -> pages, in place. Pages of 16-bit floats take rows of f32,
//   rounded to the nearest. Pages of q8_0 take rows of any float: blocks of 32 along D, in f32, as encode_blocks makes them;
//   a block with a number that is not finite or beyond what q8_0 holds becomes NaN, so that no sum hides it. They take rows
//   of q8_0, too, as they are. Jointly linear in pages and new where both are the same floats. For serving: no gradient.

#include "graph/ops/attention_support.h"

namespace tessera {

using namespace ops;

namespace kv_write {

constexpr std::string_view kName = "kv_write";
const int kInPlace[] = {0};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  if (in[1].dtype != DType::kQ8_0) TSR_RETURN_IF_ERROR(check_float(kName, in, 1, "new"));
  TSR_RETURN_IF_ERROR(check_pages(kName, in, 0, "pages", in[1].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "new", 4));
  for (int dim : {2, 3}) TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "new", dim, in[0].shape[dim]));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "slot", Shape{in[1].shape[0], in[1].shape[1]}));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const DType dtype = view.inputs[0].dtype;
  const bool is_linear = info(dtype).is_float && dtype == view.inputs[1].dtype;
  return make_rule("pskd,btkd,bt->pskd", is_linear ? LinearSets{{0, 1}} : LinearSets{}, "psbt");
}

// In place: only the new rows are moved.
OpCost cost(const OpView& view) {
  const DTypeInfo& pages = info(view.inputs[0].dtype);
  const double blocks = static_cast<double>(view.inputs[1].shape.elements()) / pages.block_elements;
  return {.flops = 0,
          .bytes_read = static_cast<double>(bytes(view.inputs[1])),
          .bytes_written = blocks * pages.block_bytes};
}

}  // namespace kv_write

extern const OpDef kKvWrite = {
    .name = kv_write::kName,
    .infer = kv_write::infer,
    .sharding = kv_write::sharding,
    .cost = kv_write::cost,
    .in_place = kv_write::kInPlace,
    .pages = {.first = 0, .behind = 2, .is_written = true},
};

}  // namespace tessera
