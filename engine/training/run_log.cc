// Each event becomes a line of JSON, TensorBoard scalars and points of the page. Speeds are exponential means, the step time
// a median of recent steps.
#include "engine/training/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "engine/base/read_paths.h"
#include "engine/program/explain.h"
#include "engine/program/report.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/run_log/run_page.h"

namespace tessera {

namespace {

// Weight of a new step in exponential means of about twenty steps.
constexpr double kNewShare = 0.1;
// Number of recent steps whose median is the step time.
constexpr size_t kTimedSteps = 20;
constexpr size_t kMostSampleBytes = size_t{64} << 10;
constexpr size_t kMostSettingsBytes = size_t{1} << 20;
// Number of steps after which arenas are measured.
constexpr int64_t kMeasuringSteps = 2;

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// A JSON number; null where the value is not finite.
Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json json_number(const std::optional<double>& value) { return value ? json_number(*value) : Json(nullptr); }

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

Json limit_object(const StepLimit& limit) {
  Json terms = Json::array();
  for (const StepLimit::Term& term : limit.terms)
    terms.push_back({{"phase", term.phase},
                     {"flops", term.flops},
                     {"bytes", term.bytes},
                     {"seconds", term.seconds},
                     {"bound", term.by_memory ? "memory" : "products"}});
  return {{"seconds", limit.seconds},
          {"terms", terms},
          {"flops_per_s", limit.flops_per_s},
          {"bytes_per_s", limit.bytes_per_s},
          {"rates", limit.is_measured ? "measured" : "stated"}};
}

// The first bytes of a sample's text, whole characters only.
std::string_view cut_sample(std::string_view text) {
  if (text.size() <= kMostSampleBytes) return text;
  size_t end = kMostSampleBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

// Returns the first error; every file is still written.
Status first_error(Status first, Status second) { return first.ok() ? std::move(second) : std::move(first); }

// The text as a Markdown code block, indented by four blanks.
std::string as_code(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<RunLog>> RunLog::create(std::shared_ptr<Trainer> trainer, const Options& options) {
  TSR_RETURN_IF_ERROR(trainer->usable());
  std::unique_ptr<RunLog> log(new RunLog(std::move(trainer)));
  log->is_finished_ = true;  // until its files are open
  TSR_RETURN_IF_ERROR(log->read_options(options));
  TSR_RETURN_IF_ERROR(log->describe());
  TSR_RETURN_IF_ERROR(log->open_files());
  log->is_finished_ = false;
  return log;
}

Status RunLog::read_options(const Options& options) {
  OptionReader reader(options, "run log");
  metrics_path_ = reader.text("metrics");
  events_folder_ = reader.text("tensorboard");
  page_path_ = reader.text("report");
  page_seconds_ = reader.f64("report_seconds", 10, 0, 86400);
  std::map<std::string, std::string> recorded = trainer_->recorded_settings();
  steps_ = reader.i64("steps", parse_i64(recorded["steps"]).value_or(0), 0);
  const std::string model = reader.text("model"), data = reader.text("data"),
                    settings = reader.text("settings");
  TSR_RETURN_IF_ERROR(reader.finish());
  if (!metrics_path_.empty() && metrics_path_ == page_path_)
    return Status(StatusCode::kInvalidArgument,
                  format("options metrics and report both are {}, wanted a file for each", page_path_));
  for (const std::string& path : {metrics_path_, page_path_})
    if (!path.empty()) TSR_RETURN_IF_ERROR(check_not_read(trainer_->model()->read_paths(), path));
  // The default adapters would list every matmul of the blocks.
  if (trainer_->has_usual_adapters()) recorded["adapter_on"] = "all matrices of the blocks";
  for (const char* key : {"position", "skipped", "unlabelled", "data", "strategy"}) recorded.erase(key);
  Json all = Json::object();
  for (const auto& [name, value] : recorded) all[name] = value;
  if (!settings.empty()) {
    TSR_ASSIGN_OR_RETURN(const Json own, parse_json(settings, "option settings", kMostSettingsBytes));
    if (!own.is_object())
      return Status(StatusCode::kInvalidArgument,
                    format("option settings is {}, wanted a JSON object", quote_json(own)));
    for (const auto& [name, value] : own.items()) all[name] = value;
  }
  header_ = {{"kind", "header"}, {"format", kRunFormat}, {"version", 1},    {"time", utc_time()},
             {"model", model},   {"data", data},         {"steps", steps_}, {"settings", std::move(all)}};
  return {};
}

Status RunLog::describe() {
  const std::shared_ptr<const PlanRecord> plan = trainer_->plan();
  step_ = first_step_ = trainer_->steps_made();
  header_["tokens_per_step"] = trainer_->tokens_per_step();
  header_["devices"] = plan->devices_text;
  int64_t parameters = 0, trained = 0;
  const Graph& graph = *plan->entries[0].graph;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    parameters += graph.type(id).shape.elements();
    if (graph.tensor(id).trainable) trained += graph.type(id).shape.elements();
  }
  header_["parameters"] = parameters;
  header_["trained_parameters"] = trained;
  TSR_ASSIGN_OR_RETURN(header_["plan"], parse_json(plan_json(*plan), "plan"));
  header_["plan"].erase("candidates");
  header_["plan"]["search"].erase("closed");
  TSR_ASSIGN_OR_RETURN(limit_, step_limit(*plan));
  header_["limit"] = limit_object(limit_);
  if (!page_path_.empty()) {
    TSR_ASSIGN_OR_RETURN(const std::string explanation, plan_explanation_json(*plan));
    TSR_ASSIGN_OR_RETURN(explanation_, parse_json(explanation, "explanation"));
    explanation_.erase("tensors");  // thousands in large models; the plan's page has them
  }
  take_memory();
  return {};
}

Status RunLog::open_files() {
  if (!page_path_.empty()) TSR_RETURN_IF_ERROR(AtomicFile::check(page_path_));
  if (!metrics_path_.empty()) {
    const auto keep = [this](const Json& line) {
      const std::string kind = text_at(line, "kind");
      if (kind == "evaluation" && line.contains("eval_loss") && line["eval_loss"].is_number())
        note_evaluation(line["eval_loss"].get<double>(), count_at(line, "step"));
      if (kind != "step") return series_.add_line(line);
      const auto real = [&](const char* key) {
        const auto found = line.find(key);
        return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
      };
      series_.add_step({.step = count_at(line, "step"),
                        .loss = real("loss"),
                        .lr = real("lr"),
                        .grad_norm = real("grad_norm"),
                        .seconds = real("seconds"),
                        .tokens = count_at(line, "tokens")});
    };
    Result<LineFile> lines = LineFile::open(metrics_path_, first_step_, keep);
    TSR_RETURN_IF_ERROR(lines.status());
    lines_.emplace(std::move(*lines));
    Json first = header_;
    if (!lines_->is_new())
      first = {
          {"kind", "resume"}, {"step", first_step_}, {"time", utc_time()}, {"settings", header_["settings"]}};
    TSR_RETURN_IF_ERROR(lines_->append(first));
  }
  if (!events_folder_.empty()) {
    Result<EventFile> events = EventFile::create(events_folder_, first_step_ > 0 ? first_step_ : -1);
    TSR_RETURN_IF_ERROR(events.status());
    events_.emplace(std::move(*events));
    std::string plan = format("plan: {}\n", header_["plan"]["strategy"].get<std::string>());
    for (const auto& [name, value] : header_["settings"].items())
      plan += format("{}: {}\n", name, value.is_string() ? value.get<std::string>() : dump(value));
    TSR_RETURN_IF_ERROR(events_->add_text(first_step_, "run", as_code(plan)));
  }
  return write_page(true);
}

Status RunLog::record(Json line) {
  series_.add_line(line);
  return lines_ ? lines_->append(line) : Status();
}

Status RunLog::add_step() {
  TSR_RETURN_IF_ERROR(trainer_->usable());
  const std::optional<StepInfo>& last = trainer_->last_step();
  if (!last)
    return Status(StatusCode::kFailedPrecondition, "the trainer has made no step that could be logged");
  const StepInfo& it = *last;
  if (it.step <= step_)
    return Status(StatusCode::kFailedPrecondition,
                  format("step {} of the trainer is in the log: one call a step", it.step));
  const int64_t tokens = trainer_->tokens_per_step();
  const double rate = it.seconds > 0 ? static_cast<double>(tokens) / it.seconds : 0;
  step_ = it.step;
  loss_ = it.loss;
  smooth_loss_ = measured_steps_ == 0 ? it.loss : smooth_loss_ + kNewShare * (it.loss - smooth_loss_);
  steps_s_ += it.seconds;
  // The first step also warms up; its time is dropped once there is a second.
  if (measured_steps_ == 1) last_steps_s_.clear();
  if (last_steps_s_.size() == kTimedSteps) last_steps_s_.pop_front();
  last_steps_s_.push_back(it.seconds);
  least_step_s_ = measured_steps_ == 0 ? it.seconds : std::min(least_step_s_, it.seconds);
  ++measured_steps_;
  if (measured_steps_ <= kMeasuringSteps) take_memory();
  series_.add_step({.step = it.step,
                    .loss = it.loss,
                    .lr = it.lr,
                    .grad_norm = it.grad_norm,
                    .seconds = it.seconds,
                    .tokens = tokens});
  Status status;
  if (lines_) {
    Json line = {{"kind", "step"},
                 {"step", it.step},
                 {"loss", json_number(it.loss)},
                 {"lr", json_number(it.lr)},
                 {"grad_norm", json_number(it.grad_norm)},
                 {"seconds", it.seconds},
                 {"tokens", tokens},
                 {"tokens_per_second", rate}};
    if (const int64_t passed = trainer_->unlabelled_steps(); passed > 0) line["unlabelled_steps"] = passed;
    status = lines_->append(line);
  }
  if (events_) {
    const ScalarValue values[] = {{"train/loss", it.loss},
                                  {"train/lr", it.lr},
                                  {"train/grad_norm", it.grad_norm},
                                  {"train/seconds", it.seconds},
                                  {"train/tokens_per_second", rate}};
    status = first_error(std::move(status), events_->add_scalars(it.step, values));
  }
  return first_error(std::move(status), write_page(false));
}

Status RunLog::add_evaluation(double loss, double accuracy) {
  TSR_RETURN_IF_ERROR(trainer_->usable());
  if (std::isfinite(accuracy) && (accuracy < 0 || accuracy > 1))
    return Status(
        StatusCode::kInvalidArgument,
        format("accuracy is {}, wanted a share from 0 to 1, or NaN where it is not known", accuracy));
  step_ = std::max(step_, trainer_->steps_made());
  note_evaluation(loss, step_);
  take_memory();
  Json line = {{"kind", "evaluation"},
               {"step", step_},
               {"eval_loss", json_number(loss)},
               {"perplexity", has_perplexity() ? json_number(std::exp(loss)) : Json(nullptr)}};
  if (std::isfinite(accuracy)) line["accuracy"] = accuracy;
  Status status = record(std::move(line));
  if (events_) {
    std::vector<ScalarValue> values = {{"eval/loss", loss}};
    if (has_perplexity()) values.push_back({"eval/perplexity", std::exp(loss)});
    if (std::isfinite(accuracy)) values.push_back({"eval/accuracy", accuracy});
    status = first_error(std::move(status), events_->add_scalars(step_, values));
  }
  return first_error(std::move(status), write_page(false));
}

void RunLog::note_evaluation(double loss, int64_t step) {
  evaluation_ = loss;
  if (!std::isfinite(loss)) return;
  if (!first_evaluation_) first_evaluation_ = loss;
  if (!best_evaluation_ || loss < *best_evaluation_) best_evaluation_ = loss, best_step_ = step;
}

Status RunLog::add_value(std::string_view name, double value) {
  if (name.empty())
    return Status(StatusCode::kInvalidArgument, "the name of a value is empty, wanted a name");
  Status status = record({{"kind", "value"}, {"step", step_}, {"name", name}, {"value", json_number(value)}});
  if (events_) {
    const ScalarValue values[] = {{name, value}};
    status = first_error(std::move(status), events_->add_scalars(step_, values));
  }
  return first_error(std::move(status), write_page(false));
}

Status RunLog::add_sample(std::string_view prompt, std::string_view text) {
  prompt = cut_sample(prompt), text = cut_sample(text);
  Status status = record({{"kind", "sample"}, {"step", step_}, {"prompt", prompt}, {"text", text}});
  if (events_)
    status =
        first_error(std::move(status),
                    events_->add_text(step_, "sample", as_code(std::string(prompt) + std::string(text))));
  return first_error(std::move(status), write_page(false));
}

Status RunLog::add_checkpoint(const std::string& path) {
  Status status = record({{"kind", "checkpoint"}, {"step", step_}, {"path", path}, {"time", utc_time()}});
  return first_error(std::move(status), write_page(false));
}

void RunLog::take_memory() {
  Result<Json> memory = parse_json(memory_json(trainer_->memory()), "memory");
  if (memory.ok()) memory_ = std::move(*memory);
}

double RunLog::step_s() const {
  if (last_steps_s_.empty()) return 0;
  std::vector<double> sorted(last_steps_s_.begin(), last_steps_s_.end());
  std::ranges::sort(sorted);
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double RunLog::seconds_left() const {
  const int64_t left = steps_ - step_;
  if (left <= 0 || last_steps_s_.empty()) return 0;
  // Evaluations and checkpoints take their share of the remaining time too.
  const double elapsed = seconds_between(begin_, Clock::now());
  const double share = steps_s_ > 0 ? std::max(1.0, elapsed / steps_s_) : 1;
  return static_cast<double>(left) * step_s() * share;
}

std::string RunLog::summary_json() const {
  const double step_s = this->step_s();
  Json limit = limit_object(limit_);
  // The limit is that of a whole step; partial steps have any number of accumulations.
  const bool is_known = step_s > 0 && trainer_->settings().losses.empty();
  limit["share"] = is_known ? json_number(limit_.seconds / step_s) : Json(nullptr);
  int64_t memory_bytes = 0;
  for (const Json& device : memory_)
    memory_bytes = std::max(memory_bytes, device["arena_bytes"]["predicted"].get<int64_t>());
  return dump(
      {{"step", step_},
       {"steps", steps_},
       {"loss", measured_steps_ > 0 ? json_number(loss_) : Json(nullptr)},
       {"smooth_loss", measured_steps_ > 0 ? json_number(smooth_loss_) : Json(nullptr)},
       {"eval_loss", json_number(evaluation_)},
       {"first_eval_loss", json_number(first_evaluation_)},
       {"best_eval_loss", json_number(best_evaluation_)},
       {"best_eval_step", best_evaluation_ ? Json(best_step_) : Json(nullptr)},
       {"step_seconds", step_s},
       {"fastest_step_seconds", least_step_s_},
       {"tokens_per_second", step_s > 0 ? static_cast<double>(trainer_->tokens_per_step()) / step_s : 0},
       {"seconds", seconds_between(begin_, Clock::now())},
       {"seconds_left", seconds_left()},
       {"memory_bytes", memory_bytes},
       {"unlabelled_steps", trainer_->unlabelled_steps()},
       {"limit", std::move(limit)}});
}

Status RunLog::write_page(bool is_due) {
  if (page_path_.empty()) return {};
  const Clock::time_point now = Clock::now();
  if (!is_due && seconds_between(page_written_, now) < page_seconds_) return {};
  TSR_ASSIGN_OR_RETURN(Json summary, parse_json(summary_json(), "summary"));
  const Json run = {{"state", outcome_.empty() ? "running" : outcome_},
                    {"written", utc_time()},
                    {"resumed_at", first_step_},
                    {"header", header_},
                    {"summary", std::move(summary)},
                    {"series", series_.to_json()},
                    {"devices", memory_},
                    {"explanation", explanation_}};
  const std::string page = run_page(run);
  page_written_ = now;  // also after a failure, so that the retry is delayed
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(page_path_));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(page))));
  return file.commit();
}

Status RunLog::finish(const std::string& outcome) {
  if (is_finished_) return Status(StatusCode::kFailedPrecondition, "the run log is finished already");
  is_finished_ = true;
  outcome_ = outcome.empty() ? "finished" : outcome;
  Status status;
  if (lines_)
    status = lines_->append({{"kind", "end"},
                             {"step", step_},
                             {"outcome", outcome_},
                             {"time", utc_time()},
                             {"seconds", seconds_between(begin_, Clock::now())}});
  if (events_) status = first_error(std::move(status), events_->flush());
  return first_error(std::move(status), write_page(true));
}

RunLog::~RunLog() {
  if (is_finished_ || !in_creating_process()) return;
  outcome_ = "stopped";
  (void)catch_status([&] { return write_page(true); });
}

}  // namespace tessera
