// Deep models with few of their blocks: which are kept, and that what is left is a model.
#include "graph/transform/fewer_blocks.h"

#include <doctest/doctest.h>

#include "graph/models/model_family.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

FewerBlocks fewer(std::string_view shorthand) {
  FewerBlocks few = ok(with_fewer_blocks(ok(build_model(ok(parse_shorthand(shorthand))))));
  CHECK(few.graph.verify().ok());
  Graph trained = few.graph;
  CHECK(add_token_loss(trained).ok());
  CHECK(ok(make_training_step(trained, {})).verify().ok());
  return few;
}

size_t blocks_of(const FewerBlocks& few) {
  size_t count = 0;
  while (few.graph.find_tensor("block." + std::to_string(count) + ".attention_norm")) ++count;
  return count;
}

}  // namespace

TEST_CASE("equal blocks: the first, one between, the last") {
  const FewerBlocks few = fewer("llama:L=12,C=64,H=4,KV=2,F=128,V=64,T=32");
  CHECK(few.like == std::vector<int32_t>{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2});
  CHECK(blocks_of(few) == 2);  // 0 and 1; the third is called 11
  CHECK(few.graph.find_tensor("block.11.attention_norm").has_value());
}

TEST_CASE("models of up to three equal blocks stay whole") {
  for (const int count : {1, 2, 3}) {
    const FewerBlocks few = fewer("gpt2:L=" + std::to_string(count) + ",C=64,H=4,V=64,T=32");
    CHECK(few.like.size() == static_cast<size_t>(count));
    for (int b = 0; b < count; ++b) CHECK(few.like[static_cast<size_t>(b)] == b);
  }
}

TEST_CASE(
    "one block of every kind is kept between the ends: windows and whole attention, dense and experts") {
  const FewerBlocks windows = fewer("gemma3:L=12,C=64,H=4,KV=2,D=16,F=128,V=64,T=64,window=16");
  CHECK(windows.like.front() == 0);
  CHECK(windows.like.back() == 3);
  CHECK(windows.like[5] != windows.like[4]);  // every sixth sees all
  CHECK(windows.like[1] == windows.like[4]);
  const FewerBlocks experts =
      fewer("deepseek2:L=6,C=64,H=4,D=24,R=8,KA=32,VD=16,F=32,E=4,K=2,FS=32,FD=128,V=64,T=32");
  CHECK(experts.like == std::vector<int32_t>{0, 1, 1, 1, 1, 2});
}

TEST_CASE("a block that reads another than the one before it is named") {
  Graph graph;
  const TensorId x = ok(graph.add_tensor("x", {DType::kF32, {4, 4}}, TensorKind::kInput));
  TensorId now = x;
  std::vector<TensorId> made;
  for (int b = 0; b < 4; ++b) {
    graph.set_scope("block." + std::to_string(b));
    now = ok(graph.add("add", {now, b == 3 ? made[0] : x}));
    made.push_back(now);
  }
  REQUIRE(graph.add_output("y", now).ok());
  const Result<FewerBlocks> few = with_fewer_blocks(graph);
  REQUIRE(!few.ok());
  CHECK(few.status().code() == StatusCode::kUnsupported);
  CHECK(few.status().message().find("'block.3' reads") != std::string_view::npos);
}
