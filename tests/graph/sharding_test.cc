#include <doctest/doctest.h>

#include "graph/device_mesh.h"
#include "graph/op_def.h"
#include "graph/sharding_rule.h"
#include "graph/sharding_spec.h"

using namespace tessera;

namespace {
DeviceMesh mesh(std::string_view text) {
  Result<DeviceMesh> parsed = parse_mesh(text);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().to_string());
  return *parsed;
}
ShardingSpec spec(std::string_view text, const DeviceMesh& on) {
  Result<ShardingSpec> parsed = parse_spec(text, on);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().to_string());
  return *parsed;
}
TensorType f32(std::initializer_list<int64_t> dims) { return {DType::kF32, Shape(dims)}; }
}  // namespace

TEST_CASE("a mesh reads back from its text") {
  for (const char* text : {"", "dp=2, tp=4", "dp=1, tp=3", "dp=2, tp=2 on [3, 1, 2, 0]", "on [7]"})
    CHECK(to_text(mesh(text)) == text);
  CHECK(mesh("").size() == 1);
  CHECK(mesh("dp=2,tp=4").coordinates(6) == std::vector<int32_t>{1, 2});
  for (const char* text :
       {"dp", "dp=0", "dp=2,dp=2", "dp=two", "2=2", "dp=2 on [0]", "dp=2 on [0, 1", "a=1000000,b=1000000"})
    CHECK_MESSAGE(!parse_mesh(text).ok(), text);
}

TEST_CASE("a group over two axes is ordered with the first listed axis major") {
  const DeviceMesh m = mesh("a=2, b=2, c=2");
  const AxisId ab[] = {0, 1}, ba[] = {1, 0}, c[] = {2};
  CHECK(m.group(1, ab) == std::vector<int32_t>{1, 3, 5, 7});
  CHECK(m.group(5, ba) == std::vector<int32_t>{1, 5, 3, 7});
  CHECK(m.group(4, c) == std::vector<int32_t>{4, 5});
  CHECK(m.group(4, {}) == std::vector<int32_t>{4});
}

TEST_CASE("splits are in whole units, larger parts first, and tile the extent") {
  CHECK(split_range({0, 10}, 1, 3, 0) == Range{0, 4});
  CHECK(split_range({0, 10}, 1, 3, 1) == Range{4, 7});
  CHECK(split_range({0, 10}, 1, 3, 2) == Range{7, 10});
  // 25 heads of 4 on 2 devices: 13 and 12 heads.
  CHECK(split_range({0, 100}, 4, 2, 0) == Range{0, 52});
  CHECK(split_range({0, 100}, 4, 2, 1) == Range{52, 100});
  // Larger parts from another part on; after the last comes part 0.
  CHECK(split_range({0, 10}, 1, 3, 0, 1) == Range{0, 3});
  CHECK(split_range({0, 10}, 1, 3, 1, 1) == Range{3, 7});
  CHECK(split_range({0, 11}, 1, 3, 0, 2) == Range{0, 4});
  CHECK(split_range({0, 11}, 1, 3, 1, 2) == Range{4, 7});
  CHECK(split_range({0, 11}, 1, 3, 2, 2) == Range{7, 11});
  // Fewer units than parts: the last parts are empty.
  CHECK(split_range({0, 2}, 1, 3, 2) == Range{2, 2});
  for (int64_t extent : {0, 1, 7, 50257})
    for (int32_t parts : {1, 2, 3, 5})
      for (int32_t first = 0; first < parts; ++first) {
        int64_t at = 0;
        for (int32_t part = 0; part < parts; ++part) {
          CHECK(split_range({0, extent}, 1, parts, part, first).begin == at);
          at = split_range({0, extent}, 1, parts, part, first).end;
        }
        CHECK(at == extent);
      }
}

TEST_CASE("a dim in one unit lies on its owner, counted row-major over the axes, and nowhere else") {
  const DeviceMesh m = mesh("dp=2, tp=3");
  for (int32_t owner = 0; owner < 6; ++owner) {
    ShardingSpec owned = ShardingSpec::replicated(2);
    owned.dims[0] = {{0, 1}, 7, owner};
    REQUIRE(validate(owned, Shape{7, 5}, m).ok());
    for (int32_t position = 0; position < 6; ++position)
      CHECK(local_shape(Shape{7, 5}, owned, m, m.coordinates(position)) ==
            Shape{position == owner ? int64_t{7} : 0, 5});
  }
  ShardingSpec wrong = ShardingSpec::replicated(1);
  wrong.dims[0] = {{0}, 7, 2};
  CHECK(!validate(wrong, Shape{7}, m).ok());
}

TEST_CASE("nested splits divide the chunk left by the axis before") {
  const DeviceMesh m = mesh("dp=2, tp=2");
  // 7 = 4 + 3 over dp, then 2 + 2 and 2 + 1 over tp.
  const ShardingSpec nested = spec("{[dp, tp]}", m);
  const std::vector<Range> wanted = {{0, 2}, {2, 4}, {4, 6}, {6, 7}};
  for (int32_t position = 0; position < 4; ++position)
    CHECK(local_box(Shape{7}, nested, m, m.coordinates(position))[0] ==
          wanted[static_cast<size_t>(position)]);
  // The other order cuts elsewhere: [tp, dp] on rank (0, 1) is the second half's first part.
  CHECK(local_box(Shape{7}, spec("{[tp, dp]}", m), m, m.coordinates(1))[0] == Range{4, 6});
  CHECK(local_shape(Shape{7, 5}, spec("{[], [tp]}", m), m, m.coordinates(3)) == Shape{7, 2});
}

TEST_CASE("a sharding spec reads back from its text") {
  const DeviceMesh m = mesh("dp=2, tp=4, ep=2");
  for (const char* text : {"{}", "{[]}", "{[dp], []}", "{[], [dp, tp unit 64]}", "{[tp unit 8 first 3], []}",
                           "{[dp]} partial(sum: tp, ep)", "{[]} partial(max: ep)"}) {
    CHECK(to_text(spec(text, m), m) == text);
    CHECK(spec(to_text(spec(text, m), m), m) == spec(text, m));
  }
  CHECK(spec("{ [ dp,tp ] ,[] }", m) == spec("{[dp, tp], []}", m));
  for (const char* text : {"", "{", "{[dp]", "{[xx]}", "{[dp]} partial", "{[dp]} partial(min: tp)",
                           "{[dp]} x", "{[dp unit 0]}", "{[dp first 0]}", "{[dp first 1 unit 2]}"})
    CHECK_MESSAGE(!parse_spec(text, m).ok(), text);
}

TEST_CASE("validate refuses axes used twice, missing axes, wrong ranks and units that do not divide") {
  const DeviceMesh m = mesh("dp=2, tp=2");
  CHECK(validate(spec("{[dp], [tp unit 4]}", m), Shape{3, 8}, m).ok());
  CHECK(!validate(spec("{[dp], [tp unit 4]}", m), Shape{3, 9}, m).ok());
  CHECK(!validate(spec("{[dp], [dp]}", m), Shape{4, 4}, m).ok());
  CHECK(!validate(spec("{[dp], []} partial(sum: dp)", m), Shape{4, 4}, m).ok());
  CHECK(!validate(spec("{[dp]}", m), Shape{4, 4}, m).ok());
  CHECK(!validate(ShardingSpec{{DimSharding{{7}, 1}}, {}, ReduceKind::kSum}, Shape{4}, m).ok());
  CHECK(!validate(ShardingSpec{{DimSharding{{}, 4}}, {}, ReduceKind::kSum}, Shape{4}, m).ok());
}

TEST_CASE("a rule reduces the factors that no output has") {
  const ShardingRule rule = parse_rule("btk,kn->btn");
  CHECK(to_text(rule) == "btk,kn->btn {k: sum}");
  CHECK(rule.find('k')->kind == FactorKind::kReduce);
  CHECK(rule.find('b')->kind == FactorKind::kPass);
  CHECK(rule.find('x') == nullptr);
  CHECK(rule.factors[0].name == 'b');
  CHECK(to_text(parse_rule("bt(kg)d,1->bt(kg)d,")) == "bt(kg)d,1->bt(kg)d,");
  CHECK(parse_rule("->,").outputs.size() == 2);
  CHECK(parse_rule("->,").inputs.size() == 1);
  CHECK_THROWS(parse_rule("bt"));
  CHECK_THROWS(parse_rule("b(t->b"));
}

TEST_CASE("extents of products are solved from the factors that other operands know") {
  ShardingRule rule = parse_rule("bt(kg)d,bskd->bt(kg)d");
  const TensorType q = f32({2, 5, 12, 8}), k = f32({2, 7, 4, 8});
  const TensorType in[] = {q, k};
  REQUIRE(bind_extents(rule, in, std::span(&q, 1)).ok());
  CHECK(rule.find('g')->extent == 3);
  CHECK(rule.find('k')->extent == 4);
  CHECK(rule.find('s')->extent == 7);
  // Bound again on local shapes, the old extents do not linger.
  const TensorType local[] = {f32({1, 5, 6, 8}), f32({1, 7, 2, 8})};
  REQUIRE(bind_extents(rule, local, std::span(local, 1)).ok());
  CHECK(rule.find('k')->extent == 2);
  CHECK(rule.find('b')->extent == 1);
}

TEST_CASE("extents that differ are reported with the operand and both values") {
  ShardingRule rule = parse_rule("mk,kn->mn");
  const TensorType in[] = {f32({2, 3}), f32({4, 5})}, out = f32({2, 5});
  const Status status = bind_extents(rule, in, std::span(&out, 1));
  CHECK(status.message() ==
        "rule mk,kn->mn {k: sum}: extents differ: dim 0 of input 1 is 4, the other operands make (k) 3");
  const TensorType ragged[] = {f32({2, 12}), f32({5})}, merged = f32({2, 12});
  ShardingRule heads = parse_rule("a(hd),d->a(hd)");
  CHECK(!bind_extents(heads, ragged, std::span(&merged, 1)).ok());
  CHECK(!bind_extents(heads, ragged, {}).ok());
}

TEST_CASE("symbols are extents: equal ones match, others do not") {
  const int64_t b = symbol_extent(0), t = symbol_extent(1);
  ShardingRule rule = parse_rule("btk,kn->btn");
  const TensorType w = f32({4, 6});
  const TensorType in[] = {f32({b, t, 4}), w}, out = f32({b, t, 6}), swapped = f32({t, b, 6});
  REQUIRE(bind_extents(rule, in, std::span(&out, 1)).ok());
  CHECK(rule.find('b')->extent == b);
  CHECK(!bind_extents(rule, in, std::span(&swapped, 1)).ok());
}

TEST_CASE("a zero extent binds like any other") {
  ShardingRule rule = parse_rule("mk,kn->mn");
  const TensorType in[] = {f32({0, 3}), f32({3, 5})}, out = f32({0, 5});
  REQUIRE(bind_extents(rule, in, std::span(&out, 1)).ok());
  CHECK(rule.find('m')->extent == 0);
}
