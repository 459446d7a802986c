#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "serialize/adapters/adapter_file.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/safetensors_writer.h"

namespace tessera::fuzz {
namespace {

constexpr std::string_view kConfigs[] = {
    R"({"peft_type":"LORA","r":2,"lora_alpha":4,"use_rslora":true,"target_modules":["q_proj","down_proj","embed_tokens"],)"
    R"("rank_pattern":{"down_proj":3},"alpha_pattern":{"layers\\.0\\..*_proj":6},"modules_to_save":["model.norm"]})",
    R"({"peft_type":"LORA","r":2,"target_modules":".*\\.(q|down)_proj|model\\.embed_tokens","layers_to_transform":[0],)"
    R"("layers_pattern":"layers","exclude_modules":["k_proj"],"rank_pattern":{"(a+)+_proj":1,"down_proj":3},)"
    R"("modules_to_save":["norm"],"bias":"none","init_lora_weights":"gaussian","loftq_config":{}})"};

// A folder of PEFT's over a base with a tied head: its configuration and header are mutants, in turns.
class AdapterLoader final : public Loader {
 public:
  AdapterLoader() {
    constexpr std::string_view kBase = "llama:L=1,C=4,H=2,KV=1,F=6,V=5,T=16,tied";
    base_.graph = *build_model(*parse_shorthand(kBase));
    base_.metadata["description"] = kBase;
    testing::SafetensorsWriter writer;
    const auto add = [&](const std::string& name, std::string_view shape, size_t count) {
      writer.f32("base_model.model.model." + name, shape, std::vector<float>(count, 0.5f));
    };
    add("layers.0.self_attn.q_proj.lora_A.weight", "[2,4]", 8);
    add("layers.0.self_attn.q_proj.lora_B.weight", "[4,2]", 8);
    add("layers.0.mlp.down_proj.lora_A.weight", "[3,6]", 18);
    add("layers.0.mlp.down_proj.lora_B.weight", "[4,3]", 12);
    add("embed_tokens.lora_embedding_A", "[2,5]", 10);
    add("embed_tokens.lora_embedding_B", "[4,2]", 8);
    add("norm.weight", "[4]", 4);
    file_ = writer.finish();
    write_file(folder_ / "adapter_config.json", kConfigs[0]);
    write_file(folder_ / "adapter_model.safetensors", file_);
    check_ok(open());
  }
  std::string_view name() const override { return "PEFT folder"; }
  Outcome run(Random& random) override {
    std::string config(random.pick<std::string_view>(kConfigs)), file = file_;
    if (random.one_in(2)) {
      mutate_text(config, random);
    } else {
      file = mutant_of_safetensors(file_, random);
    }
    write_file(folder_ / "adapter_config.json", config);
    write_file(folder_ / "adapter_model.safetensors", file);
    const Status status = open();
    return {status.message().find("not JSON") == std::string_view::npos, status};
  }

 private:
  Status open() const {
    TSR_ASSIGN_OR_RETURN(const AdapterFile file, read_peft_adapter(folder_ / ".", base_));
    std::vector<AdapterPlacement> placements;
    for (const AdapterFile::Weight& weight : file.weights)
      placements.push_back({.weight = *file.base.graph.find_tensor(weight.name),
                            .rank = weight.rank,
                            .factor = weight.factor,
                            .a = weight.a,
                            .has_bias = weight.has_bias,
                            .has_magnitude = weight.has_magnitude});
    if (placements.empty()) return {};
    TSR_ASSIGN_OR_RETURN(const Graph adapted, with_adapters(file.base.graph, placements));
    for (const auto& [name, value] : file.values)
      if (const auto id = adapted.find_tensor(name); !id || adapted.type(*id).shape != value.type.shape)
        return Status(StatusCode::kInternal, "a value that is no parameter's: " + name);
    return {};
  }

  ScratchFolder folder_;
  std::string file_;
  Model base_;
};

}  // namespace

std::unique_ptr<Loader> adapter_loader() { return std::make_unique<AdapterLoader>(); }

}  // namespace tessera::fuzz
