#include "parallel/kernel_fusion.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/touched_slots.h"

namespace tessera {

namespace {

class Fuser {
 public:
  Fuser(EntryPoint& entry, int32_t index, RankBuilder& builder)
      : code_(entry.code), index_(index), builder_(builder), program_(builder.program) {
    readers_.resize(program_.slots.size());
    writers_.resize(program_.slots.size());
    for (size_t at = 0; at < code_.size(); ++at) note(at);
  }

  void run() {
    for (size_t at = 0; at < code_.size(); ++at) {
      const KernelInst* kernel = kernel_at(at);
      if (kernel == nullptr) continue;
      const std::string_view op = op_of(*kernel).name;
      if (op == "layer_norm_grad_input") join_norm_gradients(at, "layer_norm_grad_weight", "layer_norm_grad");
      if (op == "rms_norm_grad_input") join_norm_gradients(at, "rms_norm_grad_weight", "rms_norm_grad");
      if (op == "add") join_sum(at);
      if (op == "gelu" || op == "relu" || op == "silu") join_activation(at);
    }
    size_t kept = 0;
    for (size_t at = 0; at < code_.size(); ++at)
      if (!gone_[at]) {
        if (kept != at) code_[kept] = std::move(code_[at]);
        ++kept;
      }
    code_.resize(kept);
  }

 private:
  // What takes the place of several instructions, at that of one of them.
  struct Joined {
    const OpDef* op;
    std::vector<Attr> attrs;
    std::vector<SlotRef> inputs, outputs;
    std::vector<TensorType> in_types, out_types;
    NodeId node;  // whose first result is the first here
  };

  const KernelInst* kernel_at(size_t at) const {
    return at < code_.size() && !gone_[at] ? std::get_if<KernelInst>(&code_[at]) : nullptr;
  }
  const KernelDesc& desc_of(const KernelInst& kernel) const {
    return program_.kernels[static_cast<size_t>(kernel.kernel)];
  }
  const OpDef& op_of(const KernelInst& kernel) const { return *desc_of(kernel).op; }

  void note(size_t at) {
    gone_.resize(code_.size(), false);
    const TouchedSlots touched = touched_slots(code_[at]);
    for (const int32_t slot : touched.reads) readers_[static_cast<size_t>(slot)].push_back(at);
    for (const int32_t slot : touched.writes) writers_[static_cast<size_t>(slot)].push_back(at);
  }
  void forget(size_t at) {
    const TouchedSlots touched = touched_slots(code_[at]);
    for (const int32_t slot : touched.reads) std::erase(readers_[static_cast<size_t>(slot)], at);
    for (const int32_t slot : touched.writes) std::erase(writers_[static_cast<size_t>(slot)], at);
  }

  // A value of this run alone, written once, whole.
  bool is_value(SlotRef ref) const {
    if (ref.slot < 0 || ref.offset != 0) return false;
    const auto slot = static_cast<size_t>(ref.slot);
    return program_.slots[slot].kind == SlotKind::kTransient && program_.slots[slot].tier == Tier::kDevice &&
           writers_[slot].size() == 1;
  }
  // The kernel that makes the value.
  std::optional<size_t> maker_of(SlotRef ref) const {
    if (!is_value(ref)) return std::nullopt;
    const size_t at = writers_[static_cast<size_t>(ref.slot)][0];
    return kernel_at(at) == nullptr ? std::nullopt : std::optional(at);
  }
  bool is_read_once(SlotRef ref) const {
    return is_value(ref) && readers_[static_cast<size_t>(ref.slot)].size() == 1;
  }
  static bool any_between(const std::vector<size_t>& places, size_t begin, size_t end) {
    return std::ranges::any_of(places, [&](size_t at) { return begin < at && at < end; });
  }
  // The instruction at `from` could as well be at `to`, but for what the two have to do with each other.
  bool may_move(size_t from, size_t to) const {
    const auto [begin, end] = std::minmax(from, to);
    const TouchedSlots touched = touched_slots(code_[from]);
    const auto written = [&](int32_t slot) {
      return any_between(writers_[static_cast<size_t>(slot)], begin, end);
    };
    const auto read = [&](int32_t slot) {
      return any_between(readers_[static_cast<size_t>(slot)], begin, end);
    };
    return std::ranges::none_of(touched.reads, written) && std::ranges::none_of(touched.writes, written) &&
           std::ranges::none_of(touched.writes, read);
  }
  bool on_device(const KernelInst& kernel) const {
    const auto there = [&](const SlotRef& ref) {
      return ref.slot < 0 || program_.slots[static_cast<size_t>(ref.slot)].tier == Tier::kDevice;
    };
    return std::ranges::all_of(kernel.inputs, there) && std::ranges::all_of(kernel.outputs, there);
  }

  // Results lie over no operand but where the kernel allows that.
  static bool lies_apart(const Joined& joined) {
    for (size_t o = 0; o < joined.outputs.size(); ++o)
      for (size_t i = 0; i < joined.inputs.size(); ++i) {
        const bool in_place = o < joined.op->in_place.size() && joined.op->in_place[o] == static_cast<int>(i);
        if (joined.outputs[o].slot == joined.inputs[i].slot &&
            !(in_place && joined.outputs[o] == joined.inputs[i]))
          return false;
      }
    return true;
  }

  // One kernel in the place of `members[0]`, where the devices have it and it takes less time than all of
  // them.
  bool replace(const std::vector<size_t>& members, Joined joined) {
    if (!lies_apart(joined)) return false;
    double apart_s = 0;
    for (const size_t at : members) {
      if (!on_device(*kernel_at(at))) return false;
      apart_s += desc_of(*kernel_at(at)).seconds;
    }
    const Result<int32_t> made = builder_.local_kernel(*joined.op, joined.attrs, std::move(joined.in_types),
                                                       std::move(joined.out_types));
    if (!made.ok()) return false;  // not every backend has every kernel
    const KernelDesc& desc = program_.kernels[static_cast<size_t>(*made)];
    if (desc.seconds >= apart_s) return false;
    KernelInst inst{.kernel = *made,
                    .inputs = std::move(joined.inputs),
                    .outputs = std::move(joined.outputs),
                    .workspace = {},
                    .node = joined.node,
                    .micro_batch = kernel_at(members[0])->micro_batch};
    if (desc.workspace_bytes > 0) {
      const std::string name = "workspace(" + std::string(desc.op->name) + ")";
      inst.workspace =
          builder_.add_slot(name, SlotKind::kWorkspace, desc.workspace_bytes, index_, Tier::kDevice);
      readers_.emplace_back();
      writers_.emplace_back();
    }
    for (const size_t at : members) {
      forget(at);
      gone_[at] = true;
    }
    code_[members[0]] = std::move(inst);
    gone_[members[0]] = false;
    note(members[0]);
    return true;
  }

  static bool is_plain_product(const KernelDesc& desc) {
    return desc.op->name == "matmul" && desc.outputs.size() == 1;
  }
  // Of the shards of k, those that do not begin at 0 leave their bias out.
  static bool has_bias(const KernelDesc& desc) {
    const auto k = std::ranges::find(desc.factors, 'k', &FactorView::name);
    return desc.inputs.size() == 3 && (k == desc.factors.end() || k->begin[0] == 0);
  }

  void join_sum(size_t at) {
    // The later of two products: what it is added to is there by then.
    std::vector<std::pair<size_t, size_t>> products;  // place, which operand of the sum
    for (const size_t i : {size_t{0}, size_t{1}})
      if (const auto maker = maker_of(kernel_at(at)->inputs[i])) products.emplace_back(*maker, i);
    std::ranges::sort(products, std::greater{});
    for (const auto& [product_at, operand] : products) {
      const KernelInst &sum = *kernel_at(at), &product = *kernel_at(product_at);
      const KernelDesc& desc = desc_of(product);
      if (!is_plain_product(desc) || product.micro_batch != sum.micro_batch ||
          !is_read_once(sum.inputs[operand]) || !may_move(at, product_at))
        continue;
      const SlotRef addend = sum.inputs[1 - operand];
      if (addend.slot == product.outputs[0].slot) continue;
      Joined joined{.op = find_op("matmul_add"),
                    .attrs = {{"trans_w", attr_i64(desc.attrs, "trans_w")}},
                    .inputs = {product.inputs[0], product.inputs[1], addend},
                    .outputs = sum.outputs,
                    .in_types = {desc.inputs[0], desc.inputs[1], desc_of(sum).inputs[1 - operand]},
                    .out_types = desc_of(sum).outputs,
                    .node = sum.node};
      if (has_bias(desc)) {
        joined.inputs.push_back(product.inputs[2]);
        joined.in_types.push_back(desc.inputs[2]);
      }
      if (replace({product_at, at}, std::move(joined))) return;
    }
  }

  void join_activation(size_t at) {
    const KernelInst& activation = *kernel_at(at);
    const auto maker = maker_of(activation.inputs[0]);
    if (!maker) return;
    const KernelInst& product = *kernel_at(*maker);
    const KernelDesc& desc = desc_of(product);
    const std::string name(op_of(activation).name);
    if (!is_plain_product(desc) || product.micro_batch != activation.micro_batch || !may_move(at, *maker) ||
        (name == "gelu" && attr_string(desc_of(activation).attrs, "approximate") != "tanh"))
      return;
    Joined joined{.op = desc.op,
                  .attrs = {{"trans_w", attr_i64(desc.attrs, "trans_w")}, {"activation", name}},
                  .inputs = {product.inputs[0], product.inputs[1]},
                  .outputs = {activation.outputs[0], product.outputs[0]},
                  .in_types = {desc.inputs[0], desc.inputs[1]},
                  .out_types = {desc_of(activation).outputs[0], desc.outputs[0]},
                  .node = activation.node};
    if (has_bias(desc)) {
      joined.inputs.push_back(product.inputs[2]);
      joined.in_types.push_back(desc.inputs[2]);
    }
    replace({*maker, at}, std::move(joined));
  }

  // dy, x, w, statistics -> dx, and dy, x, statistics -> dw (, db), and dx + addend.
  void join_norm_gradients(size_t at, std::string_view weight_op, std::string_view joined_op) {
    const KernelInst& input = *kernel_at(at);
    std::optional<size_t> weight_at;
    for (const size_t reader : readers_[static_cast<size_t>(input.inputs[0].slot)]) {
      const KernelInst* other = kernel_at(reader);
      if (other == nullptr || op_of(*other).name != weight_op || other->micro_batch != input.micro_batch)
        continue;
      std::vector<SlotRef> operands = input.inputs;
      operands.erase(operands.begin() + 2);  // w
      if (other->inputs == operands && may_move(reader, at)) weight_at = reader;
    }
    if (!weight_at) return;
    const KernelDesc& input_desc = desc_of(input);
    const std::vector<SlotRef> weight_outputs = kernel_at(*weight_at)->outputs;
    const std::vector<TensorType> weight_types = desc_of(*kernel_at(*weight_at)).outputs;
    Joined joined{.op = find_op(joined_op),
                  .attrs = {},
                  .inputs = input.inputs,
                  .outputs = input.outputs,
                  .in_types = input_desc.inputs,
                  .out_types = input_desc.outputs,
                  .node = input.node};
    const auto add_weights = [&] {
      joined.outputs.insert(joined.outputs.end(), weight_outputs.begin(), weight_outputs.end());
      joined.out_types.insert(joined.out_types.end(), weight_types.begin(), weight_types.end());
    };
    const SlotRef dx = input.outputs[0];
    if (is_read_once(dx)) {
      const size_t sum_at = readers_[static_cast<size_t>(dx.slot)][0];
      const KernelInst* sum = kernel_at(sum_at);
      if (sum != nullptr && op_of(*sum).name == "add" && sum->micro_batch == input.micro_batch &&
          sum_at > at && may_move(sum_at, at)) {
        const Joined without = joined;
        const size_t other = sum->inputs[0] == dx ? 1 : 0;
        joined.inputs.push_back(sum->inputs[other]);
        joined.in_types.push_back(desc_of(*sum).inputs[other]);
        joined.outputs = sum->outputs;
        joined.node = sum->node;
        add_weights();
        if (replace({at, *weight_at, sum_at}, std::move(joined))) return;
        joined = without;
      }
    }
    add_weights();
    replace({at, *weight_at}, std::move(joined));
  }

  std::vector<Instruction>& code_;
  const int32_t index_;
  RankBuilder& builder_;
  RankProgram& program_;
  std::vector<std::vector<size_t>> readers_,
      writers_;  // by slot: places in the code, a place once a reference
  std::vector<bool> gone_;
};

}  // namespace

void fuse_kernels(EntryPoint& entry, int32_t index, RankBuilder& builder) {
  Fuser(entry, index, builder).run();
}

bool is_fused(const OpDef& op, const Node& node) {
  return &op != node.op && (op.name == "matmul" || op.name == "matmul_add" || op.name == "layer_norm_grad" ||
                            op.name == "rms_norm_grad");
}

bool may_join_another(const OpDef& op) {
  constexpr std::array<std::string_view, 6> kNames = {
      "add", "gelu", "relu", "silu", "layer_norm_grad_weight", "rms_norm_grad_weight"};
  return std::ranges::find(kNames, op.name) != kNames.end();
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
