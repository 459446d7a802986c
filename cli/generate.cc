#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "adapter_arguments.h"
#include "command.h"
#include "generate_file.h"
#include "inference.h"
#include "interruptible.h"
#include "plan_text.h"
#include "progress.h"
#include "serving.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, prompt, prompts, output;
  Inference inference;
  Sampling sampling;
  Serving serving;
  ConstraintArguments constraint;
  std::vector<std::string> adapters;
  bool echo = false, special = false, stats = false, ids = false;
};

void print_memory(const Json& devices) {
  for (const Json& device : devices)
    std::cerr << "memory     " << device["name"].get<std::string>() << "  "
              << bytes_text(device["arena_bytes"]["predicted"].get<int64_t>()) << '\n';
}

// Prints the tokens and speeds of the prompt and of the text.
void print_stats(const Json& report) {
  const auto rate = [](double tokens, double seconds) {
    return seconds_text(seconds) + (seconds > 0 ? " (" + rate_text(tokens / seconds) + " tokens/s)" : "");
  };
  const auto prompt = report["prompt_tokens"].get<int64_t>(), tokens = report["tokens"].get<int64_t>();
  // The first token comes out of the prompt's pass.
  const auto decoded = static_cast<double>(std::max<int64_t>(0, tokens - 1));
  std::cerr << "prompt     " << counted(prompt, "token") << " in "
            << rate(static_cast<double>(prompt), report["prefill_seconds"].get<double>()) << '\n'
            << "generated  " << counted(tokens, "token") << " in "
            << rate(decoded, report["decode_seconds"].get<double>()) << ", context "
            << report["context"].get<int64_t>() << '\n';
  if (report.contains("seed")) std::cerr << "seed       " << report["seed"].get<int64_t>() << '\n';
  std::cerr << "a token    reads " << bytes_text(report["token_reads"]["parameter_bytes"].get<int64_t>())
            << " of parameters and at most "
            << bytes_text(report["token_reads"]["full_cache_bytes"].get<int64_t>()) << " of caches, launches "
            << counted(report["launches_per_token"].get<int64_t>(), "kernel") << '\n'
            << "plan       " << report["plan"]["strategy"].get<std::string>() << '\n';
  print_memory(report["devices"]);
}

// Options of generators and engines.
Options text_options(const Arguments& args) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set_sampling(options, args.sampling);
  set(options, "special", int64_t{args.special});
  set_inference(options, args.inference);
  return options;
}

Engine new_engine(const Arguments& args, const Serving& serving, const Runtime& runtime, const Model& model) {
  const Options options = text_options(args);
  set_serving(options, serving);
  return make_interruptible<Engine>(tsr_engine_new, runtime, model.get(),
                                    static_cast<const tsr_options*>(options.get()));
}

// Writes a text as it is generated, and keeps it for --json.
class TextOutput {
 public:
  explicit TextOutput(const Arguments& args) : args_(args) {}

  void add(const char* text, size_t size, int32_t token) {
    if (token >= 0) tokens_.push_back(token);
    if (args_.json)
      text_.append(text, size);
    else
      std::cout.write(text, static_cast<std::streamsize>(size)).flush();
  }

  // Ends the text; returns whether statistics follow.
  bool end() const {
    if (args_.json) return false;
    const bool on_terminal = isatty(STDOUT_FILENO) == 1;
    if (on_terminal) std::cout << std::endl;             // else the shell's prompt follows the text
    if (args_.stats && !on_terminal) std::cerr << '\n';  // both may go to the same place
    return args_.stats;
  }

  Json json() const { return {{"text", text_}, {"tokens", tokens_}}; }

 private:
  const Arguments& args_;
  std::string text_;
  std::vector<int32_t> tokens_;
};

void generate_text(const Arguments& args, const Runtime& runtime, const Model& model) {
  const Options options = text_options(args);
  set(options, "echo", int64_t{args.echo});
  const Generator generator =
      make_interruptible<Generator>(tsr_generator_new, runtime, model.get(), options.get());
  check(tsr_generator_start(generator.get(), args.prompt.data(), args.prompt.size()));
  TextOutput output(args);
  for (;;) {
    tsr_piece piece{};
    piece.struct_size = sizeof piece;
    check(tsr_generator_next(generator.get(), -1, &piece));
    if (piece.kind == TSR_END) break;
    if (piece.kind == TSR_PIECE) output.add(piece.text, piece.text_size, piece.token);
  }
  const Json report = Json::parse(text(tsr_generator_report, generator.get()));
  if (output.end()) print_stats(report);
  if (!args.json) return;
  Json result = output.json();
  result["report"] = report;
  print_json(result);
}

// Generates one text constrained by a schema or grammar, by an engine, since generators have no grammars.
void generate_constrained_text(const Arguments& args, const Constraint& constraint, const Runtime& runtime,
                               const Model& model) {
  Serving one = args.serving;
  one.sequences = 1;
  const Engine engine = new_engine(args, one, runtime, model);
  if (follow(engine)) return;
  const Options options = make<Options>(tsr_options_new);
  set(options, constraint->first.c_str(), constraint->second);
  int64_t request = 0;
  check(tsr_engine_submit(engine.get(), options.get(), args.prompt.data(), args.prompt.size(), &request));
  TextOutput output(args);
  if (args.echo) output.add(args.prompt.data(), args.prompt.size(), -1);
  tsr_event event{};
  event.struct_size = sizeof event;
  for (;;) {
    check(tsr_engine_next(engine.get(), -1, &event));
    if (event.kind == TSR_EVENT_END) break;
    if (event.kind == TSR_EVENT_TOKEN) output.add(event.text, event.text_size, event.token);
  }
  const Json end = Json::parse(std::string(event.details, event.details_size));
  if (end.contains("error"))
    throw Error(end["error"]["code"].get<tsr_code>(), end["error"]["message"].get<std::string>());
  const Json report = Json::parse(text(tsr_engine_report, engine.get()));
  if (output.end()) {
    std::cerr << "prompt     " << counted(end["prompt_tokens"].get<int64_t>(), "token") << '\n'
              << "generated  " << counted(end["tokens"].get<int64_t>(), "token") << ", all in "
              << seconds_text(end["seconds"].get<double>()) << '\n'
              << "seed       " << end["seed"].get<int64_t>() << '\n';
    print_memory(report["devices"]);
  }
  if (!args.json) return;
  Json result = output.json();
  result["end"] = end;
  result["report"] = report;
  print_json(result);
}

// Refuses options without effect.
void refuse_idle_options(const CLI::App& command, bool file) {
  const auto given = [&](std::initializer_list<const char*> names, const char* why) {
    for (const char* name : names)
      if (command.count(name) > 0) throw Error(TSR_INVALID_ARGUMENT, std::string(name) + ": " + why);
  };
  if (file) return given({"--prompt", "--echo"}, "belongs to one text, and --prompts to many: leave out one");
  constexpr const char* kOfFile = "belongs to --prompts, which is missing";
  given({"--out", "--ids"}, kOfFile);
  if (const std::string name = given_serving(command); !name.empty()) given({name.c_str()}, kOfFile);
}

void generate_texts(const Arguments& args, const AdapterArguments& adapters, const Constraint& constraint) {
  const FileRun run{.constraint = constraint, .adapters = adapters.named, .ids = args.ids, .stats = args.stats};
  // Reports wrong lines before a model is loaded.
  const RequestFile file = open_requests(args.prompts, args.output, run);
  const Runtime runtime = open_runtime(args);
  const Model model = open_model(args, args.model);
  const Options options = text_options(args);
  set_serving(options, args.serving);
  {
    const Interruptible interruptible(runtime);
    interruptible.check(tsr_request_file_start(file.get(), runtime.get(), model.get(), options.get()));
  }
  generate_file(args, run, file);
}

void generate(const CLI::App& command, Arguments& args) {
  refuse_idle_options(command, !args.prompts.empty());
  const Constraint constraint = read_constraint(args.constraint);
  const AdapterArguments adapters = read_adapters(args.adapters);
  if (args.prompt == "-" || (args.prompts.empty() && command.count("--prompt") == 0 && is_input_piped()))
    args.prompt = read_piped_text();
  args.adapter = adapters.of_model;
  check_options(text_options(args), "generator");
  if (!args.prompts.empty()) return generate_texts(args, adapters, constraint);
  if (!adapters.named.empty())
    throw Error(TSR_INVALID_ARGUMENT, "--adapter " + adapters.named.begin()->first +
                                          "=PATH: belongs to --prompts, which is missing");
  const Runtime runtime = open_runtime(args);
  const Model model = open_model(args, args.model);
  (void)model_tokenizer(model, args.model);  // reports its absence before planning
  constraint ? generate_constrained_text(args, constraint, runtime, model) : generate_text(args, runtime, model);
}

}  // namespace

void register_generate(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate", "continue a text, or a file of them");
  command->footer(
      "Example:\n"
      "  tessera generate model.tsr --prompt \"Once upon a time\" -n 200 --temp 0.7\n"
      "  echo \"Name a city:\" | tessera generate model.tsr -n 20\n"
      "  tessera generate model.tsr --prompt \"A person: \" --json-schema person.json\n"
      "  tessera generate model.tsr --prompts requests.jsonl --out texts.jsonl -n 200 --sequences 32\n"
      "  tessera generate model.tsr --prompts requests.jsonl --adapter french=adapters/french --adapter "
      "german=adapters/german\n"
      "Prints the decoded text as it comes, without BOS, and adds no newline (on a terminal one).\n"
      "A file of prompts has a JSON object a line: {\"prompt\": \"...\"}, {\"messages\": [{\"role\", \"content\"}]} "
      "or {\"ids\": [...]}, with an\n"
      "\"id\", which is copied, and options, which override the command's:\n"
      "max_tokens, min_tokens, temperature, top_k, top_p, min_p, typical_p, repetition_penalty, presence_penalty, "
      "frequency_penalty,\n"
      "penalty_last, logit_bias, seed, ignore_eos, stop, stop_ids, n, best_of, logprobs, prompt_logprobs, priority, "
      "adapter, special,\n"
      "json_schema, json, regex, choices, grammar, name, template, tools, tool_choice, documents, variables, now, "
      "continue_final_message.\n"
      "adapter is a folder of PEFT's or a GGUF adapter, from the file's folder, or a name that --adapter NAME=PATH "
      "gives; a step mixes those that its lines\n"
      "name, at most 8 or --adapters.\n"
      "A line of results, in the file's order: {\"line\", \"id\", \"text\", \"finish\": length or stop, \"tokens\", "
      "\"seed\", \"prompt_tokens\"}; with n,\n"
      "\"texts\": [{\"text\", ...}]; \"error\" where it failed. Until all are done, results are in OUT.part, in order "
      "of completion.");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  command->add_option(
      "--prompt", args->prompt,
      "the text to continue; - (the default for a pipe): standard input, without its last line end; empty: start from "
      "BOS");
  command->add_option("--prompts", args->prompts,
                      "a file of prompts, a JSON object a line (- for standard input), many at once");
  command->add_option("--out", args->output, "with --prompts: file of results (default: standard output)");
  command->add_flag("--ids", args->ids, "with --prompts: token ids of texts, too");
  add_sampling(*command, args->sampling);
  add_constraint_options(*command, args->constraint);
  add_serving(*command, args->serving, "with --prompts: ");
  add_inference(*command, args->inference);
  command->add_flag("--echo", args->echo, "print the prompt too");
  command->add_flag("--special", args->special,
                    "recognise control tokens written out in the prompt, such as <s>");
  command->add_flag("--stats", args->stats, "speed and memory on stderr (--json has them always)");
  add_adapters(*command, args->adapters);
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args, command] { generate(*command, *args); });
}

}  // namespace cli
