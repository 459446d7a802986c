#include "serialize/import/huggingface_encoder_config.h"

#include <algorithm>
#include <span>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_labels.h"
#include "serialize/import/huggingface_reader.h"

namespace tessera {
namespace {

constexpr int64_t kMostLayers = 1024;

class EncoderConfigReader {
 public:
  EncoderConfigReader(JsonFields& fields, HuggingfaceConfig& out) : fields_(fields), out_(out) {}

  struct Type {
    std::string_view name, prefix;  // of the classes: "Bert" of BertModel
    void (EncoderConfigReader::*read)();
  };
  static std::span<const Type> types();

  void run(const Type& type) {
    (this->*type.read)();
    read_head(type.prefix);
    fields_.wants("is_decoder", false, "attention in both directions");
    fields_.wants("add_cross_attention", false, "no second encoder");
  }

 private:
  int64_t& size(const char* name) { return out_.config.sizes[name]; }
  double& real(const char* name) { return out_.config.reals[name]; }
  bool& flag(const char* name) { return out_.config.flags[name]; }

  void wants_activation(const char* key, const char* wanted) {
    const std::string found = fields_.text(key, wanted);
    if (found != wanted && !(std::string_view(wanted) == "gelu" && found == "gelu_python") &&
        !(std::string_view(wanted) == "silu" && (found == "swish" || found == "swiglu")))
      fields_.fail(StatusCode::kUnsupported, format("{} is '{}'; only a {} model with '{}' can be imported",
                                                    key, found, out_.config.family, wanted));
  }

  void read_sizes(std::string_view family, int64_t V, int64_t T) {
    out_.config.family = family;
    size("C") = fields_.size("hidden_size", 768);
    size("L") = fields_.integer("num_hidden_layers", 12, 1, kMostLayers);
    size("H") = fields_.size("num_attention_heads", 12);
    size("F") = fields_.size("intermediate_size", 3072);
    size("V") = fields_.size("vocab_size", V);
    size("T") = fields_.size("max_position_embeddings", T);
    flag("tied") = fields_.flag("tie_word_embeddings", true);
    if (size("C") % size("H") != 0)
      fields_.fail(
          StatusCode::kCorrupt,
          format("hidden_size is {}, wanted a multiple of num_attention_heads {}", size("C"), size("H")));
  }

  void read_bert() {
    read_sizes("bert", 30522, 512);
    size("Y") = fields_.size("type_vocab_size", 2);
    real("norm_eps") = fields_.real("layer_norm_eps", 1e-12);
    wants_activation("hidden_act", "gelu");
    fields_.wants("position_embedding_type", "absolute", "a table of positions");
  }

  // Positions count from the row after padding.
  void read_roberta() {
    read_sizes("roberta", out_.model_type == "roberta" ? 50265 : 30522, 512);
    size("Y") = fields_.size("type_vocab_size", 2);
    real("norm_eps") = fields_.real("layer_norm_eps", 1e-12);
    wants_activation("hidden_act", "gelu");
    fields_.wants("position_embedding_type", "absolute", "a table of positions");
    const int64_t rows = size("T");
    size("position_offset") = fields_.integer("pad_token_id", 1, 0, int64_t{1} << 31) + 1;
    size("T") = rows - size("position_offset");
    if (size("T") < 1)
      fields_.fail(StatusCode::kCorrupt,
                   format("max_position_embeddings is {}, wanted more than pad_token_id + 1 = {}", rows,
                          size("position_offset")));
  }

  void read_distilbert() {
    out_.config.family = "distilbert";
    size("C") = fields_.size("dim", 768);
    size("L") = fields_.integer("n_layers", 6, 1, kMostLayers);
    size("H") = fields_.size("n_heads", 12);
    size("F") = fields_.size("hidden_dim", 3072);
    size("V") = fields_.size("vocab_size", 30522);
    size("T") = fields_.size("max_position_embeddings", 512);
    flag("tied") = fields_.flag("tie_word_embeddings", true);
    real("norm_eps") = 1e-12;
    wants_activation("activation", "gelu");
    if (size("C") % size("H") != 0)
      fields_.fail(StatusCode::kCorrupt,
                   format("dim is {}, wanted a multiple of n_heads {}", size("C"), size("H")));
  }

  void read_modernbert() {
    read_sizes("modernbert", 50368, 8192);
    size("L") = fields_.integer("num_hidden_layers", 22, 1, kMostLayers);
    size("F") = fields_.size("intermediate_size", 1152);
    real("norm_eps") = fields_.real("norm_eps", 1e-5);
    wants_activation("hidden_activation", "gelu");
    for (const char* const key : {"norm_bias", "attention_bias", "mlp_bias"})
      fields_.wants(key, false, "blocks without biases");
    flag("output_bias") = fields_.flag("decoder_bias", true);
    flag("head_bias") = fields_.flag("classifier_bias", false);
    wants_activation("classifier_activation", "gelu");
    read_modernbert_windows();
    real("rope_theta") = rotation("full_attention", fields_.real("global_rope_theta", 160000.0));
    real("window_theta") = rotation("sliding_attention", fields_.real("local_rope_theta", 10000.0));
  }

  void read_modernbert_windows() {
    // Half of local_attention on both sides, or sliding_window, which is the half and takes precedence.
    int64_t window = fields_.integer("local_attention", 128, 2, int64_t{1} << 30) / 2 + 1;
    if (fields_.has("sliding_window")) window = fields_.integer("sliding_window", 64, 0, int64_t{1} << 30) + 1;
    const int64_t every = fields_.integer("global_attn_every_n_layers", 3, 1, int64_t{1} << 30);
    const std::vector<std::string> types = fields_.texts("layer_types", static_cast<size_t>(kMostLayers));
    if (!types.empty() && static_cast<int64_t>(types.size()) != size("L"))
      fields_.fail(StatusCode::kCorrupt,
                   format("layer_types has {} names, the model has {} layers", types.size(), size("L")));
    if (!fields_.status().ok()) return;
    std::vector<int64_t>& windows = out_.config.lists["windows"];
    for (int64_t i = 0; i < size("L"); ++i) {
      bool local = i % every != 0;
      if (!types.empty()) {
        const std::string& type = types[static_cast<size_t>(i)];
        local = type == "sliding_attention";
        if (!local && type != "full_attention")
          fields_.fail(StatusCode::kUnsupported,
                       format("layer_types has '{}'; known: full_attention, sliding_attention", type));
      }
      windows.push_back(local ? window : 0);
    }
  }

  // The base for a kind of layers, or for all if `kind` is empty.
  double rotation(const char* kind, double otherwise) {
    Json json;
    if (*kind != '\0') {
      json = rotation_of_layers(fields_, kind, true, out_.model_type);
    } else {
      const Json* const scaling = fields_.object("rope_scaling");
      const Json* const parameters = fields_.object("rope_parameters");
      json = scaling != nullptr && !scaling->empty() ? *scaling : parameters != nullptr ? *parameters : Json::object();
    }
    JsonFields rope(json, "config.json: rope_parameters");
    const std::string type = rope.text("rope_type", rope.text("type", "default"));
    if (type != "default")
      rope.fail(StatusCode::kUnsupported, format("rope_type is '{}'; encoders want 'default'", type));
    const double theta = rope.real("rope_theta", otherwise);
    if (!rope.status().ok()) fields_.fail(rope.status().code(), std::string(rope.status().message()));
    if (!(theta > 0))
      fields_.fail(StatusCode::kCorrupt, format("rope_theta is {}, wanted more than 0", theta));
    return theta;
  }

  void read_nomic_bert() {
    if (fields_.has("n_embd")) return read_own_nomic_bert();
    read_sizes("nomic-bert", 30528, 2048);
    size("Y") = fields_.size("type_vocab_size", 2);
    real("norm_eps") = fields_.real("layer_norm_eps", 1e-12);
    wants_activation("hidden_act", "silu");
    real("rope_theta") = rotation("", fields_.real("rope_theta", 1000.0));
    const int64_t D = fields_.size("head_dim", std::max<int64_t>(1, size("C") / size("H")));
    if (D * size("H") != size("C"))
      fields_.fail(
          StatusCode::kUnsupported,
          format("head_dim is {}, wanted hidden_size / num_attention_heads = {}", D, size("C") / size("H")));
  }

  // Keys of nomic-ai's own code, which scales rotations beyond the trained positions.
  void read_own_nomic_bert() {
    out_.config.family = "nomic-bert";
    size("C") = fields_.size("n_embd");
    size("L") = fields_.integer("n_layer", 12, 1, kMostLayers);
    size("H") = fields_.size("n_head", 12);
    size("F") = fields_.size("n_inner", 4 * size("C"));
    size("V") = fields_.size("vocab_size", 30528);
    size("T") = std::min(fields_.size("n_positions", 2048), fields_.size("max_trained_positions", 2048));
    size("Y") = fields_.size("type_vocab_size", 2);
    real("norm_eps") = fields_.real("layer_norm_epsilon", 1e-12);
    real("rope_theta") = fields_.real("rotary_emb_base", 1000.0);
    wants_activation("activation_function", "silu");
    for (const char* const key : {"causal", "mlp_fc1_bias", "mlp_fc2_bias", "qkv_proj_bias", "prenorm",
                                  "parallel_block", "rotary_emb_interleaved", "use_rms_norm"})
      fields_.wants(key, false, "Nomic's text encoder");
    fields_.wants("rotary_emb_fraction", 1.0, "rotations of whole heads");
    fields_.wants("moe_every_n_layers", 0, "no experts");
    if (size("C") % size("H") != 0)
      fields_.fail(StatusCode::kCorrupt,
                   format("n_embd is {}, wanted a multiple of n_head {}", size("C"), size("H")));
  }

  // ---- heads

  void read_head(std::string_view prefix) {
    const std::vector<std::string> names = fields_.texts("architectures", 16);
    std::string kind = names.empty() ? std::string("Model") : names[0];
    if (kind.starts_with(prefix)) kind = kind.substr(prefix.size());
    flag("mlm") = kind == "ForMaskedLM" || kind == "ForPreTraining";
    if (flag("mlm") || kind == "Model") return;
    if (kind != "ForSequenceClassification") {
      fields_.fail(
          StatusCode::kUnsupported,
          format("architectures has '{}'; known: {}Model, {}ForMaskedLM, {}ForSequenceClassification",
                 names[0], prefix, prefix, prefix));
      return;
    }
    if (out_.config.family == "modernbert") {
      const std::string pooling = fields_.text("classifier_pooling", "cls");
      if (pooling != "cls" && pooling != "mean")
        fields_.fail(StatusCode::kUnsupported,
                     format("classifier_pooling is '{}'; wanted cls or mean", quote(pooling, 60)));
      flag("class_mean") = pooling == "mean";
    }
    read_labels(fields_, out_);
  }

  JsonFields& fields_;
  HuggingfaceConfig& out_;
};

std::span<const EncoderConfigReader::Type> EncoderConfigReader::types() {
  using It = EncoderConfigReader;
  static constexpr Type kTypes[] = {
      {"bert", "Bert", &It::read_bert},
      {"camembert", "Camembert", &It::read_roberta},
      {"distilbert", "DistilBert", &It::read_distilbert},
      {"modernbert", "ModernBert", &It::read_modernbert},
      {"nomic_bert", "NomicBert", &It::read_nomic_bert},
      {"roberta", "Roberta", &It::read_roberta},
      {"xlm-roberta", "XLMRoberta", &It::read_roberta},
  };
  return kTypes;
}

const EncoderConfigReader::Type* find_type(std::string_view model_type) {
  const auto found =
      std::ranges::find(EncoderConfigReader::types(), model_type, &EncoderConfigReader::Type::name);
  return found == EncoderConfigReader::types().end() ? nullptr : &*found;
}

}  // namespace

bool is_huggingface_encoder(std::string_view model_type) { return find_type(model_type) != nullptr; }

std::vector<std::string> huggingface_encoders() {
  std::vector<std::string> names;
  for (const EncoderConfigReader::Type& type : EncoderConfigReader::types()) names.emplace_back(type.name);
  return names;
}

void read_encoder(JsonFields& fields, HuggingfaceConfig& out) {
  const EncoderConfigReader::Type* const type = find_type(out.model_type);
  TSR_CHECK(type != nullptr, "the type is an encoder's");
  EncoderConfigReader(fields, out).run(*type);
}

}  // namespace tessera
