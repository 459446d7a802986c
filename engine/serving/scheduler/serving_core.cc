// A step: drafts are proposed, the scheduler chooses parts of sequences, their tokens are padded to an entry's size, the
// entry runs, and each text takes its rows of logits.
#include "engine/serving/scheduler/serving_core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/serving/scheduler/model_fingerprint.h"
#include "engine/serving/scheduler/serving_step.h"
#include "graph/base/text.h"

namespace tessera {

ServingCore::ServingCore(ServingSettings settings)
    : settings_(std::move(settings)),
      entries_(serving_entries(settings_)),
      pool_(settings_.pages, settings_.page_size, {settings_.window_pages, settings_.window},
            {.first = settings_.rows, .count = settings_.snapshots}),
      scheduler_(pool_, settings_.rows, settings_.shares_prefixes, serving_step_sizes(settings_), settings_.has_state,
                 settings_.rows + settings_.snapshots) {}

Status ServingCore::check_adapters() const {
  if (settings_.adapters > 0) return {};
  return Status(StatusCode::kFailedPrecondition, "adapters: the server was made for none: set adapters");
}

Result<int64_t> ServingCore::load_adapter(const std::string& path) {
  TSR_RETURN_IF_ERROR(check_adapters());
  TSR_ASSIGN_OR_RETURN(AdapterFactors factors, read_adapter_file(path, *model_, adapter_slots_->layout()));
  return adapters_->add(std::move(factors));
}

Result<int64_t> ServingCore::load_adapter(const SharedModel& adapted) {
  TSR_RETURN_IF_ERROR(check_adapters());
  TSR_ASSIGN_OR_RETURN(AdapterFactors factors, read_adapter(adapted, *model_, adapter_slots_->layout()));
  return adapters_->add(std::move(factors));
}

Result<int64_t> ServingCore::load_adapter(WeightOwner& trainer) {
  TSR_RETURN_IF_ERROR(check_adapters());
  TSR_ASSIGN_OR_RETURN(AdapterFactors factors, read_adapter(trainer, *model_, adapter_slots_->layout()));
  return adapters_->add(std::move(factors));
}

Result<int64_t> ServingCore::load_adapter(AdapterFactors factors) {
  TSR_RETURN_IF_ERROR(check_adapters());
  return adapters_->add(std::move(factors));
}

Status ServingCore::check_tokens(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens)
    if (token < 0 || token >= text_model_.vocabulary)
      return Status(StatusCode::kInvalidArgument,
                    format("it has token id {}, the model has {} tokens", token, text_model_.vocabulary));
  return {};
}

// `most`: tokens of the sequence at most.
Status ServingCore::check_prompt(const ServingRequest& request, int64_t most) const {
  const auto prompt = std::ssize(request.prompt);
  if (prompt == 0) return Status(StatusCode::kInvalidArgument, "a prompt needs at least one token");
  const bool by_context = settings_.context <= settings_.pages * settings_.page_size;
  const std::string_view limit = by_context ? "context" : "cache";
  const auto remedy = [&](int64_t more) {
    return by_context ? remedy_for_length(prompt + more, settings_.context, settings_.longest) : "";
  };
  if (!request.task && prompt >= most)
    return Status(
        StatusCode::kInvalidArgument,
        format("the prompt has {} tokens; with at least one more it must fit the {} that the {} holds{}",
               prompt, most, limit, remedy(1)));
  if (!request.task) return {};
  const PromptTask& task = *request.task;
  if (task.reads_hidden() && !settings_.hidden)
    return Status(
        StatusCode::kFailedPrecondition,
        "request: option 'embed' is 1, and the engine was made without: set its option 'embeddings' to 1");
  if (!task.reads_hidden() && (prompt < 2 || task.first >= prompt))
    return Status(
        StatusCode::kInvalidArgument,
        format("request: option 'score_from' is {}, the prompt has {} tokens; wanted less than that, and "
               "at least 2 tokens",
               task.first, prompt));
  // scores need no row behind the last token
  if (const int64_t room = most + (task.reads_hidden() ? 0 : 1); prompt > room)
    return Status(StatusCode::kInvalidArgument,
                  format("the prompt has {} tokens, at most {} fit the {}{}", prompt, room, limit, remedy(0)));
  return {};
}

Result<ServingCore::Texts> ServingCore::make_texts(const ServingRequest& request, int64_t number) const {
  const int64_t most = std::min(settings_.context, settings_.pages * settings_.page_size) +
                       (settings_.counts_last_token ? 0 : 1);
  TSR_RETURN_IF_ERROR(check_prompt(request, most));
  TSR_RETURN_IF_ERROR(check_tokens(request.prompt).with_context("the prompt"));
  std::shared_ptr<const LoadedAdapter> adapter;
  if (request.adapter >= 0) {
    TSR_RETURN_IF_ERROR(check_adapters());
    TSR_ASSIGN_OR_RETURN(adapter, adapters_->find(request.adapter));
  }
  Texts texts;
  for (int32_t index = 0; index < request.sampling->best_of; ++index) {
    TSR_ASSIGN_OR_RETURN(auto text, ServedText::create(text_model_, request, number, index, most));
    text->sequence.adapter = adapter;
    // The first text computes the prompt for all.
    if (index > 0 && settings_.shares_prefixes) text->expect_cached(std::ssize(request.prompt) - 1);
    // Keys and values depend on the adapter. An odd factor keeps roots distinct.
    if (adapter != nullptr)
      text->sequence.root += 0x9e3779b97f4a7c15 * static_cast<uint64_t>(adapter->number + 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

void ServingCore::add(Texts texts) {
  for (std::unique_ptr<ServedText>& text : texts) {
    text->sequence.number = next_;
    if (text->sequence.adapter != nullptr)
      adapter_queue_->add(text->sequence);
    else
      scheduler_.add(text->sequence);
    texts_.emplace(next_++, std::move(text));
  }
}

// Texts of a request are adjacent in the map.
ServedText* ServingCore::find(int64_t request, int32_t index) const {
  for (const auto& [number, text] : texts_)
    if (text->request() == request && text->index() == index) return text.get();
  return nullptr;
}

void ServingCore::remove_ended() {
  for (auto it = texts_.begin(); it != texts_.end();) {
    if (it->second->has_ended()) {
      scheduler_.remove(it->second->sequence);
      adapter_queue_->remove(it->second->sequence);
      it = texts_.erase(it);
    } else {
      ++it;
    }
  }
}

int64_t ServingCore::expected_tokens() const {
  int64_t sum = 0;
  for (const auto& [number, text] : texts_) sum += text->expected_tokens();
  return sum;
}

ServingCore::Texts ServingCore::take_waiting() {
  if (!scheduler_.is_full()) return {};
  std::set<int64_t> begun;
  for (const auto& [number, text] : texts_)
    if (text->has_begun() || text->sequence.row) begun.insert(text->request());
  const ServedText* first = nullptr;
  for (const auto& [number, text] : texts_)
    if (!begun.contains(text->request()) &&
        (first == nullptr || matters_more(&text->sequence, &first->sequence)))
      first = text.get();
  Texts taken;
  if (first == nullptr) return taken;
  const int64_t request = first->request();
  for (auto it = texts_.begin(); it != texts_.end();) {
    if (it->second->request() != request) {
      ++it;
      continue;
    }
    scheduler_.remove(it->second->sequence);
    adapter_queue_->remove(it->second->sequence);
    taken.push_back(std::move(it->second));
    it = texts_.erase(it);
  }
  return taken;
}

int64_t ServingCore::count_cached(uint64_t root, std::span<const int32_t> tokens) const {
  return settings_.shares_prefixes ? pool_.count_known(PageIndex::root(root), tokens) : 0;
}

void ServingCore::cancel(int64_t request, std::vector<ServingEvent>& events) {
  for (const auto& [number, text] : texts_)
    if (text->request() == request) text->finish(ServingEvent::Finish::kCancelled, {}, events);
  remove_ended();
}

Status ServingCore::answer(int64_t request, int32_t index, std::span<const float> logits,
                           std::vector<ServingEvent>& events) {
  ServedText* const text = find(request, index);
  if (text == nullptr || !text->waits_for_answer())
    return Status(StatusCode::kNotFound,
                  format("text {} of request {} does not wait for logits", index, request));
  text->answer(logits, scratch_, events);
  remove_ended();
  return {};
}

std::span<const float> ServingCore::kept_logits(int64_t request, int32_t index) const {
  const ServedText* const text = find(request, index);
  return text == nullptr ? std::span<const float>() : text->kept_logits();
}

Status ServingCore::recover(const Status& failure, std::vector<ServingEvent>& events) {
  for (const auto& [number, text] : texts_) text->finish(ServingEvent::Finish::kFailed, failure, events);
  remove_ended();
  pool_.forget_all();
  adapter_slots_->forget();
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  DraftModel* const draft = draft_model();
  return draft != nullptr ? draft->recover() : Status();
}

void ServingCore::fill_tables(const Sequence& sequence) {
  const auto columns = std::ssize(table_) / settings_.rows, begin = *sequence.row * columns;
  std::ranges::copy(sequence.pages, table_.begin() + begin);
  if (window_table_.empty()) return;
  const auto row = std::span(window_table_).subspan(static_cast<size_t>(begin), static_cast<size_t>(columns));
  std::ranges::fill(row, -1);  // pages behind the window may have other owners
  for (auto i = static_cast<size_t>(sequence.first_window); i < sequence.pages.size(); ++i)
    row[i] = pool_.windows().page_of(sequence.pages[i]);
}

// Feeds and runs the parts; `results` lists which rows of logits_ and hidden_ belong to which text.
Status ServingCore::run(const std::vector<StepPart>& parts, StepResults& results) {
  std::vector<Wanted>& wanted = results.logits;
  int64_t count = 0, rows = 0;
  for (const StepPart& part : parts) {
    const Sequence& sequence = *part.sequence;
    const int64_t end = part.first + part.count;
    // Rows whose logits are requested, up to the last token.
    int64_t from = std::max(part.first, sequence.logits_begin);
    const int64_t to = end >= sequence.size() ? end : std::min(end, sequence.logits_end);
    if (from >= sequence.logits_end) from = sequence.generates ? sequence.size() - 1 : to;
    if (from < to) {
      wanted.push_back({&text_of(sequence), from, to - from});
      rows += to - from;
    }
    const int64_t hidden = std::max(part.first, sequence.hidden_begin);
    if (const int64_t hidden_end = std::min(end, sequence.hidden_end); hidden < hidden_end)
      results.hidden.push_back({&text_of(sequence), count + hidden - part.first, hidden_end - hidden});
    count += part.count;
  }
  const ServingEntry& entry = serving_entry(entries_, count, rows);
  ServingStep step(entry);
  size_t next_wanted = 0;
  for (const StepPart& part : parts) {
    const Sequence& sequence = *part.sequence;
    fill_tables(sequence);
    step.set_rope_row(sequence.rope_row);  // one row for all texts of the step
    const bool is_wanted = next_wanted < wanted.size() && &wanted[next_wanted].text->sequence == &sequence;
    const Wanted it = is_wanted ? wanted[next_wanted++] : Wanted{nullptr, 0, 0};
    for (int64_t i = part.first; i < part.first + part.count; ++i) {
      const auto place = static_cast<size_t>(i), known = sequence.tokens.size();
      const int32_t page = sequence.pages[static_cast<size_t>(i / settings_.page_size)];
      const auto slot_in = [&](int32_t held) {
        return held < 0 ? -1 : static_cast<int32_t>(held * settings_.page_size + i % settings_.page_size);
      };
      step.add({.id = place < known ? sequence.tokens[place] : sequence.drafts[place - known],
                .row = *sequence.row,
                .position = static_cast<int32_t>(i),
                .slot = slot_in(page),
                .window_slot = slot_in(pool_.windows().page_of(page)),
                .adapter_slot = sequence.adapter_slot});
      if (i >= it.first && i < it.first + it.count) step.want();
    }
  }
  TSR_ASSIGN_OR_RETURN(step_seconds_, step.run(*running_, {table_, window_table_}, settings_.rows,
                                               text_model_.vocabulary, logits_));
  if (!results.hidden.empty() || settings_.drafts_by_block)
    TSR_RETURN_IF_ERROR(step.fetch_hidden(*running_, text_model_.hidden_width, hidden_));
  step_times_.note(entry.name, step_seconds_);
  ++counts_.steps;
  counts_.tokens += count;
  return {};
}

DraftModel* ServingCore::draft_model() const { return speculation_ ? speculation_->model() : nullptr; }

// Proposes drafts for decoding texts.
Status ServingCore::propose_drafts(std::span<ServedText* const> decoding) {
  const int64_t room =
      std::min(serving_step_tokens(settings_) - std::ssize(decoding), settings_.scored_tokens);
  return speculation_->propose_drafts(
      decoding, static_cast<size_t>(settings_.max_drafts), static_cast<size_t>(room),
      [this](int64_t tokens) { return step_times_.find(serving_entry(entries_, tokens, tokens).name); });
}

// Consumes a text's rows of logits: the prompt's log probabilities,
// the next token, and one token for each accepted draft.
void ServingCore::take_rows(const Wanted& wanted, std::span<const float> rows,
                            std::vector<ServingEvent>& events) {
  ServedText& text = *wanted.text;
  Sequence& sequence = text.sequence;
  const auto width = static_cast<size_t>(text_model_.vocabulary), count = static_cast<size_t>(wanted.count);
  if (text.reads_prompt()) return text.read_logits(rows, wanted.first, wanted.count, scratch_, events);
  if (wanted.first < sequence.logits_end)
    text.take_prompt(rows, wanted.first, wanted.count, scratch_, events);
  const std::vector<int32_t> drafts = sequence.drafts;
  if (wanted.first + wanted.count < sequence.size() + std::ssize(drafts)) return;
  size_t right = 0;
  for (size_t row = count - drafts.size() - 1;; ++row, ++right) {
    const size_t known = sequence.tokens.size();
    text.take(rows.subspan(row * width, width), scratch_, events);
    if (text.has_ended() || sequence.tokens.size() == known || right == drafts.size() ||
        sequence.tokens.back() != drafts[right])
      break;
  }
  if (drafts.empty()) return;
  text.record_drafts(drafts.size(), right);
  counts_.drafted += std::ssize(drafts);
  counts_.accepted += static_cast<int64_t>(right);
  if (settings_.has_state && right < drafts.size())
    scheduler_.replay(sequence);
  else
    scheduler_.accept(sequence, static_cast<int64_t>(right));
}

void ServingCore::take_results(const StepResults& results, std::vector<ServingEvent>& events) {
  std::span<const float> rows(logits_);
  for (const Wanted& it : results.logits) {
    const auto size = static_cast<size_t>(it.count * text_model_.vocabulary);
    take_rows(it, rows.first(size), events);
    rows = rows.subspan(size);
  }
  const size_t width = text_model_.hidden_width;
  for (const WantedHidden& it : results.hidden)
    it.text->read_hidden(
        std::span(hidden_).subspan(static_cast<size_t>(it.at) * width, static_cast<size_t>(it.count) * width),
        it.count, events);
}

std::vector<ServingCore::ComputedPart> ServingCore::computed_parts(std::span<const StepPart> parts) const {
  std::vector<ComputedPart> computed;
  for (const StepPart& part : parts)
    computed.push_back({&text_of(*part.sequence), part.first, part.count, !part.sequence->drafts.empty()});
  return computed;
}

Status ServingCore::pass_hidden(std::span<const ComputedPart> parts) {
  std::vector<DraftModel::Observation> seen;
  std::span<const float> rows(hidden_);
  const size_t width = text_model_.hidden_width;
  for (const ComputedPart& part : parts) {
    const Sequence& sequence = part.text->sequence;
    const std::span<const float> own = rows.first(static_cast<size_t>(part.count) * width);
    rows = rows.subspan(own.size());
    if (part.text->has_ended() || !sequence.generates || !sequence.row) continue;
    // States behind wrong drafts are of no text.
    const int64_t right = part.has_drafts ? std::min(part.count, std::ssize(sequence.tokens) - 1 - part.first) : part.count;
    seen.push_back({.row = *sequence.row,
                    .number = sequence.number,
                    .tokens = sequence.tokens,
                    .first = part.first,
                    .hidden = own.first(static_cast<size_t>(right) * width)});
  }
  return speculation_->observe(seen);
}

Status ServingCore::check_same_weights() const {
  if (trained_ == nullptr) return {};
  return Status(
      StatusCode::kUnsupported,
      "the engine reads the weights of a trainer, which change, and a file of keys and values is of one "
      "model: keep the tokens (tsr_sequence_tokens) and submit them again");
}

Result<std::optional<WeightLock::Reading>> ServingCore::hold_weights() {
  if (trained_ == nullptr) return std::optional<WeightLock::Reading>();
  TSR_ASSIGN_OR_RETURN(WeightLock::Reading reading, trained_->read(*running_, weights_version_));
  if (std::exchange(weights_version_, reading.version()) != reading.version()) {
    scheduler_.restart();
    pool_.forget_all();
  }
  return std::optional<WeightLock::Reading>(std::move(reading));
}

void ServingCore::follow_rope_switch() {
  if (rope_switch_ == 0) return;
  for (const auto& [number, text] : texts_) {
    Sequence& sequence = text->sequence;
    const int32_t row = sequence.size() > rope_switch_ ? 2 : 1;
    if (row == sequence.rope_row) continue;
    if (sequence.row) scheduler_.restart();
    sequence.root ^= kLongRoot;
    sequence.rope_row = row;
  }
}

std::span<const float> ServingCore::last_logits() const {
  const auto width = static_cast<size_t>(text_model_.vocabulary);
  return std::span(logits_).first(std::min(width, logits_.size()));
}

void ServingCore::stop() {
  is_stopped_ = true;
  running_->prepared()->devices->arbiter().wake();
  running_->cancel();
}

// One turn on shared cores for all runs of a step.
Status ServingCore::take_turn(std::optional<CoreArbiter::Turn>& turn) {
  if (turn) return {};
  const bool shares_cores = running_->record().cluster.shared_cores > 0;
  turn.emplace(running_->prepared()->devices->arbiter(), shares_cores ? CoreSide::kInference : CoreSide::kNone, is_stopped_);
  return is_stopped_ ? Status(StatusCode::kCancelled, "the engine is closed") : Status();
}

Result<bool> ServingCore::step(std::vector<ServingEvent>& events) {
  TSR_ASSIGN_OR_RETURN(const std::optional<WeightLock::Reading> reading, hold_weights());
  TSR_RETURN_IF_ERROR(adapter_queue_->admit(scheduler_, running_->session()));
  follow_rope_switch();
  for (const auto& [number, text] : texts_) text->sequence.drafts.clear();  // left by a failed step
  std::optional<CoreArbiter::Turn> turn;
  std::vector<ServedText*> decoding;
  if (speculation_ != nullptr)
    for (const Sequence* sequence : scheduler_.decoding()) decoding.push_back(&text_of(*sequence));
  if (!decoding.empty()) {
    TSR_RETURN_IF_ERROR(take_turn(turn));
    TSR_RETURN_IF_ERROR(propose_drafts(decoding));
  }
  // Drafts past the switch use the other row of RoPE factors, in a step of their own.
  for (ServedText* text : decoding)
    if (Sequence& it = text->sequence; rope_switch_ > 0 && it.size() <= rope_switch_)
      it.drafts.resize(std::min(it.drafts.size(), static_cast<size_t>(rope_switch_ - it.size())));
  const std::vector<StepPart> parts =
      scheduler_.plan(serving_step_tokens(settings_), settings_.scored_tokens);
  if (parts.empty()) return false;
  TSR_RETURN_IF_ERROR(take_turn(turn));
  for (const StepPart& part : parts) {
    if (part.first != part.sequence->reused) continue;
    text_of(*part.sequence).begin();
    counts_.reused += std::exchange(part.sequence->reused, -1);
  }
  for (const PageCopy& copy : scheduler_.copies()) counts_.copied += copy.count;
  TSR_RETURN_IF_ERROR(transfer_->copy(scheduler_.copies()));
  TSR_RETURN_IF_ERROR(transfer_->copy(scheduler_.take_state_copies()));
  StepResults results;
  TSR_RETURN_IF_ERROR(run(parts, results));
  scheduler_.computed(parts);
  const int64_t right = counts_.accepted;
  std::vector<ComputedPart> computed;
  if (settings_.drafts_by_block) computed = computed_parts(parts);
  take_results(results, events);
  if (!computed.empty()) TSR_RETURN_IF_ERROR(pass_hidden(computed));
  if (!decoding.empty()) speculation_->note_step(step_seconds_, std::ssize(parts), counts_.accepted - right);
  remove_ended();
  return true;
}

Status ServingCore::save_sequence(std::span<const int32_t> tokens, uint64_t root, const std::string& path) {
  if (tokens.empty())
    return Status(StatusCode::kInvalidArgument, "a sequence to save needs at least one token");
  TSR_RETURN_IF_ERROR(check_same_weights());
  TSR_RETURN_IF_ERROR(check_tokens(tokens).with_context("the sequence"));
  TSR_ASSIGN_OR_RETURN(const uint64_t model, model_fingerprint(*model_, settings_.inference));
  TSR_RETURN_IF_ERROR(transfer_->copy(scheduler_.take_state_copies()));
  return tessera::save_sequence({root, {tokens.begin(), tokens.end()}}, model, pool_, *transfer_, path);
}

Result<KeptSequence> ServingCore::restore_sequence(const std::string& path, std::optional<uint64_t> root) {
  TSR_RETURN_IF_ERROR(check_same_weights());
  TSR_ASSIGN_OR_RETURN(const uint64_t model, model_fingerprint(*model_, settings_.inference));
  TSR_RETURN_IF_ERROR(transfer_->copy(scheduler_.take_state_copies()));
  pool_.snapshots().unpin();  // the last step's copies from them are made
  return tessera::restore_sequence(path, {model, root, text_model_.vocabulary}, pool_, *transfer_);
}

ServingCore::Counts ServingCore::counts() const {
  Counts counts = counts_;
  counts.preemptions = scheduler_.preemptions();
  counts.running = scheduler_.running();
  counts.waiting = scheduler_.waiting() + adapter_queue_->waiting();
  counts.adapters = adapters_->size();
  counts.adapters_written = adapter_slots_->written();
  counts.free_pages = pool_.available();
  counts.free_window_pages = pool_.windows().is_used() ? pool_.windows().available() : 0;
  if (speculation_ != nullptr) counts.draft_seconds = speculation_->seconds();
  return counts;
}

std::vector<ProgramRunner*> ServingCore::runners() {
  std::vector<ProgramRunner*> runners = {running_.get()};
  if (DraftModel* const draft = draft_model(); draft != nullptr) runners.push_back(&draft->runner());
  return runners;
}

std::vector<MemoryReport> ServingCore::draft_memory() const {
  DraftModel* const draft = draft_model();
  return draft != nullptr ? draft->runner().session().memory() : std::vector<MemoryReport>();
}

}  // namespace tessera
