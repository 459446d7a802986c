// Adding selects weights by name, rewrites the logical graph (with_adapters) and initializes the new values. Merging adds
// factor * A B in double, row by row; weights of bf16 and f16 keep their type, those of blocks become f32.
#include "engine/model/adapters.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "engine/model/principal_adapters.h"
#include "engine/model/weight_selector.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/adapters/adapter_file.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/adapters/untied_head.h"
#include "serialize/file_limits.h"

namespace tessera {
namespace {

std::shared_ptr<SharedModel> shared_from(Model model, const SharedModel& like) {
  auto made = std::make_shared<SharedModel>(std::move(model), like.seed());
  made->set_tokenizer(like.tokenizer());
  made->set_origin(like);
  return made;
}

Status refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "adapters: " + std::move(message));
}

// Numbers: numbers by name, "block.*.q.weight=8,down_proj=4"; the first matching pattern counts.
class Numbers {
 public:
  static Result<Numbers> parse(const std::string& text, std::string_view option,
                               const WeightSelector& selector, std::span<const TensorId> weights) {
    Numbers made;
    if (trim(text).empty()) return made;
    for (const std::string& part : split(text, ',')) {
      const size_t at = part.rfind('=');
      const std::optional<double> number =
          at == part.npos ? std::nullopt : parse_f64(trim(std::string_view(part).substr(at + 1)));
      if (!number)
        return refuse(format("{} has '{}', wanted NAME=NUMBER, with '*' for any characters", option, part));
      const std::string pattern(trim(std::string_view(part).substr(0, at)));
      TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> chosen, selector.select(pattern, weights, option));
      for (const TensorId id : chosen) made.numbers_.emplace(id, *number);
    }
    return made;
  }
  std::optional<double> of(TensorId weight) const {
    const auto found = numbers_.find(weight);
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<TensorId, double> numbers_;
};

// Block numbers from "0,2,5-7".
Result<std::set<int64_t>> parse_layers(const std::string& text) {
  std::set<int64_t> layers;
  for (const std::string& part : split(text, ',')) {
    const std::string_view word = trim(part);
    const size_t at = word.find('-');
    const std::optional<int64_t> first = parse_i64(trim(word.substr(0, at))),
                                 last = at == word.npos ? first : parse_i64(trim(word.substr(at + 1)));
    constexpr int64_t kMost = 1 << 20;
    if (!first || !last || *first < 0 || *last < *first || *last > kMost)
      return refuse(format("layers has '{}', wanted numbers of blocks, as in 0,2,5-7", part));
    for (int64_t layer = *first; layer <= *last; ++layer) layers.insert(layer);
  }
  return layers;
}

// The number N of "block.N.q.weight".
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kBlock = "block.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  return parse_i64(name.substr(0, name.find('.')));
}

Result<std::vector<TensorId>> keep_layers(const Graph& graph, const std::vector<TensorId>& weights,
                                          const std::string& text) {
  TSR_ASSIGN_OR_RETURN(const std::set<int64_t> layers, parse_layers(text));
  std::vector<TensorId> kept;
  std::set<int64_t> found;
  for (const TensorId id : weights)
    if (const std::optional<int64_t> layer = layer_of(graph.tensor(id).name);
        layer && layers.contains(*layer))
      kept.push_back(id), found.insert(*layer);
  for (const int64_t layer : layers)
    if (!found.contains(layer))
      return Status(StatusCode::kNotFound,
                    format("adapters: layers has {}, and no chosen weight is of block {}", layer, layer));
  return kept;
}

// Weights named by the option `on`: matrices of the blocks, or others such as
// head and tables. Default: all matrices of the blocks except expert routers.
Result<std::vector<TensorId>> chosen_weights(const Graph& graph, const WeightSelector& selector,
                                             const std::string& on) {
  const std::vector<TensorId> usual = adaptable_weights(graph);
  if (trim(on).empty()) {
    std::vector<TensorId> chosen = usual;
    std::erase_if(chosen, [&](TensorId id) { return is_router_name(graph.tensor(id).name); });
    return chosen;
  }
  Result<std::vector<TensorId>> chosen = selector.select(on, usual, "adapters");
  if (chosen.ok() || chosen.status().code() != StatusCode::kNotFound) return chosen;
  std::vector<TensorId> all;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (graph.type(id).shape.rank() == 2) all.push_back(id);
  return selector.select(on, all, "adapters");
}

// Names of trained parameters other than adapters.
std::vector<std::string> trained_besides(const Graph& adapted) {
  std::vector<std::string> names;
  for (const TensorId id : adapted.tensors_of_kind(TensorKind::kParameter))
    if (adapted.tensor(id).trainable && !is_adapter_name(adapted.tensor(id).name))
      names.push_back(adapted.tensor(id).name);
  return names;
}

// `wide`: parameters that become f32, because they train or change.
Result<std::shared_ptr<SharedModel>> finish_adapted(Model made, const SharedModel& model, Graph adapted,
                                                    StoredTypes stored, std::span<const std::string> wide) {
  for (const std::string& name : wide) {
    if (stored.erase(name) == 0) continue;
    const auto value = made.parameters.find(name);
    if (value == made.parameters.end()) continue;
    TSR_ASSIGN_OR_RETURN(value->second, widen_weight(value->second));
  }
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(adapted, {.types = std::move(stored)}));
  TSR_RETURN_IF_ERROR(check_storable(made));
  return shared_from(std::move(made), model);
}

Result<AdapterFile> open_adapter_file(const std::string& path, const Model& base) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error))
    return Status(StatusCode::kNotFound, format("{}: there is no such file or folder", path));
  std::string folder = path;
  if (!fs::is_directory(path, error) && !path.ends_with(".safetensors")) {
    TSR_ASSIGN_OR_RETURN(const auto source, open_file(path));
    Result<AdapterFile> file = read_gguf_adapter(source, base);
    return file.ok() ? std::move(file) : Result<AdapterFile>(file.status().with_context(path));
  }
  if (!fs::is_directory(path, error)) {
    folder = fs::path(path).parent_path().string();
    if (folder.empty()) folder = ".";
  }
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  Result<AdapterFile> file = read_peft_adapter(folder, base);
  if (!file.ok() && file.status().message().find(folder) == std::string_view::npos)
    return file.status().with_context(folder);
  return file;
}

bool is_whole(double value) {
  return std::abs(value - std::round(value)) <= 1e-9 * std::max(1.0, std::abs(value));
}

double divisor(const Adapter& adapter, bool by_root) {
  const auto rank = static_cast<double>(adapter.rank);
  return by_root ? std::sqrt(rank) : rank;
}

// An alpha that gives the factor, a whole number if possible.
double nice_alpha(const Adapter& adapter, bool by_root) {
  const double alpha = adapter.factor * divisor(adapter, by_root);
  return is_whole(alpha) ? std::round(alpha) : alpha;
}

// Whether alphas are whole numbers only when divided by the root of the rank.
bool scales_by_root(const std::vector<Adapter>& adapters) {
  const auto all_whole = [&](bool by_root) {
    return std::ranges::all_of(adapters,
                               [&](const Adapter& it) { return is_whole(it.factor * divisor(it, by_root)); });
  };
  return !all_whole(false) && all_whole(true);
}

// Norms of the parts of a weight that compute each output: rows of [N, K], columns of [K, N].
template <class T>
HostTensor norms_as(const HostTensor& weight, bool transposed) {
  const auto rows = static_cast<size_t>(weight.type.shape[0]),
             columns = static_cast<size_t>(weight.type.shape[1]);
  const auto w = weight.as<T>();
  std::vector<double> squares(transposed ? rows : columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      squares[transposed ? i : j] +=
          static_cast<double>(w[i * columns + j]) * static_cast<double>(w[i * columns + j]);
  std::vector<T> norms;
  for (const double sum : squares) norms.push_back(static_cast<T>(std::sqrt(sum)));
  return HostTensor::copy_of<T>({weight.type.dtype, {static_cast<int64_t>(norms.size())}}, norms);
}

HostTensor norms_of(const HostTensor& weight, bool transposed) {
  return weight.type.dtype == DType::kF64 ? norms_as<double>(weight, transposed)
                                          : norms_as<float>(weight, transposed);
}

// Scales each part of the weight by magnitude / norm.
template <class T>
HostTensor with_magnitudes(const HostTensor& weight, const HostTensor& magnitude, bool transposed) {
  const HostTensor norms = norms_as<T>(weight, transposed);
  const auto columns = static_cast<size_t>(weight.type.shape[1]);
  std::vector<T> values(weight.as<T>().begin(), weight.as<T>().end());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t n = transposed ? i / columns : i % columns;
    values[i] = static_cast<T>(static_cast<double>(values[i]) * static_cast<double>(magnitude.as<T>()[n]) /
                               static_cast<double>(norms.as<T>()[n]));
  }
  return HostTensor::copy_of<T>(weight.type, values);
}

// Adds in double, one row at a time, in the storage order of W.
template <class T>
HostTensor merged(const HostTensor& weight, const std::vector<HostTensor>& pairs, const Adapter& it) {
  const auto rows = static_cast<size_t>(weight.type.shape[0]);
  const auto columns = static_cast<size_t>(weight.type.shape[1]);
  const auto rank = static_cast<size_t>(it.rank);
  const auto w = weight.as<T>();
  std::vector<T> values(w.begin(), w.end());
  std::vector<double> row(columns);
  for (size_t i = 0; i < rows; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    double sign = 1;
    for (size_t pair = 0; pair < pairs.size(); pair += 2, sign = -1) {
      // W [R, S] += factor * left [R, r] right [r, S]; for a table right is stored as [S, r].
      const auto l = pairs[pair + (it.transposed ? 1 : 0)].as<T>(),
                 r = pairs[pair + (it.transposed ? 0 : 1)].as<T>();
      for (size_t k = 0; k < rank; ++k)
        for (size_t j = 0; j < columns; ++j)
          row[j] += sign * static_cast<double>(l[i * rank + k]) *
                    static_cast<double>(r[it.is_table ? j * rank + k : k * columns + j]);
    }
    for (size_t j = 0; j < columns; ++j) {
      T& value = values[i * columns + j];
      value = static_cast<T>(static_cast<double>(value) + it.factor * row[j]);
    }
  }
  return HostTensor::copy_of<T>(weight.type, values);
}

template <class T>
HostTensor sum_of(const HostTensor& x, const HostTensor& y, double factor) {
  std::vector<T> values(x.as<T>().begin(), x.as<T>().end());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] += static_cast<T>(factor * static_cast<double>(y.as<T>()[i]));
  return HostTensor::copy_of<T>(x.type, values);
}

Result<std::shared_ptr<SharedModel>> added_adapters(const SharedModel& model, const Options& options,
                                                    bool with_values) {
  OptionReader reader(options, "adapters");
  AdapterOptions adapters;
  adapters.rank = reader.i64("rank", 16, 1, int64_t{1} << 20);
  adapters.alpha = reader.f64("alpha", 0, 0, 1e9);
  const std::string on = reader.text("on"), exclude = reader.text("exclude"), layers = reader.text("layers"),
                    ranks = reader.text("ranks"), alphas = reader.text("alphas"), also = reader.text("also");
  const bool has_start = reader.choice("init", "zero", {"zero", "pissa"}) == "pissa";
  const double dropout = reader.f64("dropout", 0, 0, 0.999);
  const bool by_root = reader.flag("rslora", false), has_magnitudes = reader.flag("dora", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(const LogicalGraph base, with_logical_weights(made.graph));
  const WeightSelector selector(made, base.graph);
  TSR_ASSIGN_OR_RETURN(std::vector<TensorId> weights, chosen_weights(base.graph, selector, on));
  if (!trim(layers).empty()) {
    TSR_ASSIGN_OR_RETURN(weights, keep_layers(base.graph, weights, layers));
  }
  if (!trim(exclude).empty()) {
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> out, selector.select(exclude, weights, "exclude"));
    std::erase_if(weights, [&](TensorId id) { return std::ranges::find(out, id) != out.end(); });
  }
  TSR_ASSIGN_OR_RETURN(const Numbers own_ranks, Numbers::parse(ranks, "ranks", selector, weights));
  TSR_ASSIGN_OR_RETURN(const Numbers own_alphas, Numbers::parse(alphas, "alphas", selector, weights));
  std::vector<AdapterPlacement> placements;
  for (const TensorId weight : weights) {
    const std::string& name = base.graph.tensor(weight).name;
    const double rank = own_ranks.of(weight).value_or(static_cast<double>(adapters.rank));
    const double alpha = own_alphas.of(weight).value_or(adapters.alpha);
    if (!(rank >= 1 && rank <= int64_t{1} << 20) || rank != std::floor(rank))
      return refuse(format("ranks: {} for '{}', wanted a whole number from 1", rank, name));
    if (!(alpha >= 0)) return refuse(format("alphas: {} for '{}', wanted 0 or more", alpha, name));
    AdapterPlacement placement{.weight = weight,
                               .rank = static_cast<int64_t>(rank),
                               .has_magnitude = has_magnitudes,
                               .has_start = has_start,
                               .dropout = dropout};
    if (alpha != 0) placement.factor = alpha / (by_root ? std::sqrt(rank) : rank);
    if (alpha == 0 && by_root) placement.factor = std::sqrt(rank);
    TSR_RETURN_IF_ERROR(check_new_adapter(base.graph, placement));
    placements.push_back(std::move(placement));
  }
  TSR_ASSIGN_OR_RETURN(Graph adapted, with_adapters(base.graph, placements));
  if (!trim(also).empty()) {
    const std::vector<TensorId> all = base.graph.tensors_of_kind(TensorKind::kParameter);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> others, selector.select(also, all, "also"));
    for (const TensorId id : others)
      adapted.set_trainable(*adapted.find_tensor(base.graph.tensor(id).name), true);
  }
  if (has_magnitudes && with_values)  // initialized with the weights' norms
    for (const Adapter& it : find_adapters(adapted)) {
      TSR_ASSIGN_OR_RETURN(HostTensor weight, model.read_uncached(it.weight, model.seed()));
      TSR_ASSIGN_OR_RETURN(weight, widen_weight(weight));
      made.parameters.insert_or_assign(it.magnitude, norms_of(weight, it.transposed));
    }
  if (has_start && with_values)
    TSR_RETURN_IF_ERROR(initialize_principal_adapters(
        made, find_adapters(adapted),
        [&](const std::string& name) { return model.read_uncached(name, model.seed()); }, true));
  const std::vector<std::string> trained = trained_besides(adapted);
  return finish_adapted(std::move(made), model, std::move(adapted), base.stored, trained);
}

}  // namespace

Result<std::vector<std::string>> adapted_weights(const SharedModel& model, const std::string& on) {
  const Model snapshot = model.snapshot();
  TSR_ASSIGN_OR_RETURN(const LogicalGraph base, with_logical_weights(snapshot.graph));
  const WeightSelector selector(snapshot, base.graph);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> weights, chosen_weights(base.graph, selector, on));
  std::vector<std::string> names;
  for (const TensorId weight : weights) names.push_back(base.graph.tensor(weight).name);
  return names;
}

Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options) {
  return added_adapters(model, options, true);
}

Result<std::shared_ptr<SharedModel>> add_adapters_without_values(const SharedModel& model,
                                                                 const Options& options) {
  return added_adapters(model, options, false);
}

Result<std::shared_ptr<SharedModel>> load_adapters(const SharedModel& model, const std::string& path,
                                                   const Options& options) {
  OptionReader reader(options, "adapters");
  TSR_RETURN_IF_ERROR(reader.finish());
  Model given = model.snapshot();
  // An untied head begins as a copy of the embedding, which may not be drawn yet.
  if (has_tied_head(given) && !given.parameters.contains("token_embedding")) {
    TSR_ASSIGN_OR_RETURN(given.parameters["token_embedding"],
                         model.read_uncached("token_embedding", model.seed()));
  }
  TSR_ASSIGN_OR_RETURN(AdapterFile file, open_adapter_file(path, given));
  Model made = std::move(file.base);
  TSR_ASSIGN_OR_RETURN(LogicalGraph base, with_logical_weights(made.graph));
  std::vector<AdapterPlacement> placements;
  for (const AdapterFile::Weight& weight : file.weights)
    placements.push_back({.weight = *base.graph.find_tensor(weight.name),
                          .rank = weight.rank,
                          .factor = weight.factor,
                          .a = weight.a,
                          .has_bias = weight.has_bias,
                          .has_magnitude = weight.has_magnitude,
                          .has_start = weight.has_start,
                          .dropout = weight.dropout});
  Graph adapted = base.graph;
  if (placements.empty()) {
    for (const TensorId id : adapted.tensors_of_kind(TensorKind::kParameter))
      adapted.set_trainable(id, false);
  } else {
    Result<Graph> with = with_adapters(base.graph, placements);
    if (!with.ok()) return with.status().with_context(path);
    adapted = *std::move(with);
  }
  for (const std::string& name : file.trained) adapted.set_trainable(*adapted.find_tensor(name), true);
  std::vector<std::string> replaced;
  for (auto& [name, value] : file.values) {
    if (!is_adapter_name(name)) replaced.push_back(name);
    made.parameters.insert_or_assign(name, std::move(value));
  }
  if (std::ranges::any_of(placements, &AdapterPlacement::has_start)) {
    const auto read = [&](const std::string& name) -> Result<HostTensor> {
      const auto own = made.parameters.find(name);
      return own != made.parameters.end() ? own->second : model.read_uncached(name, model.seed());
    };
    TSR_RETURN_IF_ERROR(initialize_principal_adapters(made, find_adapters(adapted), read, false));
  }
  TSR_ASSIGN_OR_RETURN(auto finished,
                       finish_adapted(std::move(made), model, std::move(adapted), base.stored, replaced));
  finished->add_read_paths({path});
  return finished;
}

Result<std::shared_ptr<SharedModel>> with_parameter_values(const SharedModel& model,
                                                           const std::map<std::string, HostTensor, std::less<>>& values) {
  Model made = model.snapshot();
  for (const auto& [name, value] : values) {
    TSR_RETURN_IF_ERROR(model.check_parameter(name));
    made.parameters.insert_or_assign(name, value);
  }
  return shared_from(std::move(made), model);
}

std::optional<AdapterSummary> adapter_summary(const Graph& graph) {
  const Result<LogicalGraph> logical = with_logical_weights(graph);
  if (!logical.ok()) return std::nullopt;  // a graph with gradients
  const std::vector<Adapter> all = find_adapters(logical->graph);
  if (all.empty()) return std::nullopt;
  AdapterSummary summary;
  summary.rslora = scales_by_root(all);
  summary.dora = std::ranges::all_of(all, [](const Adapter& it) { return !it.magnitude.empty(); });
  summary.has_start = std::ranges::any_of(all, [](const Adapter& it) { return !it.a0.empty(); });
  for (const Adapter& it : all) summary.dropout = std::max(summary.dropout, it.dropout);
  const auto alpha_of = [&](const Adapter& it) { return nice_alpha(it, summary.rslora); };
  summary.rank = all[0].rank;
  summary.alpha = alpha_of(all[0]);
  const auto append = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ",") + item;
  };
  for (const Adapter& it : all) {
    append(summary.on, it.weight);
    if (it.rank != summary.rank) append(summary.ranks, format("{}={}", it.weight, it.rank));
    if (alpha_of(it) != summary.alpha) append(summary.alphas, format("{}={}", it.weight, alpha_of(it)));
  }
  for (const std::string& name : trained_besides(logical->graph)) append(summary.also, name);
  if (const Result<Graph> plain = without_adapters(logical->graph); plain.ok()) {
    std::set<std::string> usual, adapted;
    for (const TensorId id : adaptable_weights(*plain)) usual.insert(plain->tensor(id).name);
    for (const Adapter& it : all) adapted.insert(it.weight);
    summary.is_usual = usual == adapted;
  }
  return summary;
}

std::vector<std::pair<std::string, std::string>> AdapterSummary::more() const {
  std::vector<std::pair<std::string, std::string>> options;
  if (!ranks.empty()) options.emplace_back("ranks", ranks);
  if (!alphas.empty()) options.emplace_back("alphas", alphas);
  if (rslora) options.emplace_back("rslora", "1");
  if (dora) options.emplace_back("dora", "1");
  if (has_start) options.emplace_back("init", "pissa");
  if (dropout > 0) options.emplace_back("dropout", to_text(dropout));
  if (!also.empty()) options.emplace_back("also", also);
  return options;
}

namespace {

// Rounds the sum to the weight's type, if that is bf16 or f16. Quantization
// would lose the adapter, f16 large values: false, and it stays f32.
bool keeps_type(DType stored, HostTensor& sum) {
  if (stored != DType::kBF16 && stored != DType::kF16) return false;
  Result<HostTensor> rounded = quantize_weight(sum, {stored, sum.type.shape});
  if (rounded.ok()) sum = std::move(rounded).value();
  return rounded.ok();
}

}  // namespace

Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model) {
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(made.graph));
  const std::vector<Adapter> all = find_adapters(logical.graph);
  if (all.empty())
    return Status(StatusCode::kFailedPrecondition, "merge: the model has no adapters to take in");
  for (const Adapter& it : all) {
    TSR_ASSIGN_OR_RETURN(HostTensor weight, model.read_uncached(it.weight, model.seed()));
    const auto stored = logical.stored.find(it.weight);
    if (stored != logical.stored.end()) {
      TSR_ASSIGN_OR_RETURN(weight, widen_weight(weight));
    }
    std::vector<HostTensor> pairs;  // a, b, a0, b0
    for (const std::string& name : {it.a, it.b, it.a0, it.b0}) {
      if (name.empty()) continue;
      TSR_ASSIGN_OR_RETURN(pairs.emplace_back(), model.read_uncached(name, model.seed()));
    }
    const DType dtype = weight.type.dtype;
    if (dtype != DType::kF32 && dtype != DType::kF64)
      return Status(StatusCode::kUnsupported,
                    format("merge: '{}' is {}, wanted f32 or f64", it.weight, to_text(weight.type)));
    made.parameters.insert_or_assign(it.weight, dtype == DType::kF32 ? merged<float>(weight, pairs, it)
                                                                     : merged<double>(weight, pairs, it));
    if (!it.magnitude.empty()) {
      TSR_ASSIGN_OR_RETURN(const HostTensor magnitude, model.read_uncached(it.magnitude, model.seed()));
      HostTensor& whole = made.parameters.at(it.weight);
      whole = dtype == DType::kF32 ? with_magnitudes<float>(whole, magnitude, it.transposed)
                                   : with_magnitudes<double>(whole, magnitude, it.transposed);
    }
    if (stored != logical.stored.end() && !keeps_type(stored->second, made.parameters.at(it.weight)))
      logical.stored.erase(stored);
    if (it.bias.empty()) continue;
    if (it.base_bias.empty())
      return Status(StatusCode::kUnsupported,
                    format("merge: '{}' has no place in the weights: the product of '{}' has no bias",
                           it.bias, it.weight));
    TSR_ASSIGN_OR_RETURN(const HostTensor bias, model.read_uncached(it.base_bias, model.seed()));
    TSR_ASSIGN_OR_RETURN(const HostTensor added, model.read_uncached(it.bias, model.seed()));
    made.parameters.insert_or_assign(it.base_bias, dtype == DType::kF32
                                                       ? sum_of<float>(bias, added, it.factor)
                                                       : sum_of<double>(bias, added, it.factor));
  }
  for (const Adapter& it : all)
    for (const std::string& name : {it.a, it.b, it.a0, it.b0, it.bias, it.magnitude})
      made.parameters.erase(name);
  TSR_ASSIGN_OR_RETURN(const Graph plain, without_adapters(logical.graph));
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(plain, {.types = logical.stored}));
  return shared_from(std::move(made), model);
}

}  // namespace tessera
