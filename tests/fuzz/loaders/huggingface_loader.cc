#include "serialize/import/safetensors.h"
#include "serialize/opened_model.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/safetensors_writer.h"
#include "tests/whole_model.h"

namespace tessera::fuzz {
namespace {

constexpr std::string_view kConfigs[] = {
    R"({"model_type":"llama","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,)"
    R"("intermediate_size":6,"vocab_size":5,"max_position_embeddings":16,"tie_word_embeddings":true,"rope_parameters":)"
    R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8}})",
    R"({"model_type":"phi3","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":1,"intermediate_size":6,)"
    R"("vocab_size":5,"max_position_embeddings":16,"tie_word_embeddings":true,"sliding_window":7,)"
    R"("original_max_position_embeddings":8,"eos_token_id":[1,2],)"
    R"("rope_scaling":{"type":"longrope","short_factor":[1,1.5],"long_factor":[2,3]}})",
    R"({"model_type":"gemma3_text","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,)"
    R"("head_dim":2,"intermediate_size":6,"vocab_size":5,"max_position_embeddings":16,"layer_types":["sliding_attention"],)"
    R"("sliding_window":4,"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":1000},)"
    R"("sliding_attention":{"rope_type":"default","rope_theta":10}}})",
    R"({"model_type":"gpt2","n_embd":4,"n_layer":1,"n_head":2,"vocab_size":5,"n_positions":8,"n_inner":null})"};

// A folder in the file system: its configuration and header are mutants, in turns.
class HuggingfaceLoader final : public Loader {
 public:
  HuggingfaceLoader() {
    testing::SafetensorsWriter writer;
    const auto add = [&](std::string_view name, std::string_view shape, size_t count) {
      writer.f32(name, shape, std::vector<float>(count, 0.5f));
    };
    add("model.embed_tokens.weight", "[5,4]", 20);
    add("model.norm.weight", "[4]", 4);
    for (const char* const name : {"input_layernorm", "post_attention_layernorm"})
      add(std::string("model.layers.0.") + name + ".weight", "[4]", 4);
    add("model.layers.0.self_attn.q_proj.weight", "[4,4]", 16);
    add("model.layers.0.self_attn.k_proj.weight", "[2,4]", 8);
    add("model.layers.0.self_attn.v_proj.weight", "[2,4]", 8);
    add("model.layers.0.self_attn.o_proj.weight", "[4,4]", 16);
    for (const char* const name : {"gate", "up"})
      add(std::string("model.layers.0.mlp.") + name + "_proj.weight", "[6,4]", 24);
    add("model.layers.0.mlp.down_proj.weight", "[4,6]", 24);
    file_ = writer.finish();
    write_file(folder_ / "config.json", kConfigs[0]);
    write_file(folder_ / "model.safetensors", file_);
    check_ok(open());
  }
  std::string_view name() const override { return "Hugging Face folder"; }
  Outcome run(Random& random) override {
    std::string config(random.pick<std::string_view>(kConfigs)), file = file_;
    if (random.one_in(2)) {
      mutate_text(config, random);
    } else {
      file = mutant_of_safetensors(file_, random);
    }
    write_file(folder_ / "config.json", config);
    write_file(folder_ / "model.safetensors", file);
    const Status status = open();
    return {status.message().find("not JSON") == std::string_view::npos, status};
  }

 private:
  Status open() const {
    TSR_ASSIGN_OR_RETURN(auto source, open_model_file(folder_ / ""));
    TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_model(std::move(source)));
    return use_result(read_values(std::move(opened)));
  }

  ScratchFolder folder_;
  std::string file_;
};

}  // namespace

std::unique_ptr<Loader> huggingface_loader() { return std::make_unique<HuggingfaceLoader>(); }

}  // namespace tessera::fuzz
