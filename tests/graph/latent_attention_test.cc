// Multi-head latent attention in a server's graph: which attentions keep latent vectors in their pages, and by which nodes.
#include "graph/transform/latent_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/precision.h"
#include "graph/transform/serving.h"
#include "graph/transform/weight_storage.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

constexpr const char* kModel =
    "deepseek2:L=2,C=16,H=4,D=12,R=4,KA=10,VD=6,F=12,E=4,K=2,FS=12,V=11,T=16,expert_layers=0|1";

Graph latent_model(const std::string& words = kModel) { return ok(build_model(ok(parse_shorthand(words)))); }

Graph serving(const Graph& forward, int64_t adapter_slots = 0) {
  ServingOptions options{.pages = 4, .page_size = 8, .rows = 2, .context = 16, .cache = {}};
  options.adapter_slots = adapter_slots;
  options.adapter_rank = 2;
  return ok(make_serving(forward, options));
}

std::vector<std::string> page_states_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kState))
    if (graph.tensor(id).name.ends_with("_pages")) names.push_back(graph.tensor(id).name);
  return names;
}

// Readers of a parameter, by op.
std::vector<std::string> readers_of(const Graph& graph, std::string_view parameter) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes())
    for (const TensorId input : node.inputs)
      if (graph.tensor(input).name == parameter) ops.emplace_back(node.op->name);
  return ops;
}

// The graph with a window for the attention of block 1.
Graph with_window(const Graph& graph, int64_t window) {
  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.producer == kNoNode) REQUIRE(copy.copy_tensor(TensorId{static_cast<uint32_t>(i)}).ok());
    if (tensor.producer == kNoNode || tensor.output_index != 0) continue;
    std::vector<Attr> attrs = graph.node(tensor.producer).attrs;
    for (Attr& attr : attrs)
      if (attr.name == "window" && graph.node(tensor.producer).scope == "block.1.attention")
        attr.value = window;
    REQUIRE(copy.copy_node(tensor.producer, std::move(attrs)).ok());
  }
  REQUIRE(copy.copy_results().ok());
  return std::move(copy.graph());
}

const std::vector<std::string> kLatentStates = {"block.0.attention.latent_pages",
                                                "block.1.attention.latent_pages"};

}  // namespace

TEST_CASE("pages of latent attention hold latent vectors, and the weight of keys and values is absorbed") {
  for (const Graph& forward :
       {latent_model(), ok(with_mixed_precision(latent_model(), DType::kBF16)),
        latent_model(std::string(kModel) + ",QA=8"),
        latent_model(std::string(kModel) + ",rope_half,rope_rows=1,rope_magnitude=1.2")}) {
    const Graph graph = serving(forward);
    CHECK(graph.verify().ok());
    CHECK(page_states_of(graph) == kLatentStates);
    const TensorType& pages = graph.type(*graph.find_tensor(kLatentStates[0]));
    CHECK(pages.shape == Shape{4, 8, 1, 14});
    for (const Node& node : graph.nodes())
      if (node.op->name == "attention_paged") {
        CHECK(attr_i64(node.attrs, "value_width") == 10);
        CHECK(attr_f64(node.attrs, "scale") == doctest::Approx(1 / std::sqrt(12.0)).epsilon(1e-15));
      }
  }
  CHECK(readers_of(serving(latent_model()), "block.0.kv_b") ==
        std::vector<std::string>{"head_matmul", "head_matmul"});
  const Graph scaled = serving(latent_model(std::string(kModel) + ",attention_scale=0.3"));
  for (const Node& node : scaled.nodes())
    if (node.op->name == "attention_paged") CHECK(attr_f64(node.attrs, "scale") == 0.3);
}

TEST_CASE("the absorbed weight stays in its type") {
  const Graph graph = serving(latent_model("deepseek2:L=1,C=16,H=4,D=12,R=4,KA=32,VD=6,F=12,E=4,K=2,V=11,T=16"));
  for (const DType type : {DType::kBF16, DType::kQ4_0}) {
    const Graph stored = ok(with_stored_weights(graph, {.types = {{"block.0.kv_b", type}}}));
    CHECK(stored.type(*stored.find_tensor("block.0.kv_b")).dtype == type);
    CHECK(readers_of(stored, "block.0.kv_b") == std::vector<std::string>{"head_matmul", "head_matmul"});
    CHECK(stored.verify().ok());
  }
  const Graph all = ok(with_stored_weights(graph, {.types = {}, .matrices = DType::kQ8_0}));
  CHECK(all.type(*all.find_tensor("block.0.kv_b")).dtype == DType::kQ8_0);
}

TEST_CASE("latent vectors of layers with a window are in pages of the windows") {
  const Graph forward = with_window(latent_model(), 5);
  const Graph graph = ok(make_serving(
      forward,
      {.pages = 4, .page_size = 8, .rows = 2, .context = 16, .cache = DType::kBF16, .window_pages = 3}));
  CHECK(page_states_of(graph) == kLatentStates);
  CHECK(window_states(graph) == std::set<std::string>{kLatentStates[1]});
  CHECK(graph.type(*graph.find_tensor(kLatentStates[1])) == TensorType{DType::kBF16, {3, 8, 1, 14}});
}

TEST_CASE("an adapter of the weight is absorbed with it, one with magnitudes or of each token is not") {
  const Graph forward = latent_model();
  const TensorId weight = *forward.find_tensor("block.0.kv_b");
  const auto adapted = [&](auto change) {
    AdapterPlacement placement{.weight = weight, .rank = 3, .factor = 0.5};
    change(placement);
    return ok(with_adapters(forward, std::vector{placement}));
  };
  const Graph plain = serving(adapted([](AdapterPlacement&) {}));
  CHECK(page_states_of(plain) == kLatentStates);
  CHECK(readers_of(plain, "block.0.kv_b.lora_b") == std::vector<std::string>{"head_matmul", "head_matmul"});
  CHECK(page_states_of(serving(adapted([](AdapterPlacement& it) { it.has_start = true; }))) == kLatentStates);

  const std::vector<std::string> first_expanded = {"block.0.attention.k_pages", "block.0.attention.v_pages",
                                                   "block.1.attention.latent_pages"};
  CHECK(page_states_of(serving(adapted([](AdapterPlacement& it) { it.has_magnitude = true; }))) ==
        first_expanded);
  CHECK(page_states_of(serving(adapted([](AdapterPlacement& it) { it.has_bias = true; }))) == first_expanded);
  CHECK(page_states_of(serving(forward, 2)).size() == 4);
}

TEST_CASE("attention without a latent vector is not taken for it, nor are sums without end") {
  for (const char* const words : {"llama:L=1,C=8,H=2,F=8,V=11,T=8", "gpt2:L=1,C=8,H=2,V=11,T=8"}) {
    const Graph forward = latent_model(words);
    for (const Node& node : forward.nodes())
      if (node.op->name == "attention") CHECK_FALSE(find_latent_attention(forward, node));
  }
  // Sums of sums, each of which doubles what is to be computed.
  std::string text =
      "graph {\n  input c: f32[1, 2, 4]\n  input r: f32[1, 2, 2]\n  input q: f32[1, 2, 3, 4]\n"
      "  input l: f32[1, 2, 3, 2]\n  parameter w: f32[12, 4]\n"
      "  s0 = matmul(c, w) {trans_w = 1} : f32[1, 2, 12]\n";
  for (int i = 0; i < 40; ++i)
    text += "  s" + std::to_string(i + 1) + " = add(s" + std::to_string(i) + ", s" + std::to_string(i) +
            ") : f32[1, 2, 12]\n";
  text +=
      "  h = split_dim(s40) {dim = 2, inner = 4} : f32[1, 2, 3, 4]\n"
      "  k0 = slice(h) {dim = 3, begin = 0, end = 2} : f32[1, 2, 3, 2]\n"
      "  k1 = broadcast(r, l) {axes = [2]} : f32[1, 2, 3, 2]\n"
      "  k = concat(k0, k1) {dim = 3} : f32[1, 2, 3, 4]\n"
      "  v = slice(h) {dim = 3, begin = 2, end = 4} : f32[1, 2, 3, 2]\n"
      "  o, lse = attention(q, k, v) : f32[1, 2, 3, 2], f32[1, 2, 3]\n  output o = o\n}";
  const Graph sums = ok(parse_graph(text));
  CHECK_FALSE(find_latent_attention(sums, sums.nodes().back()));
}
