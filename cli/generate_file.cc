#include "generate_file.h"

#include <chrono>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

#include "interruptible.h"
#include "plan_text.h"
#include "progress.h"

namespace cli {

namespace {

// Requests in progress, and lines that may be done before the earliest of them: more would wait in memory.
constexpr size_t kInProgress = 256;
constexpr int64_t kEarly = 16384;

struct Text {
  std::string text;
  std::vector<int32_t> ids;
  Json logprobs, end;
  int32_t finish = TSR_FINISH_NONE;
};

struct InProgress {
  int64_t line = 0;
  Json id, prompt_logprobs;
  std::vector<Text> texts;
  size_t ended = 0;
};

const char* finish_name(int32_t finish) {
  switch (finish) {
    case TSR_FINISH_LENGTH: return "length";
    case TSR_FINISH_STOP: return "stop";
    case TSR_FINISH_CANCELLED: return "cancelled";
    case TSR_FINISH_FAILED: return "failed";
    default: return "none";
  }
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json head_of(int64_t line, const Json& id) {
  Json result = {{"line", line}};
  if (!id.is_null()) result["id"] = id;
  return result;
}

class FileRunner {
 public:
  FileRunner(const Common& common, const FileRun& run, RequestFile& requests, const LineAdapters& adapters,
             const Engine& engine, ResultFile& results)
      : run_(run),
        requests_(requests),
        adapters_(adapters),
        engine_(engine),
        results_(results),
        progress_(common) {}

  void run() {
    const Interruptible interruptible;
    for (;;) {
      while (has_room() && submit_next()) {
      }
      if (in_progress_.empty()) break;
      tsr_event event{};
      event.struct_size = sizeof event;
      check(tsr_engine_next(engine_.get(), kPoll_s, &event));
      if (interruptible.interrupted()) throw Error(TSR_CANCELLED, interruption());
      take(event);
    }
    results_.finish();
  }

  Json summary() const {
    const double seconds = elapsed_s();
    return {{"requests", requests_.count()},
            {"failed", failed_},
            {"prompt_tokens", prompt_tokens_},
            {"cached_tokens", cached_tokens_},
            {"tokens", tokens_},
            {"seconds", seconds},
            {"tokens_per_second", seconds > 0 ? static_cast<double>(tokens_) / seconds : 0},
            {"report", Json::parse(text(tsr_engine_report, engine_.get()))}};
  }

  int64_t failed() const { return failed_; }
  const std::string& first_failure() const { return first_failure_; }

 private:
  static constexpr double kPoll_s = 0.25;  // Ctrl-C is heard this often

  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  bool has_room() const {
    return in_progress_.empty() ||
           (in_progress_.size() < kInProgress && submitted_ - in_progress_.begin()->second.line < kEarly);
  }

  // False after the last.
  bool submit_next() {
    Request request;
    if (!requests_.next(request)) return false;
    submitted_ = request.line;
    try {
      const int64_t number = submit(request);
      in_progress_[number] = {request.line, std::move(request.id), Json(),
                              std::vector<Text>(static_cast<size_t>(request.texts))};
    } catch (const Error& error) {
      Json result = head_of(request.line, request.id);
      result["finish"] = finish_name(TSR_FINISH_FAILED);
      result["error"] = error.what();
      put(request.line, result, error.what());
    }
    return true;
  }

  int64_t submit(const Request& request) {
    const tsr_options* const options = request.options.get();
    if (run_.allowed && !request.is_constrained)
      set(request.options, run_.allowed->first.c_str(), run_.allowed->second);
    if (!request.adapter.empty()) set(request.options, "adapter", adapters_.number(request.adapter));
    int64_t number = 0;
    switch (request.kind) {
      case Request::Kind::kText:
        check(tsr_engine_submit(engine_.get(), options, request.text.data(), request.text.size(), &number));
        break;
      case Request::Kind::kMessages:
        check(tsr_engine_submit_messages(engine_.get(), options, request.text.data(), request.text.size(),
                                         &number));
        break;
      case Request::Kind::kIds:
        check(tsr_engine_submit_tokens(engine_.get(), options, request.ids.data(), request.ids.size(),
                                       &number));
        break;
    }
    return number;
  }

  void take(const tsr_event& event) {
    const auto found = in_progress_.find(event.request);
    if (event.kind == TSR_EVENT_PENDING || found == in_progress_.end()) return;
    InProgress& request = found->second;
    Text& text = request.texts.at(static_cast<size_t>(event.index));
    const std::string details(event.details, event.details_size);
    switch (event.kind) {
      case TSR_EVENT_TOKEN: take_token(event, details, text); break;
      case TSR_EVENT_PROMPT: {
        const Json part = Json::parse(details);
        for (const Json& token : part["tokens"]) request.prompt_logprobs.push_back(token);
        break;
      }
      case TSR_EVENT_END:
        text.finish = event.finish;
        text.end = Json::parse(details);
        if (++request.ended < request.texts.size()) break;
        finish(request);
        in_progress_.erase(found);
        break;
      default: break;
    }
  }

  void take_token(const tsr_event& event, const std::string& details, Text& text) {
    text.text.append(event.text, event.text_size);
    if (event.token < 0) return;
    ++tokens_;
    if (run_.ids) text.ids.push_back(event.token);
    if (details.empty()) return;
    Json token = {{"token", event.token}};
    token.update(Json::parse(details));
    text.logprobs.push_back(std::move(token));
  }

  // {"text", "finish", ...}; what differs from run to run, such as seconds, is left out.
  Json text_json(Text& text, std::string& error) const {
    Json result = {{"text", std::move(text.text)}, {"finish", finish_name(text.finish)}};
    for (const char* key : {"tokens", "stop_token", "stop_logprob", "stop_top", "seed", "logprob"})
      if (text.end.contains(key)) result[key] = text.end[key];
    if (run_.ids) result["ids"] = std::move(text.ids);
    if (!text.logprobs.is_null()) result["logprobs"] = std::move(text.logprobs);
    if (text.end.contains("error")) {
      error = text.end["error"]["message"].get<std::string>();
      result["error"] = error;
    }
    return result;
  }

  void finish(InProgress& request) {
    Json result = head_of(request.line, request.id);
    std::string error;
    const Json& end = request.texts[0].end;
    prompt_tokens_ += end.value("prompt_tokens", int64_t{0});
    cached_tokens_ += end.value("cached_tokens", int64_t{0});
    if (request.texts.size() == 1) {
      result.update(text_json(request.texts[0], error));
    } else {
      for (Text& text : request.texts) result["texts"].push_back(text_json(text, error));
    }
    result["prompt_tokens"] = end.value("prompt_tokens", int64_t{0});
    if (!request.prompt_logprobs.is_null()) result["prompt_logprobs"] = std::move(request.prompt_logprobs);
    put(request.line, result, error);
  }

  void put(int64_t line, const Json& result, const std::string& error) {
    results_.put(line, dump(result));
    ++done_;
    if (!error.empty() && failed_++ == 0) first_failure_ = requests_.place(line) + ": " + error;
    const double seconds = elapsed_s(), done = static_cast<double>(done_);
    progress_.show(std::to_string(done_) + "/" + std::to_string(requests_.count()) + " texts  " +
                   rate_text(static_cast<double>(tokens_) / seconds) + " tokens/s  " +
                   seconds_text(seconds / done * (static_cast<double>(requests_.count()) - done)) + " left");
  }

  std::string interruption() const {
    const std::string done =
        "interrupted: " + std::to_string(done_) + " of " + std::to_string(requests_.count()) + " are done";
    return results_.part().empty() || done_ == 0 ? done : done + "; their results are in " + results_.part();
  }

  const FileRun& run_;
  RequestFile& requests_;
  const LineAdapters& adapters_;
  const Engine& engine_;
  ResultFile& results_;
  Progress progress_;
  std::map<int64_t, InProgress> in_progress_;  // by the engine's numbers, which grow as lines do
  int64_t submitted_ = 0;                      // the last line
  int64_t done_ = 0, failed_ = 0, tokens_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  std::string first_failure_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void print_summary(const Json& summary, bool stats) {
  const auto prompt = summary["prompt_tokens"].get<int64_t>(),
             cached = summary["cached_tokens"].get<int64_t>();
  std::cerr << "generated  " << counted(summary["tokens"].get<int64_t>(), "token") << " for "
            << counted(summary["requests"].get<int64_t>(), "request") << " in "
            << seconds_text(summary["seconds"].get<double>()) << " ("
            << rate_text(summary["tokens_per_second"].get<double>()) << " tokens/s)\n"
            << "prompts    " << counted(prompt, "token") << ", " << cached << " of them cached\n";
  if (!stats) return;
  const Json& report = summary["report"];
  std::cerr << "steps      " << report["steps"].get<int64_t>() << ", of "
            << rate_text(report["tokens"].get<double>() / std::max(1.0, report["steps"].get<double>()))
            << " tokens; " << counted(report["preemptions"].get<int64_t>(), "preemption") << '\n'
            << "plan       " << report["plan"]["strategy"].get<std::string>() << '\n';
  for (const Json& device : report["devices"])
    std::cerr << "memory     " << device["name"].get<std::string>() << "  "
              << bytes_text(device["arena_bytes"]["predicted"].get<int64_t>()) << '\n';
}

}  // namespace

void add_allowed(CLI::App& command, AllowedArguments& arguments) {
  CLI::Option* const schema =
      command.add_option("--json-schema", arguments.json_schema_file,
                         "a file: the text is JSON that this schema allows (docs/guides/constraints.md)");
  CLI::Option* const grammar = command.add_option("--grammar", arguments.grammar_file,
                                                  "a file of GBNF: its rule root matches the text");
  CLI::Option* const regex = command.add_option("--regex", arguments.regex, "matches the whole text");
  schema->excludes(grammar)->excludes(regex);
  grammar->excludes(regex);
}

Allowed read_allowed(const AllowedArguments& arguments) {
  constexpr int64_t kMost = int64_t{16} << 20;
  if (!arguments.json_schema_file.empty())
    return {{"json_schema", read_file(arguments.json_schema_file, kMost)}};
  if (!arguments.grammar_file.empty()) return {{"grammar", read_file(arguments.grammar_file, kMost)}};
  if (!arguments.regex.empty()) return {{"regex", arguments.regex}};
  return std::nullopt;
}

void generate_file(const Common& common, const FileRun& run, RequestFile& requests,
                   const LineAdapters& adapters, const Engine& engine, ResultFile& results) {
  FileRunner runner(common, run, requests, adapters, engine, results);
  runner.run();
  const Json summary = runner.summary();
  if (common.json) print_json(summary);
  if (!is_quiet(common)) print_summary(summary, run.stats);
  if (runner.failed() > 0)
    throw Error(TSR_INVALID_ARGUMENT,
                std::to_string(runner.failed()) + " of " + counted(requests.count(), "request") +
                    " failed, the others are done; the first: " + runner.first_failure());
}

}  // namespace cli
