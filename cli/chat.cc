#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <map>

#include "chat_answer.h"
#include "command.h"
#include "inference.h"
#include "interruptible.h"
#include "plan_text.h"
#include "text_files.h"

namespace cli {

namespace {

struct Arguments : Common {
  std::string model, system, message, template_file, template_name, tools_file;
  std::vector<std::string> variables;
  Inference inference;
  Sampling sampling;
  bool stats = false;
};

constexpr const char* kHelp =
    "/reset       forgets the conversation, except the system message\n"
    "/save FILE   writes the messages as JSON\n"
    "/help        this list\n"
    "/exit        ends, as Ctrl-D does\n"
    "A message that begins with '/' is written with two. Ctrl-C stops the current answer.\n";

std::atomic<bool> answer_stopped{false};

// While it exists Ctrl-C stops the answer; a second one ends the process.
class StopOnInterrupt {
 public:
  StopOnInterrupt() {
    answer_stopped = false;
    std::signal(SIGINT, [](int signal) {
      answer_stopped = true;
      std::signal(signal, SIG_DFL);
    });
  }
  ~StopOnInterrupt() { std::signal(SIGINT, SIG_DFL); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
};

// {"key": value} of --arg key=JSON.
Json variables_of(const std::vector<std::string>& words) {
  Json variables = Json::object();
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const Json value = equals == std::string::npos ? Json(Json::value_t::discarded)
                                                   : Json::parse(word.substr(equals + 1), nullptr, false);
    if (value.is_discarded())
      throw CLI::ValidationError(
          "--arg",
          "found '" + word + "', wanted key=JSON, such as enable_thinking=false or date='\"May 5\"'");
    variables[word.substr(0, equals)] = value;
  }
  return variables;
}

class Conversation {
 public:
  explicit Conversation(const Arguments& args) : args_(args), runtime_(open_runtime(args)) {
    Options options = make<Options>(tsr_options_new);
    set_placement(options, args);
    set_sampling(options, args.sampling);
    set_inference(options, args.inference);
    if (!args.sampling.context) set(options, "context", int64_t{-1});  // the model's, as far as memory allows
    check_options(options, "generator");
    model_ = open_model(args, args.model);
    tokenizer_ = model_tokenizer(model_, args.model);
    make_chat();
    generator_ = make_interruptible<Generator>(tsr_generator_new, runtime_, model_.get(), options.get());
    chat_options_ = make<Options>(tsr_options_new);
    set(chat_options_, "add_generation_prompt", int64_t{1});
    if (!args.variables.empty()) set(chat_options_, "variables", variables_of(args.variables).dump());
    if (!args.tools_file.empty()) tools_ = read_file(args.tools_file);
    if (!tools_.empty()) set(chat_options_, "tools", tools_);
    context_ = report()["context"].get<int64_t>();
    find_markers();
    reset();
  }

  void reset() {
    all_ = Json::array();
    if (!args_.system.empty()) all_.push_back({{"role", "system"}, {"content", args_.system}});
    messages_ = all_;
  }
  const Json& messages() const { return all_; }  // with those that no longer fit the context
  const Runtime& runtime() const { return runtime_; }
  Json report() const { return Json::parse(text(tsr_generator_report, generator_.get())); }

  // Streams the answer, unless `shown` is false, and returns its content. After a failure the messages are unchanged.
  std::string ask(const std::string& message, bool shown) {
    const Json before = messages_;
    messages_.push_back({{"role", "user"}, {"content", message}});
    try {
      drop_oldest_turns();
      const std::vector<int32_t> ids = encode();
      check(tsr_generator_start_tokens(generator_.get(), ids.data(), ids.size()));
      const Json asked = messages_.back();
      messages_.push_back(stream(shown));
      all_.push_back(asked), all_.push_back(messages_.back());
      return messages_.back()["content"].get<std::string>();
    } catch (const Error&) {
      messages_ = before;
      throw;
    }
  }

 private:
  // Drops the oldest turns when the context has no room for them and an answer, and
  // reports it. It drops some more than needed, so that the next turns have room too.
  void drop_oldest_turns() {
    const int64_t count = args_.sampling.count;
    const int64_t answer = count > 0 ? std::min(count, context_ / 2) : std::min<int64_t>(context_ / 4, 1024);
    const int64_t most = std::max<int64_t>(1, context_ - answer);
    Json fit = fitted(most);
    if (fit["dropped"].get<int64_t>() == 0) return;
    try {
      fit = fitted(most / 4 * 3);
    } catch (const Error&) {  // the last turn needs more room
    }
    messages_ = fit["messages"];
    if (!args_.quiet)
      std::cerr << "tessera: the context of " << context_ << " tokens is full: the oldest "
                << counted(fit["dropped"].get<int64_t>(), "message") << " are left out (--context, /reset)\n";
  }

  Json fitted(int64_t most_tokens) const {
    const std::string messages = messages_text();
    return Json::parse(text(tsr_chat_fit, static_cast<const tsr_chat*>(chat_.get()),
                            static_cast<const tsr_options*>(chat_options_.get()), messages.data(),
                            messages.size(), most_tokens));
  }

  std::string limit_text() const {
    const auto tokens = report()["tokens"].get<int64_t>();
    if (args_.sampling.count > 0 && tokens >= args_.sampling.count)
      return "--max-tokens " + std::to_string(args_.sampling.count) + " is reached";
    return "the context of " + std::to_string(context_) + " tokens is full (--context gives more)";
  }

  void make_chat() {
    const Options options = make<Options>(tsr_options_new);
    if (!args_.template_name.empty()) set(options, "name", args_.template_name);
    if (!args_.template_file.empty()) set(options, "template", read_file(args_.template_file));
    tsr_chat* made = nullptr;
    tsr_status* const status = tsr_chat_new(model_.get(), options.get(), &made);
    if (tsr_status_code(status) == TSR_NOT_FOUND) {
      tsr_status_free(status);
      throw Error(TSR_NOT_FOUND,
                  args_.model + " has no chat template" +
                      (args_.template_name.empty() ? "" : " '" + args_.template_name + "'") +
                      ": give one with --template FILE, or continue a text with `tessera generate`");
    }
    check(status);
    chat_ = Chat(made);
  }

  void find_markers() {
    const Json texts = Json::parse(text(tsr_chat_markers, static_cast<const tsr_chat*>(chat_.get())));
    for (const auto& [token, letters] : texts.items())
      markers_[std::stoi(token)] = letters.get<std::string>();
  }

  // A user's line may hold any bytes.
  std::string messages_text() const { return messages_.dump(-1, ' ', false, Json::error_handler_t::replace); }

  std::string prompt() const {
    const std::string messages = messages_text();
    return text(tsr_chat_render, static_cast<const tsr_chat*>(chat_.get()),
                static_cast<const tsr_options*>(chat_options_.get()), messages.data(), messages.size());
  }

  std::vector<int32_t> encode() const {
    const std::string messages = messages_text();
    size_t count = 0;
    const auto run = [&](int32_t* ids, size_t capacity) {
      check(tsr_chat_encode(chat_.get(), chat_options_.get(), messages.data(), messages.size(), ids, capacity,
                            nullptr, &count));
    };
    std::vector<int32_t> ids(messages.size() + 1024);
    run(ids.data(), ids.size());
    while (count > ids.size()) {
      ids.resize(count);
      run(ids.data(), ids.size());
    }
    ids.resize(count);
    return ids;
  }

  Json stream(bool shown) {
    const StopOnInterrupt stop;
    ChatAnswer answer(chat_.get(), prompt(), tools_, shown, args_.quiet);
    bool cancelled = false;
    for (;;) {
      tsr_piece piece{};
      piece.struct_size = sizeof piece;
      check(tsr_generator_next(generator_.get(), 0.1, &piece));
      if (answer_stopped && !cancelled) {
        cancelled = true;
        tsr_generator_cancel(generator_.get());
      }
      if (piece.kind == TSR_END) {
        if (piece.finish == TSR_FINISH_LENGTH && !args_.quiet)
          std::cerr << "\ntessera: the answer was cut: " << limit_text() << '\n';
        Json message = answer.finish();
        if (message.contains("cut_call") && !args_.quiet) {
          const auto name = message["cut_call"]["name"].get<std::string>();
          std::cerr << "\ntessera: the answer ends within a call" << (name.empty() ? "" : " of ") << name << '\n';
        }
        return message;
      }
      if (piece.kind != TSR_PIECE || cancelled) continue;
      const auto marker = markers_.find(piece.token);
      if (piece.token < 0 || marker != markers_.end() || !is_control(piece.token))
        answer.add({piece.text, piece.text_size});
      if (marker != markers_.end()) answer.add(marker->second);
    }
  }

  // Returns whether a control token is kept as one; elsewhere its letters are shown.
  bool is_control(int32_t token) {
    const auto [place, is_new] = controls_.emplace(token, false);
    if (!is_new) return place->second;
    const std::string letters =
        text(tsr_tokenizer_decode, static_cast<const tsr_tokenizer*>(tokenizer_.get()),
             static_cast<const int32_t*>(&token), size_t{1});
    const auto is_token = [&](uint32_t flags) {
      int32_t first = -1;
      size_t count = 0;
      check(tsr_tokenizer_encode(tokenizer_.get(), letters.data(), letters.size(), flags, &first, 1, &count));
      return count == 1 && first == token;
    };
    return place->second = is_token(TSR_ENCODE_SPECIAL) && !is_token(0);
  }

  const Arguments& args_;
  Runtime runtime_;
  Model model_;
  Tokenizer tokenizer_;
  Chat chat_;
  Options chat_options_;
  Generator generator_;
  Json all_, messages_;  // the whole conversation, and its part within the context
  int64_t context_ = 0;
  std::map<int32_t, bool> controls_;
  std::map<int32_t, std::string> markers_;  // control tokens that mark reasoning and calls
  std::string tools_;                       // JSON
};

void print_stats(const Json& report) {
  const auto prompt = report["prompt_tokens"].get<int64_t>(), reused = report["reused_tokens"].get<int64_t>(),
             tokens = report["tokens"].get<int64_t>();
  const double prefill = report["prefill_seconds"].get<double>(),
               decode = report["decode_seconds"].get<double>();
  std::cerr << "prompt     " << counted(prompt, "token") << ", " << reused << " of them cached, in "
            << seconds_text(prefill) << "\nanswer     " << counted(tokens, "token") << " in "
            << seconds_text(decode);
  if (decode > 0 && tokens > 1)
    std::cerr << " (" << rate_text(static_cast<double>(tokens - 1) / decode) << " tokens/s)";
  std::cerr << "\nseed       " << report["seed"].get<int64_t>() << '\n';
}

void save(const Json& messages, const std::string& path) {
  if (path.empty()) throw Error(TSR_INVALID_ARGUMENT, "/save wants the name of a file");
  check_output(path, Output::kText);
  write_file(path, messages.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// Runs a line that is a command. Returns false for one that ends the chat.
bool run_command(Conversation& conversation, const std::string& line) {
  const size_t space = line.find(' ');
  const std::string word = line.substr(0, space);
  if (word == "/exit" || word == "/quit") return false;
  if (word == "/help")
    std::cerr << kHelp;
  else if (word == "/reset")
    conversation.reset();
  else if (word == "/save")
    save(conversation.messages(), space == std::string::npos ? "" : line.substr(space + 1));
  else
    throw Error(TSR_INVALID_ARGUMENT, "found " + word + ", wanted /reset, /save FILE, /help or /exit");
  return true;
}

// Removes the escape sequences of keys such as the arrows, and other control characters, from a typed line.
std::string without_controls(const std::string& line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b) {
      if (i + 1 < line.size() && line[i + 1] == '[') {  // CSI: up to its final byte
        i += 2;
        while (i < line.size() && !(line[i] >= '@' && line[i] <= '~')) ++i;
      } else if (i + 1 < line.size()) {  // SS3: one more byte
        i += line[i + 1] == 'O' ? 2 : 1;
      }
    } else if (c == '\t' || (c >= ' ' && c != 0x7f)) {
      text += line[i];
    }
  }
  return text;
}

void converse(Conversation& conversation, const Arguments& args) {
  const bool on_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  if (on_terminal && !args.quiet) std::cerr << "/help lists the commands; Ctrl-D ends.\n";
  for (std::string line;;) {
    if (on_terminal) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (on_terminal) line = without_controls(line);
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    try {
      if (line.starts_with('/') && !line.starts_with("//")) {
        if (!run_command(conversation, line)) return;
        continue;
      }
      (void)conversation.ask(line.starts_with("//") ? line.substr(1) : line, true);
      std::cout << std::endl;
      if (args.stats) print_stats(conversation.report());
    } catch (const Error& error) {
      // On a terminal the conversation continues.
      if (!on_terminal) throw;
      std::cerr << "tessera: " << error.what() << '\n';
    }
  }
  if (on_terminal) std::cerr << '\n';
}

}  // namespace

void register_chat(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("chat", "talk with a model");
  command->footer(
      std::string("Example:\n"
                  "  tessera chat model.gguf --system \"You are terse.\" --temp 0.7\n"
                  "  tessera chat model.gguf --message \"Name three rivers.\"\n"
                  "If the context is full, the oldest turns are left out; the system message stays.\n"
                  "Each line of standard input is a message, or a command (`rlwrap tessera chat ...` gives a "
                  "terminal's lines arrow keys and a history):\n") +
      kHelp);
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  command->add_option("--system", args->system, "the system message");
  command->add_option("--message", args->message,
                      "one message (- for standard input): its answer is printed, and nothing else is read");
  command->add_option("--template", args->template_file,
                      "a file with a Jinja template in place of the model's");
  command->add_option("--template-name", args->template_name,
                      "another of the model's templates, such as tool_use");
  command->add_option("--tools", args->tools_file,
                      "a file with a JSON array of tools for the template");
  command->add_option("--arg", args->variables,
                      "key=JSON: a variable of the template, such as enable_thinking=false; may be repeated");
  add_sampling(*command, args->sampling);
  add_inference(*command, args->inference);
  command->add_flag("--stats", args->stats, "tokens and speed on stderr (--json has them always)");
  add_adapter_file(*command, *args);
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args, command] {
    const bool single = command->count("--message") > 0;
    if (args->json && !single) throw CLI::ValidationError("--json", "wanted with --message");
    (void)variables_of(args->variables);  // reports mistakes before the model is opened
    if (args->message == "-") args->message = read_piped_text();
    Conversation conversation(*args);
    if (!single) return converse(conversation, *args);
    const std::string answer = conversation.ask(args->message, !args->json);
    if (args->json)
      return print_json(
          {{"answer", answer}, {"messages", conversation.messages()}, {"report", conversation.report()}});
    std::cout << std::endl;
    if (args->stats) print_stats(conversation.report());
    if (answer_stopped) throw Error(TSR_CANCELLED, "interrupted");
  });
}

}  // namespace cli
