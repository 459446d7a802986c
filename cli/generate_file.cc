#include "generate_file.h"

#include <algorithm>
#include <iostream>

#include "interruptible.h"
#include "plan_text.h"
#include "progress.h"
#include "text_files.h"

namespace cli {

namespace {

Json report_of(const RequestFile& file) { return Json::parse(text(tsr_request_file_report, file.get())); }

std::string progress_text(const Json& report) {
  const auto done = report["done"].get<int64_t>(), all = report["requests"].get<int64_t>();
  const double left = report["seconds"].get<double>() / static_cast<double>(std::max<int64_t>(done, 1)) *
                      static_cast<double>(all - done);
  return std::to_string(done) + "/" + std::to_string(all) + " texts  " +
         rate_text(report["tokens_per_second"].get<double>()) + " tokens/s  " + seconds_text(left) + " left";
}

std::string interruption(const Json& report) {
  const auto done = report["done"].get<int64_t>();
  const std::string partial_file = report["part"].get<std::string>();
  return "interrupted: " + std::to_string(done) + " of " + std::to_string(report["requests"].get<int64_t>()) +
         " are done" + (partial_file.empty() || done == 0 ? "" : "; their results are in " + partial_file);
}

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

void add_constraint_options(CLI::App& command, ConstraintArguments& arguments) {
  CLI::Option* const schema =
      command.add_option("--json-schema", arguments.json_schema_file,
                         "a file with a JSON schema of the text (docs/guides/constraints.md)");
  CLI::Option* const grammar = command.add_option("--grammar", arguments.grammar_file,
                                                  "a file with a GBNF grammar; its rule root matches the text");
  CLI::Option* const regex = command.add_option("--regex", arguments.regex, "regular expression for the whole text");
  schema->excludes(grammar)->excludes(regex);
  grammar->excludes(regex);
}

Constraint read_constraint(const ConstraintArguments& arguments) {
  constexpr int64_t kMaxConstraintBytes = int64_t{16} << 20;
  if (!arguments.json_schema_file.empty())
    return {{"json_schema", read_file(arguments.json_schema_file, kMaxConstraintBytes)}};
  if (!arguments.grammar_file.empty()) return {{"grammar", read_file(arguments.grammar_file, kMaxConstraintBytes)}};
  if (!arguments.regex.empty()) return {{"regex", arguments.regex}};
  return std::nullopt;
}

RequestFile open_requests(const std::string& path, const std::string& output, const FileRun& run) {
  const Options options = make<Options>(tsr_options_new);
  if (run.constraint) set(options, run.constraint->first.c_str(), run.constraint->second);
  set(options, "ids", int64_t{run.ids});
  if (!run.adapters.empty()) set(options, "adapters", Json(run.adapters).dump());
  return make<RequestFile>(tsr_request_file_open, path.c_str(), output.c_str(),
                           static_cast<const tsr_options*>(options.get()));
}

void generate_file(const Common& common, const FileRun& run, const RequestFile& file) {
  {
    const Interruptible interruptible;
    Progress progress(common);
    for (double done = 0; done < 1;) {
      check(tsr_request_file_step(file.get(), &done));
      const Json report = report_of(file);
      if (interruptible.interrupted()) throw Error(TSR_CANCELLED, interruption(report));
      progress.show(progress_text(report));
    }
  }
  const Json summary = report_of(file);
  if (common.json) print_json(summary);
  if (!is_quiet(common)) print_summary(summary, run.stats);
  if (const auto failed = summary["failed"].get<int64_t>(); failed > 0)
    throw Error(
        TSR_INVALID_ARGUMENT,
        std::to_string(failed) + " of " + counted(summary["requests"].get<int64_t>(), "request") +
            " failed, the others are done; the first: " + summary["first_failure"].get<std::string>());
}

}  // namespace cli
