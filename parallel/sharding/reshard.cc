#include "parallel/sharding/reshard.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <set>

#include "graph/base/text.h"

namespace tessera {

std::string_view to_text(MoveKind kind) {
  constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce",
                                         "all_to_all", "slice",          "partialize"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {

int64_t parts(std::span<const AxisId> axes, const DeviceMesh& mesh) {
  int64_t n = 1;
  for (const AxisId axis : axes) n *= mesh.axis_size(axis);
  return n;
}

bool same_dim(const DimSharding& a, const DimSharding& b, int64_t extent, const DeviceMesh& mesh) {
  if (a.axes != b.axes) return false;
  return (a.unit == b.unit && a.first == b.first) || a.axes.empty() ||
         split_ranges(extent, a, mesh) == split_ranges(extent, b, mesh);
}

// Canonical form: smallest equivalent unit, and first larger part 0 where the split allows it, so that equal
// layouts compare equal.
ShardingSpec canonical(ShardingSpec spec, const Shape& global, const DeviceMesh& mesh) {
  for (int d = 0; d < global.rank(); ++d) {
    DimSharding& dim = spec.dims[static_cast<size_t>(d)];
    if (dim.axes.empty()) dim.unit = 1, dim.first = 0;
    if (dim.first != 0 && same_dim({dim.axes, dim.unit, 0}, dim, global[d], mesh)) dim.first = 0;
    for (int64_t unit = 1; unit < dim.unit; ++unit) {
      if (dim.unit % unit != 0) continue;
      if (same_dim({dim.axes, unit, dim.first}, dim, global[d], mesh)) {
        dim.unit = unit;
        break;
      }
    }
  }
  if (spec.partial.empty()) spec.reduce = ReduceKind::kSum;
  return spec;
}

double local_elements(const ShardingSpec& spec, const Shape& global, const DeviceMesh& mesh) {
  double n = 1;
  for (int d = 0; d < global.rank(); ++d)
    n *= static_cast<double>(global[d]) /
         static_cast<double>(parts(spec.dims[static_cast<size_t>(d)].axes, mesh));
  return n;
}

// Elements sent by one rank on a ring; for local moves, elements copied.
double elements_sent(const Move& move, const Shape& global, const DeviceMesh& mesh) {
  const double p = static_cast<double>(parts(move.axes, mesh));
  const double before = local_elements(move.before, global, mesh);
  const double share = (p - 1) / p;
  if (move.kind == MoveKind::kAllGather) return share * before * p;
  if (move.kind == MoveKind::kReduceScatter) return share * before;
  if (move.kind == MoveKind::kAllReduce) return 2 * share * before;
  if (move.kind == MoveKind::kAllToAll) return share * before;
  return 0;
}

double move_cost(const Move& move, const Shape& global, double element_bytes, const DeviceMesh& mesh) {
  constexpr double kLocalByte = 1.0 / 64;  // copying is cheap, but not free
  if (move.kind == MoveKind::kSlice || move.kind == MoveKind::kPartialize)
    return kLocalByte * element_bytes * local_elements(move.after, global, mesh) + 1;
  return elements_sent(move, global, mesh) * element_bytes + Resharder::kCallBytes;
}

// DimSharding::unit and ::first.
using Split = std::pair<int64_t, int32_t>;

// Neighbours: all moves from `from`, over axes that occur at either end of the path.
class Neighbours {
 public:
  Neighbours(const ShardingSpec& target, const Shape& global, const DeviceMesh& mesh,
             std::vector<AxisId> axes, std::vector<std::set<Split>> splits)
      : target_(target), global_(global), mesh_(mesh), axes_(std::move(axes)), splits_(std::move(splits)) {}

  std::vector<Move> moves_from(const ShardingSpec& from) {
    from_ = from;
    out_.clear();
    for (int d = 0; d < global_.rank(); ++d) {
      const std::vector<AxisId>& axes = from.dims[static_cast<size_t>(d)].axes;
      for (size_t n = 1; n <= axes.size(); ++n) {
        const std::vector<AxisId> last(axes.end() - static_cast<ptrdiff_t>(n), axes.end());
        ShardingSpec gathered = from;
        DimSharding& left = gathered.dims[static_cast<size_t>(d)];
        left.axes.resize(axes.size() - n);
        left.first = first_before(left.first, last);
        add({MoveKind::kAllGather, last, d, -1, {}, {}}, gathered);
        for (int to = 0; to < global_.rank(); ++to)
          if (to != d) add_appending(MoveKind::kAllToAll, last, d, to, gathered);
      }
    }
    std::vector<AxisId> unused;
    for (const AxisId axis : axes_)
      if (!from.uses(axis)) unused.push_back(axis);
    for_subsets(from.partial, [&](const std::vector<AxisId>& some) {
      ShardingSpec reduced = from;
      std::erase_if(reduced.partial, [&](AxisId a) { return std::ranges::find(some, a) != some.end(); });
      add({MoveKind::kAllReduce, some, -1, -1, {}, {}}, reduced);
      for_orders(some, [&](const std::vector<AxisId>& order) {
        for (int d = 0; d < global_.rank(); ++d) add_appending(MoveKind::kReduceScatter, order, d, -1, reduced);
      });
    });
    for_subsets(unused, [&](const std::vector<AxisId>& some) {
      for_orders(some, [&](const std::vector<AxisId>& order) {
        for (int d = 0; d < global_.rank(); ++d) add_appending(MoveKind::kSlice, order, d, -1, from);
      });
      if (!from.partial.empty() && from.reduce != ReduceKind::kSum) return;
      if (!target_.partial.empty() && target_.reduce != ReduceKind::kSum) return;
      ShardingSpec partial = from;
      partial.partial.insert(partial.partial.end(), some.begin(), some.end());
      std::ranges::sort(partial.partial);
      add({MoveKind::kPartialize, some, -1, -1, {}, {}}, partial);
    });
    return std::move(out_);
  }

 private:
  template <class Visit>
  static void for_subsets(const std::vector<AxisId>& axes, Visit visit) {
    for (size_t mask = 1; mask < (size_t{1} << axes.size()); ++mask) {
      std::vector<AxisId> some;
      for (size_t i = 0; i < axes.size(); ++i)
        if (mask >> i & 1) some.push_back(axes[i]);
      visit(some);
    }
  }
  template <class Visit>
  static void for_orders(std::vector<AxisId> axes, Visit visit) {
    std::ranges::sort(axes);
    do visit(axes);
    while (std::ranges::next_permutation(axes).found);
  }

  void add(Move move, const ShardingSpec& after) {
    move.before = from_;
    move.after = canonical(after, global_, mesh_);
    out_.push_back(std::move(move));
  }

  // Adds moves that append `axes` to a dim (`to_dim` for all_to_all, else `dim`), once for each split that leaves the
  // dim's present parts unchanged.
  void add_appending(MoveKind kind, const std::vector<AxisId>& axes, int dim, int to_dim, const ShardingSpec& base) {
    const int onto = kind == MoveKind::kAllToAll ? to_dim : dim;
    const DimSharding& old = base.dims[static_cast<size_t>(onto)];
    for (const auto& [unit, first] : splits_[static_cast<size_t>(onto)]) {
      if (!old.axes.empty() &&
          !same_dim({old.axes, unit, first_before(first, axes)}, old, global_[onto], mesh_))
        continue;
      ShardingSpec after = base;
      DimSharding& now = after.dims[static_cast<size_t>(onto)];
      now.unit = unit;
      now.first = first;
      now.axes.insert(now.axes.end(), axes.begin(), axes.end());
      const bool is_target = now.axes == target_.dims[static_cast<size_t>(onto)].axes;
      if (!is_target && global_[onto] / unit < parts(now.axes, mesh_))
        continue;  // no empty shards in between
      if (first >= parts(now.axes, mesh_)) continue;
      add({kind, axes, dim, to_dim, {}, {}}, after);
    }
  }

  // `first` of the axes that precede `last`.
  int32_t first_before(int32_t first, std::span<const AxisId> last) const {
    return static_cast<int32_t>(first / parts(last, mesh_));
  }

  const ShardingSpec& target_;
  const Shape& global_;
  const DeviceMesh& mesh_;
  std::vector<AxisId> axes_;
  std::vector<std::set<Split>> splits_;
  ShardingSpec from_;
  std::vector<Move> out_;
};

}  // namespace

bool same_layout(const ShardingSpec& a, const ShardingSpec& b, const Shape& global, const DeviceMesh& mesh) {
  if (a.partial != b.partial || (!a.partial.empty() && a.reduce != b.reduce)) return false;
  if (a.dims.size() != b.dims.size()) return false;
  for (size_t d = 0; d < a.dims.size(); ++d)
    if (!same_dim(a.dims[d], b.dims[d], global[static_cast<int>(d)], mesh)) return false;
  return true;
}

double ring_bytes(const Move& move, const Shape& global, int64_t element_bytes, const DeviceMesh& mesh) {
  return elements_sent(move, global, mesh) * static_cast<double>(element_bytes) * mesh.size();
}

namespace {

// The same layout with the last dim counted in blocks, and back.
ShardingSpec in_blocks(ShardingSpec spec, int64_t block) {
  if (block > 1 && !spec.dims.empty() && !spec.dims.back().axes.empty()) spec.dims.back().unit /= block;
  return spec;
}
Shape in_blocks(Shape shape, int64_t block) {
  if (block > 1 && shape.rank() > 0) shape.set(shape.rank() - 1, shape[shape.rank() - 1] / block);
  return shape;
}
ShardingSpec in_elements(ShardingSpec spec, int64_t block) {
  if (block > 1 && !spec.dims.empty() && !spec.dims.back().axes.empty()) spec.dims.back().unit *= block;
  return spec;
}

}  // namespace

Result<ReshardPath> Resharder::path(const ShardingSpec& from, const ShardingSpec& to, const Shape& global,
                                    DType dtype) {
  if (same_layout(from, to, global, mesh_)) return ReshardPath{};
  const DTypeInfo& type = info(dtype);
  const double element_bytes = static_cast<double>(type.block_bytes) / type.block_elements;
  Key key{from, to, {global.dims().begin(), global.dims().end()}, static_cast<int32_t>(dtype)};
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
  }
  // Quantized tensors move in whole blocks, so the last dim is counted in blocks.
  const int64_t block = type.block_elements;
  TSR_ASSIGN_OR_RETURN(ReshardPath found,
                       search(in_blocks(from, block), in_blocks(to, block), in_blocks(global, block),
                              element_bytes * static_cast<double>(block)));
  for (Move& move : found.moves)
    for (ShardingSpec* spec : {&move.before, &move.after}) *spec = in_elements(std::move(*spec), block);
  const std::lock_guard lock(mutex_);
  known_.emplace(std::move(key), found);
  return found;
}

Result<ReshardPath> Resharder::search(const ShardingSpec& from, const ShardingSpec& to, const Shape& global,
                                      double element_bytes) const {
  const ShardingSpec start = canonical(from, global, mesh_), goal = canonical(to, global, mesh_);
  if (!start.partial.empty() && !goal.partial.empty() && start.reduce != goal.reduce)
    return Status(StatusCode::kUnsupported, format("no layout path from {} to {}: the reductions differ",
                                                   to_text(from, mesh_), to_text(to, mesh_)));
  std::vector<AxisId> axes;
  for (size_t a = 0; a < mesh_.axes.size(); ++a) {
    const auto axis = static_cast<AxisId>(a);
    if (start.uses(axis) || goal.uses(axis)) axes.push_back(axis);
  }
  std::vector<std::set<Split>> splits(static_cast<size_t>(global.rank()), {{1, 0}});
  for (size_t d = 0; d < splits.size(); ++d)
    for (const DimSharding& dim : {start.dims[d], goal.dims[d]}) splits[d].insert({dim.unit, dim.first});
  Neighbours neighbours(goal, global, mesh_, axes, splits);

  struct Best {
    double cost = 0;
    Move by;
    bool settled = false;
  };
  // Ties: fewer moves, then the smaller spec, so that the path is deterministic.
  using Open = std::tuple<double, int, ShardingSpec>;
  std::map<ShardingSpec, Best> best;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
  best[start] = {};
  open.emplace(0.0, 0, start);
  while (!open.empty()) {
    const auto [cost, moves, spec] = open.top();
    open.pop();
    if (best[spec].settled) continue;
    best[spec].settled = true;
    if (spec == goal) break;
    for (Move& move : neighbours.moves_from(spec)) {
      const double total = cost + move_cost(move, global, element_bytes, mesh_);
      const auto at = best.find(move.after);
      if (at != best.end() && (at->second.settled || at->second.cost <= total)) continue;
      open.emplace(total, moves + 1, move.after);
      const ShardingSpec after = move.after;
      best[after] = {total, std::move(move), false};
    }
  }
  const auto end = best.find(goal);
  if (end == best.end() || !end->second.settled)
    return Status(StatusCode::kUnsupported,
                  format("no layout path from {} to {}", to_text(from, mesh_), to_text(to, mesh_)));
  ReshardPath path;
  path.cost = end->second.cost;
  for (ShardingSpec at = goal; at != start; at = path.moves.back().before) path.moves.push_back(best[at].by);
  std::ranges::reverse(path.moves);
  return path;
}

}  // namespace tessera
