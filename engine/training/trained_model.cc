// A trainer's values as model values, stored in the model or written to a file.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/model_contents.h"
#include "engine/training/trainer.h"
#include "graph/base/text.h"
#include "graph/transform/precision.h"

namespace tessera {

std::vector<std::string> Trainer::widened_parameters(const Graph& model) const {
  std::vector<std::string> names;
  for (const auto& [name, type] : running_->parameters()) {
    const std::optional<TensorId> id = model.find_tensor(name);
    const bool is_wide = type.dtype == DType::kF32 || is_rounded(name, type);
    if (id && is_wide && model.type(*id).dtype != DType::kF32) names.push_back(name);
  }
  return names;
}

// Whether a parameter trains in bf16 (option weights); in the model it is f32.
bool Trainer::is_rounded(std::string_view name, const TensorType& type) const {
  return settings_.bf16_weights && type.dtype == DType::kBF16 && trained_.contains(name);
}

Status Trainer::store(SharedModel& model) {
  TSR_RETURN_IF_ERROR(check_values());
  if (const std::vector<std::string> widened = widened_parameters(model.graph()); !widened.empty())
    TSR_RETURN_IF_ERROR(model.widen(widened));
  for (const auto& [name, type] : running_->parameters()) {
    // Unchanged values stay in place, such as in the model's file.
    TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> present, model.find(name));
    if (present && is_left_out(name) && present->tensor.data.data() == base_.find(name)->data.data())
      continue;
    TSR_ASSIGN_OR_RETURN(const HostTensor value, stored_value(name, type));
    TSR_RETURN_IF_ERROR(model.write(name, value));
  }
  model.set_origin(*model_);
  return {};
}

Result<HostTensor> Trainer::stored_value(std::string_view name, const TensorType& type) {
  TSR_ASSIGN_OR_RETURN(HostTensor value, running_->session().read(name));
  return is_rounded(name, type) ? widened_to_f32(value) : std::move(value);
}

Result<HostTensor> Trainer::present_value(std::string_view parameter) {
  const auto& own = running_->parameters();
  const auto found = std::ranges::find(own, parameter, [](const auto& it) -> std::string_view { return it.first; });
  if (found != own.end()) return stored_value(parameter, found->second);
  return Status(StatusCode::kNotFound, format("the trainer's program has no parameter '{}'", parameter));
}

Result<ModelContents> Trainer::contents(std::shared_ptr<SharedModel> model) {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_values());
  for (const auto& [name, type] : running_->parameters()) TSR_RETURN_IF_ERROR(model->check_parameter(name));
  if (model != model_) model->set_origin(*model_);
  ModelContents contents = contents_of(model);
  TSR_ASSIGN_OR_RETURN(contents.model.graph,
                       model->graph_with_wide(widened_parameters(contents.model.graph)));
  contents.read = [this, of_model = std::move(contents.read)](const std::string& name) -> Result<HostTensor> {
    if (cancelled_) return Status(StatusCode::kCancelled, "saving cancelled; the file is as it was");
    const auto has_name = [&](const auto& own) { return own.first == name; };
    return std::ranges::any_of(running_->parameters(), has_name) ? present_value(name) : of_model(name);
  };
  return contents;
}

Status Trainer::save_model(std::shared_ptr<SharedModel> model, const std::string& path,
                           const Options& options) {
  TSR_ASSIGN_OR_RETURN(const ModelContents found, contents(std::move(model)));
  return lead_status([&] { return save_contents(found, path, options); });
}

}  // namespace tessera
