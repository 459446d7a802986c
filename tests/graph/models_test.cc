// Whole models through every transformation: each result verifies and reads back from its text.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapter_slots.h"
#include "graph/transform/adapters.h"
#include "graph/transform/sampling.h"
#include "graph/transform/serving.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

Graph model(std::string_view shorthand) {
  Result<ModelConfig> config = parse_shorthand(shorthand);
  REQUIRE_MESSAGE(config.ok(), config.status().to_string());
  Result<Graph> graph = build_model(*config);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  return std::move(*graph);
}

Graph with_loss(std::string_view shorthand) {
  Graph graph = model(shorthand);
  const Status status = add_token_loss(graph);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return graph;
}

void check_sound(const Graph& graph) {
  const Status status = graph.verify();
  CHECK_MESSAGE(status.ok(), status.to_string());
  const std::string text = print(graph);
  Result<Graph> again = parse_graph(text);
  REQUIRE_MESSAGE(again.ok(), again.status().to_string() << "\n" << text);
  CHECK(print(*again) == text);
  CHECK(again->fingerprint() == graph.fingerprint());
}

std::vector<std::string> names(const Graph& graph, TensorKind kind) {
  std::vector<std::string> found;
  for (TensorId id : graph.tensors_of_kind(kind)) found.push_back(graph.tensor(id).name);
  return found;
}

size_t count(const Graph& graph, std::string_view op) {
  return static_cast<size_t>(
      std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; }));
}

constexpr const char* kLlama = "llama:L=2,C=32,H=4,KV=2,F=48,V=65,T=16";
constexpr const char* kGpt2 = "gpt2:L=2,C=32,H=4,V=65,T=16";
constexpr const char* kMoe = "moe:L=2,C=32,H=4,KV=2,F=48,E=4,K=2,V=65,T=16";
constexpr const char* kEncoder = "encoder:L=2,C=32,H=4,F=48,V=65,T=16";
const ServingOptions kServed = {.pages = 2, .page_size = 8, .rows = 1, .context = 16, .cache = {}};

}  // namespace

TEST_CASE("models verify and read back from their text") {
  for (const char* shorthand :
       {kLlama,
        kGpt2,
        kMoe,
        kEncoder,
        "mlp:L=2,C=8,F=16,V=3",
        "moe:L=1,C=32,H=4,F=48,E=3,K=1,V=65,T=16,capacity=0,aux=0,z=0.001",
        "encoder:L=1,C=32,H=4,V=65,T=16,tied=0",
        "bert:L=1,C=32,H=4,V=65,T=16",
        "roberta:L=1,C=32,H=4,V=65,T=16",
        "distilbert:L=1,C=32,H=4,V=65,T=16",
        "modernbert:L=4,C=32,H=4,F=24,V=65,T=16",
        "nomic-bert:L=1,C=32,H=4,V=65,T=16",
        "llama:L=1,C=32,H=4,F=48,V=65,T=16,D=6,tied,rope_half=1,norm_eps=1e-6",
        "llama:L=2,C=32,H=4,F=48,V=65,T=16,R=4,rope_rows=2,rope_switch=8,windows=0|5,qkv_bias,mlp_bias",
        "gemma2:L=2,C=32,H=4,F=48,V=65,T=16,window=5,softcap=50,logit_softcap=30",
        "gemma3:L=6,C=32,H=4,F=48,V=65,T=16,window=5,tied,rope_half",
        "gemma4:L=4,C=32,H=4,KV=2,D=8,F=48,V=65,T=16,windows=5|0|5|0,head_sizes=8|16|8|16,ffn_widths=48|48|96|96,shared_kv=2,P=6,"
        "rope_rows=1,tied,rope_half",
        "gemma4:L=2,C=32,H=4,KV=2,D=8,F=48,V=65,T=16,windows=5|0,head_sizes=8|16,kv_heads=2|1,key_values=0|1,logit_softcap=15,"
        "E=4,K=2,FD=20,rope_half",
        "phi3:L=1,C=32,H=4,F=48,V=65,T=16",
        "qwen2:L=1,C=32,H=4,F=48,V=65,T=16,rope_half",
        "qwen3:L=1,C=32,H=4,F=48,V=65,T=16,D=6,o_bias,qkv_bias",
        "qwen3moe:L=1,C=32,H=4,F=48,E=3,K=2,V=65,T=16,normalize=0",
        "ministral3:L=2,C=32,H=4,F=48,V=65,T=16,query_beta=0.2,query_context=4",
        "smollm3:L=2,C=32,H=4,F=48,V=65,T=16,rope_layers=1|0",
        "nemotron_h:L=4,C=32,H=4,D=8,F=48,HS=4,GS=2,VS=8,KS=6,V=65,T=16,halves=1|2|1|2,recurrent=1|0|0|0",
        "nemotron_h:L=3,C=32,H=4,D=8,F=24,FD=48,E=4,K=2,FS=20,M=16,HS=4,GS=2,VS=8,V=65,T=16,halves=1|2|2,recurrent=1|0|0,expert_layers=0|1|0",
        "lfm2:L=3,C=32,H=4,F=48,V=65,T=16,recurrent=1|0|1",
        "lfm2moe:L=3,C=32,H=4,F=24,FD=48,E=4,K=2,V=65,T=16,recurrent=1|0|1,expert_layers=0|1|1",
        "qwen3_5:L=4,C=32,H=4,KV=2,D=12,R=4,F=48,HS=4,GS=2,VS=8,KS=6,V=65,T=16",
        "qwen3_5moe:L=2,C=32,H=4,F=24,E=3,K=2,FS=20,HS=4,GS=2,VS=8,V=65,T=16,attention_every=2,turned",
        "qwen3next:L=2,C=32,H=4,F=24,E=3,K=2,FS=20,FD=48,HS=4,GS=2,VS=8,V=65,T=16,expert_layers=0|1",
        "granitehybrid:L=2,C=32,H=4,F=48,HS=4,GS=2,VS=8,KS=6,V=65,T=16,attention_every=2,conv_bias",
        "granitehybridmoe:L=2,C=32,H=4,F=24,E=3,K=2,FS=20,HS=4,GS=1,VS=8,KS=6,V=65,T=16,rope_layers=0|0",
        "gemma:L=1,C=32,H=4,D=6,F=48,V=65,T=16,tied",
        "olmo2:L=2,C=32,H=4,KV=2,F=48,V=65,T=16,windows=5|0,window_theta=100",
        "granite:L=1,C=32,H=4,F=48,V=65,T=16,embedding_scale=3,residual_scale=0.5,logit_scale=0.25",
        "seed_oss:L=1,C=32,H=4,KV=2,F=48,V=65,T=16,D=6,qkv_bias",
        "qwen2moe:L=2,C=32,H=4,F=24,E=3,K=2,FS=20,FD=48,V=65,T=16,expert_layers=0|1",
        "gpt-oss:L=2,C=32,H=4,KV=2,D=6,F=24,E=3,K=2,V=65,T=16,window=5,gate_limit=3",
        "deepseek2:L=2,C=32,H=4,D=10,R=4,KA=12,VD=8,F=24,FD=48,E=4,K=2,FS=24,V=65,T=16,expert_layers=0|1",
        "deepseek2:L=1,C=32,H=4,D=10,R=4,KA=12,QA=16,F=24,E=4,K=2,V=65,T=16,expert_sigmoid,groups=2,groups_"
        "used=1",
        "gpt2:L=1,C=32,H=4,V=65,T=16,tied=0"}) {
    INFO(shorthand);
    check_sound(model(shorthand));
    const auto config = parse_shorthand(shorthand);
    CHECK(to_text(ok(parse_shorthand(to_text(*config)))) == to_text(*config));
  }
}

TEST_CASE("parameters of llama are named as documented") {
  const Graph graph = model("llama:L=1,C=32,H=4,KV=2,F=48,V=65,T=16");
  CHECK(names(graph, TensorKind::kParameter) ==
        std::vector<std::string>{"token_embedding", "block.0.attention_norm", "block.0.q", "block.0.k",
                                 "block.0.v", "block.0.o", "block.0.ffn_norm", "block.0.gate", "block.0.up",
                                 "block.0.down", "final_norm", "output"});
  CHECK(graph.type(*graph.find_tensor("block.0.k")).shape == Shape{16, 32});
  CHECK(graph.symbols()[1].capacity == 16);
  std::set<std::string> scopes;
  for (const Node& node : graph.nodes()) scopes.insert(node.scope);
  CHECK(scopes == std::set<std::string>{"block.0.attention", "block.0.ffn", "embedding", "output"});
}

TEST_CASE("parameters of a mixture of experts are named as documented") {
  const Graph graph = model("moe:L=1,C=32,H=4,KV=2,F=48,E=4,V=65,T=16");
  CHECK(names(graph, TensorKind::kParameter) ==
        std::vector<std::string>{"token_embedding", "block.0.attention_norm", "block.0.q", "block.0.k",
                                 "block.0.v", "block.0.o", "block.0.ffn_norm", "block.0.router",
                                 "block.0.experts.gate", "block.0.experts.up", "block.0.experts.down",
                                 "final_norm", "output"});
  CHECK(graph.type(*graph.find_tensor("block.0.experts.down")).shape == Shape{4, 32, 48});
  CHECK(initializer_for(graph, *graph.find_tensor("block.0.experts.down")).stddev ==
        doctest::Approx(0.02 / std::sqrt(2.0)));
}

TEST_CASE("Dense modules are behind hidden states, whose width is then theirs") {
  const Graph graph = model("gemma3:L=1,C=32,H=4,KV=2,D=8,F=48,V=65,T=16,window=5,tied,rope_half,causal=0,head=0,dense=48|24,dense_bias");
  const std::vector<std::string> all = names(graph, TensorKind::kParameter);
  CHECK(std::vector<std::string>(all.end() - 5, all.end()) ==
        std::vector<std::string>{"final_norm", "dense.0", "dense.0.bias", "dense.1", "dense.1.bias"});
  CHECK(graph.type(*graph.find_tensor("dense.1")).shape == Shape{24, 48});
  CHECK(graph.type(*graph.find_output("hidden")).shape.dims().back() == 24);
  const Graph encoder = model("bert:L=1,C=32,H=4,F=48,V=65,T=16,dense=24");
  CHECK(encoder.type(*encoder.find_output("hidden")).shape.dims().back() == 24);
  CHECK(encoder.type(*encoder.find_output("logits")).shape.dims().back() == 65);
}

TEST_CASE("slots follow the length of a sequence: its even share times the capacity") {
  const auto slots = [](std::string_view shorthand, int64_t T) {
    const std::pair<std::string, int64_t> values[] = {{"B", 3}, {"T", T}};
    const Graph bound = ok(model(shorthand).bind(values));
    for (const Node& node : bound.nodes())
      if (node.op->name == "moe_dispatch") return bound.type(node.outputs[0]).shape;
    return Shape{};
  };
  CHECK(slots(kMoe, 16) == Shape{4, 3, 10, 32});  // 1.25 * 2 * 16 / 4
  CHECK(slots(kMoe, 3) == Shape{4, 3, 2, 32});
  CHECK(slots(kMoe, 1) == Shape{4, 3, 1, 32});
  CHECK(slots("moe:L=1,C=32,H=4,F=48,E=4,K=2,V=65,T=16,capacity=0", 16) == Shape{4, 3, 16, 32});
}

TEST_CASE("an auxiliary loss is trained on and not evaluated") {
  const Graph forward = with_loss(kMoe),
              plain = with_loss("moe:L=2,C=32,H=4,KV=2,F=48,E=4,K=2,V=65,T=16,aux=0");
  CHECK(forward.find_output("aux_loss"));
  CHECK(!plain.find_output("aux_loss"));
  CHECK(print(ok(make_evaluation(forward))) == print(ok(make_evaluation(plain))));
  CHECK(count(ok(make_training_step(forward, {})), "moe_fraction") == 2);
  CHECK(count(ok(make_training_step(plain, {})), "moe_fraction") == 0);
}

TEST_CASE("an encoder sees both directions and so does not decode") {
  const Graph graph = model(kEncoder);
  for (const Node& node : graph.nodes())
    if (node.op->name == "attention") CHECK(attr_i64(node.attrs, "causal") == 0);
  const Result<Graph> decoding = make_serving(graph, kServed);
  CHECK(decoding.status().message().find("it is not causal") != std::string::npos);
}

TEST_CASE("decoding drops no token of a mixture of experts") {
  const Graph decoding = ok(make_serving(model(kMoe), kServed));
  check_sound(decoding);
  CHECK(count(decoding, "moe_route") == 2);
  CHECK(count(decoding, "moe_fraction") == 0);
  for (const Node& node : decoding.nodes())
    if (node.op->name == "moe_route") CHECK(attr_f64(node.attrs, "capacity") == 0);
}

TEST_CASE("parameters of gpt2 are named as documented and its head is tied") {
  const Graph graph = model("gpt2:L=1,C=32,H=4,V=65,T=16");
  std::vector<std::string> wanted = {"token_embedding", "position_embedding"};
  for (const char* layer : {"norm1", "q", "k", "v", "o", "norm2", "fc", "proj"})
    for (const char* part : {"weight", "bias"}) wanted.push_back(format("block.0.{}.{}", layer, part));
  wanted.insert(wanted.end(), {"final_norm.weight", "final_norm.bias"});
  CHECK(names(graph, TensorKind::kParameter) == wanted);
}

TEST_CASE("a wrong shorthand names what is wrong and gives an example") {
  const auto message = [](std::string_view text) {
    Result<ModelConfig> config = parse_shorthand(text);
    if (!config.ok()) return std::string(config.status().message());
    const Result<Graph> graph = build_model(*config);
    return graph.ok() ? std::string() : std::string(graph.status().message());
  };
  CHECK(message("lama:L=1").find("'lama' is not known") != std::string::npos);
  CHECK(message("llama:L=1,C=32,H=4,F=48,V=65,T=16,dense=8").find("dense with head = 1") != std::string::npos);
  CHECK(message("llama:L=1,C=32,H=4,F=48,V=65,T=16,head=0,dense=0").find("dense has 0, wanted 1 to") != std::string::npos);
  CHECK(message("bert:L=1,C=32,H=4,F=48,V=65,T=16,dense=1|2|3|4|5").find("dense has 5 numbers, wanted at most 4") != std::string::npos);
  CHECK(message("bert:L=1,C=32,H=4,F=48,V=65,T=16,dense_bias").find("dense_bias without dense") != std::string::npos);
  CHECK(message("moe:L=1,C=32,H=4,F=48,E=2,K=3,V=65,T=16").find("K = 3 experts") != std::string::npos);
  CHECK(message("llama:L=1,C=32,H=4,F=48,V=65").find("size T is missing") != std::string::npos);
  CHECK(message("gpt2:L=1,C=32,H=4,V=65,T=16,KV=2").find("'KV' is not known") != std::string::npos);
  CHECK(message("gpt2:L=1,C=33,H=4,V=65,T=16").find("do not divide") != std::string::npos);
  CHECK(message("llama:L=1,C=33,H=4,F=48,V=65,T=16").find("do not divide into H = 4") != std::string::npos);
  CHECK(message("llama:L=1,C=33,H=4,D=8,F=48,V=65,T=16").empty());
  for (const char* eps : {"-1", "nan"})
    for (const char* model : {"llama:L=1,C=32,H=4,F=48,V=65,T=16", "gpt2:L=1,C=32,H=4,V=65,T=16"})
      CHECK(message(format("{},norm_eps={}", model, eps)).find(format("eps is {}", eps)) !=
            std::string::npos);
  CHECK(message("llama:L=999999999,C=2,H=1,F=1,V=2,T=2").find("wanted at most 4096") != std::string::npos);
  CHECK(message("gpt2:L=0,C=32,H=4,V=65,T=16").find("size L is 0") != std::string::npos);
  CHECK(message("gpt2:L=1,L=2").find("each name once") != std::string::npos);
  CHECK(message("gpt2:L=x").find("an example: gpt2:L=12") != std::string::npos);
  CHECK(message(kLlama).empty());
}

TEST_CASE("initial values follow the names") {
  const Graph graph = model(kGpt2);
  const auto initializer = [&](std::string_view name) {
    return initializer_for(graph, *graph.find_tensor(name));
  };
  CHECK(initializer("block.0.norm1.weight").kind == Initializer::Kind::kOnes);
  CHECK(initializer("block.0.norm1.bias").kind == Initializer::Kind::kZeros);
  CHECK(initializer("block.0.fc.bias").kind == Initializer::Kind::kZeros);
  CHECK(initializer("block.0.fc.weight").stddev == 0.02);
  CHECK(initializer("block.1.proj.weight").stddev == doctest::Approx(0.01));  // 0.02 / sqrt(2 * 2 blocks)
  CHECK(initializer("block.0.o.weight").stddev == doctest::Approx(0.01));
  CHECK(initializer("token_embedding").stddev == 0.02);
  const Graph llama = model(kLlama);
  CHECK(initializer_for(llama, *llama.find_tensor("final_norm")).kind == Initializer::Kind::kOnes);
  CHECK(initializer_for(llama, *llama.find_tensor("block.0.down")).stddev == doctest::Approx(0.01));
  const Graph mlp = model("mlp:L=1,C=8,F=16,V=3");
  CHECK(initializer_for(mlp, *mlp.find_tensor("layer.0.weight")).stddev == doctest::Approx(0.5));
}

TEST_CASE("a training step updates every parameter and its optimizer state") {
  for (const char* shorthand : {kLlama, kGpt2, kMoe, kEncoder, "mlp:L=2,C=8,F=16,V=3"})
    for (const char* optimizer : {"adamw", "sgd"}) {
      INFO(shorthand << " " << optimizer);
      TrainingOptions options;
      options.optimizer.name = optimizer;
      options.clip_norm = 1;
      const Graph step = ok(make_training_step(with_loss(shorthand), options));
      check_sound(step);
      const size_t parameters = step.tensors_of_kind(TensorKind::kParameter).size();
      const size_t states = step.tensors_of_kind(TensorKind::kState).size();
      CHECK(states == parameters * (std::string_view(optimizer) == "adamw" ? 2 : 1));
      CHECK(step.gradients().size() == parameters);
      CHECK(step.updates().size() == parameters + states);
      CHECK(step.outputs().size() == 2);
      CHECK(step.find_output("loss"));
      CHECK(step.find_output("grad_norm"));
      CHECK(count(step, "sum_squares") == parameters);
      for (const Node& node : step.nodes()) {
        const bool updates = node.scope.starts_with("update.") || node.scope == "clip";
        CHECK((node.phase == Phase::kUpdate) == updates);
      }
    }
}

TEST_CASE("weight gradients are their own phase") {
  const Graph step = ok(make_training_step(with_loss(kLlama), {}));
  for (const Node& node : step.nodes()) {
    if (node.op->name == "matmul_weight_grad" || node.op->name == "embedding_grad" ||
        node.op->name == "rms_norm_grad_weight")
      CHECK(node.phase == Phase::kBackwardWeight);
    if (node.op->name == "rms_norm_grad_input" || node.op->name == "attention_grad" ||
        node.op->name == "swiglu_grad")
      CHECK(node.phase == Phase::kBackwardInput);
    if (node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight) {
      REQUIRE(node.forward != kNoNode);
      CHECK(step.node(node.forward).phase == Phase::kForward);
    }
  }
}

TEST_CASE("a tied embedding has one gradient, the sum of both uses") {
  const Graph step = ok(make_training_step(with_loss(kGpt2), {}));
  for (const Gradient& gradient : step.gradients())
    if (step.tensor(gradient.parameter).name == "token_embedding")
      CHECK(step.node(step.tensor(gradient.gradient).producer).op->name == "add");
}

TEST_CASE("a frozen parameter has no gradient, no state and no work of its own") {
  Graph forward = with_loss(kLlama);
  const Graph whole = ok(make_training_step(forward, {}));
  for (TensorId parameter : forward.tensors_of_kind(TensorKind::kParameter))
    if (forward.tensor(parameter).name != "output") forward.set_trainable(parameter, false);
  const Graph step = ok(make_training_step(forward, {}));
  check_sound(step);
  CHECK(step.gradients().size() == 1);
  CHECK(names(step, TensorKind::kState) == std::vector<std::string>{"output.m", "output.v"});
  CHECK(count(step, "attention_grad") == 0);
  CHECK(count(whole, "attention_grad") == 2);
}

TEST_CASE("training wants a loss and known options") {
  CHECK(make_training_step(model(kGpt2), {}).status().code() == StatusCode::kFailedPrecondition);
  TrainingOptions options;
  options.optimizer.name = "adam";
  CHECK(make_training_step(with_loss(kGpt2), options).status().code() == StatusCode::kNotFound);
  options.optimizer.name = "adamw";
  options.optimizer.hyper["beta"] = 1;
  CHECK(make_training_step(with_loss(kGpt2), options).status().message().find("nearest: beta1") !=
        std::string::npos);
}

TEST_CASE("dropout is for training alone") {
  const char* const shorthand = "gpt2:L=2,C=32,H=4,V=65,T=16,dropout=0.1";
  const Graph forward = with_loss(shorthand);
  CHECK(count(forward, "dropout") == 5);
  std::set<int64_t> salts;
  for (const Node& node : forward.nodes())
    if (node.op->name == "dropout") salts.insert(attr_i64(node.attrs, "salt"));
  CHECK(salts.size() == 5);
  const Graph step = ok(make_training_step(forward, {}));
  check_sound(step);
  CHECK(count(step, "dropout") == 10);
  const Graph plain = with_loss(kGpt2);
  CHECK(print(ok(make_evaluation(forward))) == print(ok(make_evaluation(plain))));
  CHECK(print(ok(make_serving(forward, kServed))) == print(ok(make_serving(plain, kServed))));
}

TEST_CASE("dropout of rows, of adapters in slots and of their model, is for training alone") {
  const auto with_slots = [](const char* shorthand, bool dropout) {
    const Graph forward = with_loss(shorthand);
    return ok(with_adapter_slots(forward, adaptable_weights(forward), {.slots = 2, .rank = 2, .dropout = dropout}));
  };
  const Graph dropping = with_slots("gpt2:L=2,C=32,H=4,V=65,T=16,dropout=0.1", true), plain = with_slots(kGpt2, false);
  CHECK(count(dropping, "dropout") == 0);
  CHECK(count(dropping, "row_dropout") > 5);  // the model's, and the adapters'
  CHECK(print(ok(make_evaluation(dropping))) == print(ok(make_evaluation(plain))));
}

TEST_CASE("an evaluation is the forward pass and the loss alone") {
  const Graph evaluation = ok(make_evaluation(with_loss(kGpt2)));
  check_sound(evaluation);
  CHECK(evaluation.outputs().size() == 1);
  CHECK(evaluation.gradients().empty());
}

TEST_CASE("a serving graph keeps keys and values as state and projects the wanted rows") {
  for (const char* shorthand : {kLlama, kGpt2}) {
    INFO(shorthand);
    const Graph serving = ok(with_sampling(ok(make_serving(model(shorthand), kServed))));
    check_sound(serving);
    CHECK(names(serving, TensorKind::kState) ==
          std::vector<std::string>{"block.0.attention.k_pages", "block.0.attention.v_pages",
                                   "block.1.attention.k_pages", "block.1.attention.v_pages"});
    CHECK(names(serving, TensorKind::kInput) ==
          std::vector<std::string>{"tokens", "row", "positions", "slot", "page_table", "wanted",
                                   "temperature", "top_k", "top_p", "seed", "start", "length"});
    CHECK(count(serving, "attention") == 0);
    CHECK(count(serving, "attention_paged") == 2);
    CHECK(serving.updates().size() == 4);
    CHECK(serving.type(*serving.find_output("logits")).shape[1] == 65);
    CHECK(serving.type(*serving.find_output("logits")).shape.rank() == 2);
    CHECK(serving.type(*serving.find_output("token")).shape.rank() == 1);
    // The rows are selected before the final norm, not after the projection.
    const auto rows =
        std::ranges::find_if(serving.nodes(), [](const Node& n) { return n.op->name == "select_rows"; });
    REQUIRE(rows != serving.nodes().end());
    CHECK(serving.type(rows->outputs[0]).shape[1] == 32);
    const std::pair<std::string, int64_t> values[] = {{"B", 1}, {"N", 5}, {"W", 2}};
    const Graph bound = ok(serving.bind(values));
    CHECK(bound.verify().ok());
    CHECK(bound.type(*bound.find_tensor("block.0.attention.k_pages")).shape[1] == 8);
  }
}

TEST_CASE("serving computes for all tokens what keys and values are made of, and the rest for requested tokens") {
  const auto has_all = [](const Graph& bound, std::string_view scope) {
    return std::ranges::any_of(bound.nodes(), [&](const Node& node) {
      return node.scope.starts_with(scope) && std::ranges::any_of(node.outputs, [&](TensorId output) {
               const Shape& shape = bound.type(output).shape;
               return shape.rank() > 1 && shape[1] == 5;
             });
    });
  };
  const std::pair<std::string, int64_t> values[] = {{"B", 1}, {"N", 5}, {"W", 2}};
  const Graph llama = ok(ok(make_serving(model(kLlama), kServed)).bind(values));
  CHECK(has_all(llama, "block.0.ffn"));
  CHECK(has_all(llama, "block.1.attention"));
  CHECK_FALSE(has_all(llama, "block.1.ffn"));
  // The last two layers read keys and values of the two before.
  const char* shared = "gemma4:L=4,C=32,H=4,KV=2,D=8,F=48,V=65,T=32,windows=4|0|4|0,head_sizes=8|16|8|16,shared_kv=2,P=6,tied,rope_half";
  const Graph gemma = ok(ok(make_serving(model(shared), kServed)).bind(values));
  CHECK(has_all(gemma, "block.0.ffn"));
  CHECK(has_all(gemma, "block.1.attention"));
  for (const char* scope : {"block.1.ffn", "block.2", "block.3", "output"}) CHECK_FALSE(has_all(gemma, scope));
}

TEST_CASE("serving also takes a model with a loss, which it leaves out") {
  const Graph serving = ok(make_serving(with_loss(kLlama), kServed));
  CHECK(names(serving, TensorKind::kInput) ==
        std::vector<std::string>{"tokens", "row", "positions", "slot", "page_table", "wanted"});
  CHECK(count(serving, "cross_entropy") == 0);
}

TEST_CASE(
    "rotations with two rows of factors are served by one row of a table, which feeds the row of factors") {
  const Graph forward = model("llama:L=2,C=32,H=4,F=48,V=65,T=16,R=4,rope_rows=2,rope_switch=8");
  const auto inputs = [&](int64_t context) {
    return names(
        ok(make_serving(forward, {.pages = 2, .page_size = 8, .rows = 1, .context = context, .cache = {}})),
        TensorKind::kInput);
  };
  CHECK(std::ranges::count(inputs(8), "rope_row") == 0);
  CHECK(std::ranges::count(inputs(9), "rope_row") == 1);
  const ServingOptions two{.pages = 4, .page_size = 8, .rows = 2, .context = 9, .cache = {}};
  CHECK(make_serving(forward, two).status().code() == StatusCode::kUnsupported);
}

TEST_CASE("serving refuses a context longer than a learned position table") {
  const auto served = [](std::string_view words, int64_t context) {
    return make_serving(model(words),
                        {.pages = 3, .page_size = 8, .rows = 1, .context = context, .cache = {}})
        .status();
  };
  CHECK(served(kGpt2, 17).message().find("the model has 16 positions") != std::string::npos);
  CHECK(!served(kGpt2, 0).ok());
  CHECK(!served("mlp:L=2,C=8,F=16,V=3", 8).ok());
}
