#include "graph/graph.h"
#include "graph/models/model_family.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

class GraphTextLoader final : public Loader {
 public:
  GraphTextLoader() {
    seeds_.push_back(print(rich_graph()));
    auto model = parse_shorthand("llama:L=1,C=8,H=2,KV=1,F=16,V=12,T=16");
    TSR_CHECK(model.ok(), "the seed shorthand is not valid");
    auto graph = build_model(*model);
    TSR_CHECK(graph.ok(), "the seed graph is not valid");
    seeds_.push_back(print(*graph));
  }
  std::string_view name() const override { return "graph text"; }
  Outcome run(Random& random) override {
    std::string text = random.pick<std::string>(seeds_);
    mutate_text(text, random);
    return {text.starts_with("graph {"), use_result(parse_graph(text))};
  }

 private:
  std::vector<std::string> seeds_;
};

}  // namespace

std::unique_ptr<Loader> graph_text_loader() { return std::make_unique<GraphTextLoader>(); }

}  // namespace tessera::fuzz
