#include "engine/planning/method.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "engine/model/adapters.h"
#include "engine/planning/planning.h"
#include "engine/program/compile.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/file_limits.h"
#include "serialize/quantization.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr std::string_view kQuantized = "qlora:";
// Types that "auto" tries, the widest first; types unknown to this version are left out.
constexpr std::string_view kTypes[] = {"q8_0", "nf4", "q4_0"};

Status check_method(std::string_view method) {
  if (method == "full" || method == "lora") return {};
  if (method.starts_with(kQuantized)) {
    const Status type = check_mix_name(method.substr(kQuantized.size()));
    return type.ok() ? Status() : type.with_context(format("method '{}'", quote(method)));
  }
  return Status(
      StatusCode::kInvalidArgument,
      format("method is '{}', wanted auto, full, lora or qlora:TYPE, as in qlora:q4_0", quote(method)));
}

int64_t weight_bytes(const Graph& graph) {
  int64_t size = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) size += bytes(graph.type(id));
  return size;
}

Result<Quantization> quantization_of(const Model& model, std::string_view type) {
  QuantizationSettings settings;
  settings.mix.type = std::string(type);
  settings.threads = static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  return Quantization::create(model, settings);
}

// The model with its weights in another type; without values it is for plans alone.
Result<std::shared_ptr<SharedModel>> quantized(const SharedModel& model, std::string_view type,
                                               bool with_values) {
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(Quantization quantization, quantization_of(made, type));
  if (!with_values) made.parameters.clear();
  if (with_values)
    for (const TensorId id : quantization.graph().tensors_of_kind(TensorKind::kParameter)) {
      const std::string& name = quantization.graph().tensor(id).name;
      TSR_ASSIGN_OR_RETURN(HostTensor value, model.read_uncached(name, model.seed()));
      if (value.type == quantization.graph().type(id)) continue;
      const TensorSource source = quantization.encode(source_in_memory(name, value));
      TSR_ASSIGN_OR_RETURN(HostTensor encoded, read_whole(source));
      made.parameters.insert_or_assign(name, std::move(encoded));
      model.drop_pages(value);
    }
  made.graph = quantization.graph();
  TSR_RETURN_IF_ERROR(check_storable(made));
  auto shared = std::make_shared<SharedModel>(std::move(made), model.seed());
  shared->set_tokenizer(model.tokenizer());
  shared->set_origin(model);
  return shared;
}

Result<std::shared_ptr<SharedModel>> made_for(const std::shared_ptr<SharedModel>& model,
                                              const std::string& method, const Options& adapters,
                                              bool with_values) {
  TSR_RETURN_IF_ERROR(check_method(method));
  if (method == "full") {
    if (adapter_summary(model->graph()))
      return Status(
          StatusCode::kInvalidArgument,
          "method 'full': the model has adapters, which alone train: merge them first, or leave out "
          "the method");
    return model;
  }
  const auto add = with_values ? add_adapters : add_adapters_without_values;
  if (!method.starts_with(kQuantized)) return add(*model, adapters);
  TSR_ASSIGN_OR_RETURN(const auto quantized_model, quantized(*model, method.substr(kQuantized.size()), with_values));
  return add(*quantized_model, adapters);
}

// Methods that "auto" chooses from. A type that saves nothing is left out.
Result<std::vector<std::string>> all_methods(const SharedModel& model) {
  std::vector<std::string> methods = {"full", "lora"};
  Model plain = model.snapshot();
  plain.parameters.clear();
  int64_t smallest = weight_bytes(plain.graph);
  for (const std::string_view type : kTypes) {
    if (!check_mix_name(type).ok()) continue;
    TSR_ASSIGN_OR_RETURN(const Quantization quantization, quantization_of(plain, type));
    const int64_t size = weight_bytes(quantization.graph());
    if (size >= smallest) continue;
    smallest = size;
    methods.push_back(std::string(kQuantized) + std::string(type));
  }
  return methods;
}

bool uses_file(const PlanRecord& record) {
  return std::ranges::any_of(record.devices,
                             [](const PlanRecord::Device& device) { return device.file_arena_bytes > 0; });
}

Json need_of(const PlanRecord& record) {
  Json devices = Json::array(), host = Json::array(), file = Json::array();
  for (const PlanRecord::Device& device : record.devices) {
    devices.push_back(device.arena_bytes);
    host.push_back(device.host_arena_bytes);
    file.push_back(device.file_arena_bytes);
  }
  const Plan& plan = record.entries[0].plan;
  return {{"fits", true},
          {"strategy", plan.strategy},
          {"step_seconds", plan.estimate.step_time_s},
          {"bytes", std::move(devices)},
          {"host_bytes", std::move(host)},
          {"file_bytes", std::move(file)}};
}

}  // namespace

Result<std::shared_ptr<SharedModel>> model_for_method(const std::shared_ptr<SharedModel>& model,
                                                      const std::string& given, const Options& adapters) {
  const std::string method = lower_case(given);
  if (method == "full" && !adapters.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("method 'full' has no adapters, and the option '{}' is of some: leave it out",
                         adapters.begin()->first));
  return made_for(model, method, adapters, true);
}

Result<std::string> plan_methods(Runtime& runtime, const std::shared_ptr<SharedModel>& model,
                                 const Dataset* dataset, const Options& options, const Options& adapters) {
  Options training = options;
  std::string wanted = "auto";
  if (const auto found = options.find("method"); found != options.end()) {
    if (!std::holds_alternative<std::string>(found->second))
      return Status(StatusCode::kInvalidArgument, "methods: option 'method' is no text");
    wanted = lower_case(std::get<std::string>(found->second));
    training.erase("method");
  }
  if (adapter_summary(model->graph()))
    return Status(StatusCode::kInvalidArgument,
                  "method: the model has adapters already: train those, or merge them first");
  std::vector<std::string> methods = {wanted};
  if (wanted == "auto") {
    TSR_ASSIGN_OR_RETURN(methods, all_methods(*model));
  } else {
    TSR_RETURN_IF_ERROR(check_method(wanted));
  }
  std::string choice, with_file;   // the first that fits on the devices, and the first with tensors in a file
  std::optional<int64_t> nearest;  // least limit with which a method would fit
  std::string nearest_method;
  Status refused;
  std::vector<std::shared_ptr<SharedModel>> models;
  std::vector<TrainingBound> bounds;
  for (const std::string& method : methods) {
    TSR_ASSIGN_OR_RETURN(models.emplace_back(), made_for(model, method, adapters, false));
    TSR_ASSIGN_OR_RETURN(bounds.emplace_back(), bound_training(runtime, *models.back(), dataset, training));
  }
  // Where lower bounds exclude all, only those are searched that may be the nearest, the smallest bound first.
  std::vector<size_t> order(methods.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool none_fits = std::ranges::all_of(bounds, &TrainingBound::excludes_all_plans);
  if (none_fits) std::ranges::stable_sort(order, {}, [&](size_t i) { return bounds[i].bytes; });
  std::vector<Json> all(methods.size());
  for (const size_t i : order) {
    const std::string& method = methods[i];
    all[i] = {{"method", method}, {"weight_bytes", weight_bytes(models[i]->graph())}};
    if (none_fits && nearest && bounds[i].bytes >= *nearest) {
      all[i].update({{"fits", false},
                     {"least_bytes", bounds[i].bytes},
                     {"error", format("no plan takes less than {} a device, the limit is {}",
                                      bytes_text(bounds[i].bytes), bytes_text(bounds[i].limit))}});
      continue;
    }
    Json one;
    const auto record = plan_training(runtime, *models[i], dataset, training);
    if (record.ok()) {
      one = need_of(**record);
      std::string& first = uses_file(**record) ? with_file : choice;
      if (first.empty()) first = method;
    } else if (record.status().code() == StatusCode::kOutOfMemory) {
      refused = record.status();
      one = {{"fits", false}, {"error", std::string(refused.message())}};
      if (const auto limit = refused.number("smallest_limit_bytes")) {
        one["smallest_limit_bytes"] = *limit;
        if (!nearest || *limit < *nearest) nearest = limit, nearest_method = method;
      }
    } else {
      return record.status();
    }
    all[i].update(one);
  }
  if (choice.empty()) choice = with_file;
  if (choice.empty()) {
    if (!nearest) return refused;
    return Status(StatusCode::kOutOfMemory,
                  format("no method fits the memory limit; the nearest is {}, which wants {} ({} bytes) a "
                         "device: a "
                         "smaller batch, seq or rank, or more devices, would want less",
                         nearest_method, bytes_text(*nearest), *nearest))
        .with_numbers_of(refused)
        .with_number("smallest_limit_bytes", *nearest)
        .with_number("needed_bytes", *nearest);
  }
  return dump(Json{{"method", choice}, {"methods", all}});
}

}  // namespace tessera
