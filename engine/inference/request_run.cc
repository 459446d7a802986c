// Lines are submitted while there is room, events collected by request, and finished lines handed to the result file.
#include "engine/inference/request_run.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/model/adapters.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Requests in progress, and finished lines ahead of the earliest of them: more would wait in memory.
constexpr size_t kInProgress = 256;
constexpr int64_t kEarly = 16384;
constexpr int64_t kSlots = 8;    // of adapters, where lines name more
constexpr double kStep_s = 0.1;  // a step's duration

std::string_view finish_name(ServingEvent::Finish finish) {
  switch (finish) {
    case ServingEvent::Finish::kLength: return "length";
    case ServingEvent::Finish::kStop: return "stop";
    case ServingEvent::Finish::kCancelled: return "cancelled";
    case ServingEvent::Finish::kFailed: return "failed";
    case ServingEvent::Finish::kNone: break;
  }
  return "none";
}

Json head_of(int64_t line, const Json& id) {
  Json result = {{"line", line}};
  if (!id.is_null()) result["id"] = id;
  return result;
}

// Returns the folder of a path, which may be new or standard output.
std::string folder_of(const std::string& out) {
  return out.empty() || out == "-" ? fs::temp_directory_path().string() : parent_folder(out);
}

// An adapter's failure, with the place that names it; some messages have the path.
Status at_place(const std::string& place, const std::string& path, const Status& failure) {
  const bool has_path = failure.message().find(path) != std::string_view::npos;
  return failure.with_context(has_path ? place : place + ": " + path);
}

// Returns the largest rank of the model's adapters.
int64_t rank_of(const SharedModel& adapted) {
  int64_t rank = 0;
  const Json info = Json::parse(adapted.info_json());
  for (const Json& weight : info["adapters"]["weights"])
    rank = std::max(rank, weight["rank"].get<int64_t>());
  return rank;
}

Result<std::map<std::string, std::string>> parse_named(const std::string& text) {
  std::map<std::string, std::string> named;
  if (text.empty()) return named;
  TSR_ASSIGN_OR_RETURN(const Json paths, parse_json(text, "option 'adapters'"));
  for (const auto& [name, path] : paths.items()) {
    if (!paths.is_object() || !path.is_string())
      return Status(
          StatusCode::kInvalidArgument,
          format("option 'adapters' is {}, wanted an object: {\"name\": \"path\"}", quote_json(paths)));
    named.emplace(name, path.get<std::string>());
  }
  return named;
}

}  // namespace

Result<std::unique_ptr<RequestRun>> RequestRun::open(const std::string& path, const std::string& out,
                                                     const Options& options) {
  std::unique_ptr<RequestRun> made(new RequestRun);
  OptionReader reader(options, "request file");
  TSR_ASSIGN_OR_RETURN(made->named_, parse_named(reader.text("adapters")));
  made->ids_ = reader.flag("ids", false);
  for (const char* key : {"json_schema", "regex", "grammar"})
    if (const std::string text = reader.text(key); !text.empty()) made->allowed_.emplace(key, text);
  TSR_RETURN_IF_ERROR(reader.finish());
  std::error_code ignored;
  if (!out.empty() && fs::equivalent(path, out, ignored))
    return Status(StatusCode::kInvalidArgument, format("{}: is the file of the prompts", out));
  made->out_ = out;
  if (!Runtime::is_launched_after_first()) {
    TSR_ASSIGN_OR_RETURN(made->results_, ResultFile::create(out));
  }
  TSR_ASSIGN_OR_RETURN(made->requests_, RequestFile::open(path, folder_of(out)));
  return made;
}

// Opens each over the model, which stays unchanged.
Status RequestRun::find_adapters(const SharedModel& model, int64_t& rank) {
  std::map<std::string, size_t> by_path;
  for (const auto& [said, line] : requests_->adapters()) {
    const std::string place = requests_->place(line);
    if (adapter_summary(model.graph()))
      return Status(
          StatusCode::kInvalidArgument,
          format("{}: 'adapter' is '{}', and the model has adapters: leave them out, and name them by lines",
                 place, said));
    const auto named = named_.find(said);
    const fs::path given =
        named != named_.end() ? fs::path(named->second) : fs::path(requests_->folder()) / said;
    const std::string path = given.lexically_normal().string();
    const auto [found, is_new] = by_path.emplace(path, adapters_.size());
    adapter_of_.emplace(said, found->second);
    if (!is_new) continue;
    const Result<std::shared_ptr<SharedModel>> adapted = load_adapters(model, path, {});
    if (!adapted.ok()) return at_place(place, path, adapted.status());
    adapters_.push_back({path, place, -1});
    rank = std::max(rank, rank_of(**adapted));
  }
  return {};
}

Status RequestRun::start(std::shared_ptr<Runtime> runtime, std::shared_ptr<SharedModel> model,
                         Options options) {
  if (engine_ != nullptr)
    return Status(StatusCode::kFailedPrecondition, "the requests have been started already");
  int64_t rank = 0;
  adapters_.clear();
  adapter_of_.clear();
  TSR_RETURN_IF_ERROR(find_adapters(*model, rank));
  if (!adapters_.empty()) {
    options.emplace("adapters", std::min(std::ssize(adapters_), kSlots));
    options.emplace("adapter_rank", rank);
  }
  TSR_ASSIGN_OR_RETURN(auto engine, Engine::create(std::move(runtime), std::move(model), options));
  if (engine->follows()) {
    engine_ = std::move(engine);
    return {};
  }
  if (results_ == nullptr) {
    TSR_ASSIGN_OR_RETURN(results_, ResultFile::create(out_));
  }
  for (Adapter& it : adapters_) {
    const Result<int64_t> number = engine->load_adapter(it.path);
    if (!number.ok()) return at_place(it.place, it.path, number.status());
    it.number = *number;
  }
  engine_ = std::move(engine);
  begin_ = std::chrono::steady_clock::now();
  return {};
}

bool RequestRun::has_room() const {
  return in_progress_.empty() ||
         (in_progress_.size() < kInProgress && submitted_ - in_progress_.begin()->second.line < kEarly);
}

Result<double> RequestRun::step() {
  if (engine_ == nullptr)
    return Status(StatusCode::kFailedPrecondition, "nothing was started: call tsr_request_file_start first");
  if (is_finished_) return 1.0;
  if (engine_->follows()) {
    TSR_RETURN_IF_ERROR(engine_->next(kStep_s).status());
    is_finished_ = engine_->has_followed();
    return is_finished_ ? 1.0 : 0.0;
  }
  const auto seconds_since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto begin = std::chrono::steady_clock::now();
  do {
    TSR_RETURN_IF_ERROR(engine_->world_failure());
    for (bool is_there = true; is_there && has_room();) {
      TSR_ASSIGN_OR_RETURN(is_there, submit_next());
    }
    if (in_progress_.empty()) {
      TSR_RETURN_IF_ERROR(results_->finish());
      is_finished_ = true;
      break;
    }
    TSR_ASSIGN_OR_RETURN(const ServingEvent event, engine_->next(kStep_s));
    TSR_RETURN_IF_ERROR(take(event));
  } while (seconds_since(begin) < kStep_s);
  seconds_ = seconds_since(begin_);
  if (is_finished_) return 1.0;
  return std::min(0.999, static_cast<double>(done_) / static_cast<double>(requests_->count()));
}

// Returns false after the last.
Result<bool> RequestRun::submit_next() {
  TSR_ASSIGN_OR_RETURN(std::optional<RequestRow> row, requests_->next());
  if (!row) return false;
  submitted_ = requests_->line();
  const Result<int64_t> number = submit(*row);
  if (number.ok()) {
    in_progress_[*number] = {submitted_, std::move(row->id), Json(),
                             std::vector<Text>(static_cast<size_t>(row->texts)), 0};
    return true;
  }
  Json result = head_of(submitted_, row->id);
  result["finish"] = finish_name(ServingEvent::Finish::kFailed);
  result["error"] = std::string(number.status().message());
  TSR_RETURN_IF_ERROR(put(submitted_, result, result["error"].get<std::string>()));
  return true;
}

Result<int64_t> RequestRun::submit(RequestRow& row) {
  if (!row.is_constrained) row.options.insert(allowed_.begin(), allowed_.end());
  if (!row.adapter.empty()) row.options["adapter"] = adapters_[adapter_of_.at(row.adapter)].number;
  switch (row.kind) {
    case RequestRow::Kind::kText: return engine_->submit(row.text, row.options);
    case RequestRow::Kind::kMessages: return engine_->submit_messages(row.text, row.options);
    case RequestRow::Kind::kIds: break;
  }
  return engine_->submit_tokens(std::move(row.ids), row.options);
}

Status RequestRun::take(const ServingEvent& event) {
  const auto found = in_progress_.find(event.request);
  if (event.kind == ServingEvent::Kind::kPending || found == in_progress_.end()) return {};
  InProgress& request = found->second;
  Text& text = request.texts.at(static_cast<size_t>(event.index));
  const std::string details = engine_->details_json(event);
  if (event.kind == ServingEvent::Kind::kToken) return take_token(event, details, text);
  if (event.kind == ServingEvent::Kind::kPrompt) {
    Json part = Json::parse(details);
    for (Json& token : part["tokens"]) request.prompt_logprobs.push_back(std::move(token));
  }
  if (event.kind != ServingEvent::Kind::kEnd) return {};
  text.finish = event.finish;
  text.end = Json::parse(details);
  if (++request.ended < request.texts.size()) return {};
  TSR_RETURN_IF_ERROR(finish(request));
  in_progress_.erase(found);
  return {};
}

Status RequestRun::take_token(const ServingEvent& event, const std::string& details, Text& text) {
  text.text += event.text;
  if (event.token < 0) return {};
  ++tokens_;
  if (ids_) text.ids.push_back(event.token);
  if (details.empty()) return {};
  Json token = {{"token", event.token}};
  token.update(Json::parse(details));
  text.logprobs.push_back(std::move(token));
  return {};
}

// {"text", "finish", ...}, without values that differ from run to run, such as seconds.
Json RequestRun::text_json(Text& text, std::string& error) const {
  Json result = {{"text", std::move(text.text)}, {"finish", finish_name(text.finish)}};
  for (const char* key : {"tokens", "stop_token", "stop_logprob", "stop_top", "seed", "logprob"})
    if (text.end.contains(key)) result[key] = text.end[key];
  const Json message = text.end.value("message", Json::object());
  for (const char* key : {"reasoning_content", "tool_calls", "cut_call"})
    if (message.contains(key)) result["message"] = message;
  if (ids_) result["ids"] = std::move(text.ids);
  if (!text.logprobs.is_null()) result["logprobs"] = std::move(text.logprobs);
  if (text.end.contains("error")) {
    error = text.end["error"]["message"].get<std::string>();
    result["error"] = error;
  }
  return result;
}

Status RequestRun::finish(InProgress& request) {
  Json result = head_of(request.line, request.id);
  std::string error;
  const Json& end = request.texts[0].end;
  const auto prompt_tokens = end.value("prompt_tokens", int64_t{0});
  prompt_tokens_ += prompt_tokens;
  cached_tokens_ += end.value("cached_tokens", int64_t{0});
  if (request.texts.size() == 1) {
    result.update(text_json(request.texts[0], error));
  } else {
    for (Text& text : request.texts) result["texts"].push_back(text_json(text, error));
  }
  result["prompt_tokens"] = prompt_tokens;
  if (!request.prompt_logprobs.is_null()) result["prompt_logprobs"] = std::move(request.prompt_logprobs);
  return put(request.line, result, error);
}

Status RequestRun::put(int64_t line, const Json& result, const std::string& error) {
  TSR_RETURN_IF_ERROR(results_->put(line, dump(result)));
  ++done_;
  if (!error.empty() && failed_++ == 0) first_failure_ = requests_->place(line) + ": " + error;
  return {};
}

std::string RequestRun::report_json() const {
  Json report = {{"requests", requests_->count()},
                 {"done", done_},
                 {"failed", failed_},
                 {"first_failure", first_failure_},
                 {"part", results_ != nullptr ? results_->part() : std::string()},
                 {"prompt_tokens", prompt_tokens_},
                 {"cached_tokens", cached_tokens_},
                 {"tokens", tokens_},
                 {"seconds", seconds_},
                 {"tokens_per_second", seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0}};
  for (const auto& [said, line] : requests_->adapters()) report["adapters"].push_back(said);
  if (is_finished_)
    if (const Result<std::string> engine = engine_->report_json(); engine.ok())
      report["report"] = Json::parse(*engine);
  return dump(report);
}

}  // namespace tessera
