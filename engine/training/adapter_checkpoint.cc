// AdapterTrainer::save and load: checkpoints of one adapter, as a trainer of the model with that adapter alone writes them, so
// that either reads what the other wrote.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "engine/model/adapters.h"
#include "engine/training/adapter_trainer.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/transform/row_adapters.h"

namespace tessera {

namespace {

std::string value_of(const CheckpointInfo& info, const std::string& key) {
  const auto found = info.values.find(key);
  return found == info.values.end() ? "" : found->second;
}

bool is_of_slots(const std::string& name) {
  return name.find(kAdapterA) != name.npos || name.find(kAdapterB) != name.npos;
}

// The seed of dropout, which goes on with the step.
std::optional<uint64_t> seed_of(const CheckpointInfo& info) {
  const std::string text = value_of(info, "seed");
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(seed) : std::nullopt;
}

bool is_gradient(const std::string& name) { return name.ends_with(".grad"); }

// The options of add_adapters that make the checkpoint's adapter.
Result<Options> adapter_options(const CheckpointInfo& info) {
  const std::optional<int64_t> rank = parse_i64(value_of(info, "adapter_rank"));
  const std::optional<double> alpha = parse_f64(value_of(info, "adapter_alpha"));
  if (!rank || !alpha)
    return Status(StatusCode::kInvalidArgument,
                  "the checkpoint is of no training of low-rank adapters, or does not say their rank and alpha: wanted one of "
                  "tsr_adapter_trainer_save, or of a model of tsr_model_add_adapters");
  Options options = {{"rank", *rank}, {"alpha", *alpha}, {"on", value_of(info, "adapter_on")}};
  for (const char* key : {"ranks", "alphas", "init", "also"})
    if (const std::string value = value_of(info, format("adapter_{}", key)); !value.empty()) options[key] = value;
  for (const char* key : {"rslora", "dora"})
    if (!value_of(info, format("adapter_{}", key)).empty()) options[key] = int64_t{1};
  if (const auto dropout = parse_f64(value_of(info, "adapter_dropout"))) options["dropout"] = *dropout;
  return options;
}

}  // namespace

Status AdapterTrainer::save(int64_t adapter, const std::string& folder) {
  TSR_ASSIGN_OR_RETURN(const Tenant* tenant, find(adapter));
  if (tenant->batches > 0)
    return Status(StatusCode::kFailedPrecondition,
                  format("gradients of {} batches wait for an update, and checkpoints hold none: "
                         "tsr_adapter_trainer_update comes first",
                         tenant->batches));
  TSR_ASSIGN_OR_RETURN(CheckpointInfo info, trainer_->checkpoint_to_write(true));
  Trainer::forget_plan(info.values);  // it is of all slots
  info.step = tenant->step;
  info.values["seed"] = to_text(tenant->seed);
  const std::optional<AdapterSummary> summary = adapter_summary(tenant->adapter.model().graph());
  info.values["adapter_rank"] = to_text(summary->rank);
  info.values["adapter_alpha"] = to_text(summary->alpha);
  info.values["adapter_on"] = summary->on;
  for (const auto& [option, value] : summary->more()) info.values["adapter_" + option] = value;
  std::erase_if(info.tensors, [](const auto& it) { return is_of_slots(it.first); });
  for (auto& value : tenant->adapter.values(slot_tensors()))
    if (!is_gradient(value.first)) info.tensors.push_back(std::move(value));
  Session& session = trainer_->runner().session();
  TSR_ASSIGN_OR_RETURN(
      WrittenCheckpoint written,
      write_checkpoint(folder, info, [&](std::string_view name, std::span<std::byte> out) -> Status {
        if (!tenant->adapter.has(std::string(name))) return session.read_into(name, out);  // a base without values elsewhere
        TSR_ASSIGN_OR_RETURN(const HostTensor value, tenant->adapter.read(session, tenant->slot, std::string(name)));
        std::memcpy(out.data(), value.data.data(), out.size());
        return {};
      }));
  return written.commit();
}

Result<int64_t> AdapterTrainer::load(const std::string& folder, bool optimizer) {
  TSR_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::open(folder));
  const CheckpointInfo& info = checkpoint.info();
  const std::string& own = trainer_->settings().step.optimizer.name;
  if (optimizer && holds_parameters_alone(info))
    return Status(StatusCode::kInvalidArgument,
                  "the checkpoint holds parameters alone (it was saved with optimizer 0), wanted the optimizer's state, too: "
                  "load it with optimizer 0");
  if (optimizer && value_of(info, "optimizer") != own)
    return Status(StatusCode::kInvalidArgument,
                  format("the checkpoint was made with optimizer '{}', this trainer has '{}': wanted the same, or the adapter alone "
                         "(optimizer 0)",
                         value_of(info, "optimizer").substr(0, 100), own));
  TSR_ASSIGN_OR_RETURN(const Options options, adapter_options(info));
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<SharedModel> adapted,
                       add_adapters_without_values(*trainer_->model(), options));
  const TrainerSettings& settings = trainer_->settings();
  TSR_ASSIGN_OR_RETURN(SlotAdapter made, SlotAdapter::create(adapted, settings));
  TSR_RETURN_IF_ERROR(trainer_->check_same_base(info));
  std::vector<std::pair<std::string, HostTensor>> values;  // read whole before a slot changes
  for (const auto& [name, type] : made.values(slot_tensors())) {
    const bool is_state = !is_adapter_name(name);
    if (is_gradient(name) || (is_state && !optimizer)) continue;
    TSR_ASSIGN_OR_RETURN(HostTensor value, checkpoint.read(name));
    if (value.type != type)
      return Status(StatusCode::kInvalidArgument, format("'{}' is {} in the checkpoint, wanted {}", name, to_text(value.type),
                                                         to_text(type)));
    values.emplace_back(name, std::move(value));
  }
  TSR_ASSIGN_OR_RETURN(const int64_t adapter,
                       settle(std::move(made), optimizer ? info.step : 0, seed_of(info).value_or(settings.seed)));
  const Tenant& tenant = tenants_.at(adapter);
  for (const auto& [name, value] : values) {
    const Status written = tenant.adapter.write(trainer_->runner().session(), tenant.slot, name, value);
    if (!written.ok()) return (void)drop(adapter), written;
  }
  return adapter;
}

}  // namespace tessera
