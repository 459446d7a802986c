// verify: the structure of a Program from an untrusted file. After it, no kernel,
// collective or copy can access a byte outside of its slots, and no index is out of range.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/analysis/replay.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr size_t kMaxRanks = 1 << 16;

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

// Returns the product of counts, or -1 when one is negative or the product overflows.
int64_t product(std::initializer_list<int64_t> counts) {
  int64_t result = 1;
  for (int64_t count : counts)
    if (count < 0 || __builtin_mul_overflow(result, count, &result) || result > kMaxBytes) return -1;
  return result;
}

int64_t sum(std::span<const int64_t> counts) {
  int64_t result = 0;
  for (int64_t count : counts)
    if (count < 0 || __builtin_add_overflow(result, count, &result) || result > kMaxBytes) return -1;
  return result;
}

// Returns the bytes of a concrete type; -1 when the type is invalid.
int64_t checked_bytes(const TensorType& type) {
  if (static_cast<size_t>(type.dtype) >= kDTypeCount) return -1;
  int64_t elements = 1;
  for (int64_t extent : type.shape.dims()) elements = elements < 0 ? -1 : product({elements, extent});
  const DTypeInfo& dtype = info(type.dtype);
  if (elements < 0 || elements % dtype.block_elements != 0) return -1;
  return product({elements / dtype.block_elements, dtype.block_bytes});
}

class RankVerifier {
 public:
  RankVerifier(const Program& program, size_t index)
      : world_(program.rank_set().world), me_(program.rank_of(index)), rank_(program.ranks[index]) {}

  Status run() {
    if (rank_.arena_bytes < 0 || rank_.host_arena_bytes < 0 || rank_.arena_bytes > kMaxBytes ||
        rank_.host_arena_bytes > kMaxBytes || rank_.file_arena_bytes < 0 ||
        rank_.file_arena_bytes > kMaxBytes)
      return corrupt("an arena size is out of range");
    for (size_t i = 0; i < rank_.slots.size(); ++i)
      TSR_RETURN_IF_ERROR(slot(rank_.slots[i]).with_context(format("slot {}", i)));
    for (size_t i = 0; i < rank_.kernels.size(); ++i)
      TSR_RETURN_IF_ERROR(kernel_desc(rank_.kernels[i]).with_context(format("kernel {}", i)));
    for (size_t i = 0; i < rank_.groups.size(); ++i)
      TSR_RETURN_IF_ERROR(group(rank_.groups[i]).with_context(format("group {}", i)));
    TSR_RETURN_IF_ERROR(bindings(rank_.parameters).with_context("parameters"));
    TSR_RETURN_IF_ERROR(bindings(rank_.states).with_context("states"));
    TSR_RETURN_IF_ERROR(bindings(rank_.constants).with_context("constants"));
    std::set<std::string_view> names;
    for (const EntryPoint& entry : rank_.entries) {
      if (entry.name.empty() || !names.insert(entry.name).second)
        return corrupt(format("entry '{}' is unnamed or repeated", entry.name));
      TSR_RETURN_IF_ERROR(this->entry(entry).with_context(format("entry '{}'", entry.name)));
    }
    return {};
  }

 private:
  Status slot(const Slot& slot) const {
    if (slot.kind > SlotKind::kWorkspace || slot.tier > Tier::kFile)
      return corrupt("its kind or tier does not exist");
    const int64_t arena = slot.tier == Tier::kDevice ? rank_.arena_bytes
                          : slot.tier == Tier::kHost ? rank_.host_arena_bytes
                                                     : rank_.file_arena_bytes;
    if (slot.bytes < 0 || slot.offset < 0 || slot.offset > arena || slot.bytes > arena - slot.offset)
      return corrupt(format("bytes [{}, +{}) are not in an arena of {}", slot.offset, slot.bytes, arena));
    return {};
  }

  Status kernel_desc(const KernelDesc& kernel) const {
    if (kernel.op == nullptr || find_op(kernel.op->name) != kernel.op)
      return corrupt("its op does not exist");
    // A refusal or exception of infer or the rule means a corrupt program.
    const Status status = catch_status([&] { return kernel_types(kernel); });
    if (status.ok() || status.code() == StatusCode::kOutOfMemory) return status;
    return corrupt(format("{}: {}", kernel.op->name, status.message()));
  }

  // Checks operand shapes and factor ranges, which kernels trust, against the op's own infer and rule.
  Status kernel_types(const KernelDesc& kernel) const {
    const OpDef& op = *kernel.op;
    if (kernel.attrs.size() != op.attrs.size())
      return corrupt(format("{} attributes, the op has {}", kernel.attrs.size(), op.attrs.size()));
    for (size_t i = 0; i < op.attrs.size(); ++i)
      if (kernel.attrs[i].name != op.attrs[i].name ||
          kernel.attrs[i].value.index() != static_cast<size_t>(op.attrs[i].type))
        return corrupt(format("attribute {} is not '{}' of its type", i, op.attrs[i].name));
    for (const auto* types : {&kernel.inputs, &kernel.outputs})
      for (const TensorType& type : *types)
        if (checked_bytes(type) < 0) return corrupt("an operand's type is not sound");
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorType> inferred, op.infer(kernel.inputs, kernel.attrs));
    if (inferred != kernel.outputs) return corrupt("its results are not what infer finds");
    if (kernel.workspace_bytes < 0 || kernel.workspace_bytes > kMaxBytes || kernel.variant.empty() ||
        !(kernel.seconds >= 0))
      return corrupt("variant, workspace or seconds are out of range");

    ShardingRule rule = op.sharding({kernel.attrs, kernel.inputs, kernel.outputs, {}});
    TSR_RETURN_IF_ERROR(bind_extents(rule, kernel.inputs, kernel.outputs));
    if (kernel.factors.size() != rule.factors.size())
      return corrupt(format("{} factors, the rule has {}", kernel.factors.size(), rule.factors.size()));
    for (size_t i = 0; i < rule.factors.size(); ++i) {
      const FactorView& view = kernel.factors[i];
      if (view.name != rule.factors[i].name)
        return corrupt(format("factor {} is '{}', the rule has '{}'", i, view.name, rule.factors[i].name));
      if (view.unit < 1 || view.global_extent < 0 || view.range_count < 1 || view.range_count > 2)
        return corrupt(format("factor '{}' is malformed", view.name));
      int64_t local = 0;
      for (int r = 0; r < view.range_count; ++r) {
        if (view.begin[r] < 0 || view.end[r] < view.begin[r] || view.end[r] > view.global_extent)
          return corrupt(format("factor '{}': [{}, {}) is not in its extent {}", view.name, view.begin[r],
                                view.end[r], view.global_extent));
        local += view.end[r] - view.begin[r];
      }
      if (local != rule.factors[i].extent)
        return corrupt(
            format("factor '{}' covers {}, the operands have {}", view.name, local, rule.factors[i].extent));
    }
    return {};
  }

  Status group(const Group& group) const {
    if (group.position < 0 || static_cast<size_t>(group.position) >= group.ranks.size() ||
        group.ranks[static_cast<size_t>(group.position)] != me_)
      return corrupt("its position is not this rank's");
    std::set<int32_t> members;
    for (int32_t member : group.ranks)
      if (member < 0 || member >= world_ || !members.insert(member).second)
        return corrupt(format("member {} does not exist or is repeated", member));
    return {};
  }

  // Checks that `bytes` at `ref` are inside its slot, at a multiple of `element`.
  // Kernels and communicators access memory, of the device or the host, not the file.
  Status within(const SlotRef& ref, int64_t bytes, int64_t element = 1, bool in_memory = true) const {
    if (bytes < 0) return corrupt("a size is out of range");
    if (ref.slot < 0 || static_cast<size_t>(ref.slot) >= rank_.slots.size())
      return corrupt(format("slot {} does not exist", ref.slot));
    const Slot& slot = rank_.slots[static_cast<size_t>(ref.slot)];
    if (in_memory && slot.tier == Tier::kFile)
      return corrupt(format("slot '{}' lies in a file, not in memory", slot.name));
    if (ref.offset < 0 || ref.offset > slot.bytes || bytes > slot.bytes - ref.offset)
      return corrupt(
          format("bytes [{}, +{}) are not in slot '{}' of {}", ref.offset, bytes, slot.name, slot.bytes));
    if ((slot.offset + ref.offset) % element != 0)
      return corrupt(format("slot '{}' + {} is not aligned to {}", slot.name, ref.offset, element));
    return {};
  }

  Status operand(const SlotRef& ref, const TensorType& type, bool in_memory = true) const {
    const DTypeInfo& dtype = info(type.dtype);
    return within(ref, checked_bytes(type), dtype.block_elements == 1 ? dtype.block_bytes : 2, in_memory);
  }

  Status bindings(const std::vector<Binding>& bindings) const {
    std::set<std::string_view> names;
    for (const Binding& binding : bindings) {
      if (binding.name.empty() || !names.insert(binding.name).second)
        return corrupt(format("'{}' is unnamed or repeated", binding.name));
      TSR_RETURN_IF_ERROR(this->binding(binding).with_context(format("'{}'", binding.name)));
    }
    return {};
  }

  Status binding(const Binding& binding) const {
    if (checked_bytes(binding.global) < 0) return corrupt("its type is not sound");
    for (const Piece& piece : binding.pieces) {
      if (static_cast<int>(piece.box.size()) != binding.global.shape.rank())
        return corrupt("a box has another rank");
      TensorType local{binding.global.dtype, {}};
      for (int dim = 0; dim < binding.global.shape.rank(); ++dim) {
        const Range& range = piece.box[static_cast<size_t>(dim)];
        if (range.begin < 0 || range.end < range.begin || range.end > binding.global.shape[dim])
          return corrupt(
              format("[{}, {}) is not in dim {} of {}", range.begin, range.end, dim, binding.global));
        local.shape.push_back(range.size());
      }
      TSR_RETURN_IF_ERROR(operand(piece.at, local, false));
    }
    return {};
  }

  Status entry(const EntryPoint& entry) const {
    TSR_RETURN_IF_ERROR(bindings(entry.inputs).with_context("inputs"));
    TSR_RETURN_IF_ERROR(bindings(entry.outputs).with_context("outputs"));
    for (size_t i = 0; i < entry.code.size(); ++i) {
      const Status status = std::visit(
          [&](const auto& inst) {
            return inst.micro_batch < 0 ? corrupt("a negative micro-batch") : check(inst);
          },
          entry.code[i]);
      TSR_RETURN_IF_ERROR(status.with_context(format("instruction {}", i)));
    }
    return {};
  }

  Status check(const KernelInst& inst) const {
    if (inst.kernel < 0 || static_cast<size_t>(inst.kernel) >= rank_.kernels.size())
      return corrupt(format("kernel {} does not exist", inst.kernel));
    const KernelDesc& kernel = rank_.kernels[static_cast<size_t>(inst.kernel)];
    if (inst.inputs.size() != kernel.inputs.size() || inst.outputs.size() != kernel.outputs.size())
      return corrupt(format("{}: {} operands and {} results, wanted {} and {}", kernel.op->name,
                            inst.inputs.size(), inst.outputs.size(), kernel.inputs.size(),
                            kernel.outputs.size()));
    for (size_t i = 0; i < inst.inputs.size(); ++i) {
      const bool shape_only =
          std::ranges::find(kernel.op->shape_only, static_cast<int>(i)) != kernel.op->shape_only.end();
      if (shape_only && inst.inputs[i].slot == -1) continue;
      TSR_RETURN_IF_ERROR(operand(inst.inputs[i], kernel.inputs[i])
                              .with_context(format("{} operand {}", kernel.op->name, i)));
    }
    for (size_t i = 0; i < inst.outputs.size(); ++i)
      TSR_RETURN_IF_ERROR(operand(inst.outputs[i], kernel.outputs[i])
                              .with_context(format("{} result {}", kernel.op->name, i)));
    if (kernel.workspace_bytes > 0)
      TSR_RETURN_IF_ERROR(within(inst.workspace, kernel.workspace_bytes, 64)
                              .with_context(format("{} workspace", kernel.op->name)));
    return {};
  }

  Status check(const CollectiveInst& inst) const {
    if (inst.group < 0 || static_cast<size_t>(inst.group) >= rank_.groups.size())
      return corrupt(format("group {} does not exist", inst.group));
    const Group& group = rank_.groups[static_cast<size_t>(inst.group)];
    if (inst.kind > CollectiveKind::kBroadcast || inst.reduce > ReduceKind::kMax ||
        static_cast<size_t>(inst.dtype) >= kDTypeCount || info(inst.dtype).block_elements != 1)
      return corrupt("kind, reduction or dtype is out of range");
    const int64_t element = info(inst.dtype).block_bytes;
    const auto at = [&](const SlotRef& ref, int64_t elements) {
      return within(ref, product({elements, element}), element);
    };
    const auto split_sum = [&](const std::vector<int64_t>& extents) {
      return extents.size() == group.ranks.size() ? sum(extents) : -1;
    };
    const auto position = static_cast<size_t>(group.position);
    const int64_t whole = inst.elements;

    if (inst.kind == CollectiveKind::kAllReduce || inst.kind == CollectiveKind::kBroadcast) {
      if (inst.kind == CollectiveKind::kBroadcast) {
        if (inst.root < 0 || static_cast<size_t>(inst.root) >= group.ranks.size())
          return corrupt("its root is not a member");
        if (inst.root != group.position && inst.in.slot == -1) return at(inst.out, whole);
      }
      TSR_RETURN_IF_ERROR(at(inst.in, whole));
      return at(inst.out, whole);
    }
    const int64_t first = split_sum(inst.extents);
    if (first < 0) return corrupt("its extents do not fit the group");
    if (inst.kind == CollectiveKind::kAllToAll) {
      const int64_t second = split_sum(inst.extents2);
      if (second < 0) return corrupt("its second extents do not fit the group");
      const int64_t rest = product({inst.outer, inst.middle, inst.inner});
      if (product({rest, first, second}) != whole) return corrupt("its extents do not make its elements");
      TSR_RETURN_IF_ERROR(at(inst.in, product({rest, inst.extents[position], second})));
      return at(inst.out, product({rest, first, inst.extents2[position]}));
    }
    if (product({inst.outer, first, inst.inner}) != whole)
      return corrupt("its extents do not make its elements");
    const int64_t mine = product({inst.outer, inst.extents[position], inst.inner});
    const bool gather = inst.kind == CollectiveKind::kAllGather;
    TSR_RETURN_IF_ERROR(at(inst.in, gather ? mine : whole));
    return at(inst.out, gather ? whole : mine);
  }

  Status peer(int32_t peer) const {
    if (peer < 0 || peer >= world_ || peer == me_)
      return corrupt(format("peer {} does not exist or is this rank", peer));
    return {};
  }
  Status check(const SendInst& inst) const {
    TSR_RETURN_IF_ERROR(peer(inst.peer));
    return within(inst.in, inst.bytes);
  }
  Status check(const RecvInst& inst) const {
    TSR_RETURN_IF_ERROR(peer(inst.peer));
    return within(inst.out, inst.bytes);
  }

  Status check(const CopyInst& inst) const {
    const auto span = [&](int64_t stride) -> int64_t {
      if (inst.rows == 0) return 0;
      const int64_t before = inst.rows == 1 ? 0 : product({inst.rows - 1, stride});
      return before < 0 || inst.row_bytes < 0 || inst.row_bytes > kMaxBytes ? -1 : before + inst.row_bytes;
    };
    if (inst.rows < 0) return corrupt("a negative number of rows");
    if (inst.rows > 1 && inst.out_stride_bytes < inst.row_bytes) return corrupt("rows written overlap");
    if (inst.in.slot != -1) TSR_RETURN_IF_ERROR(within(inst.in, span(inst.in_stride_bytes), 1, false));
    return within(inst.out, span(inst.out_stride_bytes), 1, false);
  }

  const int32_t world_, me_;
  const RankProgram& rank_;
};

// SharedNames: ranks may hold different tensors (pipeline stages do); a tensor that several hold has one
// type.
class SharedNames {
 public:
  Status add(std::string_view what, const std::vector<Binding>& bindings) {
    for (const Binding& binding : bindings) {
      const auto [at, is_new] = types_.try_emplace({std::string(what), binding.name}, &binding.global);
      if (!is_new && *at->second != binding.global)
        return corrupt(format("ranks list different {}: '{}' is {} on one and {} on another", what,
                              binding.name, *at->second, binding.global));
    }
    return {};
  }

 private:
  std::map<std::pair<std::string, std::string>, const TensorType*> types_;
};

Status verify_ranks_alike(const Program& program) {
  SharedNames shared;
  const std::vector<EntryPoint>& entries = program.ranks[0].entries;
  for (const RankProgram& rank : program.ranks) {
    TSR_RETURN_IF_ERROR(shared.add("parameters", rank.parameters));
    TSR_RETURN_IF_ERROR(shared.add("states", rank.states));
    TSR_RETURN_IF_ERROR(shared.add("constants", rank.constants));
    if (rank.entries.size() != entries.size()) return corrupt("ranks list different entries");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (rank.entries[i].name != entries[i].name) return corrupt("ranks list different entries");
      TSR_RETURN_IF_ERROR(shared.add(format("inputs of '{}'", entries[i].name), rank.entries[i].inputs));
      TSR_RETURN_IF_ERROR(shared.add(format("outputs of '{}'", entries[i].name), rank.entries[i].outputs));
    }
  }
  return {};
}

// ---- agreement between ranks

// Groups are identified by their ranks, and by their order among groups of the same ranks.
Status verify_groups(const Program& program) {
  std::map<std::pair<std::vector<int32_t>, int32_t>, size_t> members;
  for (const RankProgram& rank : program.ranks) {
    std::map<std::vector<int32_t>, int32_t> seen;
    for (const Group& group : rank.groups) ++members[{group.ranks, seen[group.ranks]++}];
  }
  const RankSet here = program.rank_set();
  for (const auto& [key, count] : members) {
    const auto wanted = static_cast<size_t>(std::ranges::count_if(key.first, [&](int32_t rank) { return here.has(rank); }));
    if (count != wanted)
      return corrupt(format("a group of {} ranks, {} of them here, is listed by {}", key.first.size(), wanted, count));
  }
  return {};
}

Status verify_entry(const Program& program, size_t entry) {
  const StreamOptions one_stream{.inline_below_bytes = INT64_MAX};
  std::vector<Dependencies> dependencies;
  for (const RankProgram& rank : program.ranks)
    dependencies.push_back(find_dependencies(rank, rank.entries[entry], one_stream));
  return replay(program, entry, dependencies, [](int32_t, int32_t) { return 0; }).status();
}

// Checks that ranks agree: groups are listed equally by all members, and, where all ranks live here, every send has its
// receive and no entry deadlocks. Every rank is valid by itself.
Status verify_exchanges(const Program& program) {
  TSR_RETURN_IF_ERROR(verify_groups(program));
  if (!program.rank_set().is_whole()) return {};
  for (size_t entry = 0; entry < program.ranks[0].entries.size(); ++entry)
    TSR_RETURN_IF_ERROR(verify_entry(program, entry)
                            .with_context(format("entry '{}'", program.ranks[0].entries[entry].name)));
  return {};
}

}  // namespace

Status verify(const Program& program) {
  if (program.ranks.empty() || program.ranks.size() > kMaxRanks)
    return corrupt(format("the program has {} ranks, wanted 1 to {}", program.ranks.size(), kMaxRanks));
  const auto others = static_cast<int32_t>(kMaxRanks - program.ranks.size());
  if (program.first < 0 || program.after < 0 || program.first > others || program.after > others - program.first)
    return corrupt(format("{} ranks before and {} after these {} are no world of at most {}", program.first, program.after,
                          program.ranks.size(), kMaxRanks));
  for (size_t index = 0; index < program.ranks.size(); ++index)
    TSR_RETURN_IF_ERROR(RankVerifier(program, index).run().with_context(format("rank {}", program.rank_of(index))));
  TSR_RETURN_IF_ERROR(verify_ranks_alike(program));
  return verify_exchanges(program);
}

}  // namespace tessera
