#include "parallel/sharding/reshard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "graph/base/text.h"

using namespace tessera;

namespace {

DeviceMesh mesh_of(std::string_view text) { return parse_mesh(text).value(); }
ShardingSpec spec_of(std::string_view text, const DeviceMesh& mesh) { return parse_spec(text, mesh).value(); }

// A global tensor as its local parts, one per rank: what a layout means. Row-major.
using Parts = std::vector<std::vector<double>>;

struct Simulated {
  const DeviceMesh& mesh;
  Shape global;

  int64_t offset(const Box& box, const std::vector<int64_t>& at) const {
    int64_t o = 0;
    for (size_t d = 0; d < box.size(); ++d) o = o * box[d].size() + (at[d] - box[d].begin);
    return o;
  }
  template <class Visit>
  static void for_each(const Box& box, Visit visit) {
    std::vector<int64_t> at;
    for (const Range& r : box) {
      if (r.size() == 0) return;
      at.push_back(r.begin);
    }
    for (;;) {
      visit(at);
      int d = static_cast<int>(box.size()) - 1;
      for (; d >= 0; --d) {
        const auto i = static_cast<size_t>(d);
        if (++at[i] < box[i].end) break;
        at[i] = box[i].begin;
      }
      if (d < 0) return;
    }
  }
  Box box(const ShardingSpec& spec, int32_t position) const {
    return local_box(global, spec, mesh, mesh.coordinates(position));
  }
  double element(const std::vector<int64_t>& at) const {
    double v = 1;
    for (const int64_t i : at) v = v * 31 + static_cast<double>(i);
    return v;
  }
  // Partial layouts: addends that differ per rank and sum to the value.
  double addend(const ShardingSpec& spec, int32_t position, double value) const {
    int64_t n = 1, mine = 0;
    const auto coordinates = mesh.coordinates(position);
    for (const AxisId a : spec.partial) {
      n *= mesh.axis_size(a);
      mine = mine * mesh.axis_size(a) + coordinates[a];
    }
    if (n == 1) return value;
    const double share = static_cast<double>(mine + 1);  // 1, 2, ..., n-1, and the last takes the rest
    return mine + 1 == n ? value - static_cast<double>(n * (n - 1)) / 2 : share;
  }
  Parts lay_out(const ShardingSpec& spec) const {
    Parts parts;
    for (int32_t p = 0; p < mesh.size(); ++p) {
      std::vector<double>& mine = parts.emplace_back();
      for_each(box(spec, p),
               [&](const std::vector<int64_t>& at) { mine.push_back(addend(spec, p, element(at))); });
    }
    return parts;
  }
  // The value of every element as the layout defines it, or NaN where two ranks disagree.
  bool means_the_tensor(const ShardingSpec& spec, const Parts& parts) const {
    for (int32_t p = 0; p < mesh.size(); ++p) {
      const Box mine = box(spec, p);
      int64_t elements = 1;
      for (const Range& r : mine) elements *= r.size();
      if (static_cast<int64_t>(parts[static_cast<size_t>(p)].size()) != elements) return false;
      bool ok = true;
      for_each(mine, [&](const std::vector<int64_t>& at) {
        double sum = 0;
        for (const int32_t member : mesh.group(p, spec.partial))
          sum += parts[static_cast<size_t>(member)][static_cast<size_t>(offset(box(spec, member), at))];
        ok = ok && sum == element(at);
      });
      if (!ok) return false;
    }
    return true;
  }
  // Carries out a move with what its group holds, and nothing else.
  Parts step(const Move& move, const Parts& before) const {
    Parts after;
    for (int32_t p = 0; p < mesh.size(); ++p) {
      std::vector<double>& mine = after.emplace_back();
      const bool local = move.kind == MoveKind::kSlice || move.kind == MoveKind::kPartialize;
      const std::vector<int32_t> members = local ? std::vector<int32_t>{p} : mesh.group(p, move.axes);
      const bool reduces = move.kind == MoveKind::kAllReduce || move.kind == MoveKind::kReduceScatter;
      const auto coordinates = mesh.coordinates(p);
      const bool zero = move.kind == MoveKind::kPartialize &&
                        std::ranges::any_of(move.axes, [&](AxisId a) { return coordinates[a] != 0; });
      for_each(box(move.after, p), [&](const std::vector<int64_t>& at) {
        double value = 0;
        bool found = false;
        for (const int32_t member : members) {
          const Box theirs = box(move.before, member);
          bool inside = true;
          for (size_t d = 0; d < at.size(); ++d)
            inside = inside && theirs[d].begin <= at[d] && at[d] < theirs[d].end;
          if (!inside || (found && !reduces)) continue;
          found = true;
          value += before[static_cast<size_t>(member)][static_cast<size_t>(offset(theirs, at))];
        }
        REQUIRE(found);
        mine.push_back(zero ? 0 : value);
      });
    }
    return after;
  }
};

// Every layout of a 3-D tensor on two axes, none partial; `ordered`: [a, b] and [b, a] differ.
std::vector<ShardingSpec> layouts(bool ordered) {
  std::vector<ShardingSpec> all;
  for (int a = -1; a < 3; ++a)
    for (int b = -1; b < 3; ++b)
      for (int order = 0; order < (ordered && a == b && a >= 0 ? 2 : 1); ++order) {
        ShardingSpec spec = ShardingSpec::replicated(3);
        if (a >= 0) spec.dims[static_cast<size_t>(a)].axes.push_back(0);
        if (b >= 0) spec.dims[static_cast<size_t>(b)].axes.push_back(1);
        if (order == 1) std::ranges::reverse(spec.dims[static_cast<size_t>(a)].axes);
        all.push_back(spec);
      }
  return all;
}

std::string moves_text(const ReshardPath& path, const DeviceMesh& mesh) {
  std::vector<std::string> words;
  for (const Move& move : path.moves) {
    std::vector<std::string> axes;
    for (const AxisId a : move.axes) axes.push_back(mesh.axes[a].name);
    words.push_back(format("{}({})", to_text(move.kind), join(axes, "+")));
  }
  return join(words, ", ");
}

std::string path_text(std::string_view from, std::string_view to, const DeviceMesh& mesh,
                      const Shape& shape = {8, 8}) {
  Resharder resharder(mesh);
  auto path = resharder.path(spec_of(from, mesh), spec_of(to, mesh), shape, DType::kF32);
  return path.ok() ? moves_text(*path, mesh) : path.status().to_string();
}

}  // namespace

TEST_CASE(
    "every one of the 342 ordered pairs of layouts on a 2x4 mesh arrives exactly, on even and uneven "
    "extents") {
  const DeviceMesh mesh = mesh_of("a=2, b=4");
  const auto all = layouts(true);
  CHECK(all.size() == 19);
  CHECK(layouts(false).size() == 16);
  for (const Shape& shape : {Shape{8, 8, 8}, Shape{7, 9, 11}}) {
    Resharder resharder(mesh);
    const Simulated simulated{mesh, shape};
    int pairs = 0;
    for (const ShardingSpec& from : all)
      for (const ShardingSpec& to : all) {
        if (from == to) continue;
        ++pairs;
        auto path = resharder.path(from, to, shape, DType::kF32);
        REQUIRE(path.ok());
        Parts parts = simulated.lay_out(from);
        for (const Move& move : path->moves) parts = simulated.step(move, parts);
        CHECK_MESSAGE(simulated.means_the_tensor(to, parts), to_text(from, mesh), " -> ", to_text(to, mesh),
                      ": ", moves_text(*path, mesh));
      }
    CHECK(pairs == 342);
  }
}

TEST_CASE("addends reach every layout exactly, and every layout becomes addends") {
  const DeviceMesh mesh = mesh_of("a=2, b=3");
  for (const std::string_view partial : {"{[], [], []} partial(sum: a)", "{[], [], []} partial(sum: a, b)",
                                         "{[b], [], []} partial(sum: a)", "{[], [], [a]} partial(sum: b)"})
    for (const Shape& shape : {Shape{6, 6, 6}, Shape{7, 9, 11}}) {
      Resharder resharder(mesh);
      const Simulated simulated{mesh, shape};
      for (const ShardingSpec& other : layouts(true))
        for (const bool forth : {true, false}) {
          const ShardingSpec from = forth ? spec_of(partial, mesh) : other,
                             to = forth ? other : spec_of(partial, mesh);
          auto path = resharder.path(from, to, shape, DType::kF32);
          REQUIRE(path.ok());
          Parts parts = simulated.lay_out(from);
          for (const Move& move : path->moves) parts = simulated.step(move, parts);
          CHECK_MESSAGE(simulated.means_the_tensor(to, parts), to_text(from, mesh), " -> ",
                        to_text(to, mesh));
        }
    }
}

TEST_CASE("the simulator notices a path that goes wrong") {
  const DeviceMesh mesh = mesh_of("a=2, b=4");
  Resharder resharder(mesh);
  const Simulated simulated{mesh, {8, 8, 8}};
  const ShardingSpec from = spec_of("{[a, b], [], []}", mesh), to = spec_of("{[b], [a], []}", mesh);
  auto path = resharder.path(from, to, simulated.global, DType::kF32);
  REQUIRE(path.ok());
  Parts parts = simulated.lay_out(from);
  for (size_t m = 0; m + 1 < path->moves.size(); ++m) parts = simulated.step(path->moves[m], parts);
  CHECK_FALSE(simulated.means_the_tensor(to, parts));
}

TEST_CASE("common conversions are the moves one expects") {
  const DeviceMesh mesh = mesh_of("dp=2, tp=4");
  CHECK(path_text("{[], []} partial(sum: tp)", "{[], [tp]}", mesh) == "reduce_scatter(tp)");
  CHECK(path_text("{[], []} partial(sum: tp)", "{[], []}", mesh) == "all_reduce(tp)");
  CHECK(path_text("{[dp], [tp]}", "{[dp], []}", mesh) == "all_gather(tp)");
  CHECK(path_text("{[tp], []}", "{[], [tp]}", mesh) == "all_to_all(tp)");
  CHECK(path_text("{[], []}", "{[], [tp]}", mesh) == "slice(tp)");
  CHECK(path_text("{[], []}", "{[], []} partial(sum: tp)", mesh) == "partialize(tp)");
  CHECK(path_text("{[], []}", "{[], []}", mesh) == "");
  CHECK(path_text("{[], []} partial(max: tp)", "{[], []}", mesh) == "all_reduce(tp)");
  CHECK(path_text("{[], []}", "{[], []} partial(max: tp)", mesh).find("no layout path") != std::string::npos);
}

TEST_CASE("a sum over two axes is one collective over the product group") {
  const DeviceMesh mesh = mesh_of("dp=2, tp=2");
  CHECK(path_text("{[]} partial(sum: dp, tp)", "{[]}", mesh, {16}) == "all_reduce(dp+tp)");
  CHECK(path_text("{[dp, tp]}", "{[]}", mesh, {16}) == "all_gather(dp+tp)");
  Resharder resharder(mesh);
  auto path =
      resharder.path(spec_of("{[]} partial(sum: dp, tp)", mesh), spec_of("{[]}", mesh), {64}, DType::kF32);
  REQUIRE(path.ok());
  CHECK(ring_bytes(path->moves[0], {64}, 1, mesh) ==
        doctest::Approx(384));  // against 512 for two in succession
}

TEST_CASE("units that give the same shards are the same layout") {
  const DeviceMesh mesh = mesh_of("tp=4");
  CHECK(path_text("{[tp]}", "{[tp unit 2]}", mesh, {8}) == "");
  CHECK(path_text("{[tp]}", "{[tp unit 2]}", mesh, {12}) != "");
}

TEST_CASE("a path never costs more than one through a third layout") {
  const DeviceMesh mesh = mesh_of("a=2, b=4");
  const Shape shape{16, 16, 16};
  Resharder resharder(mesh);
  const auto all = layouts(true);
  const auto cost = [&](size_t i, size_t j) {
    return resharder.path(all[i], all[j], shape, DType::kF32)->cost;
  };
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < all.size(); ++j)
      for (size_t k = 0; k < all.size(); ++k) CHECK(cost(i, j) <= cost(i, k) + cost(k, j) + 1e-9);
}

TEST_CASE("a matrix goes to its owner and comes back in one collective, exactly") {
  const DeviceMesh mesh = mesh_of("dp=3, tp=2");
  CHECK(path_text("{[], []} partial(sum: dp)", "{[dp unit 8 first 2], []}", mesh) == "reduce_scatter(dp)");
  CHECK(path_text("{[dp unit 8 first 2], []}", "{[], []}", mesh) == "all_gather(dp)");
  CHECK(path_text("{[], []}", "{[dp unit 8 first 1], []}", mesh) == "slice(dp)");
  CHECK(path_text("{[tp], [dp unit 8 first 1]}", "{[], [dp unit 8 first 1]}", mesh) == "all_gather(tp)");
  const Shape shape{8, 6};
  Resharder resharder(mesh);
  const Simulated simulated{mesh, shape};
  for (int owner = 0; owner < 3; ++owner)
    for (const std::string_view other :
         {"{[], []}", "{[dp], []}", "{[], [dp]}", "{[tp], []}", "{[], []} partial(sum: dp)"})
      for (const bool forth : {true, false}) {
        ShardingSpec owned = ShardingSpec::replicated(2);
        owned.dims[0] = {{0}, 8, owner};
        const ShardingSpec from = forth ? owned : spec_of(other, mesh),
                           to = forth ? spec_of(other, mesh) : owned;
        auto path = resharder.path(from, to, shape, DType::kF32);
        REQUIRE(path.ok());
        Parts parts = simulated.lay_out(from);
        for (const Move& move : path->moves) parts = simulated.step(move, parts);
        CHECK_MESSAGE(simulated.means_the_tensor(to, parts), to_text(from, mesh), " -> ", to_text(to, mesh));
      }
}
