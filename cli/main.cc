// tessera: the command, built on tessera.h alone.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "command.h"
#include "serve.h"
#include "shared_files.h"
#include "usage.h"

namespace {

constexpr cli::Register kCommands[] = {
    cli::register_devices, cli::register_import, cli::register_quantize,  cli::register_imatrix,
    cli::register_inspect, cli::register_new,    cli::register_tokenize,  cli::register_plan,
    cli::register_train,   cli::register_eval,   cli::register_score,     cli::register_generate,
    cli::register_chat,    cli::register_bench,  cli::register_calibrate, cli::register_merge,
    cli::register_export,  cli::register_adapt,  cli::register_embed,     cli::register_classify,
    cli::register_data,    cli::register_resize, cli::register_serve,
};

// Exit statuses, as the help lists them.
constexpr int kFailed = 1, kUsage = 2, kInterrupted = 130;

// CLI11 replaces integers beyond 64 bits by the largest.
std::string check_integer(const std::string& word) {
  errno = 0;
  char* end = nullptr;
  (void)std::strtoll(word.c_str(), &end, 10);
  if (errno == ERANGE) return word + " is beyond what an integer of 64 bits holds";
  return {};
}

// Parses and runs a command.
int run(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "serve") return cli::execute_service(argv + 1);  // its words are its own
  CLI::App app{"Fine-tune and run models on every device of this machine."};
  app.footer(
      "Example:\n  tessera import model.gguf -o model.tsr\n"
      "  tessera train model.tsr --data text.txt --steps 100 --devices cpu:2 --out tuned.tsr\n"
      "  tessera generate tuned.tsr --prompt \"Once upon a time\" -n 100\n"
      "`tessera COMMAND --help` has a command's options, their defaults and an example.\n"
      "Exit status: 0 done, 1 failed, 2 invalid arguments, 130 interrupted (Ctrl-C, SIGTERM).");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera " + std::to_string(TSR_VERSION_MAJOR) + "." +
                                        std::to_string(TSR_VERSION_MINOR) + "." +
                                        std::to_string(TSR_VERSION_PATCH));
  for (cli::Register add : kCommands) add(app);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : command->get_options())
      if (option->get_type_name().starts_with("INT")) option->check(CLI::Validator(check_integer, ""));
  app.parse_complete_callback([&app] {  // before any command begins
    for (const CLI::App* command : app.get_subcommands()) cli::refuse_shared_files(*command);
  });
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  try {
    cli::check(tsr_version_check(TSR_VERSION));
    const std::string misread = cli::misread_option(app, words);
    if (!misread.empty()) {
      std::cerr << "tessera: " << misread << '\n';
      return kUsage;
    }
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << "tessera: " << cli::usage_message(app, error, words) << '\n';
    return kUsage;
  }
  if (std::cout.flush()) return 0;
  std::cerr << "tessera: the result cannot be written to standard output\n";
  return kFailed;
}

int without_memory() {
  std::fputs("tessera: the process is out of memory\n", stderr);
  return kFailed;
}

// Ends the process for an exception without memory to construct it.
[[noreturn]] void end_process() {
  if (std::current_exception() == nullptr) std::_Exit(without_memory());
  __gnu_cxx::__verbose_terminate_handler();
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  // A write beyond the limit on file sizes then fails like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(end_process);
  // An exception needs memory itself; without any at the start, it ends the process.
  void* const volatile room = std::malloc(size_t{256} << 10);  // volatile: not left out
  if (room == nullptr) return without_memory();
  std::free(room);
  try {
    return run(argc, argv);
  } catch (const cli::Error& error) {
    cli::print_error(error.what());
    return error.code() == TSR_CANCELLED ? kInterrupted : kFailed;
  } catch (const std::bad_alloc&) {
    return without_memory();
  } catch (const std::exception& error) {
    cli::print_error(error.what());
    return kFailed;
  }
}
