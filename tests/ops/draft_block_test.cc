// The draft block of a model, in f64: its logits are those of its formula, and a server's steps give the same.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/models/model_family.h"
#include "graph/transform/draft_block.h"
#include "graph/transform/embedding.h"
#include "graph/transform/serving.h"
#include "tests/ok.h"
#include "tests/ops/host_values.h"
#include "tests/ops/kernel_runner.h"

using namespace tessera;
using namespace tessera::test;

namespace {

using Values = std::map<std::string, HostTensor>;
using Extents = std::vector<std::pair<std::string, int64_t>>;

constexpr int64_t kTokens = 6, kChannels = 8, kVocabulary = 11;

// A model with a draft block, and one whose only block is like it.
struct Pair {
  const char *model, *block;
  double norm_eps;
};
constexpr Pair kPairs[] = {
    {"qwen3_5:L=2,C=8,H=4,KV=2,D=4,R=2,F=6,HS=4,GS=2,VS=3,KS=2,V=11,T=6,attention_every=2,rope_half",
     "qwen3_5:L=1,C=8,H=4,KV=2,D=4,R=2,F=6,HS=4,GS=2,VS=3,KS=2,V=11,T=6,attention_every=1,rope_half", 1e-5},
    {"qwen3_5moe:L=2,C=8,H=2,KV=1,F=5,E=3,K=2,FS=4,HS=4,GS=2,VS=2,V=11,T=6,attention_every=2,aux=0.5,rope_half,norm_eps=0.01",
     "qwen3_5moe:L=1,C=8,H=2,KV=1,F=5,E=3,K=2,FS=4,HS=4,GS=2,VS=2,V=11,T=6,attention_every=1,aux=0,rope_half,norm_eps=0.01", 0.01},
    {"deepseek2:L=2,C=8,H=2,D=6,R=4,KA=5,QA=7,F=5,FD=6,E=4,K=2,FS=5,V=11,T=6,expert_layers=0|1,expert_sigmoid,groups=2,groups_used=1",
     "deepseek2:L=1,C=8,H=2,D=6,R=4,KA=5,QA=7,F=5,FD=6,E=4,K=2,FS=5,V=11,T=6,expert_sigmoid,groups=2,groups_used=1", 1e-5},
};

Graph built(const std::string& shorthand) { return ok(build_model(ok(parse_shorthand(shorthand)))); }

// In f64, with these extents.
Graph in_f64(const Graph& graph, const Extents& extents) {
  std::string text = print(ok(graph.bind_partly(extents)));
  for (size_t at = 0; (at = text.find("f32[", at)) != std::string::npos;) text.replace(at, 3, "f64");
  return ok(parse_graph(text));
}

Values parameters_of(const Graph& graph) {
  Values values;
  uint64_t salt = 1;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    values[graph.tensor(id).name] = scattered_f64(graph.type(id).shape, salt++);
  return values;
}

std::vector<double> normed(const double* x, const HostTensor& weight, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < kChannels; ++i) sum += x[i] * x[i];
  std::vector<double> y;
  for (int64_t i = 0; i < kChannels; ++i)
    y.push_back(x[i] / std::sqrt(sum / static_cast<double>(kChannels) + eps) * weight.as<double>()[static_cast<size_t>(i)]);
  return y;
}

// The projection of [norm(embedding), norm(hidden)] of each token: rows of a table [V, C].
HostTensor projected(const Values& values, const HostTensor& table, const std::vector<int32_t>& tokens, const HostTensor& hidden,
                     double eps) {
  const auto w = values.at("draft.projection").as<double>();
  std::vector<double> rows(static_cast<size_t>(kVocabulary * kChannels));
  for (int64_t t = 0; t < kTokens; ++t) {
    const double* const embedding = table.as<double>().data() + tokens[static_cast<size_t>(t)] * kChannels;
    std::vector<double> both = normed(embedding, values.at("draft.embedding_norm"), eps);
    for (const double each : normed(hidden.as<double>().data() + t * kChannels, values.at("draft.hidden_norm"), eps)) both.push_back(each);
    for (int64_t n = 0; n < kChannels; ++n)
      for (int64_t k = 0; k < 2 * kChannels; ++k)
        rows[static_cast<size_t>(t * kChannels + n)] += w[static_cast<size_t>(n * 2 * kChannels + k)] * both[static_cast<size_t>(k)];
  }
  return f64({kVocabulary, kChannels}, rows);
}

std::vector<double> logits_of(const Graph& graph, const Values& values) {
  const std::vector<HostTensor> results = ok(run_graph(graph, values));
  const auto logits = results[index(*graph.find_output("logits"))].as<double>();
  return {logits.begin(), logits.end()};
}

void check_close(const std::vector<double>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  double largest = 0;
  for (const double each : wanted) largest = std::max(largest, std::abs(each));
  // Sums of at most a hundred products in f64.
  for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - wanted[i]) <= 1e-12 * largest);
}

}  // namespace

TEST_CASE("a draft block's logits are those of a block that reads the projection of the embedding and of the hidden state") {
  for (const Pair& pair : kPairs)
    for (const bool own_tables : {false, true}) {
      CAPTURE(pair.model);
      CAPTURE(own_tables);
      const Graph whole = built(std::string(pair.model) + ",MTP=1" + (own_tables ? ",draft_tables" : ""));
      const Graph block = in_f64(ok(draft_block_of(whole)), {{"B", 1}, {"T", kTokens}});
      Values values = parameters_of(block);
      const std::vector<int32_t> tokens = {3, 10, 6, 2, 9, 5}, positions = {0, 1, 2, 3, 4, 5};
      values["tokens"] = i32({1, kTokens}, tokens);
      values["positions"] = i32({1, kTokens}, positions);
      values[std::string(kDraftHidden)] = scattered_f64({1, kTokens, kChannels}, 99);

      Values like;
      for (const auto& [name, value] : values)
        if (name.starts_with("draft.")) like["block.0." + name.substr(6)] = value;
      const char* const tables = own_tables ? "draft." : "";
      like["token_embedding"] = projected(values, values.at(std::string(tables) + "token_embedding"), tokens,
                                          values.at(std::string(kDraftHidden)), pair.norm_eps);
      like["output"] = values.at(std::string(tables) + "output");
      like["final_norm"] = values.at("draft.final_norm");
      like["tokens"] = like["positions"] = i32({1, kTokens}, positions);
      check_close(logits_of(block, values), logits_of(in_f64(built(pair.block), {{"B", 1}, {"T", kTokens}}), like));
    }
}

TEST_CASE("a model without its draft block is the model that it would be") {
  for (const Pair& pair : kPairs) {
    CAPTURE(pair.model);
    const Graph plain = built(pair.model), whole = built(std::string(pair.model) + ",MTP=1");
    CHECK(has_draft_block(whole));
    CHECK(print(ok(without_draft_block(whole))) == print(plain));
    CHECK(print(ok(without_draft_block(plain))) == print(plain));
    const Result<Graph> none = draft_block_of(plain);
    REQUIRE(!none.ok());
    CHECK(none.status().message().find("MTP") != std::string_view::npos);
  }
  for (const char* const size : {"MTP=2", "MTP=1,head=0", "draft_tables"}) {
    const auto config = parse_shorthand(std::string(kPairs[0].model) + "," + size);
    CHECK(!build_model(*config).ok());
  }
}

TEST_CASE("a draft block is served as it computes a whole sequence, and gives the hidden states that its next draft reads") {
  for (const Pair& pair : kPairs) {
    CAPTURE(pair.model);
    const Graph block = ok(draft_block_of(built(std::string(pair.model) + ",MTP=1")));
    const Graph whole = in_f64(block, {{"B", 1}, {"T", kTokens}});
    Values values = parameters_of(whole);
    const std::vector<int32_t> tokens = {3, 10, 6, 2, 9, 5}, positions = {0, 1, 2, 3, 4, 5};
    const HostTensor hidden = scattered_f64({1, kTokens, kChannels}, 99);
    values["tokens"] = i32({1, kTokens}, tokens);
    values["positions"] = i32({1, kTokens}, positions);
    values[std::string(kDraftHidden)] = hidden;
    const std::vector<double> wanted = logits_of(whole, values);

    ServingOptions options;
    options.pages = 2, options.page_size = 4, options.rows = 1, options.context = 8;
    options.hidden = true;
    const Graph step = in_f64(ok(make_serving(block, options)), {{"B", 1}, {"N", kTokens}, {"W", kTokens}});
    for (const TensorId id : step.tensors_of_kind(TensorKind::kState))
      values[step.tensor(id).name] = f64(step.type(id).shape, std::vector<double>(static_cast<size_t>(step.type(id).shape.elements())));
    values["row"] = i32({1, kTokens}, std::vector<int32_t>(kTokens, 0));
    values["slot"] = values["positions"];
    values["page_table"] = i32({1, 2}, {0, 1});
    values["wanted"] = i32({kTokens}, positions);
    check_close(logits_of(step, values), wanted);
    const std::vector<HostTensor> results = ok(run_graph(step, values));
    const auto states = results[index(*step.find_output("hidden"))];
    CHECK(states.type.shape == Shape{1, kTokens, kChannels});
    const std::vector<HostTensor> of_whole = ok(run_graph(whole, values));
    const auto normed_states = of_whole[index(ok(find_hidden(whole)))].as<double>();
    check_close({states.as<double>().begin(), states.as<double>().end()}, {normed_states.begin(), normed_states.end()});
  }
}
