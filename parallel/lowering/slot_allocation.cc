#include "parallel/lowering/slot_allocation.h"

#include <algorithm>
#include <numeric>

#include "graph/analysis/read_only_parameters.h"
#include "graph/base/text.h"
#include "parallel/lowering/arena.h"

namespace tessera {

namespace {

template <class Visit>
void for_each_ref(Instruction& instruction, Visit visit) {
  struct {
    Visit& visit;
    void operator()(KernelInst& i) {
      for (SlotRef& ref : i.inputs) visit(ref);
      for (SlotRef& ref : i.outputs) visit(ref);
      visit(i.workspace);
    }
    void operator()(CollectiveInst& i) { visit(i.in), visit(i.out); }
    void operator()(SendInst& i) { visit(i.in); }
    void operator()(RecvInst& i) { visit(i.out); }
    void operator()(CopyInst& i) { visit(i.in), visit(i.out); }
  } all{visit};
  std::visit(all, instruction);
}

class Allocator {
 public:
  Allocator(RankBuilder& builder, bool packs)
      : builder_(builder), program_(builder.program), slots_(program_.slots), packs_(packs) {}

  void run() {
    merged_into_.resize(slots_.size());
    std::iota(merged_into_.begin(), merged_into_.end(), 0);
    first_.assign(slots_.size(), kNever);
    last_.assign(slots_.size(), -1);
    for (size_t e = 0; e < program_.entries.size(); ++e) {
      EntryPoint& entry = program_.entries[e];
      find_lifetimes(entry);
      delay_copy_outs(entry, builder_.copy_out_delays[e]);
      share_buffers(entry);
      for (Instruction& instruction : entry.code)
        for_each_ref(instruction, [&](SlotRef& ref) {
          if (ref.slot >= 0) ref.slot = root(ref.slot);
        });
    }
    place();
    drop_unused();
  }

 private:
  static constexpr int32_t kNever = INT32_MAX;

  bool inside_run(int32_t slot) const { return builder_.slot_entry[static_cast<size_t>(slot)] >= 0; }
  int32_t root(int32_t slot) const {
    while (merged_into_[static_cast<size_t>(slot)] != slot) slot = merged_into_[static_cast<size_t>(slot)];
    return slot;
  }

  void find_lifetimes(EntryPoint& entry) {
    // Adjacent sends and receives are one exchange: a received value must
    // not overlap one being sent, or ranks would wait for each other.
    const auto exchanges = [&](size_t at) {
      return at < entry.code.size() && (std::holds_alternative<SendInst>(entry.code[at]) ||
                                        std::holds_alternative<RecvInst>(entry.code[at]));
    };
    for (size_t begin = 0, end = 0; begin < entry.code.size(); begin = end) {
      for (end = begin + 1; exchanges(begin) && exchanges(end);) ++end;
      for (size_t at = begin; at < end; ++at)
        for_each_ref(entry.code[at], [&](const SlotRef& ref) {
          if (ref.slot < 0) return;
          int32_t& first = first_[static_cast<size_t>(ref.slot)];
          first = std::min(first, static_cast<int32_t>(begin));
          last_[static_cast<size_t>(ref.slot)] = static_cast<int32_t>(end - 1);
        });
    }
  }

  void delay_copy_outs(const EntryPoint& entry, int32_t kernels) {
    if (kernels <= 0) return;
    for (size_t at = 0; at < entry.code.size(); ++at) {
      const auto* copy = std::get_if<CopyInst>(&entry.code[at]);
      if (copy == nullptr || copy->in.slot < 0 || !leaves(*copy)) continue;
      size_t end = at;
      for (int32_t passed = 0; passed < kernels && end + 1 < entry.code.size(); ++end)
        passed += std::holds_alternative<KernelInst>(entry.code[end + 1]);
      int32_t& last = last_[static_cast<size_t>(copy->in.slot)];
      last = std::max(last, static_cast<int32_t>(end));
    }
  }

  bool leaves(const CopyInst& copy) const {
    return copy.out.slot >= 0 && slots_[static_cast<size_t>(copy.in.slot)].tier == Tier::kDevice &&
           slots_[static_cast<size_t>(copy.out.slot)].tier != Tier::kDevice;
  }

  // Slots have one writer, so a result may replace an operand whose last reader computes it.
  void share_buffers(EntryPoint& entry) {
    for (size_t at = 0; at < entry.code.size(); ++at) {
      if (auto* kernel = std::get_if<KernelInst>(&entry.code[at])) {
        const std::span<const int> in_place =
            program_.kernels[static_cast<size_t>(kernel->kernel)].op->in_place;
        for (size_t o = 0; o < in_place.size() && o < kernel->outputs.size(); ++o) {
          if (in_place[o] < 0) continue;
          const SlotRef in = kernel->inputs[static_cast<size_t>(in_place[o])];
          const auto same = [&](const SlotRef& ref) {
            return ref.slot >= 0 && in.slot >= 0 && root(ref.slot) == root(in.slot);
          };
          if (std::ranges::count_if(kernel->inputs, same) != 1 || std::ranges::any_of(kernel->outputs, same))
            continue;
          share(in, kernel->outputs[o], static_cast<int32_t>(at));
        }
      } else if (auto* collective = std::get_if<CollectiveInst>(&entry.code[at])) {
        if (collective->kind == CollectiveKind::kAllReduce)
          share(collective->in, collective->out, static_cast<int32_t>(at));
      }
    }
  }

  void share(SlotRef in, SlotRef out, int32_t at) {
    if (in.slot < 0 || in.offset != 0 || out.offset != 0) return;
    const auto a = static_cast<size_t>(root(in.slot)), b = static_cast<size_t>(out.slot);
    if (a == b || slots_[a].kind != SlotKind::kTransient || slots_[b].kind != SlotKind::kTransient) return;
    if (slots_[a].bytes != slots_[b].bytes || slots_[a].tier != slots_[b].tier || last_[a] != at ||
        first_[b] != at || merged_into_[b] != out.slot)
      return;
    merged_into_[b] = static_cast<int32_t>(a);
    last_[a] = last_[b];
  }

  void place() {
    program_.arena_bytes = place_tier(Tier::kDevice);
    program_.host_arena_bytes = place_tier(Tier::kHost);
    program_.file_arena_bytes = place_tier(Tier::kFile);
  }

  int64_t place_tier(Tier tier) {
    int64_t end = 0, persistent_bytes = 0;
    const std::vector<bool> written = find_written_slots(program_);
    const auto place_kept = [&](bool read_only) {
      for (size_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s].tier != tier || inside_run(static_cast<int32_t>(s))) continue;
        if ((slots_[s].kind == SlotKind::kParameter && !written[s]) != read_only) continue;
        slots_[s].offset = align_slot(end);
        end = slots_[s].offset + slots_[s].bytes;
        persistent_bytes += slots_[s].bytes;
      }
    };
    place_kept(true);
    end = align_slot(end);
    place_kept(false);
    int64_t arena = end, most_live = persistent_bytes;
    const int64_t base = align_slot(end);
    for (size_t e = 0; e < program_.entries.size(); ++e) {
      std::vector<size_t> ids;
      std::vector<Lifetime> lifetimes;
      for (size_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s].tier != tier || builder_.slot_entry[s] != static_cast<int32_t>(e) ||
            merged_into_[s] != static_cast<int32_t>(s) || first_[s] == kNever)
          continue;
        ids.push_back(s);
        lifetimes.push_back({slots_[s].bytes, first_[s], last_[s]});
      }
      if (!packs_) {
        int64_t next = base;
        for (const size_t id : ids) slots_[id].offset = next, next = align_slot(next + slots_[id].bytes);
        continue;
      }
      const ArenaLayout layout = layout_arena(lifetimes);
      for (size_t i = 0; i < ids.size(); ++i) slots_[ids[i]].offset = base + layout.offsets[i];
      if (layout.bytes > 0) arena = std::max(arena, base + layout.bytes);
      const int64_t live = persistent_bytes + max_live_bytes(lifetimes);
      if (live <= most_live && e > 0) continue;
      most_live = std::max(most_live, live);
      if (tier == Tier::kDevice) describe_peak(program_.entries[e], ids, lifetimes, persistent_bytes);
    }
    if (tier == Tier::kDevice) program_.max_live_bytes = most_live;
    return arena;
  }

  void describe_peak(EntryPoint& entry, const std::vector<size_t>& ids,
                     const std::vector<Lifetime>& lifetimes, int64_t persistent_bytes) {
    std::vector<int64_t> change(entry.code.size() + 1, 0);
    for (const Lifetime& it : lifetimes) {
      change[static_cast<size_t>(it.first)] += it.bytes;
      change[static_cast<size_t>(it.last) + 1] -= it.bytes;
    }
    int64_t live = 0, most = 0;
    size_t peak = 0;
    for (size_t at = 0; at < entry.code.size(); ++at)
      if (live += change[at]; live > most) most = live, peak = at;
    std::vector<size_t> alive;
    for (size_t i = 0; i < ids.size(); ++i)
      if (lifetimes[i].first <= static_cast<int32_t>(peak) && static_cast<int32_t>(peak) <= lifetimes[i].last)
        alive.push_back(ids[i]);
    std::ranges::stable_sort(alive, [&](size_t a, size_t b) { return slots_[a].bytes > slots_[b].bytes; });
    std::vector<std::string> largest, kept;
    constexpr size_t kMostNamed = 6, kMostKept = 3;
    for (size_t i = 0; i < alive.size() && i < kMostNamed; ++i)
      largest.push_back(format("{} {}", name_of(entry, alive[i]), bytes_text(slots_[alive[i]].bytes)));
    std::vector<size_t> always;
    for (size_t s = 0; s < slots_.size(); ++s)
      if (slots_[s].tier == Tier::kDevice && !inside_run(static_cast<int32_t>(s)) && slots_[s].bytes > 0)
        always.push_back(s);
    std::ranges::stable_sort(always, [&](size_t a, size_t b) { return slots_[a].bytes > slots_[b].bytes; });
    for (size_t i = 0; i < always.size() && i < kMostKept; ++i)
      kept.push_back(format("{} {}", slots_[always[i]].name, bytes_text(slots_[always[i]].bytes)));
    program_.peak = format(
        "{}, instruction {} of {}: {} kept between runs{}, {} in {} buffers of the run, the largest: {}",
        entry.name, peak, entry.code.size(), bytes_text(persistent_bytes),
        kept.empty() ? std::string() : format(" (the largest: {})", join(kept, ", ")), bytes_text(most),
        alive.size(), largest.empty() ? "none" : join(largest, ", "));
  }

  // A nameless value is described by its kernel: "%39 = gelu".
  std::string name_of(const EntryPoint& entry, size_t slot) const {
    const std::string& name = slots_[slot].name;
    if (!name.starts_with('%')) return name;
    const Instruction& maker = entry.code[static_cast<size_t>(first_[slot])];
    const auto* kernel = std::get_if<KernelInst>(&maker);
    if (kernel == nullptr) return name;
    return format("{} = {}", name, program_.kernels[static_cast<size_t>(kernel->kernel)].op->name);
  }

  void drop_unused() {
    std::vector<int32_t> renumbered(slots_.size(), -1);
    std::vector<Slot> kept;
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].offset < 0) continue;
      renumbered[s] = static_cast<int32_t>(kept.size());
      kept.push_back(std::move(slots_[s]));
    }
    slots_ = std::move(kept);
    const auto renumber = [&](SlotRef& ref) {
      if (ref.slot >= 0) ref.slot = renumbered[static_cast<size_t>(ref.slot)];
    };
    const auto renumber_all = [&](std::vector<Binding>& bindings) {
      for (Binding& binding : bindings)
        for (Piece& piece : binding.pieces) renumber(piece.at);
    };
    for (EntryPoint& entry : program_.entries) {
      for (Instruction& instruction : entry.code) for_each_ref(instruction, renumber);
      renumber_all(entry.inputs);
      renumber_all(entry.outputs);
    }
    renumber_all(program_.parameters);
    renumber_all(program_.states);
    renumber_all(program_.constants);
  }

  RankBuilder& builder_;
  RankProgram& program_;
  std::vector<Slot>& slots_;
  const bool packs_;
  std::vector<int32_t> merged_into_, first_, last_;
};

}  // namespace

void allocate_slots(RankBuilder& builder, bool packs) { Allocator(builder, packs).run(); }

}  // namespace tessera
