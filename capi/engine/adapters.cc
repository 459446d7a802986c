#include "capi/engine/adapters.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "capi/engine/rewrite.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/adapters/adapter_file.h"
#include "serialize/adapters/untied_head.h"
#include "serialize/file_limits.h"

namespace tessera {
namespace {

std::shared_ptr<SharedModel> shared_from(Model model, const SharedModel& like) {
  auto made = std::make_shared<SharedModel>(std::move(model), like.seed());
  made->set_tokenizer(like.tokenizer());
  return made;
}

Status refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "adapters: " + std::move(message));
}

// "block.*.q.weight=8,block.0.*=4": a number for each name; of several patterns that match the first counts.
class Numbers {
 public:
  static Result<Numbers> parse(const std::string& text, std::string_view option, const Graph& graph,
                               std::span<const TensorId> weights) {
    Numbers made;
    if (trim(text).empty()) return made;
    for (const std::string& part : split(text, ',')) {
      const size_t at = part.rfind('=');
      const std::optional<double> number =
          at == part.npos ? std::nullopt : parse_f64(trim(std::string_view(part).substr(at + 1)));
      if (!number)
        return refuse(format("{} has '{}', wanted NAME=NUMBER, with '*' for any characters", option, part));
      const std::string pattern(trim(std::string_view(part).substr(0, at)));
      TSR_RETURN_IF_ERROR(matching_parameters(graph, pattern, weights, option).status());
      made.numbers_.emplace_back(pattern, *number);
    }
    return made;
  }
  std::optional<double> of(std::string_view name) const {
    for (const auto& [pattern, number] : numbers_)
      if (matches_wildcard(pattern, name)) return number;
    return std::nullopt;
  }

 private:
  std::vector<std::pair<std::string, double>> numbers_;
};

// Names of parameters that train and are no adapters.
std::vector<std::string> trained_besides(const Graph& adapted) {
  std::vector<std::string> names;
  for (const TensorId id : adapted.tensors_of_kind(TensorKind::kParameter))
    if (adapted.tensor(id).trainable && !is_adapter_name(adapted.tensor(id).name))
      names.push_back(adapted.tensor(id).name);
  return names;
}

// `wide`: parameters that are f32 from here on, since they train or have another value.
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

// The alpha that gives the factor: a whole one where there is one.
double nice_alpha(const Adapter& adapter, bool by_root) {
  const double alpha = adapter.factor * divisor(adapter, by_root);
  return is_whole(alpha) ? std::round(alpha) : alpha;
}

// Alphas are whole numbers when they are divided by the root of the rank, and not otherwise.
bool scales_by_root(const std::vector<Adapter>& adapters) {
  const auto all_whole = [&](bool by_root) {
    return std::ranges::all_of(adapters,
                               [&](const Adapter& it) { return is_whole(it.factor * divisor(it, by_root)); });
  };
  return !all_whole(false) && all_whole(true);
}

// Norms of the parts of a weight that make each output: rows of [N, K], columns of [K, N].
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

// Each part of the weight times magnitude / norm.
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

// Adds in double, one row at a time; W has rows as it is stored.
template <class T>
HostTensor merged(const HostTensor& weight, const HostTensor& a, const HostTensor& b, const Adapter& it) {
  // W [R, S] += factor * left [R, r] right [r, S]; of a table right is stored [S, r].
  const HostTensor& left = it.transposed ? b : a;
  const HostTensor& right = it.transposed ? a : b;
  const auto rows = static_cast<size_t>(weight.type.shape[0]);
  const auto columns = static_cast<size_t>(weight.type.shape[1]);
  const auto rank = static_cast<size_t>(left.type.shape[1]);
  const auto w = weight.as<T>(), l = left.as<T>(), r = right.as<T>();
  std::vector<T> values(w.begin(), w.end());
  std::vector<double> row(columns);
  for (size_t i = 0; i < rows; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < rank; ++k)
      for (size_t j = 0; j < columns; ++j)
        row[j] += static_cast<double>(l[i * rank + k]) *
                  static_cast<double>(r[it.is_table ? j * rank + k : k * columns + j]);
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

}  // namespace

Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options) {
  OptionReader reader(options, "adapters");
  AdapterOptions adapters;
  adapters.rank = reader.i64("rank", 16, 1, int64_t{1} << 20);
  adapters.alpha = reader.f64("alpha", 0, 0, 1e9);
  const std::string on = reader.text("on"), ranks = reader.text("ranks"), alphas = reader.text("alphas"),
                    also = reader.text("also");
  const bool by_root = reader.flag("rslora", false), has_magnitudes = reader.flag("dora", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(const LogicalGraph base, with_logical_weights(made.graph));
  std::vector<TensorId> weights = adaptable_weights(base.graph);
  if (!trim(on).empty()) {
    TSR_ASSIGN_OR_RETURN(weights, matching_parameters(base.graph, on, weights, "adapters"));
  }
  TSR_ASSIGN_OR_RETURN(const Numbers own_ranks, Numbers::parse(ranks, "ranks", base.graph, weights));
  TSR_ASSIGN_OR_RETURN(const Numbers own_alphas, Numbers::parse(alphas, "alphas", base.graph, weights));
  std::vector<AdapterPlacement> placements;
  for (const TensorId weight : weights) {
    const std::string& name = base.graph.tensor(weight).name;
    const double rank = own_ranks.of(name).value_or(static_cast<double>(adapters.rank));
    const double alpha = own_alphas.of(name).value_or(adapters.alpha);
    if (!(rank >= 1 && rank <= int64_t{1} << 20) || rank != std::floor(rank))
      return refuse(format("ranks: {} for '{}', wanted a whole number from 1", rank, name));
    if (!(alpha >= 0)) return refuse(format("alphas: {} for '{}', wanted 0 or more", alpha, name));
    AdapterPlacement placement{
        .weight = weight, .rank = static_cast<int64_t>(rank), .has_magnitude = has_magnitudes};
    if (alpha != 0) placement.factor = alpha / (by_root ? std::sqrt(rank) : rank);
    if (alpha == 0 && by_root) placement.factor = std::sqrt(rank);
    TSR_RETURN_IF_ERROR(check_new_adapter(base.graph, placement));
    placements.push_back(std::move(placement));
  }
  TSR_ASSIGN_OR_RETURN(Graph adapted, with_adapters(base.graph, placements));
  if (!trim(also).empty()) {
    std::vector<TensorId> others;
    for (const TensorId id : adapted.tensors_of_kind(TensorKind::kParameter))
      if (!is_adapter_name(adapted.tensor(id).name)) others.push_back(id);
    TSR_ASSIGN_OR_RETURN(others, matching_parameters(adapted, also, others, "also"));
    for (const TensorId id : others) adapted.set_trainable(id, true);
  }
  if (has_magnitudes)  // at first the norms of the weights
    for (const Adapter& it : find_adapters(adapted)) {
      TSR_ASSIGN_OR_RETURN(HostTensor weight, model.read_uncached(it.weight, model.seed()));
      TSR_ASSIGN_OR_RETURN(weight, widen_weight(weight));
      made.parameters.insert_or_assign(it.magnitude, norms_of(weight, it.transposed));
    }
  const std::vector<std::string> trained = trained_besides(adapted);
  return finish_adapted(std::move(made), model, std::move(adapted), base.stored, trained);
}

Result<std::shared_ptr<SharedModel>> load_adapters(const SharedModel& model, const std::string& path,
                                                   const Options& options) {
  OptionReader reader(options, "adapters");
  TSR_RETURN_IF_ERROR(reader.finish());
  Model given = model.snapshot();
  // A head apart from the embedding begins with its value, which so far may only be drawn.
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
                          .has_magnitude = weight.has_magnitude});
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
  return finish_adapted(std::move(made), model, std::move(adapted), base.stored, replaced);
}

std::optional<AdapterSummary> adapter_summary(const Graph& graph) {
  const Result<LogicalGraph> logical = with_logical_weights(graph);
  if (!logical.ok()) return std::nullopt;  // of a graph with gradients
  const std::vector<Adapter> all = find_adapters(logical->graph);
  if (all.empty()) return std::nullopt;
  AdapterSummary summary;
  summary.rslora = scales_by_root(all);
  summary.dora = std::ranges::all_of(all, [](const Adapter& it) { return !it.magnitude.empty(); });
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
  return summary;
}

std::vector<std::pair<std::string, std::string>> AdapterSummary::more() const {
  std::vector<std::pair<std::string, std::string>> options;
  if (!ranks.empty()) options.emplace_back("ranks", ranks);
  if (!alphas.empty()) options.emplace_back("alphas", alphas);
  if (rslora) options.emplace_back("rslora", "1");
  if (dora) options.emplace_back("dora", "1");
  if (!also.empty()) options.emplace_back("also", also);
  return options;
}

Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model) {
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(made.graph));
  const std::vector<Adapter> all = find_adapters(logical.graph);
  if (all.empty())
    return Status(StatusCode::kFailedPrecondition, "merge: the model has no adapters to take in");
  for (const Adapter& it : all) {
    TSR_ASSIGN_OR_RETURN(HostTensor weight, model.read_uncached(it.weight, model.seed()));
    // A sum that was rounded to few bits again would lose the adapter: it stays f32.
    if (logical.stored.erase(it.weight) > 0) {
      TSR_ASSIGN_OR_RETURN(weight, widen_weight(weight));
    }
    TSR_ASSIGN_OR_RETURN(const HostTensor a, model.read_uncached(it.a, model.seed()));
    TSR_ASSIGN_OR_RETURN(const HostTensor b, model.read_uncached(it.b, model.seed()));
    const DType dtype = weight.type.dtype;
    if (dtype != DType::kF32 && dtype != DType::kF64)
      return Status(StatusCode::kUnsupported,
                    format("merge: '{}' is {}, wanted f32 or f64", it.weight, to_text(weight.type)));
    made.parameters.insert_or_assign(
        it.weight, dtype == DType::kF32 ? merged<float>(weight, a, b, it) : merged<double>(weight, a, b, it));
    if (!it.magnitude.empty()) {
      TSR_ASSIGN_OR_RETURN(const HostTensor magnitude, model.read_uncached(it.magnitude, model.seed()));
      HostTensor& whole = made.parameters.at(it.weight);
      whole = dtype == DType::kF32 ? with_magnitudes<float>(whole, magnitude, it.transposed)
                                   : with_magnitudes<double>(whole, magnitude, it.transposed);
    }
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
    for (const std::string& name : {it.a, it.b, it.bias, it.magnitude}) made.parameters.erase(name);
  TSR_ASSIGN_OR_RETURN(const Graph plain, without_adapters(logical.graph));
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(plain, {.types = logical.stored}));
  return shared_from(std::move(made), model);
}

}  // namespace tessera
