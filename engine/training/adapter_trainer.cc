#include "engine/training/adapter_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/model/adapters.h"
#include "engine/model/initialize.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/transform/row_adapters.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr int64_t kSlots = 8;                        // unless an option says otherwise
constexpr int64_t kMostQueuedTokens = int64_t{1} << 22;

bool adds_gradients(PassKind kind) { return kind == PassKind::kLoss || kind == PassKind::kGradients; }

// Counts the labels that count in rows [first, first + rows).
int64_t count_labels(const QueuedBatch& batch, int64_t first, int64_t rows) {
  TokenBatch part{.rows = rows, .seq = batch.seq, .labels = batch.labels.data() + first * batch.seq};
  if (!batch.weights.empty()) part.weights = batch.weights.data() + first * batch.seq;
  return count_weighted_labels(part);
}

}  // namespace

Result<std::shared_ptr<AdapterTrainer>> AdapterTrainer::create(std::shared_ptr<Runtime> runtime,
                                                               std::shared_ptr<SharedModel> model,
                                                               const Options& given) {
  TSR_RETURN_IF_ERROR(runtime->check_alone("adapters side by side"));
  Options options = given;
  options.emplace("adapters", kSlots);
  options.emplace("losses", std::string(name_of(TokenLoss::kCrossEntropy)));
  std::shared_ptr<AdapterTrainer> made(new AdapterTrainer);
  TSR_ASSIGN_OR_RETURN(made->trainer_, Trainer::create(std::move(runtime), std::move(model), nullptr, options, true));
  const int64_t slots = made->trainer_->settings().adapters, rank = made->trainer_->settings().adapter_rank;
  for (const auto& [name, type] : made->slot_tensors())
    if (type.dtype != DType::kF32 || type.shape.rank() != 3 || type.shape[0] != slots || type.shape[1] != rank)
      return Status(StatusCode::kUnsupported,
                    format("optimizer '{}' keeps '{}' as {}, wanted f32[{}, {}, ...], a part for each adapter: choose adamw, lion or sgd",
                           made->trainer_->settings().step.optimizer.name, name, to_text(type), slots, rank));
  return made;
}

// Parameters and states of the program with a part for each slot.
std::vector<std::pair<std::string, TensorType>> AdapterTrainer::slot_tensors() const {
  std::vector<std::pair<std::string, TensorType>> found;
  for (const auto* tensors : {&trainer_->runner().parameters(), &trainer_->runner().states()})
    for (const auto& [name, type] : *tensors)
      if (name.find(kAdapterA) != name.npos || name.find(kAdapterB) != name.npos) found.emplace_back(name, type);
  return found;
}

// --- adapters

Result<AdapterTrainer::Tenant*> AdapterTrainer::find(int64_t adapter) {
  if (const auto found = tenants_.find(adapter); found != tenants_.end()) return &found->second;
  return Status(StatusCode::kNotFound, format("adapter {} is not one of this trainer's {}", adapter, tenants_.size()));
}

Result<int32_t> AdapterTrainer::free_slot() const {
  for (int32_t slot = 0; slot < trainer_->settings().adapters; ++slot)
    if (std::ranges::none_of(tenants_, [&](const auto& it) { return it.second.slot == slot; })) return slot;
  return Status(kBusy, format("all {} slots have adapters: drop one, or make the trainer with more (option adapters)",
                              trainer_->settings().adapters));
}

Result<int64_t> AdapterTrainer::settle(SlotAdapter adapter, int64_t step, uint64_t seed) {
  TSR_RETURN_IF_ERROR(trainer_->check_values());
  TSR_ASSIGN_OR_RETURN(const int32_t slot, free_slot());
  TSR_RETURN_IF_ERROR(adapter.write_first(trainer_->runner().session(), slot, slot_tensors()));
  const int64_t number = next_adapter_++;
  tenants_.emplace(number, Tenant{.slot = slot, .adapter = std::move(adapter), .step = step, .seed = seed});
  turns_.join(number);
  return number;
}

Result<int64_t> AdapterTrainer::add(const Options& given) {
  Options options = given;
  const TrainerSettings& settings = trainer_->settings();
  uint64_t seed = trainer_->parameter_seed(), dropout_seed = settings.seed;  // as an ordinary trainer has them
  if (const auto found = options.find("seed"); found != options.end()) {
    OptionReader reader(options, "adapter");
    for (const auto& [key, value] : options) reader.accept({key});
    seed = dropout_seed = static_cast<uint64_t>(reader.i64("seed", 0));
    TSR_RETURN_IF_ERROR(reader.finish());
    options.erase(found);
  }
  options.emplace("rank", std::min<int64_t>(16, settings.adapter_rank));
  if (!options.contains("on")) options.emplace("on", join(settings.adapter_weights, ","));
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<SharedModel> adapted, add_adapters(*trainer_->model(), options));
  TSR_ASSIGN_OR_RETURN(SlotAdapter adapter, SlotAdapter::create(adapted, settings));
  adapter.set_seed(seed);
  return settle(std::move(adapter), 0, dropout_seed);
}

Status AdapterTrainer::drop(int64_t adapter) {
  TSR_ASSIGN_OR_RETURN(Tenant * tenant, find(adapter));
  for (const AdapterPass& pass : tenant->passes) queued_tokens_ -= pass.batch.rows * pass.batch.seq;
  tenants_.erase(adapter);
  turns_.leave(adapter);
  return {};
}

Result<std::shared_ptr<SharedModel>> AdapterTrainer::model_of(int64_t adapter) {
  TSR_RETURN_IF_ERROR(trainer_->check_values());
  TSR_ASSIGN_OR_RETURN(const Tenant* tenant, find(adapter));
  return tenant->adapter.model_with_values(trainer_->runner().session(), tenant->slot);
}

// --- passes

Result<int64_t> AdapterTrainer::queue(int64_t adapter, AdapterPass pass) {
  TSR_ASSIGN_OR_RETURN(Tenant * tenant, find(adapter));
  const int64_t tokens = pass.batch.rows * pass.batch.seq;
  if (queued_tokens_ + tokens > kMostQueuedTokens)
    return Status(kBusy, format("{} tokens wait, and the pass has {} more, wanted at most {} in all: take finished passes first",
                                queued_tokens_, tokens, kMostQueuedTokens));
  queued_tokens_ += tokens;
  pass.number = next_pass_++;
  pass.adapter = adapter;
  tenant->passes.push_back(std::move(pass));
  return tenant->passes.back().number;
}

Result<int64_t> AdapterTrainer::queue_forward(int64_t adapter, const TokenBatch& batch) {
  TSR_RETURN_IF_ERROR(trainer_->check_batch(batch, {}));
  return queue(adapter, {.kind = PassKind::kForward, .batch = QueuedBatch::copy_of(batch, {})});
}

Result<int64_t> AdapterTrainer::queue_loss(int64_t adapter, const TokenBatch& batch, std::string_view loss,
                                           const Options& options) {
  AdapterPass pass{.kind = PassKind::kLoss, .loss = std::string(loss), .options = options};
  TSR_ASSIGN_OR_RETURN(const LossOptions read, trainer_->check_loss(batch, loss, options));
  if (options.contains("aux_scale"))
    return Status(StatusCode::kInvalidArgument,
                  "loss: option 'aux_scale' is of a loss over all rows, and these are of several adapters: wanted it left out");
  TSR_RETURN_IF_ERROR(trainer_->check_batch(batch, {}));
  pass.options.erase("scale");
  pass.scale = read.scale;
  pass.batch = QueuedBatch::copy_of(batch, {});
  return queue(adapter, std::move(pass));
}

Result<int64_t> AdapterTrainer::queue_gradients(int64_t adapter, const TokenBatch& batch,
                                                std::span<const float> gradients) {
  TSR_RETURN_IF_ERROR(trainer_->check_gradients(batch, gradients));
  TSR_RETURN_IF_ERROR(trainer_->check_batch(batch, gradients));
  return queue(adapter, {.kind = PassKind::kGradients, .batch = QueuedBatch::copy_of(batch, gradients)});
}

Result<int64_t> AdapterTrainer::queue_update(int64_t adapter, const Options& options) {
  OptionReader reader(options, "optimizer step");
  AdapterPass pass{.kind = PassKind::kUpdate, .lr = -1};
  if (reader.has("lr")) pass.lr = reader.f64("lr", 0, 0, 1e6);
  pass.update = read_update(reader, trainer_->settings().step);
  TSR_RETURN_IF_ERROR(reader.finish());
  return queue(adapter, std::move(pass));
}

Status AdapterTrainer::cancel_pass(int64_t number) {
  for (auto& [adapter, tenant] : tenants_) {
    const auto found = std::ranges::find(tenant.passes, number, &AdapterPass::number);
    if (found == tenant.passes.end()) continue;
    queued_tokens_ -= found->batch.rows * found->batch.seq;
    tenant.passes.erase(found);
    return {};
  }
  return Status(StatusCode::kNotFound, format("pass {} does not wait: it is finished, or was never queued", number));
}

// --- runs

void AdapterTrainer::finish(Tenant& tenant, FinishedPass result) {
  AdapterPass& pass = tenant.passes.front();
  result.pass = pass.number;
  result.adapter = pass.adapter;
  result.kind = pass.kind;
  result.logprobs = std::move(pass.logprobs);
  queued_tokens_ -= pass.batch.rows * pass.batch.seq;
  tenant.passes.pop_front();
  finished_.push_back(std::move(result));
}

Status AdapterTrainer::clear_gradients(const Tenant& tenant) {
  for (const auto& [name, type] : slot_tensors()) {
    if (!name.ends_with(".grad")) continue;
    const TensorType part{type.dtype, {1, type.shape[1], type.shape[2]}};
    TSR_RETURN_IF_ERROR(trainer_->runner().session().write_rows(name, tenant.slot, HostTensor::zeros(part, nullptr)));
  }
  return {};
}

Result<FinishedPass> AdapterTrainer::updated(Tenant& tenant) {
  const AdapterPass& pass = tenant.passes.front();
  if (tenant.batches == 0)
    return Status(StatusCode::kFailedPrecondition, "no gradients wait for an update: a pass with a loss comes first");
  const int64_t batches = std::exchange(tenant.batches, 0), labels = std::exchange(tenant.labels, 0);
  tenant.parts = 0;
  StepInfo info{.step = tenant.step + 1, .loss = std::exchange(tenant.loss, 0)};
  info.lr = pass.lr < 0 ? trainer_->settings().rate.at(info.step) : pass.lr;
  if (labels == 0) {
    TSR_RETURN_IF_ERROR(clear_gradients(tenant));
    return Status(StatusCode::kFailedPrecondition,
                  format("none of the {} batches since the last update has a label that counts: the update was left out, all "
                         "values are as before, and the gradients are gone",
                         batches));
  }
  TSR_ASSIGN_OR_RETURN(info.grad_norm, trainer_->update_slot(tenant.slot, info, pass.update));
  if (!std::isfinite(info.grad_norm))
    return Status(kNotFinite, format("step {}: loss {} and gradient norm {} of {} batches are not both finite; the update was left "
                                     "out, all values are as before, and the gradients are gone",
                                     info.step, info.loss, info.grad_norm, batches));
  ++tenant.step;
  return FinishedPass{.loss = info.loss, .step = info.step, .grad_norm = info.grad_norm, .lr = info.lr};
}

Result<LossValue> AdapterTrainer::run(const AdapterPass& first, const SharedRows& rows) {
  switch (first.kind) {
    case PassKind::kLoss: return trainer_->forward_backward(rows.view(), first.loss, first.options);
    case PassKind::kGradients: return trainer_->add_gradients(rows.view(), rows.gradients());
    default: break;
  }
  LossValue value;
  TSR_ASSIGN_OR_RETURN(value.logprobs, trainer_->forward(rows.view()));
  return value;
}

// Runs rows of the first adapter that waits, and of all whose rows can be in the same batch.
void AdapterTrainer::run_rows(const AdapterPass& first) {
  const auto waiting = [&](int64_t adapter) -> const AdapterPass* {
    const auto& passes = tenants_.at(adapter).passes;
    return !passes.empty() && passes.front().can_share(first) ? &passes.front() : nullptr;
  };
  const std::vector<AdapterTurns::Share> shares =
      turns_.take(trainer_->settings().batch, [&](int64_t adapter) {
        const AdapterPass* pass = waiting(adapter);
        return pass == nullptr ? 0 : pass->rows_left();
      });
  int64_t seq = 0;
  for (const auto& [adapter, rows] : shares) seq = std::max(seq, waiting(adapter)->batch.seq);
  SharedRows all(seq);
  for (const auto& [adapter, rows] : shares) {
    Tenant& tenant = tenants_.at(adapter);
    AdapterPass& pass = tenant.passes.front();
    if (pass.done == 0) pass.seed = seed_of_batch(tenant.seed, number_of_part(tenant.step, tenant.parts));
    all.add(pass, rows, {tenant.slot, tenant.adapter.factor(), tenant.adapter.dropout()});
  }
  const Result<LossValue> value = run(first, all);
  ++runs_;
  size_t row = 0;
  for (const auto& [adapter, rows] : shares) {
    Tenant& tenant = tenants_.at(adapter);
    if (!value.ok()) {
      finish(tenant, {.status = value.status()});
      continue;
    }
    take_rows(tenant, rows, *value, row, seq);
    row += static_cast<size_t>(rows);
    const AdapterPass& pass = tenant.passes.front();
    if (pass.rows_left() == 0) finish(tenant, {.loss = pass.value});
  }
  rows_run_ += static_cast<int64_t>(row);
}

// Gives rows of a batch to the adapter's first pass.
void AdapterTrainer::take_rows(Tenant& tenant, int64_t rows, const LossValue& value, size_t first, int64_t seq) {
  AdapterPass& pass = tenant.passes.front();
  const bool adds = adds_gradients(pass.kind);
  if (adds && pass.done == 0) ++tenant.parts;
  double loss = 0;
  for (size_t row = first; row < first + static_cast<size_t>(rows); ++row) {
    if (adds) loss += static_cast<double>(value.row_losses[row]);
    const auto own = value.logprobs.begin() + static_cast<ptrdiff_t>(row) * seq;
    pass.logprobs.insert(pass.logprobs.end(), own, own + pass.batch.seq);
  }
  (adds ? tenant.trained_tokens : tenant.forward_tokens) += rows * pass.batch.seq;
  if (adds) {
    ++tenant.batches;
    tenant.labels += count_labels(pass.batch, pass.done, rows);
    tenant.loss += loss;
  }
  pass.value += loss;
  pass.done += rows;
}

Result<std::optional<FinishedPass>> AdapterTrainer::next() {
  while (finished_.empty()) {
    const auto has_passes = [&](int64_t adapter) { return !tenants_.at(adapter).passes.empty(); };
    const auto updates = [&](int64_t adapter) {
      return has_passes(adapter) && tenants_.at(adapter).passes.front().kind == PassKind::kUpdate;
    };
    if (const auto it = std::ranges::find_if(turns_.order(), updates); it != turns_.order().end()) {
      Tenant& tenant = tenants_.at(*it);
      Result<FinishedPass> result = updated(tenant);
      finish(tenant, result.ok() ? *std::move(result) : FinishedPass{.status = result.status()});
      continue;
    }
    const auto it = std::ranges::find_if(turns_.order(), has_passes);
    if (it == turns_.order().end()) return std::optional<FinishedPass>();
    const AdapterPass first = tenants_.at(*it).passes.front();
    run_rows(first);
  }
  FinishedPass result = std::move(finished_.front());
  finished_.pop_front();
  return std::optional(std::move(result));
}

std::string AdapterTrainer::report_json() {
  Json adapters = Json::array();
  for (const auto& [number, tenant] : tenants_)
    adapters.push_back({{"adapter", number},
                        {"slot", tenant.slot},
                        {"rank", tenant.adapter.rank()},
                        {"factor", tenant.adapter.factor()},
                        {"dropout", tenant.adapter.dropout()},
                        {"step", tenant.step},
                        {"passes", tenant.passes.size()},
                        {"forward_tokens", tenant.forward_tokens},
                        {"trained_tokens", tenant.trained_tokens}});
  const TrainerSettings& settings = trainer_->settings();
  int64_t slot_bytes = 0;
  for (const auto& [name, type] : slot_tensors()) slot_bytes += bytes(type) / settings.adapters;
  Json report = {{"slots", settings.adapters},        {"rank", settings.adapter_rank}, {"weights", settings.adapter_weights},
                 {"slot_bytes", slot_bytes},          {"adapters", std::move(adapters)}, {"runs", runs_},
                 {"rows", rows_run_},                 {"batch", settings.batch},         {"queued_tokens", queued_tokens_}};
  report["trainer"] = Json::parse(trainer_->report_json());
  return dump(report);
}

}  // namespace tessera
