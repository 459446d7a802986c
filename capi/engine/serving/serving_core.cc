#include "capi/engine/serving/serving_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "graph/base/text.h"
#include "runtime/arranged_weights.h"

namespace tessera {

namespace {

HostTensor view(std::span<const int32_t> values, Shape shape) {
  return HostTensor{{DType::kI32, shape}, std::as_bytes(values), nullptr};
}

}  // namespace

struct ServingCore::Text {
  Sequence sequence;
  Sampler sampler;
  int64_t prompt, most;  // tokens of the prompt, and of all at most
};

ServingCore::ServingCore(ServingSettings settings)
    : settings_(std::move(settings)),
      entries_(serving_entries(settings_)),
      pool_(settings_.pages, settings_.page_size),
      scheduler_(pool_, settings_.rows, settings_.shares_prefixes) {}

ServingCore::~ServingCore() = default;

Result<std::unique_ptr<ServingCore>> ServingCore::create(std::shared_ptr<Runtime> runtime,
                                                         std::shared_ptr<SharedModel> model,
                                                         ServingSettings given) {
  TSR_ASSIGN_OR_RETURN(ServingSettings settings, finalized(std::move(given), model->context_length()));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime->open_devices(settings.compute.devices, settings.compute.profile));
  const Graph forward = model->graph();
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_serving(forward, settings, devices));
  if (settings.inference.repack) take_arranged_variants(compiled.program, *devices);
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(runtime, std::move(devices), std::move(compiled)));
  std::unique_ptr<ServingCore> core(new ServingCore(std::move(settings)));
  TSR_ASSIGN_OR_RETURN(core->running_,
                       ProgramRunner::create(std::move(prepared), SessionOptions{}, model, model->seed()));
  const Shape& logits = forward.type(*forward.find_output("logits")).shape;
  core->vocabulary_ = logits[logits.rank() - 1];
  if (const auto tokenizer = model->tokenizer()) core->end_ids_ = tokenizer->data().end_ids;
  core->table_.assign(
      static_cast<size_t>(core->settings_.rows * table_columns(serving_options(core->settings_))), -1);
  core->counts_.pages = core->settings_.pages;
  return core;
}

Result<int64_t> ServingCore::submit(ServingRequest request) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return Status(StatusCode::kInvalidArgument, "a prompt needs at least one token");
  const int64_t most = std::min(settings_.context, settings_.pages * settings_.page_size);
  if (prompt >= most)
    return Status(StatusCode::kInvalidArgument,
                  format("the prompt has {} tokens; with at least one more it must fit the {} that {} holds",
                         prompt, most, most == settings_.context ? "the context" : "all pages together"));
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= vocabulary_)
      return Status(StatusCode::kInvalidArgument,
                    format("the prompt has token id {}, the model has {} tokens", token, vocabulary_));
  const SamplerText about{.vocabulary = vocabulary_,
                          .prompt = request.prompt,
                          .end_ids = end_ids_,
                          .seed = request.seed,
                          .sequence = 0};
  TSR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(request.sampling, about));
  const int64_t wanted = request.sampling->max_tokens > 0 ? prompt + request.sampling->max_tokens : most;
  auto text = std::make_unique<Text>(Text{{}, std::move(sampler), prompt, std::min(wanted, most)});
  text->sequence.number = next_;
  text->sequence.priority = request.priority;
  text->sequence.tokens = std::move(request.prompt);
  scheduler_.add(text->sequence);
  texts_.emplace(next_, std::move(text));
  return next_++;
}

void ServingCore::cancel(int64_t request) {
  if (texts_.contains(request)) cancelled_.push_back(request);
}

void ServingCore::end(Text& text, ServingEvent::Finish finish, Status failure,
                      std::vector<ServingEvent>& events) {
  const int64_t number = text.sequence.number;
  scheduler_.remove(text.sequence);
  events.push_back({ServingEvent::Kind::kEnd, finish, number, -1, std::move(failure)});
  texts_.erase(number);
}

const ServingEntry& ServingCore::entry_for(int64_t tokens) const {
  return *std::ranges::find_if(entries_, [&](const ServingEntry& entry) { return entry.tokens >= tokens; });
}

// Feeds and runs the parts; the texts whose next token follows, and their logits in that order.
Status ServingCore::run(const std::vector<StepPart>& parts, std::vector<Text*>& wanted,
                        std::vector<float>& logits) {
  int64_t count = 0;
  for (const StepPart& part : parts) count += part.count;
  const ServingEntry& entry = entry_for(count);
  const auto tokens = static_cast<size_t>(entry.tokens);
  std::vector<int32_t> ids(tokens, 0), row(tokens, -1), position(tokens, 0), slot(tokens, -1);
  std::vector<int32_t> last(static_cast<size_t>(entry.wanted), -1);
  const auto columns = static_cast<int64_t>(table_.size()) / settings_.rows;
  size_t at = 0;
  for (const StepPart& part : parts) {
    const Sequence& sequence = *part.sequence;
    std::ranges::copy(sequence.pages, table_.begin() + *sequence.row * columns);
    for (int64_t i = part.first; i < part.first + part.count; ++i, ++at) {
      ids[at] = sequence.tokens[static_cast<size_t>(i)];
      row[at] = *sequence.row;
      position[at] = static_cast<int32_t>(i);
      const int32_t page = sequence.pages[static_cast<size_t>(i / settings_.page_size)];
      slot[at] = static_cast<int32_t>(page * settings_.page_size + i % settings_.page_size);
    }
    if (part.first + part.count < sequence.size()) continue;
    last[wanted.size()] = static_cast<int32_t>(at) - 1;
    wanted.push_back(texts_.find(sequence.number)->second.get());
  }
  const Shape per_token{1, entry.tokens};
  TSR_RETURN_IF_ERROR(running_->feed(entry.name, "tokens", view(ids, per_token)));
  TSR_RETURN_IF_ERROR(running_->feed(entry.name, "row", view(row, per_token)));
  TSR_RETURN_IF_ERROR(running_->feed(entry.name, "positions", view(position, per_token)));
  TSR_RETURN_IF_ERROR(running_->feed(entry.name, "slot", view(slot, per_token)));
  TSR_RETURN_IF_ERROR(running_->feed(entry.name, "page_table", view(table_, Shape{settings_.rows, columns})));
  TSR_RETURN_IF_ERROR(running_->feed(entry.name, "wanted", view(last, Shape{entry.wanted})));
  TSR_RETURN_IF_ERROR(running_->run(entry.name));
  ++counts_.steps;
  counts_.tokens += count;
  logits.resize(static_cast<size_t>(entry.wanted * vocabulary_));
  return running_->session().fetch_into(entry.name, "logits", std::as_writable_bytes(std::span(logits)));
}

void ServingCore::take_token(Text& text, std::span<const float> logits, std::vector<ServingEvent>& events) {
  using Finish = ServingEvent::Finish;
  Result<int32_t> drawn = text.sampler.draw(logits, {}, text.sequence.size(), scratch_);
  if (!drawn.ok()) return end(text, Finish::kFailed, drawn.status(), events);
  if (text.sampler.ends(*drawn)) return end(text, Finish::kStop, {}, events);
  text.sampler.accept(*drawn);
  text.sequence.tokens.push_back(*drawn);
  events.push_back({ServingEvent::Kind::kToken, Finish::kNone, text.sequence.number, *drawn, {}});
  if (text.sequence.size() >= text.most) end(text, Finish::kLength, {}, events);
}

Result<bool> ServingCore::step(std::vector<ServingEvent>& events) {
  for (const int64_t request : std::exchange(cancelled_, {}))
    if (const auto found = texts_.find(request); found != texts_.end())
      end(*found->second, ServingEvent::Finish::kCancelled, {}, events);
  const std::vector<StepPart> parts = scheduler_.plan(entries_.back().tokens);
  if (parts.empty()) return false;
  for (const StepPart& part : parts)
    if (part.first == part.sequence->reused) counts_.reused += std::exchange(part.sequence->reused, -1);
  std::vector<Text*> wanted;
  TSR_RETURN_IF_ERROR(run(parts, wanted, logits_));
  scheduler_.computed(parts);
  for (size_t i = 0; i < wanted.size(); ++i)
    take_token(
        *wanted[i],
        std::span(logits_).subspan(i * static_cast<size_t>(vocabulary_), static_cast<size_t>(vocabulary_)),
        events);
  return !texts_.empty();
}

ServingCore::Counts ServingCore::counts() const {
  Counts counts = counts_;
  counts.preemptions = scheduler_.preemptions();
  counts.running = scheduler_.running();
  counts.waiting = scheduler_.waiting();
  counts.free_pages = pool_.available();
  return counts;
}

}  // namespace tessera
