#include "parallel/analytic/foreign_plan.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr std::string_view kParallelExample = "tp=8,dp=32,pp=2:1f1b,mb=4,recompute=full";
constexpr std::string_view kFeatureExample = "attention=unfused,sp=off,dp_overlap=off,grad_dtype=f32";

// Words "name=value" of one option, each taken at most once; the first mistake is kept.
class Words {
 public:
  Words(std::string_view option, std::string_view text, std::string_view example)
      : option_(option), example_(example) {
    for (const std::string& part : split(text, ',')) {
      const std::string_view word = trim(part);
      if (word.empty()) continue;
      const size_t equals = word.find('=');
      const std::string name(trim(word.substr(0, equals)));
      const std::string value(equals == std::string_view::npos ? std::string_view("on")
                                                               : trim(word.substr(equals + 1)));
      if (!values_.emplace(name, value).second) fail(format("'{}' is given twice", name));
    }
  }

  void count(const std::string& name, auto& target, int64_t least = 1) {
    const auto value = take(name);
    if (value.empty()) return;
    const auto number = parse_i64(value);
    if (!number || *number < least || *number > INT32_MAX)
      return fail(format("{} is '{}', wanted a whole number from {}", name, value, least));
    target = static_cast<std::remove_reference_t<decltype(target)>>(*number);
  }

  template <class T>
  void one_of(const std::string& name, T& target,
              std::initializer_list<std::pair<std::string_view, T>> choices) {
    const auto value = take(name);
    if (value.empty()) return;
    std::vector<std::string> known;
    for (const auto& [text, meaning] : choices) {
      if (text == value) {
        target = meaning;
        return;
      }
      known.emplace_back(text);
    }
    fail(format("{} is '{}', wanted {}", name, value, join(known, " or ")));
  }

  // "attention:12+mlp:4", or in quarters, "optimizer:1/2@host+params".
  void parts(const std::string& name, std::initializer_list<std::pair<std::string_view, int32_t*>> known,
             bool quarters) {
    const std::string value = take(name);
    if (value.empty() || value == "none" || value == "auto") return;  // auto: a search decides
    for (const std::string& part : split(value, '+')) {
      std::string_view text = trim(part);
      if (const size_t at = text.find('@'); quarters && at != std::string_view::npos) {
        if (text.substr(at) != "@host") return fail(format("{} is '{}', wanted tier host", name, value));
        text = text.substr(0, at);
      }
      const size_t colon = text.find(':');
      const std::string_view amount = colon == std::string_view::npos ? "" : text.substr(colon + 1);
      std::optional<int64_t> number = amount.empty() && quarters ? 4 : parse_i64(amount);
      if (quarters && !amount.empty())
        number = amount == "1/4" ? 1 : amount == "1/2" ? 2 : amount == "3/4" ? 3 : amount == "1" ? 4 : -1;
      bool found = false;
      for (const auto& [word, target] : known) {
        if (word != text.substr(0, colon)) continue;
        found = number && *number >= 0 && *number <= 1 << 20;
        if (found) *target = static_cast<int32_t>(*number);
      }
      if (!found)
        return fail(quarters ? format("{} is '{}', wanted optimizer, params or activations, each with a "
                                      "share of 1/4, 1/2 or 3/4 or whole",
                                      name, value)
                             : format("{} is '{}', wanted attention:BLOCKS or mlp:BLOCKS", name, value));
    }
  }

  std::string take(const std::string& name) {
    known_.push_back(name);
    const auto at = values_.find(name);
    if (at == values_.end()) return {};
    std::string value = std::move(at->second);
    values_.erase(at);
    return value;
  }

  void fail(std::string message) {
    if (failure_.empty()) failure_ = std::move(message);
  }

  Status finish() {
    if (!values_.empty()) {
      const std::string& name = values_.begin()->first;
      fail(format("'{}' is not known; nearest: {}", name, join(nearest_names(name, known_), ", ")));
    }
    if (failure_.empty()) return {};
    return Status(StatusCode::kInvalidArgument,
                  format("{}: {}; an example: {}", option_, failure_, example_));
  }

 private:
  std::string_view option_, example_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> known_;
  std::string failure_;
};

// "8", "1d:8", "2d:2x4", "2.5d:2x2x4", "3d:2x2x2".
bool take_grid(std::string_view text, ForeignPlan& plan) {
  const size_t colon = text.find(':');
  const std::string_view form = colon == std::string_view::npos ? "1d" : text.substr(0, colon);
  const std::vector<std::string> sides =
      split(colon == std::string_view::npos ? text : text.substr(colon + 1), 'x');
  plan.form = form == "2d"     ? TensorForm::k2d
              : form == "2.5d" ? TensorForm::k25d
              : form == "3d"   ? TensorForm::k3d
                               : TensorForm::k1d;
  const size_t wanted = plan.form == TensorForm::k1d ? 1 : plan.form == TensorForm::k2d ? 2 : 3;
  if (sides.size() != wanted || (plan.form == TensorForm::k1d && form != "1d")) return false;
  int64_t devices = 1;
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto side = parse_i64(trim(sides[i]));
    if (!side || *side < 1 || *side > 1 << 20) return false;
    devices *= *side;
    if (devices > 1 << 20) return false;
    if (plan.form != TensorForm::k1d) plan.grid[i] = static_cast<int32_t>(*side);
  }
  plan.tp = static_cast<int32_t>(devices);
  if (plan.form == TensorForm::k25d && plan.grid[0] != plan.grid[1]) return false;
  return plan.form != TensorForm::k3d || (plan.grid[0] == plan.grid[1] && plan.grid[1] == plan.grid[2]);
}

}  // namespace

Result<ForeignPlan> parse_foreign_plan(std::string_view parallel, std::string_view features) {
  ForeignPlan plan;
  Words words("parallel", parallel, kParallelExample);
  if (const std::string tp = words.take("tp"); !tp.empty() && !take_grid(tp, plan))
    words.fail(format("tp is '{}', wanted a whole number from 1, 2d:XxY, 2.5d:QxQxD or 3d:LxLxL", tp));
  words.count("dp", plan.dp);
  words.count("ep", plan.ep);
  words.count("mb", plan.micro_batch);
  words.count("zero", plan.zero, 0);
  if (plan.zero > 3) words.fail(format("zero is {}, wanted 0 to 3", plan.zero));
  words.one_of<bool>("sp", plan.sequence_parallel, {{"on", true}, {"off", false}});
  words.one_of<Recompute>(
      "recompute", plan.recompute,
      {{"none", Recompute::kNone}, {"selective", Recompute::kSelective}, {"full", Recompute::kFull}});
  if (const std::string stages = words.take("pp"); !stages.empty()) {
    const size_t colon = stages.find(':');
    const auto count = parse_i64(stages.substr(0, colon));
    const std::string schedule = colon == std::string::npos ? "1f1b" : stages.substr(colon + 1);
    if (!count || *count < 1 || *count > INT32_MAX)
      words.fail(format("pp is '{}', wanted a whole number of stages and a schedule", stages));
    else
      plan.pp = static_cast<int32_t>(*count);
    const auto chunks = parse_i64(schedule.substr(std::min(schedule.size(), schedule.find(':') + 1)));
    if (schedule == "gpipe") {
      plan.schedule = ForeignSchedule::kGpipe;
    } else if (schedule == "zb-h1") {
      plan.schedule = ForeignSchedule::kZbH1;
    } else if (schedule == "zb-h2") {
      plan.schedule = ForeignSchedule::kZbH2;
    } else if (schedule == "zb-v") {
      plan.schedule = ForeignSchedule::kZbV;
      plan.virtual_stages = 2;
    } else if (schedule.starts_with("interleaved:") && chunks && *chunks >= 1 && *chunks <= 1024) {
      plan.schedule = *chunks > 1 ? ForeignSchedule::kInterleaved : ForeignSchedule::k1F1B;
      plan.virtual_stages = static_cast<int32_t>(*chunks);
    } else if (schedule != "1f1b") {
      words.fail(
          format("schedule is '{}', wanted 1f1b, gpipe, interleaved:CHUNKS, zb-h1, zb-h2 or zb-v", schedule));
    }
  }
  if (const std::string context = words.take("cp"); !context.empty()) {
    const size_t colon = context.find(':');
    const std::string form = context.substr(0, colon);
    const auto parts =
        colon == std::string::npos ? std::nullopt : parse_i64(std::string_view(context).substr(colon + 1));
    plan.context = form == "ring"      ? ContextForm::kRing
                   : form == "ulysses" ? ContextForm::kUlysses
                   : form == "gather"  ? ContextForm::kGather
                                       : ContextForm::kNone;
    if (plan.context == ContextForm::kNone || !parts || *parts < 1 || *parts > INT32_MAX)
      words.fail(format("cp is '{}', wanted ring:N, ulysses:N or gather:N", context));
    else
      plan.cp = static_cast<int32_t>(*parts);
    if (plan.cp == 1) plan.context = ContextForm::kNone;
  }
  words.count("chunks", plan.chunks);
  words.parts("shard", {{"attention", &plan.sharded_attention}, {"mlp", &plan.sharded_mlp}}, false);
  words.parts("offload",
              {{"optimizer", &plan.offload_optimizer},
               {"params", &plan.offload_params},
               {"activations", &plan.offload_activations}},
              true);
  TSR_RETURN_IF_ERROR(words.finish());

  Words flags("features", features, kFeatureExample);
  const std::initializer_list<std::pair<std::string_view, bool>> on_off = {{"on", true}, {"off", false}};
  const std::initializer_list<std::pair<std::string_view, DType>> types = {
      {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}};
  flags.one_of<bool>("attention", plan.fused_attention, {{"fused", true}, {"unfused", false}});
  flags.one_of<bool>("sp", plan.sequence_parallel, on_off);
  flags.one_of<bool>("dp_overlap", plan.dp_overlap, on_off);
  flags.one_of<bool>("scatter_sends", plan.scatter_sends, on_off);
  flags.one_of<bool>("one_ring", plan.one_ring, on_off);
  flags.one_of<bool>("skewed_ranks", plan.skewed_ranks, on_off);
  std::pair<DType, bool> computed = {plan.compute_dtype, plan.fp8_linears};
  flags.one_of<std::pair<DType, bool>>("dtype", computed,
                                       {{"f32", {DType::kF32, false}},
                                        {"f16", {DType::kF16, false}},
                                        {"bf16", {DType::kBF16, false}},
                                        {"fp8", {DType::kBF16, true}}});
  std::tie(plan.compute_dtype, plan.fp8_linears) = computed;
  flags.one_of<DType>("grad_dtype", plan.grad_dtype, types);
  if (const std::string trainable = flags.take("trainable"); !trainable.empty() && trainable != "all") {
    const auto rank = trainable.starts_with("lora:") ? parse_i64(trainable.substr(5)) : std::nullopt;
    if (!rank || *rank < 1 || *rank > 65536)
      flags.fail(format("trainable is '{}', wanted all or lora:RANK", trainable));
    else
      plan.lora = *rank;
  }
  TSR_RETURN_IF_ERROR(flags.finish());
  return plan;
}

Status check_foreign_plan(const ForeignPlan& plan, const TransformerShape& model, int64_t global_batch,
                          int32_t devices) {
  const auto refuse = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  const int64_t used = static_cast<int64_t>(plan.dp) * plan.tp * plan.pp * plan.cp * plan.ep;
  if (used > devices)
    return refuse(
        format("{} uses {} devices, the cluster has {}; name a cluster of {} or change one of its parts",
               to_text(plan), used, devices, used));
  const int64_t at_once = plan.micro_batch * plan.data();
  if (global_batch <= 0 || global_batch % at_once != 0)
    return refuse(format("batch {} is no multiple of mb={} x dp={} x ep={}; the nearest batch that is: {}",
                         global_batch, plan.micro_batch, plan.dp, plan.ep,
                         std::max<int64_t>(1, global_batch / at_once) * at_once));
  if (plan.form == TensorForm::k1d && model.H % plan.tp != 0)
    return refuse(format("H = {} heads do not divide into tp={} parts", model.H, plan.tp));
  if (plan.form != TensorForm::k1d) {
    // Rows of the grid have sequences of their own, columns heads.
    const int64_t rows = int64_t{plan.grid[0]} * plan.grid[2];
    if (model.H % plan.grid[1] != 0 || plan.micro_batch % rows != 0)
      return refuse(format("{}: H = {} heads must divide into {} columns and mb={} sequences into {} rows",
                           to_text(plan), model.H, plan.grid[1], plan.micro_batch, rows));
    if (plan.sequence_parallel || plan.cp > 1 || model.E > 0 || plan.lora > 0)
      return refuse("grids of tensor parallelism are priced without sp, cp, experts and adapters");
  }
  if (model.T % plan.cp != 0)
    return refuse(format("T = {} tokens do not divide into cp={} parts", model.T, plan.cp));
  if (plan.context == ContextForm::kUlysses && model.KV % (plan.tp * plan.cp) != 0)
    return refuse(format("KV = {} heads do not divide into tp={} x cp={} parts, as ulysses wants", model.KV,
                         plan.tp, plan.cp));
  if (plan.ep > 1 && (model.E == 0 || model.E % plan.ep != 0))
    return refuse(format("E = {} experts do not divide into ep={} parts", model.E, plan.ep));
  if (static_cast<int64_t>(plan.pp) * plan.virtual_stages > model.L)
    return refuse(format("pp={} with {} chunks each cuts L = {} blocks into more parts than there are",
                         plan.pp, plan.virtual_stages, model.L));
  const int64_t micro_batches = global_batch / at_once;
  if (plan.schedule == ForeignSchedule::kInterleaved && micro_batches % plan.pp != 0)
    return refuse(
        format("interleaved wants micro-batches ({}) in multiples of pp={}", micro_batches, plan.pp));
  return {};
}

int32_t device_of(const ForeignPlan& plan, int32_t stage) {
  if (plan.schedule == ForeignSchedule::kZbV && stage >= plan.pp) return 2 * plan.pp - 1 - stage;
  return stage % plan.pp;
}

bool holds_head(const ForeignPlan& plan, int32_t device) {
  return device_of(plan, plan.pp * plan.virtual_stages - 1) == device;
}

std::string to_text(const ForeignPlan& plan) {
  std::string text = format("tp={},dp={},pp={}", plan.tp, plan.dp, plan.pp);
  const auto& [x, y, z] = plan.grid;
  if (plan.form == TensorForm::k2d) text = format("tp=2d:{}x{},dp={},pp={}", x, y, plan.dp, plan.pp);
  if (plan.form == TensorForm::k25d || plan.form == TensorForm::k3d)
    text = format("tp={}:{}x{}x{},dp={},pp={}", plan.form == TensorForm::k3d ? "3d" : "2.5d", x, y, z,
                  plan.dp, plan.pp);
  if (plan.pp > 1) {
    switch (plan.schedule) {
      case ForeignSchedule::kGpipe: text += ":gpipe"; break;
      case ForeignSchedule::k1F1B: text += ":1f1b"; break;
      case ForeignSchedule::kInterleaved: text += format(":interleaved:{}", plan.virtual_stages); break;
      case ForeignSchedule::kZbH1: text += ":zb-h1"; break;
      case ForeignSchedule::kZbH2: text += ":zb-h2"; break;
      case ForeignSchedule::kZbV: text += ":zb-v"; break;
    }
  }
  if (plan.cp > 1) {
    constexpr std::string_view kForms[] = {"none", "ring", "ulysses", "gather"};
    text += format(",cp={}:{}", kForms[static_cast<size_t>(plan.context)], plan.cp);
  }
  if (plan.ep > 1) text += format(",ep={}", plan.ep);
  text += format(",mb={}", plan.micro_batch);
  if (plan.sequence_parallel) text += ",sp";
  if (plan.zero > 0) text += format(",zero={}", plan.zero);
  const auto listed = [&](std::string_view word, std::vector<std::string> parts) {
    std::erase(parts, "");
    if (!parts.empty()) text += format(",{}={}", word, join(parts, "+"));
  };
  const auto counted = [](std::string_view what, int32_t count) {
    return count > 0 ? format("{}:{}", what, count) : std::string();
  };
  listed("shard", {counted("attention", plan.sharded_attention), counted("mlp", plan.sharded_mlp)});
  if (plan.chunks > 1) text += format(",chunks={}", plan.chunks);
  const auto quarters = [](std::string_view what, int32_t count) {
    constexpr std::string_view kShares[] = {"", ":1/4", ":1/2", ":3/4", ""};
    return count > 0 ? format("{}{}@host", what, kShares[count]) : std::string();
  };
  listed("offload", {quarters("optimizer", plan.offload_optimizer), quarters("params", plan.offload_params),
                     quarters("activations", plan.offload_activations)});
  if (plan.recompute == Recompute::kSelective) text += ",recompute=selective";
  if (plan.recompute == Recompute::kFull) text += ",recompute=full";
  return text;
}

}  // namespace tessera
