// Whole tiny models on the reference kernels in f64: the gradient of every parameter, and serving against
// the forward pass. What no test of a single op can see: that the ops fit together.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "graph/autodiff.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/sampling.h"
#include "graph/transform/serving.h"
#include "graph/transform/training.h"
#include "tests/masked_graph.h"
#include "tests/ops/host_values.h"
#include "tests/ops/kernel_runner.h"
#include "tests/recurrent_graph.h"

using namespace tessera;
using namespace tessera::test;

namespace {

using Values = std::map<std::string, HostTensor>;

const char* const kModels[] = {
    "gpt2:L=2,C=8,H=2,V=11,T=6",
    "llama:L=2,C=8,H=4,KV=2,F=12,V=11,T=6",
    "llama:L=2,C=8,H=4,KV=2,D=4,R=2,F=6,V=11,T=6,windows=2|0,rope_rows=1,rope_magnitude=1.5,qkv_bias,o_bias,"
    "mlp_bias",
    "gemma3:L=2,C=8,H=2,KV=1,D=4,F=6,V=11,T=6,windows=3|0,softcap=2,logit_softcap=3,attention_scale=0.7,tied,"
    "rope_half",
    "gemma4:L=4,C=8,H=2,KV=1,D=4,F=6,V=11,T=6,windows=3|0|3|0,head_sizes=4|6|4|6,ffn_widths=6|6|9|9,shared_kv=2,P=3,rope_rows=1,"
    "tied,rope_half",
    "gemma4:L=2,C=8,H=2,KV=2,D=4,F=5,V=11,T=6,windows=3|0,head_sizes=4|6,kv_heads=2|1,key_values=0|1,logit_softcap=3,E=3,K=2,FD=7,"
    "rope_half",
    "qwen3moe:L=1,C=8,H=2,KV=1,D=6,F=5,E=3,K=2,V=11,T=6,normalize=0,rope_half",
    "moe:L=2,C=8,H=4,KV=2,F=12,E=3,K=2,V=11,T=6,capacity=0,aux=0.3,z=0.1",
    "ministral3:L=2,C=8,H=4,KV=2,F=6,V=11,T=6,query_beta=0.4,query_context=2",
    "nemotron_h:L=3,C=8,H=2,D=4,F=6,HS=4,GS=2,VS=3,KS=2,V=11,T=6,halves=1|2|1,recurrent=1|0|0",
    "lfm2:L=2,C=8,H=4,KV=2,F=6,V=11,T=6,attention_every=2,conv_bias",
    "lfm2moe:L=2,C=8,H=2,F=5,FD=6,E=4,K=2,V=11,T=6,recurrent=0|1,expert_layers=0|1,expert_scale=1.5",
    "qwen3_5:L=2,C=8,H=4,KV=2,D=4,R=2,F=6,HS=4,GS=2,VS=3,KS=2,V=11,T=6,attention_every=2,rope_half",
    "qwen3_5moe:L=1,C=8,H=2,KV=1,F=5,E=3,K=2,FS=4,HS=4,GS=2,VS=2,V=11,T=6,turned,rope_half",
    "granitehybrid:L=2,C=8,H=2,F=6,HS=4,GS=2,VS=3,KS=2,V=11,T=6,attention_every=2,conv_bias,residual_scale=0.5,rope_layers=0|0",
    "olmo2:L=2,C=8,H=4,KV=2,F=6,V=11,T=6,windows=3|0,window_theta=50,rope_rows=1",
    "granite:L=1,C=8,H=2,F=6,V=11,T=6,embedding_scale=3,residual_scale=0.5,logit_scale=0.25,attention_scale="
    "0.6",
    "seed_oss:L=1,C=8,H=4,KV=2,D=4,F=6,V=11,T=6,qkv_bias,o_bias,rope_half",
    "qwen2moe:L=2,C=8,H=2,F=5,E=3,K=2,FS=4,FD=6,V=11,T=6,expert_layers=0|1,rope_half",
    "gpt-oss:L=2,C=8,H=4,KV=2,D=4,F=5,E=3,K=2,V=11,T=6,window=3,gate_limit=0.6,rope_half",
    "deepseek2:L=2,C=8,H=2,D=6,R=2,KA=5,VD=3,F=5,FD=6,E=4,K=2,FS=4,V=11,T=6,expert_layers=0|1,normalize",
    "deepseek2:L=1,C=8,H=2,D=6,R=4,KA=5,QA=7,F=5,E=4,K=2,FS=5,V=11,T=6,expert_sigmoid,groups=2,groups_used=1,"
    "expert_scale=1.5",
};
// These are not served as they compute a whole sequence: not at all, or without a bound on the slots.
const char* const kTrainedOnly[] = {
    "phi3:L=1,C=8,H=2,F=6,V=11,T=6,R=2,rope_rows=2,rope_switch=3,rope_magnitude=1.1,rope_half",
    "encoder:L=2,C=8,H=2,V=11,T=6",
    "encoder:L=1,C=8,H=2,V=11,T=6,tied=0",
    "bert:L=1,C=8,H=2,F=6,V=11,T=6",
    "bert:L=1,C=8,H=2,F=6,V=11,T=6,N=11",
    "roberta:L=1,C=8,H=2,F=6,V=11,T=6,N=11",
    "distilbert:L=1,C=8,H=2,F=6,V=11,T=6,N=11",
    "modernbert:L=2,C=8,H=2,F=6,V=11,T=6,windows=0|2",
    "modernbert:L=2,C=8,H=2,F=6,V=11,T=6,windows=0|2,N=11,head_bias",
    "nomic-bert:L=1,C=8,H=2,F=6,V=11,T=6",
    "moe:L=2,C=8,H=4,KV=2,F=12,E=3,K=1,V=11,T=6,capacity=0.6,aux=0.3",
};

// The same graph in f64, where finite differences tell a wrong gradient from rounding.
Graph in_f64(const Graph& graph) {
  std::string text = print(graph);
  for (size_t at = 0; (at = text.find("f32[", at)) != std::string::npos;) text.replace(at, 3, "f64");
  auto wide = parse_graph(text);
  REQUIRE_MESSAGE(wide.ok(), wide.status().to_string());
  return *wide;
}

Graph forward_model(const std::string& shorthand) {
  if (shorthand == "masked") {
    const auto masked = masked_graph(11, false);
    REQUIRE_MESSAGE(masked.ok(), masked.status().to_string());
    return *masked;
  }
  if (shorthand == "recurrent") {
    const auto recurrent = recurrent_graph(11, true);
    REQUIRE_MESSAGE(recurrent.ok(), recurrent.status().to_string());
    return *recurrent;
  }
  const auto config = parse_shorthand(shorthand);
  REQUIRE_MESSAGE(config.ok(), config.status().to_string());
  auto graph = build_model(*config);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  return *graph;
}

// Multi-head latent attention whose keys and values are products of two weights and an adapter with a start.
constexpr const char* kAdaptedLatent = "adapted latent";

Graph served_model(const std::string& shorthand) {
  if (shorthand != kAdaptedLatent) return forward_model(shorthand);
  const Graph plain = forward_model("deepseek2:L=2,C=8,H=3,D=6,R=2,KA=5,VD=3,F=5,E=4,K=2,V=11,T=6");
  std::vector<AdapterPlacement> placements;
  for (const char* const weight : {"block.0.kv_b", "block.1.kv_b"})
    placements.push_back({.weight = *plain.find_tensor(weight), .rank = 2, .factor = 0.6, .has_start = true});
  auto adapted = with_adapters(plain, placements);
  REQUIRE_MESSAGE(adapted.ok(), adapted.status().to_string());
  return *adapted;
}

Graph bound(const Graph& graph, int64_t B, int64_t T) {
  auto concrete = graph.bind(std::vector<std::pair<std::string, int64_t>>{{"B", B}, {"T", T}});
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().to_string());
  return *concrete;
}

Values parameters_of(const Graph& graph) {
  Values values;
  uint64_t salt = 1;
  for (TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    values[graph.tensor(id).name] = scattered_f64(graph.type(id).shape, salt++);
  return values;
}

std::vector<int32_t> token_ids(int64_t count, int32_t vocabulary) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 7 + 3) % vocabulary));
  return tokens;
}

HostTensor first_positions(int64_t B, int64_t T) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < B * T; ++i) positions.push_back(static_cast<int32_t>(i % T));
  return i32({B, T}, positions);
}

std::vector<HostTensor> run(const Graph& graph, const Values& values) {
  auto results = run_graph(graph, values);
  REQUIRE_MESSAGE(results.ok(), results.status().to_string());
  return *results;
}

std::span<const double> output(const Graph& graph, const std::vector<HostTensor>& results,
                               std::string_view name) {
  return results[index(*graph.find_output(name))].as<double>();
}

}  // namespace

TEST_CASE("the gradient of every parameter of a tiny model equals finite differences") {
  const int64_t B = 2, T = 4;
  std::vector<std::string> models(std::begin(kModels), std::end(kModels));
  models.insert(models.end(), std::begin(kTrainedOnly), std::end(kTrainedOnly));
  models.push_back("recurrent");
  for (const std::string& shorthand : models) {
    Graph graph = forward_model(shorthand);
    const Status with_loss = add_token_loss(graph);
    REQUIRE_MESSAGE(with_loss.ok(), with_loss.to_string());
    const Graph forward = in_f64(bound(graph, B, T));
    Graph training = forward;
    const Status status = differentiate(training, *training.find_output("loss"));
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    const Status valid = training.verify();
    REQUIRE_MESSAGE(valid.ok(), valid.to_string());

    Values values = parameters_of(forward);
    values["tokens"] = i32({B, T}, token_ids(B * T, 11));
    values["positions"] = first_positions(B, T);
    if (forward.find_tensor("token_types")) values["token_types"] = i32({B, T}, token_ids(B * T, 2));
    values["labels"] = i32({B, T}, {1, 2, -1, 4, 10, 9, 8, 0});
    values["loss_scale"] = f64({}, {1.0 / 7});
    const std::vector<HostTensor> results = run(training, values);
    const std::vector<TensorId> parameters = forward.tensors_of_kind(TensorKind::kParameter);
    CHECK(static_cast<int64_t>(training.gradients().size()) ==
          std::ranges::count_if(parameters, [&](TensorId id) { return forward.tensor(id).trainable; }));

    for (const Gradient& gradient : training.gradients()) {
      const std::string& name = training.tensor(gradient.parameter).name;
      const auto grad = results[index(gradient.gradient)].as<double>();
      // Along one direction for each parameter: a wrong element shows unless the direction is blind to it.
      const std::vector<double> direction = scattered(static_cast<int64_t>(grad.size()), 99);
      double slope = 0;
      for (size_t i = 0; i < grad.size(); ++i) slope += grad[i] * direction[i];
      const auto loss_at = [&](double step) {
        Values moved = values;
        const auto parameter = values[name].as<double>();
        std::vector<double> there(parameter.begin(), parameter.end());
        for (size_t i = 0; i < there.size(); ++i) there[i] += step * direction[i];
        moved[name] = f64(values[name].type.shape, there);
        return output(forward, run(forward, moved), "loss")[0];
      };
      const auto difference = [&](double step) { return (loss_at(step) - loss_at(-step)) / (2 * step); };
      const double step = 1e-5;
      double wanted = difference(step);
      const auto agrees = [&] { return std::abs(slope - wanted) < 1e-7 * (1 + std::abs(wanted)); };
      // Norms of small vectors bend the loss: the error of second order is taken out by a second step.
      if (!agrees()) wanted = (4 * wanted - difference(2 * step)) / 3;
      CHECK_MESSAGE(agrees(), shorthand, " ", name, ": ",
                    slope, " along the direction, finite differences say ", wanted);
    }
  }
}

TEST_CASE("serving tokens of several sequences in any order of steps gives the logits of each sequence") {
  const int64_t rows = 3, T = 6, page = 2, pages = 11;
  // Steps of (sequence, tokens of it), padded to kTokens: chunks of prompts with single tokens of others.
  const std::vector<std::vector<std::pair<int32_t, int64_t>>> steps = {
      {{0, 3}, {1, 1}}, {{1, 4}}, {{2, 2}, {0, 1}, {1, 1}}, {{0, 2}, {2, 3}}, {{2, 1}}};
  constexpr int64_t kTokens = 7, kWanted = 4;
  // Pages of each sequence, in an order of their own.
  const std::vector<int32_t> table = {7, 2, 9, 4, 10, 0, 1, 8, 3};
  std::vector<std::string> models(std::begin(kModels), std::end(kModels));
  models.push_back("masked");
  models.push_back("recurrent");
  models.push_back(kAdaptedLatent);
  for (const std::string& shorthand : models) {
    CAPTURE(shorthand);
    const Graph symbolic = served_model(shorthand);
    const Graph forward = in_f64(bound(symbolic, rows, T));
    const Values values = parameters_of(forward);
    const std::vector<int32_t> tokens = token_ids(rows * T, 11);
    Values inputs = values;
    inputs["tokens"] = i32({rows, T}, tokens);
    inputs["positions"] = first_positions(rows, T);
    const std::vector<HostTensor> computed = run(forward, inputs);
    const auto logits = output(forward, computed, "logits");

    auto serving =
        make_serving(symbolic, {.pages = pages, .page_size = page, .rows = rows, .context = T, .cache = {}});
    REQUIRE_MESSAGE(serving.ok(), serving.status().to_string());
    const auto sampled = with_sampling(*serving);
    REQUIRE_MESSAGE(sampled.ok(), sampled.status().to_string());
    auto concrete =
        sampled->bind(std::vector<std::pair<std::string, int64_t>>{{"B", 1}, {"N", kTokens}, {"W", kWanted}});
    REQUIRE_MESSAGE(concrete.ok(), concrete.status().to_string());
    const Graph step = in_f64(*concrete);
    Values given = values;
    given["page_table"] = i32({rows, T / page}, table);
    const bool has_latent = shorthand.starts_with("deepseek2") || shorthand == kAdaptedLatent;
    CHECK(step.find_tensor("block.0.attention.latent_pages").has_value() == has_latent);
    given["temperature"] = f64({}, {0});
    given["top_k"] = i32({}, {0});
    given["top_p"] = f64({}, {1});
    given["seed"] = i64({}, {1});
    given["start"] = given["length"] = i32({kWanted}, std::vector<int32_t>(kWanted));
    for (TensorId id : step.tensors_of_kind(TensorKind::kState))
      given[step.tensor(id).name] = scattered_f64(step.type(id).shape, 5);  // what lies there is not seen
    std::vector<int32_t> lengths(rows, 0);
    for (const auto& parts : steps) {
      std::vector<int32_t> ids(kTokens, 0), row(kTokens, -1), position(kTokens, 0), slot(kTokens, -1);
      std::vector<int32_t> wanted(kWanted, -1);
      size_t at = 0, part = 0;
      for (const auto& [sequence, count] : parts) {
        for (int64_t i = 0; i < count; ++i, ++at) {
          const int32_t place = lengths[sequence]++;
          ids[at] = tokens[static_cast<size_t>(sequence * T + place)];
          row[at] = sequence;
          position[at] = place;
          slot[at] = static_cast<int32_t>(table[sequence * (T / page) + place / page] * page + place % page);
        }
        wanted[part++] = static_cast<int32_t>(at) - 1;
      }
      given["tokens"] = i32({1, kTokens}, ids);
      given["row"] = i32({1, kTokens}, row);
      given["positions"] = i32({1, kTokens}, position);
      given["slot"] = i32({1, kTokens}, slot);
      given["wanted"] = i32({kWanted}, wanted);
      const std::vector<HostTensor> results = run(step, given);
      for (const Update& update : step.updates())
        given[step.tensor(update.target).name] = results[index(update.value)];
      const auto found = output(step, results, "logits");
      const auto drawn = results[index(*step.find_output("token"))].as<int32_t>();
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto first = static_cast<size_t>((parts[i].first * T + lengths[parts[i].first] - 1) * 11);
        for (size_t v = 0; v < 11; ++v)
          CHECK(found[i * 11 + v] == doctest::Approx(logits[first + v]).epsilon(1e-12));
        const auto row = logits.subspan(first, 11);
        CHECK(drawn[i] == std::ranges::max_element(row) - row.begin());
      }
    }
  }
}

TEST_CASE("attention over segments is not served") {
  const auto packed = masked_graph(11, true);
  REQUIRE_MESSAGE(packed.ok(), packed.status().to_string());
  const Status status =
      make_serving(*packed, {.pages = 1, .page_size = 6, .rows = 1, .context = 6, .cache = {}}).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("segments") != std::string::npos);
}
