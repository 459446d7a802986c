#include "parallel/lowering/kernel_fusion.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

namespace {

using Joined = KernelJoiner::Joined;

// Whether there is such an attribute.
bool set(std::vector<Attr>& attrs, std::string_view name, int64_t value) {
  const auto found = std::ranges::find(attrs, name, &Attr::name);
  if (found == attrs.end()) return false;
  found->value = value;
  return true;
}

bool is_plain_matmul(const KernelDesc& desc) {
  return desc.op->weight.use == WeightUse::kProduct && desc.outputs.size() == 1;
}
bool is_sum(const OpDef& op) { return op.algebra == Algebra::kSum; }
bool is_column_sums(const OpDef& op) { return op.algebra == Algebra::kColumnSums; }
bool is_activation(const OpDef& op) { return op.is_activation; }
bool is_cast(const OpDef& op) { return op.is_cast; }
bool takes_sum(const OpDef& op) { return !op.fused.with_sum.empty(); }
bool is_input_gradient(const OpDef& op) {
  return !op.fused.joint_gradient.empty() && !op.fused.is_weight_gradient;
}
bool joins_gradients(const OpDef& op) { return op.fused.is_weight_gradient || is_sum(op); }
Attr same_attr(const KernelDesc& desc, std::string_view name) {
  return {std::string(name), attr_i64(desc.attrs, name)};
}
// Of the shards of k, those that do not begin at 0 leave their bias out.
void add_bias(const KernelInst& matmul, const KernelDesc& desc, Joined& joined) {
  const auto k = std::ranges::find(desc.factors, 'k', &FactorView::name);
  if (desc.inputs.size() != 3 || (k != desc.factors.end() && k->begin[0] != 0)) return;
  joined.inputs.push_back(matmul.inputs[2]);
  joined.in_types.push_back(desc.inputs[2]);
}

void join_sum(KernelJoiner& code, size_t at) {
  // The later of two products: what it is added to is there by then.
  std::vector<std::pair<size_t, size_t>> matmuls;  // place, which operand of the sum
  for (const size_t i : {size_t{0}, size_t{1}})
    if (const auto maker = code.maker_of(code.kernel_at(at)->inputs[i])) matmuls.emplace_back(*maker, i);
  std::ranges::sort(matmuls, std::greater{});
  for (const auto& [matmul_at, operand] : matmuls) {
    const KernelInst &sum = *code.kernel_at(at), &matmul = *code.kernel_at(matmul_at);
    const KernelDesc& desc = code.desc_of(matmul);
    if (!is_plain_matmul(desc) || desc.op->fused.with_addend.empty() ||
        matmul.micro_batch != sum.micro_batch || !code.is_read_once(sum.inputs[operand]) ||
        !code.may_move(at, matmul_at))
      continue;
    const SlotRef addend = sum.inputs[1 - operand];
    if (addend.slot == matmul.outputs[0].slot) continue;
    Joined joined{.op = find_op(desc.op->fused.with_addend),
                  .attrs = {same_attr(desc, "trans_w"), same_attr(desc, "allow_tf32")},
                  .inputs = {matmul.inputs[0], matmul.inputs[1], addend},
                  .outputs = sum.outputs,
                  .in_types = {desc.inputs[0], desc.inputs[1], code.desc_of(sum).inputs[1 - operand]},
                  .out_types = code.desc_of(sum).outputs,
                  .node = sum.node};
    add_bias(matmul, desc, joined);
    if (code.replace({matmul_at, at}, std::move(joined))) return;
  }
}

void join_activation(KernelJoiner& code, size_t at) {
  const KernelInst& activation = *code.kernel_at(at);
  const auto maker = code.maker_of(activation.inputs[0]);
  if (!maker) return;
  const KernelInst& matmul = *code.kernel_at(*maker);
  const KernelDesc& desc = code.desc_of(matmul);
  if (!is_plain_matmul(desc) || matmul.micro_batch != activation.micro_batch ||
      !code.may_move(at, *maker) ||
      !has_default_attrs(code.op_of(activation), code.desc_of(activation).attrs))
    return;
  Joined joined{.op = desc.op,
                .attrs = {same_attr(desc, "trans_w"),
                          {"activation", std::string(code.op_of(activation).name)},
                          same_attr(desc, "allow_tf32")},
                .inputs = {matmul.inputs[0], matmul.inputs[1]},
                .outputs = {activation.outputs[0], matmul.outputs[0]},
                .in_types = {desc.inputs[0], desc.inputs[1]},
                .out_types = {code.desc_of(activation).outputs[0], desc.outputs[0]},
                .node = activation.node};
  add_bias(matmul, desc, joined);
  code.replace({*maker, at}, std::move(joined));
}

// A residual and the norm that reads it first, where the residual is no part of a product: behind a
// collective.
void join_sum_and_norm(KernelJoiner& code, size_t at) {
  const KernelInst& norm = *code.kernel_at(at);
  const KernelDesc& desc = code.desc_of(norm);
  // Of a few rows it saves no time: they stay in the cache, and where each by itself is part of the launch of
  // the matmul next to it (decoding), joined they would be a launch of their own.
  constexpr int64_t kFewRows = 8;
  const auto maker = code.maker_of(norm.inputs[0]);
  if (!maker || desc.inputs[0].shape.elements() < kFewRows * desc.inputs[1].shape.elements()) return;
  const KernelInst& sum = *code.kernel_at(*maker);
  if (!is_sum(code.op_of(sum)) || code.desc_of(sum).outputs[0] != desc.inputs[0] ||
      sum.micro_batch != norm.micro_batch || std::ranges::min(code.readers_of(norm.inputs[0])) != at)
    return;
  // Where the sum is, or later where weights of the norm are cast or gathered between the two.
  std::vector<size_t> members = {*maker, at};
  if (!code.may_move(at, *maker)) {
    if (!code.may_move(*maker, at)) return;
    std::ranges::reverse(members);
  }
  Joined joined = code.as_joined(sum);
  joined.op = find_op(desc.op->fused.with_sum);
  joined.attrs = desc.attrs;
  joined.inputs.insert(joined.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
  joined.outputs.insert(joined.outputs.end(), norm.outputs.begin(), norm.outputs.end());
  joined.in_types.insert(joined.in_types.end(), desc.inputs.begin() + 1, desc.inputs.end());
  joined.out_types.insert(joined.out_types.end(), desc.outputs.begin(), desc.outputs.end());
  code.replace(members, std::move(joined));
}

// dy, x, w, statistics -> dx, and dy, x, statistics -> dw (, db), and dx + addend.
void join_norm_gradients(KernelJoiner& code, size_t at) {
  const KernelInst& input = *code.kernel_at(at);
  const std::string_view joint = code.op_of(input).fused.joint_gradient;
  std::optional<size_t> weight_at;
  for (const size_t reader : code.readers_of(input.inputs[0])) {
    const KernelInst* other = code.kernel_at(reader);
    const FusedForms* fused = other == nullptr ? nullptr : &code.op_of(*other).fused;
    if (fused == nullptr || fused->joint_gradient != joint || !fused->is_weight_gradient ||
        other->micro_batch != input.micro_batch)
      continue;
    std::vector<SlotRef> operands = input.inputs;
    operands.erase(operands.begin() + 2);  // w
    if (other->inputs == operands && code.may_move(reader, at)) weight_at = reader;
  }
  if (!weight_at) return;
  const std::vector<SlotRef> weight_outputs = code.kernel_at(*weight_at)->outputs;
  const std::vector<TensorType> weight_types = code.desc_of(*code.kernel_at(*weight_at)).outputs;
  Joined joined = code.as_joined(input);
  joined.op = find_op(joint);
  joined.attrs.clear();
  for (const AttrSpec& spec : joined.op->attrs)
    joined.attrs.push_back({std::string(spec.name), *spec.default_value});
  const auto add_weights = [&] {
    joined.outputs.insert(joined.outputs.end(), weight_outputs.begin(), weight_outputs.end());
    joined.out_types.insert(joined.out_types.end(), weight_types.begin(), weight_types.end());
  };
  const SlotRef dx = input.outputs[0];
  if (code.is_read_once(dx)) {
    const size_t sum_at = code.readers_of(dx)[0];
    const KernelInst* sum = code.kernel_at(sum_at);
    if (sum != nullptr && is_sum(code.op_of(*sum)) && sum->micro_batch == input.micro_batch && sum_at > at &&
        code.may_move(sum_at, at)) {
      const Joined without = joined;
      const size_t other = sum->inputs[0] == dx ? 1 : 0;
      joined.inputs.push_back(sum->inputs[other]);
      joined.in_types.push_back(code.desc_of(*sum).inputs[other]);
      joined.outputs = sum->outputs;
      joined.node = sum->node;
      add_weights();
      if (code.replace({at, *weight_at, sum_at}, std::move(joined))) return;
      joined = without;
    }
  }
  add_weights();
  code.replace({at, *weight_at}, std::move(joined));
}

// The sums by column of dx, where a kernel has made that and totals columns already.
void join_norm_column_sums(KernelJoiner& code, size_t at) {
  const KernelInst& sums = *code.kernel_at(at);
  const auto maker = code.maker_of(sums.inputs[0]);
  if (!maker) return;
  const KernelInst& norm = *code.kernel_at(*maker);
  const KernelDesc& desc = code.desc_of(norm);
  // Of dx alone, seen with the rows that it has there.
  if (attr_i64_or(desc.attrs, "column_sums", 1) == 1 || norm.outputs[0] != sums.inputs[0] ||
      norm.micro_batch != sums.micro_batch || code.desc_of(sums).outputs[0] != desc.outputs[1] ||
      !code.may_move(at, *maker))
    return;
  Joined joined = code.as_joined(norm);
  set(joined.attrs, "column_sums", 1);
  joined.outputs.push_back(sums.outputs[0]);
  joined.out_types.push_back(desc.outputs[1]);
  code.replace({*maker, at}, std::move(joined));
}

// Sums that are rounded to 16 bits and widened again: they are made in f32, and may leave so. All that the
// kernel sums, or none.
void join_widening(KernelJoiner& code, size_t at) {
  const auto maker = code.maker_of(code.kernel_at(at)->inputs[0]);
  if (!maker) return;
  const KernelInst& sums = *code.kernel_at(*maker);
  const KernelDesc& desc = code.desc_of(sums);
  Joined joined = code.as_joined(sums);
  if (!set(joined.attrs, "wide", 1)) return;
  const auto widened = desc.op->infer(desc.inputs, joined.attrs);
  if (!widened.ok()) return;
  std::vector<size_t> members = {*maker};
  for (size_t o = 0; o < sums.outputs.size(); ++o) {
    if (widened.value()[o] == desc.outputs[o]) continue;
    if (!code.is_read_once(sums.outputs[o])) return;
    const size_t cast_at = code.readers_of(sums.outputs[o])[0];
    const KernelInst* cast = code.kernel_at(cast_at);
    if (cast == nullptr || !is_cast(code.op_of(*cast)) || cast->micro_batch != sums.micro_batch ||
        code.desc_of(*cast).outputs[0] != widened.value()[o] || !code.may_move(cast_at, *maker))
      return;
    members.push_back(cast_at);
    joined.outputs[o] = cast->outputs[0];
    joined.out_types[o] = widened.value()[o];
  }
  if (members.size() > 1) code.replace(members, std::move(joined));
}

// FusionPattern: one form of several kernels that may become one.
struct FusionPattern {
  bool (*starts_at)(const OpDef& op);  // the kernel that the others are looked for from
  // Kernels that another may take in, at no more cost than it has without: bounds on the time of a step leave them out.
  bool (*absorbs)(const OpDef& op);
  // In f32, the fused kernel has the bits of its parts. Catalogs that fuse exactly take no others.
  bool is_exact;
  // Joins the kernel at `at` with others, or finds that there is nothing to join.
  void (*join)(KernelJoiner& code, size_t at);
};

// In the order in which they are looked for: a norm's gradient takes what is added to it before a product
// does, and sums are widened when all of them are there.
constexpr FusionPattern kPatterns[] = {
    {is_input_gradient, joins_gradients, false, join_norm_gradients},
    {is_sum, is_sum, true, join_sum},
    {is_activation, is_activation, false, join_activation},
    {takes_sum, is_sum, false, join_sum_and_norm},
    {is_column_sums, is_column_sums, false, join_norm_column_sums},
    {is_cast, is_cast, false, join_widening},
};

}  // namespace

void fuse_kernels(EntryPoint& entry, int32_t index, RankBuilder& builder) {
  KernelJoiner code(entry, index, builder);
  const bool takes_all = builder.catalog().fuses();
  for (const FusionPattern& pattern : kPatterns)
    for (size_t at = 0; at < code.size(); ++at) {
      const KernelInst* kernel = code.kernel_at(at);
      if (kernel == nullptr || !pattern.starts_at(code.op_of(*kernel))) continue;
      if (takes_all || (pattern.is_exact && code.desc_of(*kernel).outputs[0].dtype == DType::kF32))
        pattern.join(code, at);
    }
  code.finish();
}

bool is_fused_form(const OpDef& op, size_t result_count) {
  static const std::set<std::string_view> kMade = [] {
    std::set<std::string_view> made;
    for (const OpDef* each : all_ops())
      made.insert({each->fused.with_addend, each->fused.with_sum, each->fused.joint_gradient});
    return made;
  }();
  return kMade.contains(op.name) || (op.weight.use == WeightUse::kProduct && result_count > 1);
}

bool is_fused(const OpDef& op, const Node& node) {
  return &op != node.op && (op.weight.use == WeightUse::kProduct || is_fused_form(op, 1));
}

bool may_join_another(const Graph& graph, const Node& node, const KernelCatalog& catalog) {
  if (!catalog.fuses_exactly()) return false;
  const bool takes_all = catalog.fuses(), is_f32 = graph.type(node.outputs[0]).dtype == DType::kF32;
  // Of casts those that widen.
  if (node.op->is_cast && dtype_bytes(graph.tensor(node.inputs[0]).type.dtype, 1) >=
                              dtype_bytes(graph.tensor(node.outputs[0]).type.dtype, 1))
    return false;
  return std::ranges::any_of(kPatterns, [&](const FusionPattern& pattern) {
    return (takes_all || (pattern.is_exact && is_f32)) && pattern.absorbs(*node.op);
  });
}

void drop_unused_kernels(RankProgram& program) {
  std::vector<int32_t> renumbered(program.kernels.size(), -1);
  const auto for_each_kernel = [&](auto visit) {
    for (EntryPoint& entry : program.entries)
      for (Instruction& instruction : entry.code)
        if (auto* kernel = std::get_if<KernelInst>(&instruction)) visit(kernel->kernel);
  };
  for_each_kernel([&](int32_t id) { renumbered[static_cast<size_t>(id)] = 0; });
  std::vector<KernelDesc> kept;
  for (size_t id = 0; id < renumbered.size(); ++id) {
    if (renumbered[id] < 0) continue;
    renumbered[id] = static_cast<int32_t>(kept.size());
    kept.push_back(std::move(program.kernels[id]));
  }
  program.kernels = std::move(kept);
  for_each_kernel([&](int32_t& id) { id = renumbered[static_cast<size_t>(id)]; });
}

}  // namespace tessera
