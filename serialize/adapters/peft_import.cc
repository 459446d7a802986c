// Groups the file's tensors by module, chooses the naming that matches most modules of the model, and reads each group as an
// adapter of its module's weight; groups without a module are errors.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "graph/base/nearest_hint.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"
#include "serialize/adapters/adapter_file.h"
#include "serialize/adapters/adapter_values.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/adapters/module_adapter.h"
#include "serialize/adapters/peft_config.h"
#include "serialize/adapters/peft_naming.h"
#include "serialize/adapters/untied_head.h"
#include "serialize/export/exported_config.h"
#include "serialize/head_rows.h"
#include "serialize/import/safetensors.h"
#include "serialize/plain_file.h"
#include "serialize/token_rows.h"
#include "text/python_json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "adapter_config.json", kWeights = "adapter_model.safetensors",
                           kPrefix = "base_model.model.";
constexpr int64_t kMostConfigBytes = int64_t{16} << 20;

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }
Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

bool exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<Json> read_json(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const auto file, open_file(path));
  if (file->size() > kMostConfigBytes)
    return corrupt(format("{} has {} bytes, wanted at most {}", path, file->size(), kMostConfigBytes));
  std::string text(static_cast<size_t>(file->size()), '\0');
  TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return parse_python_json(text, kConfig);
}

// Group: the tensors of one module.
struct Group {
  const ForeignTensor *a = nullptr, *b = nullptr, *bias = nullptr, *magnitude = nullptr;
  bool is_embedding = false;
};

class PeftReader {
 public:
  PeftReader(std::shared_ptr<const ByteSource> source, ForeignTensors tensors, PeftConfig config,
             ExportedConfig exported, const Model& base)
      : source_(std::move(source)),
        tensors_(std::move(tensors)),
        config_(std::move(config)),
        exported_(std::move(exported)) {
    file_.base = base;
  }

  Result<AdapterFile> run() {
    TSR_RETURN_IF_ERROR(sort_tensors());
    TSR_RETURN_IF_ERROR(resize_base());
    if (has_tied_head(file_.base) && changes_table_or_head()) {
      TSR_ASSIGN_OR_RETURN(file_.base, with_untied_head(file_.base));
    }
    TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(file_.base.graph));
    graph_ = std::move(logical.graph);
    modules_ = foreign_modules(graph_, exported_.family->huggingface);
    choose_naming();
    if (exported_.decoder)
      order_ =
          row_order(HeadRows{.D = exported_.decoder->D,
                             .R = exported_.decoder->R == 0 ? exported_.decoder->D : exported_.decoder->R,
                             .half = true,
                             .wanted_half = exported_.decoder->rope_half});
    TSR_ASSIGN_OR_RETURN(const PeftSelection selection,
                         PeftSelection::create(config_, exported_.config.family));
    for (const ForeignModule& module : modules_) TSR_RETURN_IF_ERROR(add_module(module, selection));
    TSR_RETURN_IF_ERROR(check_no_group_is_left());
    TSR_RETURN_IF_ERROR(add_whole(selection));
    if (file_.weights.empty() && file_.values.empty())
      return corrupt("the adapter has no tensors for any module of the model");
    return std::move(file_);
  }

 private:
  // ---- names

  Status sort_tensors() {
    constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight", kBias = ".lora_B.bias",
                               kEmbeddingA = ".lora_embedding_A", kEmbeddingB = ".lora_embedding_B",
                               kMagnitude = ".lora_magnitude_vector",
                               kMagnitudeWeight = ".lora_magnitude_vector.weight",
                               kRows = ".trainable_tokens_delta";
    for (const auto& [full, tensor] : tensors_) {
      if (!full.starts_with(kPrefix))
        return corrupt(format("tensor '{}': wanted a name that begins with '{}'", quote(full), kPrefix));
      const std::string name = full.substr(kPrefix.size());
      const auto group = [&](std::string_view ending) -> Group* {
        return name.ends_with(ending) ? &groups_[name.substr(0, name.size() - ending.size())] : nullptr;
      };
      if (Group* const it = group(kA)) {
        it->a = &tensor;
      } else if (Group* const it = group(kB)) {
        it->b = &tensor;
      } else if (Group* const it = group(kBias)) {
        it->bias = &tensor;
      } else if (Group* const it = group(kEmbeddingA)) {
        it->a = &tensor, it->is_embedding = true;
      } else if (Group* const it = group(kEmbeddingB)) {
        it->b = &tensor, it->is_embedding = true;
      } else if (Group* const it = group(kMagnitude)) {
        it->magnitude = &tensor;
      } else if (Group* const it = group(kMagnitudeWeight)) {
        it->magnitude = &tensor;
      } else if (name.ends_with(kRows)) {
        rows_.emplace(without(name.substr(0, name.size() - kRows.size()), ".token_adapter"), &tensor);
      } else if (name.find(".original_module.") != name.npos) {
        continue;  // equal to the base's value
      } else if (name.find(".lora_") != name.npos) {
        return unsupported(format("tensor '{}' is of a kind that is not supported", quote(full)));
      } else {
        std::string owner = name;
        for (const char* part : {".base_layer", ".token_adapter", ".modules_to_save"})
          owner = without(std::move(owner), part);
        whole_.emplace(std::move(owner), &tensor);
      }
    }
    return {};
  }

  static std::string without(std::string name, std::string_view part) {
    if (const size_t at = name.find(part); at != name.npos) name.erase(at, part.size());
    return name;
  }

  static bool is_table_or_head(std::string_view name) {
    for (const std::string_view leaf : {"embed_tokens", "wte", "lm_head"})
      if (name == leaf || name.ends_with("." + std::string(leaf)) ||
          name.ends_with(std::string(leaf) + ".weight"))
        return true;
    return false;
  }
  // Table rows also belong to a tied head.
  bool changes_table_or_head() const {
    return std::ranges::any_of(groups_, [](const auto& it) { return is_table_or_head(it.first); }) ||
           std::ranges::any_of(whole_, [](const auto& it) { return is_table_or_head(it.first); }) ||
           std::ranges::any_of(rows_, [](const auto& it) { return ends_with_name(it.first, "lm_head"); });
  }

  // Full tables and heads may have another number of rows, after a resize of the
  // vocabulary: the base is resized if the file has values for all resized parameters.
  Status resize_base() {
    const int64_t rows = token_rows(file_.base);
    const ForeignTensor* resized = nullptr;
    std::string_view name;
    bool has_table = false, has_head = false;
    for (const auto& [full, tensor] : whole_) {
      if (!is_table_or_head(full) || tensor->shape.rank() != 2) continue;
      (full.ends_with("lm_head.weight") ? has_head : has_table) = true;
      if (resized != nullptr && tensor->shape[0] != resized->shape[0])
        return Status(StatusCode::kInvalidArgument,
                      format("tensor '{}{}' is [{}], and '{}{}' is [{}]: wanted one number of rows", kPrefix,
                             quote(full), tensor->shape, kPrefix, quote(name), resized->shape));
      resized = tensor;
      name = full;
    }
    if (resized == nullptr || rows == 0 || resized->shape[0] == rows) return {};
    if (!has_tied_head(file_.base) && !(has_table && has_head))
      return Status(StatusCode::kInvalidArgument,
                    format("tensor '{}{}' is [{}], the model's table has {} rows, and the file lacks the resized "
                           "{}: save the adapter with save_embedding_layers=True, or change the model's rows "
                           "first (tessera resize, tsr_model_resize_tokens)",
                           kPrefix, quote(name), resized->shape, rows, has_table ? "head" : "table"));
    TSR_ASSIGN_OR_RETURN(file_.base, with_token_rows(file_.base, resized->shape[0], 0));
    return {};
  }

  std::string name_of(const ForeignModule& module) const {
    return named(naming_, huggingface_module_name(exported_, module.name));
  }

  // Chooses the naming that matches most modules of the file.
  void choose_naming() {
    size_t most = 0;
    for (const Naming& naming : kNamings) {
      size_t found = 0;
      naming_ = naming;
      for (const ForeignModule& module : modules_) {
        const std::string name = name_of(module);
        found += groups_.contains(name) || rows_.contains(name) || whole_.contains(name + ".weight") ? 1 : 0;
      }
      if (found > most) most = found, best_ = naming;
    }
    naming_ = best_;
  }

  // ---- adapters

  Status add_module(const ForeignModule& module, const PeftSelection& selection) {
    if (module.is_expert) return {};
    const std::string name = name_of(module);
    const auto found = groups_.find(name);
    const bool is_linear = !module.is_table && !module.is_head();
    TSR_ASSIGN_OR_RETURN(const bool adapted, selection.is_adapted(name, is_linear));
    if (found == groups_.end()) {
      // Some classes have matrices as routers, others do not.
      if (!adapted || module.is_router) return {};
      return corrupt(
          format("module '{}' is one that {} adapts, and has no tensors '{}{}.lora_A.weight' and "
                 "lora_B in {}",
                 name, kConfig, kPrefix, name, kWeights));
    }
    if (!adapted)
      return corrupt(
          format("module '{}' has tensors in {}, but {} does not adapt it", name, kWeights, kConfig));
    const Group group = found->second;
    groups_.erase(found);
    TSR_ASSIGN_OR_RETURN(const int64_t rank, selection.rank(name));
    TSR_ASSIGN_OR_RETURN(const double factor, selection.factor(name));
    TSR_RETURN_IF_ERROR(check_group(module, name, group, rank));
    return add_values(module, name, group, rank, factor);
  }

  Status check_group(const ForeignModule& module, const std::string& name, const Group& group,
                     int64_t rank) const {
    const std::string_view a = group.is_embedding ? "lora_embedding_A" : "lora_A.weight",
                           b = group.is_embedding ? "lora_embedding_B" : "lora_B.weight";
    if (group.a == nullptr || group.b == nullptr)
      return corrupt(format("tensor '{}{}.{}' is missing", kPrefix, name, group.a == nullptr ? a : b));
    if (group.is_embedding != module.is_table)
      return corrupt(format("module '{}' {} a table, and its adapter {} one's", name,
                            module.is_table ? "is" : "is not", module.is_table ? "is not" : "is"));
    const int64_t out = module.is_table ? module.columns : module.rows,
                  in = module.is_table ? module.rows : module.columns;
    const auto check = [&](const ForeignTensor& tensor, std::string_view which, Shape wanted) -> Status {
      if (tensor.shape == wanted) return {};
      return Status(StatusCode::kInvalidArgument,
                    format("tensor '{}{}.{}' is [{}], the model and rank {} want [{}]: the adapter is of "
                           "another model, or its configuration of another adapter",
                           kPrefix, name, which, tensor.shape, rank, wanted));
    };
    TSR_RETURN_IF_ERROR(check(*group.a, a, {rank, in}));
    TSR_RETURN_IF_ERROR(check(*group.b, b, {out, rank}));
    if (config_.has_bias != (group.bias != nullptr) && !module.is_table)
      return corrupt(format("tensor '{}{}.lora_B.bias' is {}, and lora_bias of {} {}", kPrefix, name,
                            group.bias ? "there" : "missing", kConfig, config_.has_bias ? "true" : "false"));
    if (config_.has_magnitudes != (group.magnitude != nullptr))
      return corrupt(format("tensor '{}{}.lora_magnitude_vector' is {}, and use_dora of {} {}", kPrefix, name,
                            group.magnitude ? "there" : "missing", kConfig,
                            config_.has_magnitudes ? "true" : "false"));
    if (group.magnitude != nullptr)
      TSR_RETURN_IF_ERROR(check(*group.magnitude, "lora_magnitude_vector", {out}));
    return group.bias == nullptr ? Status() : check(*group.bias, "lora_B.bias", {out});
  }

  Status add_values(const ForeignModule& module, const std::string& name, const Group& group, int64_t rank,
                    double factor) {
    if (config_.has_start && module.is_table)
      return unsupported(
          format("module '{}' is a table, which init_lora_weights \"pissa\" is not supported for", name));
    // Tables have no dropout in PEFT, and magnitudes use another formula; dropout is then ignored.
    const bool has_dropout = !module.is_table && !config_.has_magnitudes;
    ModuleAdapter adapter{.rank = rank,
                          .factor = factor,
                          .a = {},
                          .b = {},
                          .bias = {},
                          .magnitude = {},
                          .has_start = config_.has_start,
                          .dropout = has_dropout ? config_.dropout : 0};
    TSR_ASSIGN_OR_RETURN(adapter.a, read_f32(*source_, name, *group.a));
    if (module.is_table) adapter.a = transposed_matrix(adapter.a);
    TSR_ASSIGN_OR_RETURN(adapter.b, read_f32(*source_, name, *group.b));
    if (group.bias != nullptr) {
      TSR_ASSIGN_OR_RETURN(adapter.bias, read_f32(*source_, name, *group.bias));
    }
    if (group.magnitude != nullptr) {
      TSR_ASSIGN_OR_RETURN(adapter.magnitude, read_f32(*source_, name, *group.magnitude));
    }
    add_adapter(file_, module, adapter, order_);
    return {};
  }

  std::vector<int64_t> order_of(std::string_view parameter) const {
    return has_rotated_rows(parameter) ? order_ : std::vector<int64_t>();
  }

  Status check_no_group_is_left() const {
    if (groups_.empty()) return {};
    const std::string& name = groups_.begin()->first;
    if (name.find(".experts.") != name.npos)
      return unsupported(
          format("module '{}' is of an expert: adapters of experts are not supported", quote(name)));
    std::vector<std::string> names;
    for (const ForeignModule& module : modules_)
      if (!module.is_expert) names.push_back(name_of(module));
    return Status(
        StatusCode::kInvalidArgument,
        format("module '{}' of the adapter has no place in the model ({}){}. The adapter "
               "is of another model",
               quote(name), file_.base.metadata.at("description"), nearest_hint(name, names)));
  }

  // ---- parameters in full

  Status add_whole(const PeftSelection& selection) {
    std::map<std::string, std::vector<std::string>> parameters;  // by tensor name in the file
    std::map<std::string, ValueChange> changes;
    for (const TensorId id : graph_.tensors_of_kind(TensorKind::kParameter)) {
      const std::string& parameter = graph_.tensor(id).name;
      const auto name = exported_.family->huggingface.find(parameter);
      if (!name) continue;
      const std::string full = named(naming_, huggingface_name(exported_, name->tensor));
      parameters[full].push_back(parameter);
      changes[full] = name->change;
    }
    for (const auto& [name, tensor] : whole_) {
      const auto found = parameters.find(name);
      if (found == parameters.end())
        return Status(StatusCode::kInvalidArgument,
                      format("tensor '{}{}' has no place in the model ({})", kPrefix, quote(name),
                             file_.base.metadata.at("description")));
      const std::string module = name.substr(0, name.rfind('.'));
      const bool is_bias = name.ends_with(".bias") && config_.bias != "none";
      const bool trains = selection.is_saved(module) || is_bias;
      // PEFT saves tables and heads with adapters even if only added tokens changed.
      if (!trains && !is_table_or_head(module))
        return corrupt(
            format("tensor '{}{}' is there in full, but {} has it neither in modules_to_save nor as "
                   "a bias",
                   kPrefix, quote(name), kConfig));
      TSR_RETURN_IF_ERROR(add_whole(name, *tensor, found->second, changes[name], trains));
    }
    TSR_RETURN_IF_ERROR(add_rows(parameters));
    for (const auto& [name, owners] : parameters) {
      if (selection.is_saved(name.substr(0, name.rfind('.'))) && !whole_.contains(name))
        return corrupt(
            format("tensor '{}{}' is missing: {} has its module in modules_to_save", kPrefix, name, kConfig));
      // lora_only selects biases of adapted modules, which PEFT omits from its files.
      if (config_.bias == "all" && name.ends_with(".bias") && !whole_.contains(name))
        return corrupt(format("tensor '{}{}' is missing: bias is \"all\" in {}", kPrefix, name, kConfig));
    }
    const auto is_module = [&](std::string_view saved) {
      return std::ranges::any_of(parameters, [&](const auto& it) {
        return is_saved_module(it.first.substr(0, it.first.rfind('.')), saved);
      });
    };
    // PEFT lists both names for classifiers.
    const bool is_classifier = is_module("classifier") || is_module("score");
    for (const std::string& saved : config_.modules_to_save)
      if (!is_module(saved) && !(is_classifier && (saved == "classifier" || saved == "score")))
        return Status(StatusCode::kInvalidArgument,
                      format("{}: modules_to_save has '{}', which the model ({}) has not", kConfig,
                             quote(saved), file_.base.metadata.at("description")));
    return {};
  }

  // Adds rows of single tokens.
  Status add_rows(const std::map<std::string, std::vector<std::string>>& parameters) {
    std::set<std::string> wanted;
    for (const auto& [module, ids] : config_.token_rows) wanted.insert(module);
    for (const auto& [module, tensor] : rows_) {
      const auto owners = parameters.find(module + ".weight");
      const auto listed = std::ranges::find_if(config_.token_rows, [&module = module](const auto& it) {
        return it.first.empty() || ends_with_name(module, it.first);
      });
      if (owners == parameters.end() || owners->second.size() != 1 || !is_table_or_head(module))
        return Status(StatusCode::kInvalidArgument,
                      format("tensor '{}{}.trainable_tokens_delta' has no place in the model ({})", kPrefix,
                             quote(module), file_.base.metadata.at("description")));
      if (listed == config_.token_rows.end())
        return corrupt(format("tensor '{}{}.trainable_tokens_delta' is there, but {} names no tokens of its module",
                              kPrefix, quote(module), kConfig));
      wanted.erase(listed->first);
      TSR_RETURN_IF_ERROR(replace_rows(module, *tensor, owners->second[0], listed->second));
    }
    if (wanted.empty()) return {};
    return corrupt(format("tensor '{}{}.trainable_tokens_delta' is missing: {} names tokens of its module",
                          kPrefix, wanted.begin()->empty() ? "...embed_tokens" : quote(*wanted.begin()), kConfig));
  }

  Status replace_rows(const std::string& module, const ForeignTensor& stored, const std::string& parameter,
                      const std::vector<int64_t>& ids) {
    const Shape& shape = graph_.type(*graph_.find_tensor(parameter)).shape;
    const Shape wanted = {std::ssize(ids), shape[1]};
    if (stored.shape != wanted)
      return Status(StatusCode::kInvalidArgument, format("tensor '{}{}.trainable_tokens_delta' is [{}], the model "
                                                         "and {} tokens want [{}]",
                                                         kPrefix, module, stored.shape, std::ssize(ids), wanted));
    const auto own = file_.values.find(parameter);
    const auto base = file_.base.parameters.find(parameter);
    if (own == file_.values.end() && base == file_.base.parameters.end())
      return unsupported(format("rows of '{}' are replaced, and the model has no values of it yet", module));
    TSR_ASSIGN_OR_RETURN(const HostTensor wide,
                         widen_weight(own != file_.values.end() ? own->second : base->second));
    TSR_ASSIGN_OR_RETURN(const HostTensor rows, read_f32(*source_, module, stored));
    if (const auto past = std::ranges::find_if(ids, [&](int64_t id) { return id >= shape[0]; }); past != ids.end())
      return Status(StatusCode::kInvalidArgument,
                    format("{} has token {} of '{}', whose table is [{}]: change the model's rows first "
                           "(tessera resize, tsr_model_resize_tokens)",
                           kConfig, *past, module, shape));
    file_.values.insert_or_assign(parameter, with_rows(wide, rows, ids));
    return {};
  }

  Status add_whole(const std::string& name, const ForeignTensor& stored,
                   const std::vector<std::string>& parameters, ValueChange change, bool trains) {
    const bool turned = change == ValueChange::kTransposed && stored.shape.rank() == 2;
    Shape wanted = graph_.type(*graph_.find_tensor(parameters[0])).shape;
    if (wanted.rank() > 2)
      return unsupported(format("tensor '{}' is of experts, which is not supported", name));
    int64_t rows = 0;
    for (const std::string& parameter : parameters)
      rows += graph_.type(*graph_.find_tensor(parameter)).shape[0];
    wanted.set(0, rows);
    if (turned) wanted = {wanted[1], wanted[0]};
    if (stored.shape != wanted)
      return Status(StatusCode::kInvalidArgument, format("tensor '{}{}' is [{}], the model wants [{}]",
                                                         kPrefix, name, stored.shape, wanted));
    TSR_ASSIGN_OR_RETURN(HostTensor whole, read_f32(*source_, name, stored));
    if (turned) whole = transposed_matrix(whole);
    if (change == ValueChange::kPlusOne) {
      std::vector<float> values(whole.as<float>().begin(), whole.as<float>().end());
      for (float& value : values) value += 1;
      whole = HostTensor::copy_of<float>(whole.type, values);
    }
    int64_t first = 0;
    for (const std::string& parameter : parameters) {
      const int64_t own = graph_.type(*graph_.find_tensor(parameter)).shape[0];
      file_.values[parameter] = rows_of(whole, first, own, order_of(parameter));
      if (trains) file_.trained.push_back(parameter);
      first += own;
    }
    return {};
  }

  const std::shared_ptr<const ByteSource> source_;
  const ForeignTensors tensors_;
  const PeftConfig config_;
  const ExportedConfig exported_;
  AdapterFile file_;
  Graph graph_;
  std::vector<ForeignModule> modules_;
  std::vector<int64_t> order_;  // row permutation of q and k within a head
  Naming naming_ = kNamings[0], best_ = kNamings[0];
  std::map<std::string, Group> groups_;                // by module
  std::map<std::string, const ForeignTensor*> whole_;  // by tensor
  std::map<std::string, const ForeignTensor*> rows_;   // of single tokens, by module
};

}  // namespace

Result<AdapterFile> read_peft_adapter(const std::string& folder, const Model& base) {
  const std::string config_path = folder + "/" + std::string(kConfig),
                    path = folder + "/" + std::string(kWeights);
  TSR_RETURN_IF_ERROR(check_side_files(folder));
  if (!exists(config_path))
    return Status(StatusCode::kNotFound,
                  format("{} is missing: an adapter's folder has {} and {}", config_path, kConfig, kWeights));
  if (!exists(path)) {
    if (exists(folder + "/adapter_model.bin"))
      return unsupported(
          format("{} has its weights in adapter_model.bin; save them as safetensors "
                 "(save_pretrained does)",
                 folder));
    return Status(StatusCode::kNotFound, format("{} is missing", path));
  }
  TSR_ASSIGN_OR_RETURN(const Json json, read_json(config_path));
  TSR_ASSIGN_OR_RETURN(PeftConfig config, read_peft_config(json));
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const ByteSource> source, open_file(path));
  Result<ForeignTensors> tensors = read_safetensors(*source);
  if (!tensors.ok()) return tensors.status().with_context(path);
  TSR_ASSIGN_OR_RETURN(ExportedConfig exported, exported_config(base));
  if (exported.family->huggingface.empty())
    return unsupported(
        format("models of the family {} have no names in Hugging Face's files", exported.family->name));
  return PeftReader(source, *std::move(tensors), std::move(config), std::move(exported), base).run();
}

}  // namespace tessera
