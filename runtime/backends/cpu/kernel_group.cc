#include "runtime/backends/cpu/kernel_group.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::cpu {

namespace {

constexpr int64_t kMostWorkspaceBytes = int64_t{64} << 10;
constexpr size_t kMostItems = 32;  // of a level

bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto from = reinterpret_cast<uintptr_t>(a), other = reinterpret_cast<uintptr_t>(b);
  return a != nullptr && b != nullptr && from < other + static_cast<uintptr_t>(b_bytes) &&
         other < from + static_cast<uintptr_t>(a_bytes);
}

// Whether a launch reads or writes some of these bytes.
bool touches(const GroupMember& member, const void* at, int64_t bytes) {
  for (size_t i = 0; i < member.input_bytes.size(); ++i)
    if (overlap(member.inputs[i], member.input_bytes[i], at, bytes)) return true;
  for (size_t i = 0; i < member.output_bytes.size(); ++i)
    if (overlap(member.outputs[i], member.output_bytes[i], at, bytes)) return true;
  return overlap(member.workspace, member.workspace_bytes, at, bytes);
}

// Whether `other` touches what `writer` writes, its workspace left out.
bool writes_for(const GroupMember& writer, const GroupMember& other) {
  for (size_t o = 0; o < writer.output_bytes.size(); ++o)
    if (touches(other, writer.outputs[o], writer.output_bytes[o])) return true;
  return false;
}

}  // namespace

bool GroupMember::can_join() const {
  return (kernel->phase_count() > 0 || runs_alone) && workspace_bytes <= kMostWorkspaceBytes;
}

bool GroupMember::may_have_own_workspace() const {
  return workspace_bytes > 0 && !runs_alone && kernel->is_small(0);
}

KernelGroup::KernelGroup(std::span<const GroupMember> members) {
  std::vector<size_t> ends;  // by member: the first level after it
  workspaces_.reserve(members.size());
  for (GroupMember member : members) {
    const size_t phases = member.runs_alone ? 1 : static_cast<size_t>(member.kernel->phase_count());
    void* const workspace = std::exchange(member.workspace, nullptr);
    size_t begin = 0, begin_there = 0;  // without and with the workspace that it was given
    for (size_t i = 0; i < members_.size(); ++i) {
      const GroupMember& before = members_[i];
      const bool waits =
          writes_for(before, member) || writes_for(member, before) ||
          (before.workspace_bytes > 0 && touches(member, before.workspace, before.workspace_bytes));
      if (waits) begin = std::max(begin, ends[i]);
      if (waits || touches(before, workspace, member.workspace_bytes))
        begin_there = std::max(begin_there, ends[i]);
    }
    if (member.may_have_own_workspace() && begin < begin_there) {
      workspaces_.emplace_back(static_cast<size_t>(member.workspace_bytes + 63) / 64);
      member.workspace = workspaces_.back().data();
    } else {
      member.workspace = workspace;
      begin = begin_there;
    }
    for (size_t phase = 0; phase < phases; ++phase) {
      const size_t level = begin + phase;
      if (level < levels_.size() && levels_[level].items.size() == kMostItems) {
        begin = level + 1;
        phase = static_cast<size_t>(-1);  // from the first again
      }
    }
    for (size_t phase = 0; phase < phases; ++phase) {
      if (begin + phase == levels_.size()) levels_.emplace_back();
      Level& level = levels_[begin + phase];
      level.items.push_back({members_.size(), member.runs_alone ? -1 : static_cast<int>(phase)});
      level.runs_alone &= member.runs_alone || member.kernel->is_small(static_cast<int>(phase));
    }
    ends.push_back(begin + phases);
    members_.push_back(member);
  }
}

LaunchArgs KernelGroup::args_of(size_t member, const Pool& pool) const {
  return {members_[member].inputs, members_[member].outputs, members_[member].workspace, pool};
}

void KernelGroup::run_item(const Item& item, int64_t task, const Pool& pool) const {
  const Kernel& kernel = *members_[item.member].kernel;
  if (item.phase < 0)
    kernel.launch(args_of(item.member, pool.alone()));
  else
    kernel.run_task(args_of(item.member, pool), item.phase, task);
}

void KernelGroup::launch(const LaunchArgs& args) const {
  for (const Level& level : levels_) {
    std::array<int64_t, kMostItems> ends{};  // of the items' tasks, one after another
    int64_t tasks = 0;
    for (size_t i = 0; i < level.items.size(); ++i) {
      const Item& item = level.items[i];
      tasks += item.phase < 0
                   ? 1
                   : members_[item.member].kernel->task_count(args_of(item.member, args.pool), item.phase);
      ends[i] = tasks;
    }
    const auto run = [&](int64_t task) {
      size_t i = 0;
      while (task >= ends[i]) ++i;
      run_item(level.items[i], i == 0 ? task : task - ends[i - 1], args.pool);
    };
    if (level.runs_alone)
      for (int64_t task = 0; task < tasks; ++task) run(task);
    else
      args.pool.parallel_for(tasks, run);
  }
}

}  // namespace tessera::cpu
