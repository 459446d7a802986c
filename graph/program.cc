#include "graph/program.h"

#include <algorithm>

#include "graph/base/hash.h"
#include "graph/base/text.h"

namespace tessera {

const EntryPoint* Program::find_entry(int32_t rank, std::string_view name) const {
  if (!rank_set().has(rank)) return nullptr;
  const std::vector<EntryPoint>& entries = ranks[static_cast<size_t>(rank - first)].entries;
  const auto at = std::ranges::find(entries, name, &EntryPoint::name);
  return at == entries.end() ? nullptr : &*at;
}

namespace {

// Hashes a Program member by member; containers hash their size first.
class ProgramHash {
 public:
  uint64_t value() const { return hash_.value(); }

  void add(const Program& program) {
    add_all(program.ranks);
    if (!program.rank_set().is_whole()) {
      hash_.add(program.first);
      hash_.add(program.after);
    }
    hash_.add(program.plan_fingerprint);
    hash_.add(program.catalog_fingerprint);
  }

 private:
  template <class T>
  void add_all(const std::vector<T>& items) {
    hash_.add(static_cast<uint64_t>(items.size()));
    for (const T& item : items) add(item);
  }

  void add(int32_t value) { hash_.add(value); }
  void add(int64_t value) { hash_.add(value); }
  void add(const RankProgram& rank) {
    add_all(rank.slots);
    add_all(rank.kernels);
    add_all(rank.groups);
    add_all(rank.entries);
    add_all(rank.parameters);
    add_all(rank.states);
    add_all(rank.constants);
    hash_.add(rank.arena_bytes);
    hash_.add(rank.host_arena_bytes);
    hash_.add(rank.file_arena_bytes);
    hash_.add(rank.max_live_bytes);
  }
  void add(const Slot& slot) {
    hash_.add(slot.name);
    hash_.add(static_cast<uint8_t>(slot.kind));
    hash_.add(static_cast<uint8_t>(slot.tier));
    hash_.add(slot.bytes);
    hash_.add(slot.offset);
  }
  void add(const SlotRef& ref) {
    hash_.add(ref.slot);
    hash_.add(ref.offset);
  }
  void add(const TensorType& type) {
    hash_.add(static_cast<uint8_t>(type.dtype));
    hash_.add(static_cast<uint64_t>(type.shape.rank()));
    for (int64_t extent : type.shape.dims()) hash_.add(extent);
  }
  void add(const Attr& attr) {
    hash_.add(attr.name);
    hash_.add(to_text(attr.value));
  }
  void add(const FactorView& factor) {
    hash_.add(static_cast<uint8_t>(factor.name));
    hash_.add(factor.global_extent);
    hash_.add(factor.unit);
    hash_.add(factor.range_count);
    for (int i = 0; i < 2; ++i) {
      hash_.add(factor.begin[i]);
      hash_.add(factor.end[i]);
    }
  }
  void add(const KernelDesc& kernel) {
    hash_.add(kernel.op == nullptr ? std::string_view() : kernel.op->name);
    add_all(kernel.attrs);
    add_all(kernel.inputs);
    add_all(kernel.outputs);
    add_all(kernel.factors);
    hash_.add(kernel.variant);
    hash_.add(kernel.workspace_bytes);
    hash_.add(kernel.seconds);
  }
  void add(const Group& group) {
    add_all(group.ranks);
    hash_.add(group.position);
    hash_.add(group.axis);
  }
  void add(const EntryPoint& entry) {
    hash_.add(entry.name);
    add_all(entry.code);
    add_all(entry.inputs);
    add_all(entry.outputs);
  }
  void add(const Binding& binding) {
    hash_.add(binding.name);
    add(binding.global);
    add_all(binding.pieces);
  }
  void add(const Piece& piece) {
    add(piece.at);
    hash_.add(static_cast<uint64_t>(piece.box.size()));
    for (const Range& range : piece.box) {
      hash_.add(range.begin);
      hash_.add(range.end);
    }
  }
  void add(const Instruction& instruction) {
    hash_.add(static_cast<uint64_t>(instruction.index()));
    std::visit([&](const auto& i) { add(i); }, instruction);
  }
  void add(const KernelInst& i) {
    hash_.add(i.kernel);
    add_all(i.inputs);
    add_all(i.outputs);
    add(i.workspace);
    add_origin(i);
  }
  void add(const CollectiveInst& i) {
    hash_.add(static_cast<uint8_t>(i.kind));
    hash_.add(i.group);
    hash_.add(static_cast<uint8_t>(i.reduce));
    hash_.add(static_cast<uint8_t>(i.dtype));
    for (int64_t value : {i.outer, i.middle, i.inner, i.elements}) hash_.add(value);
    add_all(i.extents);
    add_all(i.extents2);
    hash_.add(i.in_split_first);
    hash_.add(i.root);
    add(i.in);
    add(i.out);
    add_origin(i);
  }
  void add(const SendInst& i) {
    hash_.add(i.peer);
    hash_.add(i.bytes);
    add(i.in);
    add_origin(i);
  }
  void add(const RecvInst& i) {
    hash_.add(i.peer);
    hash_.add(i.bytes);
    add(i.out);
    add_origin(i);
  }
  void add(const CopyInst& i) {
    add(i.in);
    add(i.out);
    for (int64_t value : {i.rows, i.row_bytes, i.in_stride_bytes, i.out_stride_bytes}) hash_.add(value);
    add_origin(i);
  }
  template <class Inst>
  void add_origin(const Inst& i) {
    hash_.add(static_cast<uint32_t>(i.node));
    hash_.add(i.micro_batch);
  }

  Hash hash_;
};

std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kAllToAll: return "all_to_all";
    case CollectiveKind::kBroadcast: return "broadcast";
  }
  return "?";
}

std::string_view slot_kind_name(SlotKind kind) {
  constexpr std::string_view kNames[] = {"parameter", "state",     "constant", "input",
                                         "output",    "transient", "workspace"};
  return static_cast<size_t>(kind) < std::size(kNames) ? kNames[static_cast<size_t>(kind)] : "?";
}

class ProgramPrinter {
 public:
  explicit ProgramPrinter(const RankProgram& rank) : rank_(rank) {}

  std::string print() {
    line(format("arena {} host {} file {} max_live {}", rank_.arena_bytes, rank_.host_arena_bytes,
                rank_.file_arena_bytes, rank_.max_live_bytes));
    for (size_t i = 0; i < rank_.slots.size(); ++i) {
      const Slot& slot = rank_.slots[i];
      line(format("slot {} {} {}: [{}, {}){}", i, slot_kind_name(slot.kind), slot.name, slot.offset,
                  slot.offset + slot.bytes,
                  slot.tier == Tier::kDevice ? ""
                  : slot.tier == Tier::kHost ? " host"
                                             : " file"));
    }
    for (size_t i = 0; i < rank_.groups.size(); ++i) {
      std::vector<std::string> members;
      for (int32_t member : rank_.groups[i].ranks) members.push_back(to_text(member));
      line(format("group {} {}: [{}] position {}", i, rank_.groups[i].axis, join(members, ", "),
                  rank_.groups[i].position));
    }
    bindings("parameter", rank_.parameters);
    bindings("state", rank_.states);
    bindings("constant", rank_.constants);
    for (const EntryPoint& entry : rank_.entries) {
      line(format("entry {}", entry.name));
      bindings("  input", entry.inputs);
      bindings("  output", entry.outputs);
      for (const Instruction& instruction : entry.code)
        std::visit([&](const auto& i) { line("  " + text(i) + micro_batch(i.micro_batch)); }, instruction);
    }
    return text_;
  }

 private:
  void line(const std::string& content) { text_ += content + "\n"; }
  static std::string micro_batch(int32_t j) { return j == 0 ? std::string() : format(" mb {}", j); }

  std::string slot_text(const SlotRef& ref) const {
    if (ref.slot < 0) return "-";
    const std::string name = static_cast<size_t>(ref.slot) < rank_.slots.size()
                                 ? rank_.slots[static_cast<size_t>(ref.slot)].name
                                 : format("?{}", ref.slot);
    return ref.offset == 0 ? name : format("{}+{}", name, ref.offset);
  }
  std::string slots_text(const std::vector<SlotRef>& refs) const {
    std::vector<std::string> parts;
    for (const SlotRef& ref : refs) parts.push_back(slot_text(ref));
    return join(parts, ", ");
  }
  static std::string list(const std::vector<int64_t>& values) { return to_text(AttrValue(values)); }

  void bindings(std::string_view what, const std::vector<Binding>& bindings) {
    for (const Binding& binding : bindings) {
      std::vector<std::string> pieces;
      for (const Piece& piece : binding.pieces) {
        std::vector<std::string> ranges;
        for (const Range& range : piece.box) ranges.push_back(format("{}:{}", range.begin, range.end));
        pieces.push_back(format("[{}] at {}", join(ranges, ", "), slot_text(piece.at)));
      }
      line(format("{} {} {}: {}", what, binding.name, binding.global, join(pieces, "; ")));
    }
  }

  std::string text(const KernelInst& i) const {
    if (i.kernel < 0 || static_cast<size_t>(i.kernel) >= rank_.kernels.size())
      return format("kernel ?{}", i.kernel);
    const KernelDesc& kernel = rank_.kernels[static_cast<size_t>(i.kernel)];
    std::string line =
        format("{} = {}.{}({})", slots_text(i.outputs), kernel.op == nullptr ? "?" : kernel.op->name,
               kernel.variant, slots_text(i.inputs));
    std::vector<std::string> types;
    for (const TensorType& type : kernel.outputs) types.push_back(to_text(type));
    return line + " : " + join(types, ", ");
  }
  std::string text(const CollectiveInst& i) const {
    const std::string axis = i.group >= 0 && static_cast<size_t>(i.group) < rank_.groups.size()
                                 ? rank_.groups[static_cast<size_t>(i.group)].axis
                                 : format("?{}", i.group);
    std::string line =
        format("{} = {} {} {}({}) {}[{}]", slot_text(i.out), collective_name(i.kind), axis,
               i.reduce == ReduceKind::kMax ? "max" : "sum", slot_text(i.in), to_text(i.dtype), i.elements);
    if (!i.extents.empty()) line += format(" {}", list(i.extents));
    if (!i.extents2.empty()) line += format(" {}", list(i.extents2));
    return line;
  }
  std::string text(const SendInst& i) const {
    return format("send {} to {} {} bytes", slot_text(i.in), i.peer, i.bytes);
  }
  std::string text(const RecvInst& i) const {
    return format("{} = recv from {} {} bytes", slot_text(i.out), i.peer, i.bytes);
  }
  std::string text(const CopyInst& i) const {
    return format("{} = {} {} x {} bytes, strides {} -> {}", slot_text(i.out),
                  i.in.slot < 0 ? "fill" : "copy " + slot_text(i.in), i.rows, i.row_bytes, i.in_stride_bytes,
                  i.out_stride_bytes);
  }

  const RankProgram& rank_;
  std::string text_;
};

}  // namespace

uint64_t fingerprint(const Program& program) {
  ProgramHash hash;
  hash.add(program);
  return hash.value();
}

std::string print(const RankProgram& program) { return ProgramPrinter(program).print(); }

}  // namespace tessera
