#include "parallel/lowering/rank_builder.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

int64_t product(const Shape& shape, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; ++d) n *= shape[d];
  return n;
}

std::string types_text(std::span<const TensorType> types) {
  std::string text;
  for (const TensorType& type : types) text += (text.empty() ? "" : ", ") + to_text(type);
  return text;
}

std::string kernel_key(const OpDef& op, std::span<const Attr> attrs, std::span<const TensorType> inputs,
                       std::span<const TensorType> outputs, std::span<const FactorView> factors) {
  std::string key = format("{}|", op.name);
  for (const Attr& attr : attrs) key += format("{}={},", attr.name, to_text(attr.value));
  key += "|" + types_text(inputs) + "|" + types_text(outputs) + "|";
  for (const FactorView& f : factors) {
    key += format("{}:{}/{}", f.name, f.global_extent, f.unit);
    for (int32_t r = 0; r < f.range_count; ++r) key += format("[{},{})", f.begin[r], f.end[r]);
  }
  return key;
}

}  // namespace

SlotRef RankBuilder::add_slot(std::string name, SlotKind kind, int64_t bytes, int32_t entry, Tier tier) {
  program.slots.push_back({std::move(name), kind, tier, bytes, -1});
  slot_entry.push_back(entry);
  return {static_cast<int32_t>(program.slots.size() - 1), 0};
}

Result<int32_t> RankBuilder::kernel(const OpDef& op, std::span<const Attr> attrs,
                                    std::vector<TensorType> inputs, std::vector<TensorType> outputs,
                                    std::vector<FactorView> factors) {
  std::string key = kernel_key(op, attrs, inputs, outputs, factors);
  if (const auto at = kernels_.find(key); at != kernels_.end()) return at->second;
  auto choice = catalog_.query(op, {attrs, inputs, outputs, factors});
  if (!choice.ok())
    return choice.status().with_context(
        format("no kernel for {}({}) -> {}", op.name, types_text(inputs), types_text(outputs)));
  KernelDesc desc;
  desc.op = &op;
  desc.attrs.assign(attrs.begin(), attrs.end());
  desc.inputs = std::move(inputs);
  desc.outputs = std::move(outputs);
  desc.factors = std::move(factors);
  desc.variant = std::move(choice->variant);
  desc.workspace_bytes = choice->workspace_bytes;
  desc.seconds = choice->seconds;
  program.kernels.push_back(std::move(desc));
  const auto id = static_cast<int32_t>(program.kernels.size() - 1);
  kernels_.emplace(std::move(key), id);
  return id;
}

Result<int32_t> RankBuilder::local_kernel(const OpDef& op, std::span<const Attr> attrs,
                                          std::vector<TensorType> inputs, std::vector<TensorType> outputs) {
  ShardingRule rule = op.sharding({attrs, inputs, outputs, {}});
  TSR_RETURN_IF_ERROR(bind_extents(rule, inputs, outputs));
  std::vector<FactorView> views;
  for (const Factor& factor : rule.factors) {
    FactorView view;
    view.name = factor.name;
    view.global_extent = view.end[0] = factor.extent;
    views.push_back(view);
  }
  return kernel(op, attrs, std::move(inputs), std::move(outputs), std::move(views));
}

int32_t RankBuilder::group(std::span<const AxisId> axes) {
  const std::vector<AxisId> key(axes.begin(), axes.end());
  if (const auto at = groups_.find(key); at != groups_.end()) return at->second;
  Group group;
  for (const int32_t member : mesh_.group(position_, axes)) {
    if (member == position_) group.position = static_cast<int32_t>(group.ranks.size());
    group.ranks.push_back(mesh_.devices[static_cast<size_t>(member)]);
  }
  std::vector<std::string> names;
  for (const AxisId axis : axes) names.push_back(mesh_.axes[axis].name);
  group.axis = join(names, "+");
  program.groups.push_back(std::move(group));
  const auto id = static_cast<int32_t>(program.groups.size() - 1);
  groups_.emplace(key, id);
  return id;
}

namespace {

Range inside(Range range, int dim, const DimWindow& window) {
  if (dim != window.dim) return range;
  const int64_t begin = std::clamp(window.range.begin, range.begin, range.end);
  return {begin, std::clamp(window.range.end, begin, range.end)};
}

// Quantized blocks are moved as bytes: element counts become byte counts in the last dim.
void count_bytes(CollectiveInst& inst, const TensorType& global, const Move& move) {
  const auto bytes_of = [&](int64_t elements) { return dtype_bytes(global.dtype, elements); };
  const int last = global.shape.rank() - 1;
  inst.elements = bytes_of(inst.elements);
  if (move.dim == last) {
    for (int64_t& extent : inst.extents) extent = bytes_of(extent);
  } else if (move.to_dim == last) {
    for (int64_t& extent : inst.extents2) extent = bytes_of(extent);
  } else {
    inst.inner = bytes_of(inst.inner);
  }
  inst.dtype = DType::kU8;
}

}  // namespace

Range RankBuilder::local_dim(const TensorType& global, const ShardingSpec& spec, int dim,
                             const DimWindow& window) const {
  return inside(local_range(global.shape[dim], spec.dims[static_cast<size_t>(dim)], mesh_, coordinates_), dim,
                window);
}

TensorType RankBuilder::local_type(const TensorType& global, const ShardingSpec& spec, const DimWindow& window) const {
  TensorType type{global.dtype, local_shape(global.shape, spec, mesh_, coordinates_)};
  if (window.dim >= 0) type.shape.set(window.dim, local_dim(global, spec, window.dim, window).size());
  return type;
}

std::vector<int64_t> RankBuilder::member_extents(const ShardingSpec& spec, int64_t extent, int dim,
                                                 std::span<const AxisId> axes, const DimWindow& window) const {
  std::vector<int64_t> extents;
  for (const int32_t member : mesh_.group(position_, axes))
    extents.push_back(
        inside(local_range(extent, spec.dims[static_cast<size_t>(dim)], mesh_, mesh_.coordinates(member)),
               dim, window)
            .size());
  return extents;
}

SlotRef RankBuilder::target(const Move& move, const TensorType& local, const SlotRef* destination,
                            const MoveContext& context) {
  if (destination != nullptr) return *destination;
  return add_slot(format("{}({})", to_text(move.kind), context.tensor), SlotKind::kTransient, bytes(local),
                  context.entry);
}

SlotRef RankBuilder::emit_move(const Move& move, const TensorType& global, SlotRef in,
                               const SlotRef* destination, const MoveContext& context,
                               std::vector<Instruction>& code) {
  if (move.kind == MoveKind::kSlice) return emit_slice(move, global, in, destination, context, code);
  if (move.kind == MoveKind::kPartialize)
    return emit_partialize(move, global, in, destination, context, code);

  const TensorType before = local_type(global, move.before, context.window),
                   after = local_type(global, move.after, context.window);
  const int rank = global.shape.rank();
  CollectiveInst inst;
  inst.group = group(move.axes);
  inst.reduce = move.before.reduce;
  inst.dtype = global.dtype;
  inst.node = context.node;
  inst.micro_batch = context.micro_batch;
  const auto split = [&](const ShardingSpec& spec, int dim) {
    return member_extents(spec, global.shape[dim], dim, move.axes, context.window);
  };
  if (move.kind == MoveKind::kAllReduce) {
    inst.kind = CollectiveKind::kAllReduce;
    inst.elements = before.shape.elements();
  } else if (move.kind == MoveKind::kAllToAll) {
    const int first = std::min(move.dim, move.to_dim), second = std::max(move.dim, move.to_dim);
    inst.kind = CollectiveKind::kAllToAll;
    inst.in_split_first = move.dim < move.to_dim;
    inst.outer = product(before.shape, 0, first);
    inst.middle = product(before.shape, first + 1, second);
    inst.inner = product(before.shape, second + 1, rank);
    inst.extents = split(move.before, move.dim);
    inst.extents2 = split(move.after, move.to_dim);
    inst.elements = inst.outer * after.shape[move.dim] * inst.middle * before.shape[move.to_dim] * inst.inner;
  } else {
    const bool gather = move.kind == MoveKind::kAllGather;
    const Shape& whole = gather ? after.shape : before.shape;
    inst.kind = gather ? CollectiveKind::kAllGather : CollectiveKind::kReduceScatter;
    inst.outer = product(whole, 0, move.dim);
    inst.inner = product(whole, move.dim + 1, rank);
    inst.extents = split(gather ? move.before : move.after, move.dim);
    inst.elements = whole.elements();
  }
  if (is_block_type(global.dtype)) count_bytes(inst, global, move);
  inst.in = in;
  inst.out = target(move, after, destination, context);
  const SlotRef out = inst.out;
  code.emplace_back(std::move(inst));
  return out;
}

SlotRef RankBuilder::emit_slice(const Move& move, const TensorType& global, SlotRef in,
                                const SlotRef* destination, const MoveContext& context,
                                std::vector<Instruction>& code) {
  const TensorType before = local_type(global, move.before, context.window),
                   after = local_type(global, move.after, context.window);
  const Range from = local_dim(global, move.before, move.dim, context.window);
  const Range to = local_dim(global, move.after, move.dim, context.window);
  const int64_t inner = product(before.shape, move.dim + 1, before.shape.rank());
  CopyInst copy;
  copy.rows = product(before.shape, 0, move.dim);
  copy.row_bytes = dtype_bytes(global.dtype, to.size() * inner);
  copy.in_stride_bytes = dtype_bytes(global.dtype, from.size() * inner);
  copy.out_stride_bytes = copy.row_bytes;
  // A shard may be empty (of a matrix owned by another rank); nothing is copied.
  const bool is_empty = copy.rows == 0 || copy.row_bytes == 0;
  copy.in = in;
  if (!is_empty) copy.in.offset += dtype_bytes(global.dtype, (to.begin - from.begin) * inner);
  copy.node = context.node;
  copy.micro_batch = context.micro_batch;
  if ((copy.rows == 1 || is_empty) && destination == nullptr) return copy.in;
  copy.out = target(move, after, destination, context);
  if (!is_empty) code.emplace_back(copy);
  return copy.out;
}

SlotRef RankBuilder::emit_partialize(const Move& move, const TensorType& global, SlotRef in,
                                     const SlotRef* destination, const MoveContext& context,
                                     std::vector<Instruction>& code) {
  bool keeps = true;
  for (const AxisId axis : move.axes) keeps = keeps && coordinates_[axis] == 0;
  if (keeps && destination == nullptr) return in;
  const TensorType local = local_type(global, move.after, context.window);
  CopyInst copy;
  copy.in = keeps ? in : SlotRef{};
  copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes = bytes(local);
  copy.out = target(move, local, destination, context);
  copy.node = context.node;
  copy.micro_batch = context.micro_batch;
  code.emplace_back(copy);
  return copy.out;
}

}  // namespace tessera
