#include "parallel/lowering/kernel_fusion.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
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

bool is_plain_product(const KernelDesc& desc) {
  return desc.op->name == "matmul" && desc.outputs.size() == 1;
}
Attr same_attr(const KernelDesc& desc, std::string_view name) {
  return {std::string(name), attr_i64(desc.attrs, name)};
}
// Of the shards of k, those that do not begin at 0 leave their bias out.
void add_bias(const KernelInst& product, const KernelDesc& desc, Joined& joined) {
  const auto k = std::ranges::find(desc.factors, 'k', &FactorView::name);
  if (desc.inputs.size() != 3 || (k != desc.factors.end() && k->begin[0] != 0)) return;
  joined.inputs.push_back(product.inputs[2]);
  joined.in_types.push_back(desc.inputs[2]);
}

void join_sum(const FusionPattern& pattern, KernelJoiner& code, size_t at) {
  // The later of two products: what it is added to is there by then.
  std::vector<std::pair<size_t, size_t>> products;  // place, which operand of the sum
  for (const size_t i : {size_t{0}, size_t{1}})
    if (const auto maker = code.maker_of(code.kernel_at(at)->inputs[i])) products.emplace_back(*maker, i);
  std::ranges::sort(products, std::greater{});
  for (const auto& [product_at, operand] : products) {
    const KernelInst &sum = *code.kernel_at(at), &product = *code.kernel_at(product_at);
    const KernelDesc& desc = code.desc_of(product);
    if (!is_plain_product(desc) || product.micro_batch != sum.micro_batch ||
        !code.is_read_once(sum.inputs[operand]) || !code.may_move(at, product_at))
      continue;
    const SlotRef addend = sum.inputs[1 - operand];
    if (addend.slot == product.outputs[0].slot) continue;
    Joined joined{.op = find_op(pattern.makes),
                  .attrs = {same_attr(desc, "trans_w"), same_attr(desc, "allow_tf32")},
                  .inputs = {product.inputs[0], product.inputs[1], addend},
                  .outputs = sum.outputs,
                  .in_types = {desc.inputs[0], desc.inputs[1], code.desc_of(sum).inputs[1 - operand]},
                  .out_types = code.desc_of(sum).outputs,
                  .node = sum.node};
    add_bias(product, desc, joined);
    if (code.replace({product_at, at}, std::move(joined))) return;
  }
}

void join_activation(const FusionPattern& pattern, KernelJoiner& code, size_t at) {
  const KernelInst& activation = *code.kernel_at(at);
  const auto maker = code.maker_of(activation.inputs[0]);
  if (!maker) return;
  const KernelInst& product = *code.kernel_at(*maker);
  const KernelDesc& desc = code.desc_of(product);
  if (!is_plain_product(desc) || product.micro_batch != activation.micro_batch ||
      !code.may_move(at, *maker) ||
      (pattern.at == "gelu" && attr_string(code.desc_of(activation).attrs, "approximate") != "tanh"))
    return;
  Joined joined{.op = find_op(pattern.makes),
                .attrs = {same_attr(desc, "trans_w"),
                          {"activation", std::string(pattern.at)},
                          same_attr(desc, "allow_tf32")},
                .inputs = {product.inputs[0], product.inputs[1]},
                .outputs = {activation.outputs[0], product.outputs[0]},
                .in_types = {desc.inputs[0], desc.inputs[1]},
                .out_types = {code.desc_of(activation).outputs[0], desc.outputs[0]},
                .node = activation.node};
  add_bias(product, desc, joined);
  code.replace({*maker, at}, std::move(joined));
}

// A residual and the norm that reads it first, where the residual is no part of a product: behind a
// collective.
void join_sum_and_norm(const FusionPattern& pattern, KernelJoiner& code, size_t at) {
  const KernelInst& norm = *code.kernel_at(at);
  const KernelDesc& desc = code.desc_of(norm);
  // Of a few rows it saves no time: they stay in the cache, and where each by itself is part of the launch of
  // the product beside it (decoding), joined they would be a launch of their own.
  constexpr int64_t kFewRows = 8;
  const auto maker = code.maker_of(norm.inputs[0]);
  if (!maker || desc.inputs[0].shape.elements() < kFewRows * desc.inputs[1].shape.elements()) return;
  const KernelInst& sum = *code.kernel_at(*maker);
  if (code.op_of(sum).name != "add" || code.desc_of(sum).outputs[0] != desc.inputs[0] ||
      sum.micro_batch != norm.micro_batch || std::ranges::min(code.readers_of(norm.inputs[0])) != at)
    return;
  // Where the sum is, or later where weights of the norm are cast or gathered between the two.
  std::vector<size_t> members = {*maker, at};
  if (!code.may_move(at, *maker)) {
    if (!code.may_move(*maker, at)) return;
    std::ranges::reverse(members);
  }
  Joined joined = code.as_joined(sum);
  joined.op = find_op(pattern.makes);
  joined.attrs = desc.attrs;
  joined.inputs.insert(joined.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
  joined.outputs.insert(joined.outputs.end(), norm.outputs.begin(), norm.outputs.end());
  joined.in_types.insert(joined.in_types.end(), desc.inputs.begin() + 1, desc.inputs.end());
  joined.out_types.insert(joined.out_types.end(), desc.outputs.begin(), desc.outputs.end());
  code.replace(members, std::move(joined));
}

// dy, x, w, statistics -> dx, and dy, x, statistics -> dw (, db), and dx + addend.
void join_norm_gradients(const FusionPattern& pattern, KernelJoiner& code, size_t at) {
  const KernelInst& input = *code.kernel_at(at);
  const std::string_view weight_op = pattern.absorbs[0];
  std::optional<size_t> weight_at;
  for (const size_t reader : code.readers_of(input.inputs[0])) {
    const KernelInst* other = code.kernel_at(reader);
    if (other == nullptr || code.op_of(*other).name != weight_op || other->micro_batch != input.micro_batch)
      continue;
    std::vector<SlotRef> operands = input.inputs;
    operands.erase(operands.begin() + 2);  // w
    if (other->inputs == operands && code.may_move(reader, at)) weight_at = reader;
  }
  if (!weight_at) return;
  const std::vector<SlotRef> weight_outputs = code.kernel_at(*weight_at)->outputs;
  const std::vector<TensorType> weight_types = code.desc_of(*code.kernel_at(*weight_at)).outputs;
  Joined joined = code.as_joined(input);
  joined.op = find_op(pattern.makes);
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
    if (sum != nullptr && code.op_of(*sum).name == "add" && sum->micro_batch == input.micro_batch &&
        sum_at > at && code.may_move(sum_at, at)) {
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
void join_norm_column_sums(const FusionPattern& pattern, KernelJoiner& code, size_t at) {
  const KernelInst& sums = *code.kernel_at(at);
  const auto maker = code.maker_of(sums.inputs[0]);
  if (!maker) return;
  const KernelInst& norm = *code.kernel_at(*maker);
  const KernelDesc& desc = code.desc_of(norm);
  // Of dx alone, seen with the rows that it has there.
  if (desc.op->name != pattern.makes || attr_i64(desc.attrs, "column_sums") == 1 ||
      norm.outputs[0] != sums.inputs[0] || norm.micro_batch != sums.micro_batch ||
      code.desc_of(sums).outputs[0] != desc.outputs[1] || !code.may_move(at, *maker))
    return;
  Joined joined = code.as_joined(norm);
  set(joined.attrs, "column_sums", 1);
  joined.outputs.push_back(sums.outputs[0]);
  joined.out_types.push_back(desc.outputs[1]);
  code.replace({*maker, at}, std::move(joined));
}

// Sums that are rounded to 16 bits and widened again: they are made in f32, and may leave so. All that the
// kernel sums, or none.
void join_widening(const FusionPattern&, KernelJoiner& code, size_t at) {
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
    if (cast == nullptr || code.op_of(*cast).name != "cast" || cast->micro_batch != sums.micro_batch ||
        code.desc_of(*cast).outputs[0] != widened.value()[o] || !code.may_move(cast_at, *maker))
      return;
    members.push_back(cast_at);
    joined.outputs[o] = cast->outputs[0];
    joined.out_types[o] = widened.value()[o];
  }
  if (members.size() > 1) code.replace(members, std::move(joined));
}

constexpr std::string_view kSum[] = {"add"};
constexpr std::string_view kActivations[] = {"gelu", "relu", "silu"};
constexpr std::string_view kLayerNorm[] = {"layer_norm_grad_weight", "add"};
constexpr std::string_view kRmsNorm[] = {"rms_norm_grad_weight", "add"};
constexpr std::string_view kColumnSums[] = {"sum_leading"};
constexpr std::string_view kWidening[] = {"cast"};

// In the order in which they are looked for: a norm's gradient takes what is added to it before a product
// does, and sums are widened when all of them are there.
constexpr FusionPattern kPatterns[] = {
    {"layer_norm_grad_input", "layer_norm_grad", kLayerNorm, false, join_norm_gradients},
    {"rms_norm_grad_input", "rms_norm_grad", kRmsNorm, false, join_norm_gradients},
    {"add", "matmul_add", kSum, true, join_sum},
    {"gelu", "matmul", kActivations, false, join_activation},
    {"relu", "matmul", kActivations, false, join_activation},
    {"silu", "matmul", kActivations, false, join_activation},
    {"layer_norm", "add_layer_norm", kSum, false, join_sum_and_norm},
    {"rms_norm", "add_rms_norm", kSum, false, join_sum_and_norm},
    {"sum_leading", "layer_norm_grad", kColumnSums, false, join_norm_column_sums},
    {"cast", "", kWidening, false, join_widening},
};

}  // namespace

std::span<const FusionPattern> fusion_patterns() { return kPatterns; }

void fuse_kernels(EntryPoint& entry, int32_t index, RankBuilder& builder) {
  KernelJoiner code(entry, index, builder);
  const bool takes_all = builder.catalog().fuses();
  for (const FusionPattern& pattern : kPatterns)
    for (size_t at = 0; at < code.size(); ++at) {
      const KernelInst* kernel = code.kernel_at(at);
      if (kernel == nullptr || code.op_of(*kernel).name != pattern.at) continue;
      if (takes_all || (pattern.is_exact && code.desc_of(*kernel).outputs[0].dtype == DType::kF32))
        pattern.join(pattern, code, at);
    }
  code.finish();
}

bool is_fused(const OpDef& op, const Node& node) {
  return &op != node.op &&
         std::ranges::find(kPatterns, op.name, &FusionPattern::makes) != std::end(kPatterns);
}

bool may_join_another(const Graph& graph, const Node& node, const KernelCatalog& catalog) {
  if (!catalog.fuses_exactly()) return false;
  const bool takes_all = catalog.fuses(), is_f32 = graph.type(node.outputs[0]).dtype == DType::kF32;
  // Of casts those that widen.
  if (node.op->name == "cast" && dtype_bytes(graph.tensor(node.inputs[0]).type.dtype, 1) >=
                                     dtype_bytes(graph.tensor(node.outputs[0]).type.dtype, 1))
    return false;
  return std::ranges::any_of(kPatterns, [&](const FusionPattern& pattern) {
    return (takes_all || (pattern.is_exact && is_f32)) &&
           std::ranges::find(pattern.absorbs, node.op->name) != pattern.absorbs.end();
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
