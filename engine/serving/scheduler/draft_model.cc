#include "engine/serving/scheduler/draft_model.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/serving/scheduler/replicated_program.h"
#include "engine/serving/scheduler/serving_step.h"
#include "graph/base/text.h"
#include "graph/transform/draft_block.h"
#include "runtime/arranged_weights.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

// Longest text part that a normal step adds; a longer part is caught up once.
constexpr size_t kCatchUp = 32;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Result<int64_t> vocabulary_of(const Graph& forward) {
  const auto output = forward.find_output("logits");
  if (!output)
    return Status(StatusCode::kInvalidArgument, "it has no output 'logits': wanted a language model");
  const Shape& shape = forward.type(*output).shape;
  return shape[shape.rank() - 1];
}

// The token with this id; empty for ids without a token and for padding of the table.
std::string_view used_token(const TokenizerData& data, size_t id) {
  if (id >= data.tokens.size()) return {};
  const bool is_unused = id < data.types.size() && data.types[id] == TokenType::kUnused;
  return is_unused ? std::string_view() : std::string_view(data.tokens[id]);
}

ServingSettings draft_settings(const ServingSettings& server, int64_t longest) {
  ServingSettings settings = server;
  ComputeSettings compute;
  compute.devices = server.compute.devices;
  compute.profile = server.compute.profile;
  compute.memory_limit = server.compute.memory_limit;
  compute.host_memory_limit = server.compute.host_memory_limit;
  settings.compute = std::move(compute);
  if (longest > 0) settings.context = std::min(settings.context, longest);
  settings.pages = settings.rows * table_columns(serving_options(settings));
  settings.window_pages = 0;  // texts are rewound to any token
  settings.window = 0;
  settings.has_full_layers = true;
  settings.adapters = 0;
  settings.speculates = false;
  settings.draft = nullptr;
  settings.hidden = server.drafts_by_block;  // the next draft reads them
  settings.drafts_by_block = false;
  settings.scored_tokens = ServingSettings().scored_tokens;
  return settings;
}

Result<Graph> graph_of(const SharedModel& draft, const ServingSettings& server) {
  if (server.drafts_by_block) return draft.draft_block();
  return draft.graph();
}

}  // namespace

std::string_view name_of_draft(const ServingSettings& settings) {
  return settings.drafts_by_block ? "engine: option 'speculation' mtp" : "the draft model";
}

DraftModel::DraftModel(ServingSettings settings)
    : settings_(std::move(settings)),
      entries_(serving_entries(settings_)),
      table_(static_cast<size_t>(settings_.pages)),
      texts_(static_cast<size_t>(settings_.rows)) {
  std::iota(table_.begin(), table_.end(), 0);
}

Result<std::unique_ptr<DraftModel>> DraftModel::create(std::shared_ptr<Runtime> runtime,
                                                       std::shared_ptr<DeviceSet> devices,
                                                       const std::shared_ptr<SharedModel>& draft,
                                                       const ServingSettings& server, int64_t served_rows) {
  const ServingSettings settings = draft_settings(server, draft->context_length());
  TSR_ASSIGN_OR_RETURN(const Graph graph, graph_of(*draft, server));
  TSR_ASSIGN_OR_RETURN(const int64_t vocabulary, vocabulary_of(graph));
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile(*draft, server, devices));
  if (settings.inference.repack) take_arranged_variants(compiled.program, *devices);
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(std::move(runtime), std::move(devices), std::move(compiled)));
  return create(std::move(prepared), draft, settings, {vocabulary, std::min(vocabulary, served_rows)});
}

Result<CompiledProgram> DraftModel::compile(const SharedModel& draft, const ServingSettings& server,
                                            const std::shared_ptr<DeviceSet>& devices) {
  TSR_ASSIGN_OR_RETURN(const Graph graph, graph_of(draft, server));
  return compile_serving(graph, draft_settings(server, draft.context_length()), devices);
}

Result<std::unique_ptr<DraftModel>> DraftModel::replicate(std::shared_ptr<DeviceSet> devices) const {
  TSR_ASSIGN_OR_RETURN(auto program, replicate_program(*running_->prepared(), std::move(devices)));
  return create(std::move(program), model_, settings_, rows_);
}

Result<std::unique_ptr<DraftModel>> DraftModel::create(std::shared_ptr<const LoadedProgram> program,
                                                       std::shared_ptr<SharedModel> draft,
                                                       const ServingSettings& settings, Rows rows) {
  std::unique_ptr<DraftModel> made(new DraftModel(settings));
  TSR_ASSIGN_OR_RETURN(made->running_,
                       ProgramRunner::create(std::move(program), SessionOptions{.side = CoreSide::kInference}, draft,
                                             draft->seed()));
  made->model_ = std::move(draft);
  made->rows_ = rows;
  const Graph& step = *made->running_->record().entries.front().graph;
  if (const auto hidden = step.find_tensor(kDraftHidden); hidden && settings.hidden)
    made->hidden_width_ = static_cast<size_t>(step.type(*hidden).shape.dims().back());
  return made;
}

Result<std::vector<int32_t>> DraftModel::run(std::span<const Part> parts) {
  size_t count = 0;
  for (const Part& part : parts) count += part.tokens.size();
  const ServingEntry& entry = serving_entry(entries_, static_cast<int64_t>(count), std::ssize(parts));
  ServingStep step(entry);
  const int64_t columns = std::ssize(table_) / settings_.rows;
  for (const Part& part : parts) {
    int64_t place = std::ssize(texts_[static_cast<size_t>(part.row)].held);
    if (is_block()) step.add_hidden(part.hidden, hidden_width_);
    for (const int32_t token : part.tokens) {
      step.add({.id = token < rows_.all ? token : 0,  // the served vocabulary may have more rows
                .row = part.row,
                .position = static_cast<int32_t>(place),
                .slot = static_cast<int32_t>(part.row * columns * settings_.page_size + place)});
      ++place;
    }
    step.want();
  }
  const auto begin = Clock::now();
  TSR_RETURN_IF_ERROR(step.run(*running_, {table_, {}}, settings_.rows, rows_.all, logits_).status());
  if (is_block()) TSR_RETURN_IF_ERROR(step.fetch_hidden(*running_, hidden_width_, hidden_));
  last_hidden_.clear();
  std::vector<int32_t> likeliest;
  size_t tokens = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto logits =
        std::span(logits_).subspan(i * static_cast<size_t>(rows_.all), static_cast<size_t>(rows_.guessed));
    likeliest.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    std::vector<int32_t>& held = texts_[static_cast<size_t>(parts[i].row)].held;
    held.insert(held.end(), parts[i].tokens.begin(), parts[i].tokens.end());
    tokens += parts[i].tokens.size();
    if (!is_block()) continue;
    const auto last = std::span<const float>(hidden_).subspan((tokens - 1) * hidden_width_, hidden_width_);
    last_hidden_.insert(last_hidden_.end(), last.begin(), last.end());
  }
  run_seconds_ = seconds_since(begin);
  step_times_.note(entry.name, run_seconds_);
  return likeliest;
}

Result<DraftModel::Proposal> DraftModel::propose(std::span<const Text> texts) {
  const auto begin = Clock::now();
  Proposal proposal;
  proposal.drafts.resize(texts.size());
  std::vector<Unseen> unseen;
  for (size_t i = 0; i < texts.size(); ++i)
    if (const auto found = find_unseen(texts[i], i)) unseen.push_back(*found);
  std::ranges::stable_sort(unseen, {}, &Unseen::count);
  size_t budget = static_cast<size_t>(serving_step_tokens(settings_)), tokens = 0, caught_up = 0;
  std::vector<Part> parts;
  std::vector<Unseen> active;  // by part
  for (const Unseen& it : unseen) {
    const size_t count = std::min(it.count, budget);
    if (count == 0) break;
    parts.push_back(part_of(texts[it.text].row, it.tokens.first(count)));
    active.push_back(it);
    budget -= count;
    tokens += count;
    if (count > kCatchUp) caught_up += count;
  }
  if (parts.empty()) return proposal;
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> likeliest, run(parts));
  proposal.catch_up_seconds = run_seconds_ * static_cast<double>(caught_up) / static_cast<double>(tokens);
  std::vector<std::pair<Row*, size_t>> begun;  // with the tokens held
  for (const Part& part : parts) {
    Row& row = texts_[static_cast<size_t>(part.row)];
    if (is_block()) drop_hidden(row);
    begun.emplace_back(&row, row.held.size());
  }
  TSR_RETURN_IF_ERROR(draft_on(texts, std::move(active), std::move(parts), std::move(likeliest), proposal));
  // A block reads drafts again once they are the text's, with the model's hidden states.
  if (is_block())
    for (const auto& [row, count] : begun) row->held.resize(count);
  proposal.seconds = seconds_since(begin);
  return proposal;
}

std::span<const int32_t> DraftModel::read_tokens(const Row& row, const Text& text) const {
  if (!is_block()) return text.tokens;
  const auto behind = static_cast<size_t>(row.first) + 1;
  if (row.number != text.number || text.tokens.size() <= behind) return {};
  return text.tokens.subspan(behind);
}

DraftModel::Part DraftModel::part_of(int32_t row, std::span<const int32_t> tokens) const {
  if (!is_block()) return {row, tokens, {}};
  const Row& its = texts_[static_cast<size_t>(row)];
  const size_t at = its.held.size() - static_cast<size_t>(its.hidden_begin);
  return {row, tokens, std::span(its.hidden).subspan(at * hidden_width_, tokens.size() * hidden_width_)};
}

void DraftModel::drop_hidden(Row& row) const {
  const int64_t dropped = std::ssize(row.held) - 1 - row.hidden_begin;
  if (dropped <= 0) return;
  row.hidden.erase(row.hidden.begin(), row.hidden.begin() + dropped * static_cast<std::ptrdiff_t>(hidden_width_));
  row.hidden_begin += dropped;
}

// A text that another row had, or whose cached tokens were not computed, begins again.
void DraftModel::note(const Observation& seen) {
  Row& row = texts_[static_cast<size_t>(seen.row)];
  if (row.number != seen.number || seen.first < row.first || seen.first > row.first + observed(row)) {
    row = {};
    row.number = seen.number;
    row.first = seen.first;
  }
  // States known already are those of tokens that are computed again.
  const size_t known = static_cast<size_t>(row.first + observed(row) - seen.first) * hidden_width_;
  if (known < seen.hidden.size())
    row.hidden.insert(row.hidden.end(), seen.hidden.begin() + static_cast<std::ptrdiff_t>(known), seen.hidden.end());
}

Result<double> DraftModel::observe(std::span<const Observation> seen) {
  const auto begin = Clock::now();
  for (const Observation& it : seen) note(it);
  for (;;) {
    size_t budget = static_cast<size_t>(serving_step_tokens(settings_));
    std::vector<Part> parts;
    for (const Observation& it : seen) {
      const Row& row = texts_[static_cast<size_t>(it.row)];
      const std::span<const int32_t> read = read_tokens(row, {it.row, it.number, it.tokens, 0});
      const size_t held = row.held.size(), known = std::min(read.size(), static_cast<size_t>(observed(row)));
      if (known <= held + kCatchUp) continue;
      const size_t count = std::min(known - held, budget);
      if (count == 0) break;
      parts.push_back(part_of(it.row, read.subspan(held, count)));
      budget -= count;
    }
    if (parts.empty()) return seconds_since(begin);
    TSR_RETURN_IF_ERROR(run(parts).status());
    for (const Part& part : parts) drop_hidden(texts_[static_cast<size_t>(part.row)]);
  }
}

// The tokens of a text that were not computed, its last at least; nullopt where it cannot be drafted.
std::optional<DraftModel::Unseen> DraftModel::find_unseen(const Text& text, size_t index) {
  // The last draft needs no key or value.
  const int64_t room = settings_.context - std::ssize(text.tokens) + 1;
  const auto wanted = static_cast<size_t>(std::clamp<int64_t>(room, 0, static_cast<int64_t>(text.wanted)));
  Row& row = texts_[static_cast<size_t>(text.row)];
  const std::span<const int32_t> read = read_tokens(row, text);
  if (wanted == 0 || read.empty()) return std::nullopt;
  std::vector<int32_t>& held = row.held;
  const auto common = static_cast<size_t>(std::ranges::mismatch(held, read).in1 - held.begin());
  held.resize(std::min(common, read.size() - 1));
  if (is_block() && (std::ssize(held) < row.hidden_begin || observed(row) < std::ssize(read))) return std::nullopt;
  return Unseen{index, wanted, read.size() - held.size(), read.subspan(held.size())};
}

// Takes the drafts of the first run, and runs until each text has the number wanted.
Status DraftModel::draft_on(std::span<const Text> texts, std::vector<Unseen> active, std::vector<Part> parts,
                            std::vector<int32_t> likeliest, Proposal& proposal) {
  for (;;) {
    std::vector<Unseen> going_on;
    std::vector<float> hidden;  // of those that go on
    for (size_t i = 0; i < active.size(); ++i) {
      std::vector<int32_t>& drafts = proposal.drafts[active[i].text];
      if (drafts.empty() && parts[i].tokens.size() < active[i].count) continue;  // the rest follows in the next call
      drafts.reserve(active[i].wanted);                                          // the parts see them
      drafts.push_back(likeliest[i]);
      if (drafts.size() == active[i].wanted) continue;
      going_on.push_back(active[i]);
      if (is_block())
        hidden.insert(hidden.end(), last_hidden_.begin() + static_cast<std::ptrdiff_t>(i * hidden_width_),
                      last_hidden_.begin() + static_cast<std::ptrdiff_t>((i + 1) * hidden_width_));
    }
    active = std::move(going_on);
    if (active.empty()) return {};
    parts.clear();
    for (size_t i = 0; i < active.size(); ++i)
      parts.push_back({texts[active[i].text].row, std::span(proposal.drafts[active[i].text]).last(1),
                       std::span<const float>(hidden).subspan(i * hidden_width_, hidden_width_)});
    TSR_ASSIGN_OR_RETURN(likeliest, run(parts));
  }
}

std::optional<double> DraftModel::step_seconds(int64_t tokens) const {
  const int64_t most = std::min(tokens, serving_step_tokens(settings_));
  return step_times_.find(serving_entry(entries_, most, std::min(most, settings_.rows)).name);
}

Status take_draft_bytes(int64_t draft_bytes, int64_t& memory_limit) {
  if (memory_limit == 0) return {};
  if (draft_bytes >= memory_limit)
    return Status(StatusCode::kOutOfMemory,
                  format("it takes {} bytes of a device, memory_limit is {}: nothing is left for the model", draft_bytes,
                         memory_limit));
  memory_limit -= draft_bytes;
  return {};
}

int64_t arena_bytes_of(const Program& program) {
  int64_t most = 0;
  for (const RankProgram& rank : program.ranks) most = std::max(most, rank.arena_bytes);
  return most;
}

int64_t DraftModel::arena_bytes() const { return arena_bytes_of(running_->prepared()->executable->program()); }

Status DraftModel::recover() {
  for (Row& row : texts_) row = {};
  return running_->failed() ? running_->restore() : Status();
}

Status check_draft_vocabulary(const SharedModel& model, const SharedModel& draft) {
  const auto refused = [](std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); };
  const auto wanted = model.tokenizer(), found = draft.tokenizer();
  if (!wanted || !found) {
    TSR_ASSIGN_OR_RETURN(const int64_t wanted_size, vocabulary_of(model.graph()));
    TSR_ASSIGN_OR_RETURN(const int64_t found_size, vocabulary_of(draft.graph()));
    if (wanted_size == found_size) return {};
    return refused(format("it has {} tokens, wanted the model's {}", found_size, wanted_size));
  }
  const auto size = static_cast<size_t>(std::max(wanted->vocabulary_size(), found->vocabulary_size()));
  for (size_t id = 0; id < size; ++id) {
    const std::string_view ours = used_token(wanted->data(), id), theirs = used_token(found->data(), id);
    if (ours == theirs) continue;
    const auto shown = [](std::string_view token) {
      return token.empty() ? std::string("missing or unused") : format("'{}'", token);
    };
    return refused(format("its token {} is {}, wanted {} as the model's: a draft model has the same vocabulary",
                          static_cast<uint64_t>(id), shown(theirs), shown(ours)));
  }
  return {};
}

}  // namespace tessera
