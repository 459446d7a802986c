// ServingCore, creation: its program, its draft model and its memory.
#include <memory>
#include <utility>

#include "engine/base/agreement.h"
#include "engine/serving/pages/fitted_pages.h"
#include "engine/serving/scheduler/replicated_program.h"
#include "engine/serving/scheduler/serving_core.h"
#include "graph/base/text.h"
#include "runtime/arranged_weights.h"

namespace tessera {

namespace {

// The draft model's memory counts against the limit.
Result<std::unique_ptr<DraftModel>> create_draft(const std::shared_ptr<Runtime>& runtime,
                                                 const std::shared_ptr<DeviceSet>& devices,
                                                 const std::shared_ptr<SharedModel>& model, ServingSettings& settings) {
  if (settings.draft != nullptr) TSR_RETURN_IF_ERROR(check_draft_vocabulary(*model, *settings.draft));
  const std::shared_ptr<SharedModel>& drafting = settings.drafts_by_block ? model : settings.draft;
  TSR_ASSIGN_OR_RETURN(auto draft, DraftModel::create(runtime, devices, drafting, settings, model->logit_rows()));
  TSR_ASSIGN_OR_RETURN(const int64_t draft_bytes, agree_on_largest(devices->channel(), draft->arena_bytes()));
  TSR_RETURN_IF_ERROR(take_draft_bytes(draft_bytes, settings.compute.memory_limit));
  return draft;
}

// Of all processes that run together, or of this one.
Result<std::shared_ptr<DeviceSet>> open_serving_devices(Runtime& runtime, const ComputeSettings& compute, DeviceShare share) {
  if (share.count == 1) return runtime.open_world_devices(compute.devices, compute.profile);
  TSR_RETURN_IF_ERROR(runtime.check_alone("engine: option 'parallel' with dp"));
  return runtime.open_devices(compute.devices, compute.profile, share);
}

Status check_same_serving(const DeviceSet& devices, const SharedModel& model, const ServingSettings& settings) {
  return agree_on_values(devices.channel(), {{"the model's graph", format("{}", model.graph().fingerprint())},
                                             {"option 'parallel'", settings.compute.parallel},
                                             {"option 'context'", to_text(settings.context)},
                                             {"option 'sequences'", to_text(settings.rows)},
                                             {"option 'adapters'", to_text(settings.adapters)},
                                             {"the cache", to_text(settings.pages)},
                                             {"option 'memory_limit'", to_text(settings.compute.memory_limit)}});
}

}  // namespace

Result<std::unique_ptr<ServingCore>> ServingCore::create(std::shared_ptr<Runtime> runtime,
                                                         std::shared_ptr<SharedModel> model,
                                                         ServingSettings given, DeviceShare share) {
  const ChosenPages chosen = chosen_pages(given);
  TSR_ASSIGN_OR_RETURN(ServingSettings settings,
                       finalized(std::move(given), model->graph(), model->context_length()));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices, open_serving_devices(*runtime, settings.compute, share));
  TSR_RETURN_IF_ERROR(check_same_serving(*devices, *model, settings));
  const Graph forward = model->graph();
  std::unique_ptr<DraftModel> draft;
  if (settings.draft != nullptr || settings.drafts_by_block) {
    auto made = create_draft(runtime, devices, model, settings);
    if (!made.ok()) return made.status().with_context(name_of_draft(settings));
    draft = std::move(*made);
  }
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_fitting(forward, settings, chosen, devices));
  if (settings.inference.repack) take_arranged_variants(compiled.program, *devices);
  Result<std::shared_ptr<const LoadedProgram>> prepared = prepare(std::move(runtime), devices, std::move(compiled));
  TSR_RETURN_IF_ERROR(agree(devices->channel(), prepared.status()));
  TSR_ASSIGN_OR_RETURN(auto running,
                       ProgramRunner::create(std::move(*prepared), SessionOptions{.side = CoreSide::kInference}, model,
                                             model->seed()));
  TSR_RETURN_IF_ERROR(running->begin_lead());
  if (draft != nullptr) TSR_RETURN_IF_ERROR(draft->runner().begin_lead());
  return create(std::move(running), std::move(model), std::move(settings), std::move(draft),
                std::make_shared<AdapterRegistry>());
}

Result<std::unique_ptr<ServingCore>> ServingCore::create(std::unique_ptr<ProgramRunner> running,
                                                         std::shared_ptr<SharedModel> model,
                                                         ServingSettings settings,
                                                         std::shared_ptr<const TrainedWeights> trained) {
  TSR_ASSIGN_OR_RETURN(auto core, create(std::move(running), std::move(model), std::move(settings), nullptr,
                                         std::make_shared<AdapterRegistry>()));
  core->trained_ = std::move(trained);
  return core;
}

Result<std::unique_ptr<ServingCore>> ServingCore::create(std::shared_ptr<const TrainedWeights> weights,
                                                         ServingSettings given) {
  TSR_ASSIGN_OR_RETURN(given.compute, weights->compute_settings(given.compute.memory_limit));
  const ChosenPages chosen = chosen_pages(given);
  TSR_ASSIGN_OR_RETURN(ServingSettings settings,
                       finalized(std::move(given), weights->forward(), weights->model()->context_length()));
  const TrainedPlan along = weights->plan();
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                       compile_fitting(weights->forward(), settings, chosen, weights->devices(), &along));
  TSR_ASSIGN_OR_RETURN(auto running, weights->load(std::move(compiled), SessionOptions{.side = CoreSide::kInference}));
  return create(std::move(running), weights->model(), std::move(settings), weights);
}

Result<std::unique_ptr<ServingCore>> ServingCore::replicate(DeviceShare share) const {
  const LoadedProgram& own = *running_->prepared();
  const ComputeSettings& compute = settings_.compute;
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       own.runtime->open_devices(compute.devices, compute.profile, share));
  std::unique_ptr<DraftModel> draft;
  if (DraftModel* const own_draft = draft_model(); own_draft != nullptr) {
    auto made = own_draft->replicate(devices);
    if (!made.ok()) return made.status().with_context(name_of_draft(settings_));
    draft = std::move(*made);
  }
  TSR_ASSIGN_OR_RETURN(auto program, replicate_program(own, std::move(devices)));
  TSR_ASSIGN_OR_RETURN(auto running,
                       ProgramRunner::create(std::move(program), SessionOptions{.side = CoreSide::kInference}, model_,
                                             model_->seed()));
  return create(std::move(running), model_, settings_, std::move(draft), adapters_);
}

Result<std::unique_ptr<ServingCore>> ServingCore::create(std::unique_ptr<ProgramRunner> running,
                                                         std::shared_ptr<SharedModel> model,
                                                         ServingSettings settings,
                                                         std::unique_ptr<DraftModel> draft,
                                                         std::shared_ptr<AdapterRegistry> adapters) {
  const Graph forward = model->graph();
  std::unique_ptr<ServingCore> core(new ServingCore(std::move(settings)));
  core->batch_invariant_ = running->record().cluster.shared_cores > 0;
  core->running_ = std::move(running);
  core->model_ = model;
  if (core->settings_.speculates)
    core->speculation_ = std::make_unique<Speculation>(std::move(draft), core->settings_.always_speculates);
  core->adapters_ = std::move(adapters);
  core->adapter_slots_ = std::make_unique<AdapterSlots>(AdapterLayout::of(core->running_->states()));
  core->adapter_queue_ = std::make_unique<AdapterQueue>(*core->adapter_slots_);
  core->transfer_ = std::make_unique<PageTransfer>(*core->running_, core->settings_);
  const Shape& logits = forward.type(*forward.find_output("logits")).shape;
  core->text_model_.vocabulary = logits[logits.rank() - 1];
  core->text_model_.tokenizer = model->tokenizer();
  if (core->text_model_.tokenizer) {
    const TokenizerData& tokenizer = core->text_model_.tokenizer->data();
    core->text_model_.end_ids = tokenizer.end_ids;
    if (core->settings_.bos_ends_text) core->text_model_.end_ids.push_back(tokenizer.bos);
    // A tokenizer may have more tokens than the model, which never generates those.
    std::erase_if(core->text_model_.end_ids,
                  [&](int32_t id) { return id < 0 || id >= core->text_model_.vocabulary; });
  }
  core->text_model_.repairs_text = core->settings_.repairs_text;
  core->text_model_.keeps_answers = core->settings_.keeps_answers;
  if (rope_switch(forward) < core->settings_.context) core->rope_switch_ = rope_switch(forward);
  if (yields_hidden(core->settings_)) {
    const Graph& step = *core->running_->record().entries.front().graph;
    core->text_model_.hidden_width =
        static_cast<size_t>(step.type(*step.find_output("hidden")).shape.dims().back());
  }
  core->table_.assign(
      static_cast<size_t>(core->settings_.rows * table_columns(serving_options(core->settings_))), -1);
  if (core->settings_.window_pages > 0) core->window_table_.assign(core->table_.size(), -1);
  core->counts_.pages = core->settings_.pages;
  core->counts_.window_pages = core->settings_.window_pages;
  return core;
}

}  // namespace tessera
