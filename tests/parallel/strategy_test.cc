#include "parallel/strategy/strategy.h"

#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "parallel/planner/planner.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

std::string spec_text(const Graph& graph, const Plan& plan, std::string_view tensor) {
  const StoredTensor* stored = plan.find_stored(*graph.find_tensor(tensor));
  return stored == nullptr ? "none" : to_text(stored->placements[0].stored, plan.stages[0].mesh);
}

Cluster cpu(int devices, int64_t memory = int64_t{1} << 40) {
  Cluster cluster;
  cluster.kinds.push_back({"cpu", memory, 1e11, 1e10, 1e-6});
  cluster.devices.assign(static_cast<size_t>(devices), 0);
  cluster.shared_cores = 2;
  cluster.link = {5e9, 5e-6};
  return cluster;
}

Result<PlanResult> planned(const Graph& step, int devices, std::string_view parallel,
                           int64_t memory_limit = 0, int64_t batch = 8) {
  PlanOptions options;
  options.global_batch = batch;
  options.symbols = {{"T", 16}};
  options.parallel = parallel;
  options.memory_limit = memory_limit;
  return make_plan(step, cpu(devices), FakeCatalog(), options);
}

}  // namespace

TEST_CASE("words of a strategy read back as they print") {
  for (const std::string_view text :
       {"dp=2",
        "tp=4,sp",
        "dp=2,tp=2,sp,zero=1",
        "dp=4,zero=3:2",
        "dp=2,mb=4",
        "single",
        "tp=2d:2x3",
        "tp=2.5d:2x2x3",
        "tp=3d:2x2x2",
        "cp=ring:4",
        "cp=ring:2:contiguous",
        "cp=ulysses:2",
        "cp=gather:3",
        "dp=2,ep=4",
        "pp=2:gpipe",
        "pp=2:1f1b",
        "pp=4:interleaved:2",
        "pp=2:zb-h1",
        "pp=2:zb-h2",
        "pp=2:zb-v",
        "dp=2,tp=2,sp,cp=ring:2,ep=2,pp=2:1f1b,zero=3,mb=4,chunks=4,recompute=full,"
        "offload=params@host+optimizer@file,keep",
        "recompute=auto",
        "offload=auto",
        "cp=ring:2,zero=1"}) {
    const auto pins = parse_parallel(text);
    REQUIRE(pins.ok());
    CHECK(to_text(pins->spec) == text);
  }
  CHECK(parse_parallel(" tp=1d:4 , sp ").value().spec.tp == 4);
  CHECK(parse_parallel("")->dp == false);
}

TEST_CASE("wrong, unknown and unsupported words have different errors") {
  const auto message = [](std::string_view text) {
    return std::string(parse_parallel(text).status().message());
  };
  CHECK(message("dq=2").find("nearest: dp") != std::string::npos);
  CHECK(message("dp=0").find("from 1") != std::string::npos);
  CHECK(message("zero=4").find("0 to 3") != std::string::npos);
  CHECK(message("dp=two").find("number") != std::string::npos);
  CHECK(message("tp=2d:2").find("tp=2d:XxY is wanted") != std::string::npos);
  CHECK(message("tp=4d:2").find("nearest: 1d") != std::string::npos);
  CHECK(message("tp=2.5d:2x3x2").find("nearest: tp=2.5d:2x2x2") != std::string::npos);
  CHECK(message("tp=3d:2x2x3").find("nearest: tp=3d:2x2x2") != std::string::npos);
  CHECK(message("cp=rings:2").find("nearest: ring") != std::string::npos);
  CHECK(message("cp=ulysses:2:contiguous").find("known: cp=ring:N") != std::string::npos);
  CHECK(message("pp=2:zb-h3").find("nearest: zb-h1") != std::string::npos);
  CHECK(message("pp=2:gpipe:3").find("only interleaved") != std::string::npos);
  CHECK(message("pp=2:interleaved").find("number") != std::string::npos);
  CHECK(message("offload=optimiser").find("nearest: optimizer") != std::string::npos);
  CHECK(message("offload=params@moon").find("known: host, file") != std::string::npos);
  CHECK(message("offload=params+params").find("twice") != std::string::npos);
  CHECK(message("recompute=ful").find("nearest: full") != std::string::npos);
  CHECK(message("sp=1").find("stands alone") != std::string::npos);
  CHECK(message("dp").find("wants a value") != std::string::npos);
  CHECK(message("dp=2,dp=2").find("given twice") != std::string::npos);
  CHECK(message("dp=60000,tp=60000").find("devices") != std::string::npos);
  CHECK_FALSE(parse_parallel("tp=2d:2x2,sp").ok());
  CHECK(message("dp=1,owt").find("use dp=2") != std::string::npos);
  CHECK_FALSE(parse_parallel("dp=2,ep=2,owt").ok());
  CHECK(parse_parallel("pp=2")->spec.schedule == ScheduleKind::k1F1B);
  CHECK(parse_parallel("tp=3d:2x2x2")->spec.devices() == 8);
  CHECK_FALSE(parse_parallel("tp=1,sp").ok());
  CHECK_FALSE(parse_parallel("dp=4,zero=3:3").ok());
}

TEST_CASE("tensor parallel splits columns, then rows, and the vocabulary") {
  const auto step = training_step("llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16");
  REQUIRE(step.ok());
  const auto plan = plan_of(*step, "dp=2,tp=2", 4, 8);
  REQUIRE(plan.ok());
  CHECK(spec_text(*step, *plan, "token_embedding") == "{[tp], []}");
  CHECK(spec_text(*step, *plan, "block.0.q") == "{[tp unit 16], []}");
  CHECK(spec_text(*step, *plan, "block.0.k") == "{[tp unit 8], []}");
  CHECK(spec_text(*step, *plan, "block.0.o") == "{[], [tp unit 16]}");
  CHECK(spec_text(*step, *plan, "block.1.gate") == "{[tp], []}");
  CHECK(spec_text(*step, *plan, "block.1.down") == "{[], [tp]}");
  CHECK(spec_text(*step, *plan, "block.1.ffn_norm") == "{[]}");
  CHECK(spec_text(*step, *plan, "block.0.gate.grad") == "{[tp], []} partial(sum: dp)");
  CHECK(spec_text(*step, *plan, "tokens") == "{[dp], []}");
}

TEST_CASE("zero spreads state, then gradients, then parameters, after the compute axes") {
  const auto step = training_step("llama:L=1,C=32,H=4,KV=2,F=48,V=64,T=16");
  REQUIRE(step.ok());
  const auto spec = [&](int level, std::string_view tensor) {
    return spec_text(*step, *plan_of(*step, format("dp=2,tp=2,zero={}", level), 4, 8), tensor);
  };
  CHECK(spec(0, "block.0.gate.m") == "{[tp], []}");
  CHECK(spec(1, "block.0.gate.m") == "{[tp, dp], []}");
  CHECK(spec(1, "block.0.gate.grad") == "{[tp], []} partial(sum: dp)");
  CHECK(spec(1, "block.0.gate") == "{[tp], []}");
  CHECK(spec(2, "block.0.gate.grad") == "{[tp, dp], []}");
  CHECK(spec(2, "block.0.gate") == "{[tp], []}");
  CHECK(spec(3, "block.0.gate") == "{[tp, dp], []}");
  CHECK(spec(3, "block.0.ffn_norm") == "{[dp]}");
}

TEST_CASE("what does not fit is refused with the nearest that does") {
  const auto step = training_step("llama:L=1,C=32,H=8,KV=4,F=48,V=64,T=16");
  REQUIRE(step.ok());
  const auto refused = [&](std::string_view words, std::string_view names, int64_t batch = 8) {
    CAPTURE(words);
    const auto plan = plan_of(*step, words, batch, 6);
    CHECK_FALSE(plan.ok());
    CHECK_MESSAGE(std::string(plan.status().message()).find(names) != std::string::npos,
                  plan.status().to_string());
  };
  refused("tp=2d:2x8", "tp=2d:2x4");
  refused("tp=2.5d:4x4x3", "tp=2.5d:4x4x2");
  refused("tp=2.5d:4x4x2", "tp=2.5d:3x3x1", 3);
  refused("tp=2d:4x2", "tp=2d:3x2", 3);
  refused("tp=3d:3x3x3", "tp=3d:2x2x2");
  refused("tp=3d:5x5x5", "tp=3d:4x4x4", 125);
  refused("dp=16", "use dp=8");
  refused("dp=5,tp=2d:2x2", "use dp=4");
  refused("cp=ring:7", "up to 6");
  refused("cp=ulysses:5", "cp=ulysses:4");
  refused("tp=2,cp=ulysses:3", "cp=ulysses:2");
  refused("dp=3,mb=2", "leave mb out");
}

TEST_CASE("owt splits weights larger than what they are applied to over dp, and no others") {
  const auto step = training_step("llama:L=1,C=32,H=4,KV=2,F=48,V=640,T=16");
  REQUIRE(step.ok());
  const auto plan = plan_of(*step, "dp=4,owt", 8, 16);
  REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
  CHECK(spec_text(*step, *plan, "token_embedding") == "{[dp], []}");
  CHECK(spec_text(*step, *plan, "token_embedding.grad") == "{[dp], []}");
  CHECK(spec_text(*step, *plan, "token_embedding.m") == "{[dp], []}");
  CHECK(spec_text(*step, *plan, "block.0.gate") == "{[], []}");
  CHECK(spec_text(*step, *plan, "block.0.gate.grad") == "{[], []} partial(sum: dp)");
  CHECK(spec_text(*step, *plan, "tokens") == "{[dp], []}");
}

TEST_CASE("the planner says of each strategy what it costs, and that none of the others is faster") {
  const auto step = training_step("llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16");
  REQUIRE(step.ok());
  const auto result = planned(*step, 4, "");
  REQUIRE_MESSAGE(result.ok(), result.status().to_string());
  CHECK(result->plan.estimate.arena_bytes.size() == 4);
  CHECK(result->search.gap >= 0);
  CHECK(result->search.bound_s <= result->plan.estimate.step_time_s);
  CHECK(result->search.solved + result->search.refused + result->search.closed_by_bound +
            result->search.open <=
        result->search.configurations);
  CHECK(result->candidates[0].rejected == "");
  CHECK(result->candidates[0].strategy == result->plan.strategy);
  for (size_t i = 1; i < result->candidates.size(); ++i)
    if (result->candidates[i].rejected.empty())
      CHECK(result->candidates[0].step_time_s <= result->candidates[i].step_time_s);
  CHECK(print(result->plan, *step) == print(planned(*step, 4, "")->plan, *step));
}

TEST_CASE("words given are kept, and what they leave open stays off while it fits") {
  const auto step = training_step("llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16");
  REQUIRE(step.ok());
  CHECK(planned(*step, 4, "dp=4")->plan.strategy == "dp=4");
  CHECK(planned(*step, 4, "tp=2")->plan.strategy == "dp=2,tp=2");
  CHECK(planned(*step, 4, "dp=2,tp=2,sp,zero=1")->plan.strategy == "dp=2,tp=2,sp,zero=1");
  CHECK_FALSE(planned(*step, 4, "dp=3").ok());
  CHECK_FALSE(planned(*step, 4, "dp=2,tp=4").ok());
  CHECK(planned(*step, 4, "tp=4")->plan.strategy == "tp=4");  // two KV heads, two queries each
}

TEST_CASE("a limit makes the planner spend less memory, and the smallest limit that it names works") {
  const auto step = training_step("llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16");
  REQUIRE(step.ok());
  const auto free = planned(*step, 4, "dp=4");
  REQUIRE(free.ok());
  const int64_t largest = free->plan.estimate.arena_bytes[0];
  const auto tight = planned(*step, 4, "dp=4", largest - 1);
  REQUIRE_MESSAGE(tight.ok(), tight.status().to_string());
  for (const int64_t bytes : tight->plan.estimate.arena_bytes) CHECK(bytes < largest);

  const auto none = planned(*step, 4, "dp=4", 1000);
  REQUIRE_FALSE(none.ok());
  CHECK(none.status().code() == StatusCode::kOutOfMemory);
  const std::string message(none.status().message());
  const size_t at = message.find(" bytes)");
  REQUIRE(at != std::string::npos);
  const size_t open = message.rfind('(', at);
  const int64_t least = *parse_i64(message.substr(open + 1, at - open - 1));
  CHECK(planned(*step, 4, "dp=4", least).ok());
  CHECK_FALSE(planned(*step, 4, "dp=4", least - 1).ok());
  CHECK(message.find("peak") != std::string::npos);
}

TEST_CASE("an evaluation next to a step keeps its mesh and the places of its parameters") {
  ModelConfig config = parse_shorthand("llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16").value();
  Graph forward = build_model(config).value();
  REQUIRE(add_token_loss(forward).ok());
  const Graph step = make_training_step(forward, {}).value();
  const Graph evaluation = make_evaluation(forward).value();
  for (const std::string_view parallel :
       {"dp=2,tp=2,zero=3", "tp=2,dp=2,sp", "dp=4,zero=1,mb=1", "dp=4,zero=3:2"}) {
    CAPTURE(parallel);
    auto trained = planned(step, 4, parallel);
    REQUIRE_MESSAGE(trained.ok(), trained.status().to_string());
    if (parallel.ends_with("3:2")) trained->plan.strategy = "edited by hand";
    PlanOptions options;
    options.global_batch = 8;
    options.symbols = {{"T", 16}};
    options.like = &trained->plan;
    options.like_graph = &step;
    const auto evaluated = make_plan(evaluation, cpu(4), FakeCatalog(), options);
    REQUIRE_MESSAGE(evaluated.ok(), evaluated.status().to_string());
    const std::vector<EntrySpec> entries = {{"train_step", &step, &trained->plan},
                                            {"eval", &evaluation, &evaluated->plan}};
    const auto program = lower(entries, FakeCatalog());
    REQUIRE_MESSAGE(program.ok(), program.status().to_string());
    CHECK(verify(*program).ok());
    CHECK(program->ranks[0].parameters.size() == step.tensors_of_kind(TensorKind::kParameter).size());
  }
}
