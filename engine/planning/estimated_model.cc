#include "engine/planning/estimated_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "engine/model/adapters.h"
#include "engine/model/shared_model.h"
#include "engine/program/entry_graphs.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/optim/optimizer.h"
#include "graph/transform/adapters.h"
#include "graph/transform/fewer_blocks.h"
#include "graph/transform/token_loss.h"
#include "graph/transform/training.h"

namespace tessera {

namespace {

// Options of tsr_plan_estimate that are no trainer's.
constexpr std::array<std::string_view, 8> kOwn = {"mode",         "cluster",     "batch",  "parallel",
                                                  "memory_limit", "certificate", "verify", "within"};
// Options of trainers that say where and on what they run.
constexpr std::array<std::string_view, 14> kOfDevices = {
    "devices",        "plan_file",         "profile", "pins",           "measure",  "tune",
    "trace",          "host_memory_limit", "symbols", "offload_folder", "watchdog", "measure_memory",
    "evaluate_only",  "eval_batches"};

Status refused(std::string_view key, std::string_view why) {
  return Status(StatusCode::kUnsupported, format("estimate: option '{}': {}", key, why));
}

// Refuses options that mean nothing for devices that are absent.
Status check(const Options& training) {
  for (const std::string_view key : kOfDevices)
    if (training.contains(key))
      return refused(key, "belongs to devices at hand, and these need not be there: leave it out");
  if (training.contains("losses") && !training.contains("adapters"))
    return refused("losses", "steps in parts are planned whole: leave it out, except of adapters side by side (option adapters)");
  if (training.contains("adapters") && training.contains("lora"))
    return refused("lora", "the adapters of option 'adapters' train side by side in slots of rank adapter_rank: leave out one");
  if (training.contains("accumulate"))
    return refused("accumulate", "give the sequences of all batches that make an update as 'batch'");
  if (const auto features = training.find("features"); features != training.end())
    return refused("features",
                   "traits of other software are not planned; what a step computes in is option 'precision', "
                   "adapters are "
                   "'lora', and sequence parallelism is the word sp of 'parallel'");
  return {};
}

Result<std::optional<DType>> read_base(const std::string& word) {
  if (word == "model") return std::optional<DType>();
  const auto type = dtype_from_name(word);
  if (type && (is_block_type(*type) || *type == DType::kBF16 || *type == DType::kF16)) return type;
  return Status(
      StatusCode::kInvalidArgument,
      format("estimate: option 'base' is '{}', wanted model, bf16, f16 or a block type such as nf4 or q4_0",
             word));
}

int64_t count_parameters(const Graph& graph) {
  int64_t count = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    count += graph.type(id).shape.elements();
  return count;
}

// Adds what a trainer of slots has next to its step: the sums of gradients, which wait for updates.
Status add_gradient_sums(Graph& step) {
  const std::vector<Gradient> gradients(step.gradients().begin(), step.gradients().end());
  step.set_phase(Phase::kUpdate);
  for (const Gradient& gradient : gradients) {
    const std::string name = gradient_state_name(step.tensor(gradient.parameter).name);
    if (const auto taken = step.find_tensor(name)) TSR_RETURN_IF_ERROR(step.rename(*taken, name + ".addend"));
    TSR_ASSIGN_OR_RETURN(const TensorId sum, step.add_tensor(name, step.type(gradient.parameter), TensorKind::kState));
    TSR_ASSIGN_OR_RETURN(const TensorId cleared, step.add("zeros_like", {gradient.parameter}));
    step.add_update(sum, cleared);
  }
  step.set_phase(Phase::kForward);
  return {};
}

}  // namespace

Options training_options(const Options& options) {
  Options training;
  for (const auto& [key, value] : options)
    if (std::ranges::find(kOwn, key) == kOwn.end()) training.emplace(key, value);
  return training;
}

Result<EstimatedModel> EstimatedModel::of(const EstimateRequest& request) {
  TSR_RETURN_IF_ERROR(check(request.training));
  EstimatedModel it;
  Options training = request.training;
  OptionReader reader(training, "estimate");
  it.lora_ = reader.i64("lora", 0, 0, 1 << 20);
  const std::string base = reader.word("base", "model");
  const int64_t seq = reader.i64("seq", 0, 0, 1 << 24);
  for (const auto& [key, value] : request.training) reader.accept({key});
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(it.base_, read_base(base));
  training.erase("lora"), training.erase("base"), training.erase("seq");
  const bool has_slots = training.contains("adapters");
  training.try_emplace("precision", std::string(has_slots ? "f32" : "bf16"));
  if (has_slots) training.try_emplace("losses", std::string(name_of(TokenLoss::kCrossEntropy)));
  training.try_emplace("fused_loss", std::string("off"));
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(request.description));
  const auto length = config.sizes.find("T");
  if (length == config.sizes.end())
    return Status(StatusCode::kInvalidArgument,
                  format("estimate: '{}' says no T, the tokens of a sequence", request.description));
  TSR_ASSIGN_OR_RETURN(it.tokens_,
                       tokens_at_once(seq > 0 ? seq : length->second, length->second, "estimate: option 'seq'"));
  TSR_ASSIGN_OR_RETURN(it.settings_, read_trainer_settings(training, it.tokens_));
  if (it.settings_.step.fp8_matmuls) it.settings_.precision = DType::kBF16;
  if (it.settings_.tf32_matmuls)
    return refused("precision", "products in TF32 are not priced; name f32, f16, bf16 or fp8");
  if (it.settings_.preference) return refused("loss", "preferences are planned for devices at hand");
  if (const OptimizerDef* optimizer = find_optimizer(it.settings_.step.optimizer.name); optimizer->has_owners)
    return refused("optimizer", format("matrices of {} have owners, so that devices hold unlike shares: plan it for "
                                       "devices at hand",
                                       optimizer->name));
  TSR_ASSIGN_OR_RETURN(it.forward_, build_model(config));
  it.parameters_ = count_parameters(it.forward_);
  TSR_ASSIGN_OR_RETURN(FewerBlocks few, with_fewer_blocks(it.forward_));
  it.composed_.like = std::move(few.like);
  TSR_RETURN_IF_ERROR(it.choose_weights(request));
  it.composed_.symbols = {{"T", it.tokens_}};
  TSR_ASSIGN_OR_RETURN(it.composed_.few, it.step_of(std::move(few.graph)));
  return it;
}

// Chooses them as a trainer does. Blocks that are alike for the composition have adapters of the same weights.
Status EstimatedModel::choose_weights(const EstimateRequest& request) {
  if (lora_ == 0 && settings_.adapters == 0) return {};
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<SharedModel> model, SharedModel::describe(request.description, {}));
  TSR_ASSIGN_OR_RETURN(adapted_, adapted_weights(*model, settings_.adapter_pattern));
  std::map<std::string, std::set<std::string>> of_block;  // by number: names after "block.N."
  for (const std::string& name : adapted_) {
    const std::vector<std::string> parts = split(name, '.');
    if (parts[0] == "block" && parts.size() > 2) of_block[parts[1]].insert(name.substr(name.find('.', parts[0].size() + 1)));
  }
  std::map<int32_t, size_t> first;  // by representative
  for (size_t block = 0; block < composed_.like.size(); ++block) {
    const size_t other = first.emplace(composed_.like[block], block).first->second;
    if (of_block[to_text(block)] != of_block[to_text(other)])
      return refused("adapter_weights",
                     format("it names other weights of block {} than of block {}, and estimates take equal blocks for one: "
                            "name the same ones in both",
                            block, other));
  }
  return {};
}

Result<Graph> EstimatedModel::step_of(Graph forward) const {
  std::vector<std::string> names;
  for (const TensorId id : adaptable_weights(forward)) names.push_back(forward.tensor(id).name);
  TrainerSettings settings = settings_;
  std::vector<TensorId> weights;  // those in this graph, which may have fewer blocks
  for (const std::string& name : adapted_)
    if (const auto found = forward.find_tensor(name)) weights.push_back(*found), settings.adapter_weights.push_back(name);
  if (lora_ > 0) {
    TSR_ASSIGN_OR_RETURN(forward, with_adapters(forward, weights, AdapterOptions{.rank = lora_}));
  }
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, forward_with_loss(forward, true, settings));
  for (const std::string& name : names) {
    if (!base_) break;
    const auto id = logical.graph.find_tensor(name);
    if (!id || logical.graph.tensor(*id).trainable) continue;
    const Shape& shape = logical.graph.type(*id).shape;
    if (shape[shape.rank() - 1] % info(*base_).block_elements == 0) logical.stored[name] = *base_;
  }
  if (base_ && logical.stored.empty())
    return Status(StatusCode::kInvalidArgument, format("estimate: option 'base' is {}, and no frozen weight "
                                                       "can be stored so: wanted option 'lora' with it, "
                                                       "and rows that its blocks divide",
                                                       to_text(*base_)));
  TSR_ASSIGN_OR_RETURN(Graph step, tessera::step_of(logical, settings));
  if (settings.adapters > 0) TSR_RETURN_IF_ERROR(add_gradient_sums(step));
  return step;
}

Result<Graph> EstimatedModel::whole_step() const { return step_of(forward_); }

}  // namespace tessera
