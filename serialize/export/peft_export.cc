// The most common rank and alpha become the defaults of adapter_config.json, others its rank_pattern and alpha_pattern.
// Modules are named by last components where these are unambiguous.
#include "serialize/export/peft_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "graph/base/text.h"
#include "serialize/adapters/adapted_model.h"
#include "serialize/adapters/adapter_values.h"
#include "serialize/adapters/exported_adapters.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/export/foreign_tensors.h"
#include "serialize/export/safetensors_writer.h"
#include "serialize/quantization.h"
#include "text/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "adapter_config.json", kWeights = "adapter_model.safetensors",
                           kPrefix = "base_model.model.", kUs = "tessera";

// An integer if the value is one, as PEFT declares alpha.
Json number(double value) {
  const double whole = std::round(value);
  if (whole == value && std::abs(whole) < 1e15) return static_cast<int64_t>(whole);
  return value;
}

bool is_whole(double value) {
  return std::abs(value - std::round(value)) <= 1e-9 * std::max(1.0, std::abs(value));
}

// PEFT's divisor of alpha.
double divisor(int64_t rank, bool by_root) {
  const auto count = static_cast<double>(rank);
  return by_root ? std::sqrt(count) : count;
}

// An alpha that gives the factor, a whole number if possible.
double alpha_of(const ExportedAdapter& adapter, bool by_root) {
  const double alpha = adapter.factor * divisor(adapter.rank, by_root);
  return is_whole(alpha) ? std::round(alpha) : alpha;
}

// Whether alphas are whole numbers only when divided by the root of the rank.
bool scales_by_root(const std::vector<ExportedAdapter>& adapters) {
  const auto all_whole = [&](bool by_root) {
    return std::ranges::all_of(
        adapters, [&](const ExportedAdapter& it) { return is_whole(it.factor * divisor(it.rank, by_root)); });
  };
  return !all_whole(false) && all_whole(true);
}

template <class T>
T most_common(const std::vector<T>& values) {
  std::map<T, size_t> counts;
  for (const T& value : values) ++counts[value];
  return std::ranges::max_element(counts, {}, [](const auto& it) { return it.second; })->first;
}

class PeftWriter {
 public:
  PeftWriter(OpenedModel& opened, AdaptedModel adapted, const PeftExportSettings& settings)
      : opened_(opened),
        adapted_(std::move(adapted)),
        type_(settings.type.value_or(DType::kF32)),
        settings_(settings) {}

  Result<ExportContents> run() {
    std::vector<int64_t> order;
    if (const auto& decoder = adapted_.config.decoder)
      order = row_order(HeadRows{.D = decoder->D,
                                 .R = decoder->R == 0 ? decoder->D : decoder->R,
                                 .half = decoder->rope_half,
                                 .wanted_half = true});
    modules_ = foreign_modules(adapted_.base, adapted_.config.family->huggingface);
    for (ForeignModule& module : modules_)
      module.name = huggingface_module_name(adapted_.config, module.name);
    TSR_ASSIGN_OR_RETURN(adapters_, exported_adapters(modules_, adapted_.adapters, adapted_.values, order));
    TSR_RETURN_IF_ERROR(check_all_are_exported());
    TSR_RETURN_IF_ERROR(check_magnitudes());
    TSR_RETURN_IF_ERROR(find_dropout());
    add_adapters();
    TSR_RETURN_IF_ERROR(add_trained());
    if (type_ != DType::kF32)
      for (TensorSource& tensor : tensors_) tensor = encode_source(std::move(tensor), type_);
    ExportContents contents{.is_folder = true, .files = {}, .texts = {}, .notes = {}};
    TSR_ASSIGN_OR_RETURN(TensorFile file, safetensors_file(std::move(tensors_), std::string(kWeights), kUs,
                                                           settings_.relative_base));
    contents.files.push_back(std::move(file));
    contents.texts.emplace_back(kConfig, config().dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    contents.notes = std::move(notes_);
    return contents;
  }

 private:
  std::string_view family() const { return adapted_.config.config.family; }

  Status check_all_are_exported() {
    for (const Adapter& adapter : adapted_.adapters)
      if (std::ranges::none_of(modules_, [&](const ForeignModule& module) {
            return std::ranges::find(module.parts, adapter.weight, &ForeignModule::Part::parameter) !=
                   module.parts.end();
          }))
        return Status(StatusCode::kUnsupported,
                      format("the adapter of '{}' has no name in Hugging Face's files", adapter.weight));
    return {};
  }

  // lora_dropout is common to all adapters, except tables, which have none.
  Status find_dropout() {
    std::optional<double> dropout;
    for (const Adapter& adapter : adapted_.adapters) {
      if (adapter.is_table) continue;
      if (dropout && *dropout != adapter.dropout)
        return Status(StatusCode::kUnsupported,
                      format("the adapter of '{}' has dropout {}, another has {}, which PEFT has no form for",
                             adapter.weight, adapter.dropout, *dropout));
      dropout = adapter.dropout;
    }
    dropout_ = dropout.value_or(0);
    return {};
  }

  // use_dora applies to all adapters.
  Status check_magnitudes() {
    const auto has = [](const ExportedAdapter& it) { return !it.magnitude.data.empty(); };
    has_magnitudes_ = std::ranges::any_of(adapters_, has);
    const auto without = std::ranges::find_if_not(adapters_, has);
    if (!has_magnitudes_ || without == adapters_.end()) return {};
    return Status(
        StatusCode::kUnsupported,
        format("the adapter of '{}' has no magnitude (DoRA) and others have, which PEFT has no form for",
               without->module));
  }

  void add(std::string name, HostTensor value) {
    tensors_.push_back(source_in_memory(std::string(kPrefix) + std::move(name), std::move(value)));
  }

  void add_adapters() {
    has_bias_ =
        std::ranges::any_of(adapters_, [](const ExportedAdapter& it) { return !it.bias.data.empty(); });
    for (const ExportedAdapter& it : adapters_) {
      if (it.is_table) {
        add(it.module + ".lora_embedding_A", transposed_matrix(it.a));
        add(it.module + ".lora_embedding_B", it.b);
        continue;
      }
      add(it.module + ".lora_A.weight", it.a);
      add(it.module + ".lora_B.weight", it.b);
      if (has_magnitudes_) add(it.module + ".lora_magnitude_vector", it.magnitude);
      if (!has_bias_) continue;
      const TensorType type{DType::kF32, {it.b.type.shape[0]}};
      add(it.module + ".lora_B.bias", it.bias.data.empty() ? HostTensor::zeros(type, nullptr) : it.bias);
    }
  }

  // ---- parameters in full

  Status add_trained() {
    std::map<std::string, std::string> tensor_of;  // by parameter
    std::set<std::string> biases, trained(adapted_.trained.begin(), adapted_.trained.end());
    for (const TensorId id : adapted_.base.tensors_of_kind(TensorKind::kParameter)) {
      const std::string& parameter = adapted_.base.tensor(id).name;
      const auto name = adapted_.config.family->huggingface.find(parameter);
      if (name) tensor_of[parameter] = huggingface_name(adapted_.config, name->tensor);
      if (name && name->tensor.ends_with(".bias")) biases.insert(parameter);
    }
    std::set<std::string> wanted;
    are_biases_trained_ = !trained.empty() && trained == biases;
    if (are_biases_trained_) {
      wanted = trained;
    } else {
      for (const std::string& parameter : trained) {
        if (!tensor_of.contains(parameter))
          return Status(StatusCode::kUnsupported,
                        format("'{}' trains as well, and has no name in Hugging Face's files", parameter));
        saved_.insert(module_of(tensor_of[parameter]));
      }
      for (const auto& [parameter, tensor] : tensor_of)
        if (saved_.contains(module_of(tensor))) wanted.insert(parameter);
      for (const ExportedAdapter& it : adapters_)
        if (saved_.contains(it.module))
          return Status(
              StatusCode::kUnsupported,
              format("a parameter of '{}' trains in full next to its adapter, which PEFT has no form "
                     "for: freeze one of them, or merge",
                     it.module));
    }
    if (wanted.empty()) return {};
    ForeignLayout layout{.names = adapted_.config.family->huggingface, .format = "Hugging Face"};
    if (const auto& decoder = adapted_.config.decoder)
      layout.heads =
          HeadRows{.D = decoder->D, .R = decoder->R, .half = decoder->rope_half, .wanted_half = true};
    std::vector<TensorSource> sources;
    for (TensorSource& source : opened_.parameters)
      if (wanted.contains(source.name))
        sources.push_back(source.type.dtype == DType::kF32 ? std::move(source)
                                                           : encode_source(std::move(source), DType::kF32));
    for (const TensorId id : adapted_.base.tensors_of_kind(TensorKind::kParameter))
      if (!wanted.contains(adapted_.base.tensor(id).name))
        layout.left_out.insert(adapted_.base.tensor(id).name);
    TSR_ASSIGN_OR_RETURN(std::vector<TensorSource> made,
                         foreign_tensors(adapted_.base, std::move(sources), layout));
    for (TensorSource& tensor : made) {
      std::string name = huggingface_name(adapted_.config, tensor.name);
      const std::string module = module_of(name);
      const bool is_adapted =
          std::ranges::find(adapters_, module, &ExportedAdapter::module) != adapters_.end();
      if (is_adapted) name = module + ".base_layer" + name.substr(module.size());
      tensor.name = std::string(kPrefix) + name;
      tensors_.push_back(std::move(tensor));
    }
    return {};
  }

  static std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

  // ---- adapter_config.json

  // The last components of the adapted modules' names, if they match no other module; else whole names.
  Json targets() const {
    const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
    std::set<std::string> whole, ends;
    for (const ExportedAdapter& it : adapters_) whole.insert(it.module), ends.insert(last(it.module));
    const bool mean_others = std::ranges::any_of(modules_, [&](const ForeignModule& module) {
      return ends.contains(last(module.name)) && !whole.contains(module.name);
    });
    return Json(mean_others ? whole : ends);
  }

  Json config() const {
    const bool by_root = scales_by_root(adapters_);
    std::vector<int64_t> ranks;
    std::vector<double> alphas;
    for (const ExportedAdapter& it : adapters_)
      ranks.push_back(it.rank), alphas.push_back(alpha_of(it, by_root));
    const int64_t rank = most_common(ranks);
    const double alpha = most_common(alphas);
    Json rank_pattern = Json::object(), alpha_pattern = Json::object();
    for (size_t i = 0; i < adapters_.size(); ++i) {
      if (ranks[i] != rank) rank_pattern[adapters_[i].module] = ranks[i];
      if (alphas[i] != alpha) alpha_pattern[adapters_[i].module] = number(alphas[i]);
    }
    const bool is_turned = family() == "gpt2";  // its Conv1D layers hold [in, out]
    Json json = {{"peft_type", "LORA"},
                 {"task_type", adapted_.config.decoder || is_turned ? Json("CAUSAL_LM") : Json(nullptr)},
                 {"base_model_name_or_path", settings_.base.empty() ? Json(nullptr) : Json(settings_.base)},
                 {"inference_mode", true},
                 {"r", rank},
                 {"lora_alpha", number(alpha)},
                 {"lora_dropout", dropout_},
                 {"use_rslora", by_root},
                 {"use_dora", has_magnitudes_},
                 {"bias", are_biases_trained_ ? "all" : "none"},
                 {"lora_bias", has_bias_},
                 {"fan_in_fan_out", is_turned},
                 {"init_lora_weights", true},
                 {"target_modules", targets()},
                 {"rank_pattern", std::move(rank_pattern)},
                 {"alpha_pattern", std::move(alpha_pattern)},
                 {"modules_to_save", saved_.empty() ? Json(nullptr) : Json(saved_)}};
    return json;
  }

  OpenedModel& opened_;
  const AdaptedModel adapted_;
  const DType type_;
  const PeftExportSettings settings_;
  std::vector<ForeignModule> modules_;
  std::vector<ExportedAdapter> adapters_;
  std::vector<TensorSource> tensors_;
  std::vector<std::string> notes_;
  std::set<std::string> saved_;  // modules
  double dropout_ = 0;
  bool are_biases_trained_ = false, has_bias_ = false, has_magnitudes_ = false;
};

// A text in a safetensors file's metadata; empty: none.
std::string metadata_text(const std::string& path, const char* key) {
  constexpr int64_t kMostHeaderBytes = int64_t{64} << 20;
  const auto file = open_file(path);
  uint64_t size = 0;
  if (!file.ok() || (*file)->size() < 8) return {};
  if (!(*file)->read_at(0, std::as_writable_bytes(std::span(&size, 1))).ok()) return {};
  if (size > static_cast<uint64_t>(std::min<int64_t>(kMostHeaderBytes, (*file)->size() - 8))) return {};
  std::string text(static_cast<size_t>(size), '\0');
  if (!(*file)->read_at(8, std::as_writable_bytes(std::span(text))).ok()) return {};
  const Result<Json> header = parse_json(text, kWeights);
  if (!header.ok() || !header->is_object()) return {};
  const Json metadata = header->value("__metadata__", Json());
  const Json by = metadata.is_object() ? metadata.value(key, Json()) : Json();
  return by.is_string() ? by.get<std::string>() : std::string();
}

}  // namespace

Result<ExportContents> peft_contents(OpenedModel& opened, const PeftExportSettings& settings) {
  TSR_ASSIGN_OR_RETURN(AdaptedModel adapted, adapted_model(opened));
  if (adapted.config.family->huggingface.empty())
    return Status(
        StatusCode::kUnsupported,
        format("models of the family {} have no names in Hugging Face's files", adapted.config.family->name));
  return PeftWriter(opened, std::move(adapted), settings).run();
}

std::string relative_base_of(const std::string& folder) {
  return metadata_text(folder + "/" + std::string(kWeights), "base_model");
}

Status may_replace_peft(const std::string& folder) {
  const auto refuse = [&](std::string_view why) {
    return Status(StatusCode::kInvalidArgument,
                  format("{}: {}; wanted a new or empty folder, or an earlier export", folder, why));
  };
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours =
        entry.is_regular_file(error) && !entry.is_symlink(error) && (name == kConfig || name == kWeights);
    if (!is_ours) return refuse(format("has '{}', which no export of adapters writes", name));
  }
  return metadata_text(folder + "/" + std::string(kWeights), "exported_by") == kUs
             ? Status()
             : refuse("has an adapter that no export wrote");
}

}  // namespace tessera
