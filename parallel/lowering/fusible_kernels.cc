#include "parallel/lowering/fusible_kernels.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "parallel/lowering/touched_slots.h"

namespace tessera {

namespace {

// In the order in which kernels of different kinds stand side by side: each makes what the next reads.
enum class Part { kCast, kSquares, kAddition };

// Casts of more have work for a launch of their own, and their results would occupy memory next to their operands.
constexpr int64_t kMostCastBytes = 256 << 10;

class Gathering {
 public:
  Gathering(const EntryPoint& entry, const RankProgram& program)
      : code_(entry.code), program_(program), users_(program.slots.size()), goals_(code_.size()) {
    touched_.reserve(code_.size());
    for (size_t at = 0; at < code_.size(); ++at) {
      touched_.push_back(touched_slots(code_[at]));
      for (const int32_t slot : touched_[at].reads) users_[static_cast<size_t>(slot)].push_back({at, false});
      for (const int32_t slot : touched_[at].writes) users_[static_cast<size_t>(slot)].push_back({at, true});
    }
    // Last first: where a kernel may go depends on where those go that read what it makes.
    for (size_t at = code_.size(); at-- > 0;)
      if (const auto part = part_of(at)) goals_[at] = goal_of(at, *part);
  }

  // Places of the code in their new order.
  std::vector<size_t> order() const {
    std::vector<size_t> places(code_.size());
    std::iota(places.begin(), places.end(), size_t{0});
    const auto key = [&](size_t at) {
      const auto& goal = goals_[at];
      return goal ? std::tuple(goal->before, static_cast<int>(goal->part), at)
                  : std::tuple(at, static_cast<int>(Part::kAddition) + 1, at);
    };
    std::ranges::sort(places, {}, key);
    return places;
  }

 private:
  struct User {
    size_t at;
    bool writes;
  };
  struct Goal {
    size_t before;  // the place of an instruction that stays
    Part part;
  };

  const KernelDesc* kernel_at(size_t at) const {
    const auto* kernel = std::get_if<KernelInst>(&code_[at]);
    return kernel == nullptr ? nullptr : &program_.kernels[static_cast<size_t>(kernel->kernel)];
  }
  std::optional<Part> part_of(size_t at) const {
    const KernelDesc* desc = kernel_at(at);
    if (desc == nullptr) return std::nullopt;
    if (desc->op->is_cast && bytes(desc->outputs[0]) <= kMostCastBytes) return Part::kCast;
    if (desc->op->algebra == Algebra::kSumOfSquares) return Part::kSquares;
    if (desc->op->algebra == Algebra::kSum && desc->outputs[0].shape.elements() == 1) return Part::kAddition;
    return std::nullopt;
  }

  // In front of what needs the norm: the first that has to come after it and stays. Nothing where that is no
  // part of the norm's making, or something that has to come after it would come before.
  std::optional<Goal> goal_of(size_t at, Part part) const {
    std::optional<size_t> before;
    std::vector<size_t> later;
    const auto look = [&](int32_t slot, bool mine_writes) {
      for (const User& user : users_[static_cast<size_t>(slot)]) {
        if (user.at <= at || (!mine_writes && !user.writes)) continue;
        later.push_back(user.at);
        const size_t place = goals_[user.at] ? goals_[user.at]->before : user.at;
        if (!before || place < *before) before = place;
      }
    };
    for (const int32_t slot : touched_[at].reads) look(slot, false);
    for (const int32_t slot : touched_[at].writes) look(slot, true);
    if (!before) return std::nullopt;
    bool feeds = part == Part::kAddition && adds_squares(at);
    for (const size_t user : later) {
      const auto& goal = goals_[user];
      if (!goal || goal->before != *before) continue;
      if (goal->part < part) return std::nullopt;
      feeds |= part == Part::kSquares ? goal->part == Part::kAddition : goal->part == Part::kSquares;
    }
    return feeds ? std::optional(Goal{*before, part}) : std::nullopt;
  }

  // One of the addends was a sum of squares when it was last written.
  bool adds_squares(size_t at) const {
    for (const SlotRef& addend : std::get<KernelInst>(code_[at]).inputs) {
      const KernelDesc* maker = nullptr;
      for (const User& user : users_[static_cast<size_t>(addend.slot)])
        if (user.writes && user.at < at) maker = kernel_at(user.at);
      if (maker != nullptr && maker->op->algebra == Algebra::kSumOfSquares) return true;
    }
    return false;
  }

  const std::vector<Instruction>& code_;
  const RankProgram& program_;
  std::vector<TouchedSlots> touched_;
  std::vector<std::vector<User>> users_;  // by slot, in the order of the code
  std::vector<std::optional<Goal>> goals_;
};

}  // namespace

void group_fusible_kernels(EntryPoint& entry, const RankProgram& program) {
  const std::vector<size_t> order = Gathering(entry, program).order();
  std::vector<Instruction> code;
  code.reserve(order.size());
  for (const size_t at : order) code.push_back(std::move(entry.code[at]));
  entry.code = std::move(code);
}

}  // namespace tessera
