#include "engine/serving/scheduler/draft_model.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/serving/scheduler/replicated_program.h"
#include "engine/serving/scheduler/serving_step.h"
#include "graph/base/text.h"
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
  settings.hidden = false;
  settings.scored_tokens = ServingSettings().scored_tokens;
  return settings;
}

}  // namespace

DraftModel::DraftModel(ServingSettings settings)
    : settings_(std::move(settings)),
      entries_(serving_entries(settings_)),
      table_(static_cast<size_t>(settings_.pages)),
      held_(static_cast<size_t>(settings_.rows)) {
  std::iota(table_.begin(), table_.end(), 0);
}

Result<std::unique_ptr<DraftModel>> DraftModel::create(std::shared_ptr<Runtime> runtime,
                                                       std::shared_ptr<DeviceSet> devices,
                                                       const std::shared_ptr<SharedModel>& draft,
                                                       const ServingSettings& server, int64_t served_rows) {
  const ServingSettings settings = draft_settings(server, draft->context_length());
  TSR_ASSIGN_OR_RETURN(const int64_t vocabulary, vocabulary_of(draft->graph()));
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile(*draft, server, devices));
  if (settings.inference.repack) take_arranged_variants(compiled.program, *devices);
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(std::move(runtime), std::move(devices), std::move(compiled)));
  return create(std::move(prepared), draft, settings, {vocabulary, std::min(vocabulary, served_rows)});
}

Result<CompiledProgram> DraftModel::compile(const SharedModel& draft, const ServingSettings& server,
                                            const std::shared_ptr<DeviceSet>& devices) {
  return compile_serving(draft.graph(), draft_settings(server, draft.context_length()), devices);
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
                       ProgramRunner::create(std::move(program), SessionOptions{}, draft, draft->seed()));
  made->model_ = std::move(draft);
  made->rows_ = rows;
  return made;
}

Result<std::vector<int32_t>> DraftModel::run(std::span<const Part> parts) {
  size_t count = 0;
  for (const Part& part : parts) count += part.tokens.size();
  const ServingEntry& entry = serving_entry(entries_, static_cast<int64_t>(count), std::ssize(parts));
  ServingStep step(entry);
  const int64_t columns = std::ssize(table_) / settings_.rows;
  for (const Part& part : parts) {
    int64_t place = std::ssize(held_[static_cast<size_t>(part.row)]);
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
  std::vector<int32_t> likeliest;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto logits =
        std::span(logits_).subspan(i * static_cast<size_t>(rows_.all), static_cast<size_t>(rows_.guessed));
    likeliest.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    std::vector<int32_t>& held = held_[static_cast<size_t>(parts[i].row)];
    held.insert(held.end(), parts[i].tokens.begin(), parts[i].tokens.end());
  }
  run_seconds_ = seconds_since(begin);
  step_times_.note(entry.name, run_seconds_);
  return likeliest;
}

Result<DraftModel::Proposal> DraftModel::propose(std::span<const Text> texts) {
  const auto begin = Clock::now();
  Proposal proposal;
  proposal.drafts.resize(texts.size());
  // Tokens the draft model has not seen; texts with few of them come first.
  struct Unseen {
    size_t text, wanted, count;
  };
  std::vector<Unseen> unseen;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    // The last draft needs no key or value.
    const int64_t room = settings_.context - std::ssize(text.tokens) + 1;
    const auto wanted = static_cast<size_t>(std::clamp<int64_t>(room, 0, static_cast<int64_t>(text.wanted)));
    if (wanted == 0) continue;
    std::vector<int32_t>& held = held_[static_cast<size_t>(text.row)];
    const auto common = static_cast<size_t>(std::ranges::mismatch(held, text.tokens).in1 - held.begin());
    held.resize(std::min(common, text.tokens.size() - 1));
    unseen.push_back({i, wanted, text.tokens.size() - held.size()});
  }
  std::ranges::stable_sort(unseen, {}, &Unseen::count);
  size_t budget = static_cast<size_t>(serving_step_tokens(settings_)), tokens = 0, caught_up = 0;
  std::vector<Part> parts;
  std::vector<Unseen> active;  // by part
  for (const Unseen& it : unseen) {
    const size_t count = std::min(it.count, budget);
    if (count == 0) break;
    const Text& text = texts[it.text];
    parts.push_back({text.row, text.tokens.subspan(text.tokens.size() - it.count, count)});
    active.push_back(it);
    budget -= count;
    tokens += count;
    if (count > kCatchUp) caught_up += count;
  }
  if (parts.empty()) return proposal;
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> likeliest, run(parts));
  proposal.catch_up_seconds = run_seconds_ * static_cast<double>(caught_up) / static_cast<double>(tokens);
  for (;;) {
    std::vector<Unseen> going_on;
    for (size_t i = 0; i < active.size(); ++i) {
      std::vector<int32_t>& drafts = proposal.drafts[active[i].text];
      if (drafts.empty() && parts[i].tokens.size() < active[i].count) continue;  // the rest follows in the next call
      drafts.reserve(active[i].wanted);                                          // the parts see them
      drafts.push_back(likeliest[i]);
      if (drafts.size() < active[i].wanted) going_on.push_back(active[i]);
    }
    active = std::move(going_on);
    if (active.empty()) break;
    parts.clear();
    for (const Unseen& it : active)
      parts.push_back({texts[it.text].row, std::span(proposal.drafts[it.text]).last(1)});
    TSR_ASSIGN_OR_RETURN(likeliest, run(parts));
  }
  proposal.seconds = seconds_since(begin);
  return proposal;
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
  for (std::vector<int32_t>& held : held_) held.clear();
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
