// tessera: the command. Everything that it does goes through tessera.h.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "command.h"

namespace {

constexpr cli::Register kCommands[] = {
    cli::register_devices,  cli::register_import, cli::register_inspect,   cli::register_new,
    cli::register_tokenize, cli::register_plan,   cli::register_train,     cli::register_eval,
    cli::register_generate, cli::register_bench,  cli::register_calibrate, cli::register_merge,
};

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j)
      diagonal =
          std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row[b.size()];
}

// "unknown option --stepz; did you mean --steps?" for the first word that the command does not know.
std::string unknown_word(const CLI::App& app) {
  const CLI::App* command = &app;
  for (const CLI::App* sub : app.get_subcommands()) command = sub;
  const std::vector<std::string> rest = command->remaining(true);
  const std::string word = rest.empty() ? "" : rest.front().substr(0, rest.front().find('='));
  std::vector<std::string> known;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  } else {
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(sub->get_name());
  }
  std::string message = (word.starts_with("-") ? "unknown option " : "unexpected word ") + word;
  const auto nearest =
      std::ranges::min_element(known, {}, [&](const std::string& k) { return edit_distance(word, k); });
  if (nearest != known.end()) message += "; did you mean " + *nearest + "?";
  return message + " (see `tessera " + (command == &app ? "" : command->get_name() + " ") + "--help`)";
}

// CLI11 takes integers beyond 64 bits for the largest.
std::string check_integer(const std::string& word) {
  errno = 0;
  char* end = nullptr;
  (void)std::strtoll(word.c_str(), &end, 10);
  if (errno == ERANGE) return word + " is beyond what an integer of 64 bits holds";
  return {};
}

// Parses and carries out; what fails is said on stderr.
int run(int argc, char** argv) {
  CLI::App app{"Fine-tune and run models on every device of this machine."};
  app.footer(
      "Example:\n  tessera import model.gguf -o model.tsr\n"
      "  tessera train model.tsr --data text.txt --steps 100 --devices cpu:2 --out tuned.tsr\n"
      "  tessera generate tuned.tsr --prompt \"Once upon a time\" -n 100");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera " + std::to_string(TSR_VERSION_MAJOR) + "." +
                                        std::to_string(TSR_VERSION_MINOR) + "." +
                                        std::to_string(TSR_VERSION_PATCH));
  for (cli::Register add : kCommands) add(app);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : command->get_options())
      if (option->get_type_name().starts_with("INT")) option->check(CLI::Validator(check_integer, ""));
  try {
    cli::check(tsr_version_check(TSR_VERSION));
    app.parse(argc, argv);
    if (std::cout.flush()) return 0;
    std::cerr << "tessera: the result cannot be written to standard output\n";
    return 1;
  } catch (const CLI::ExtrasError&) {
    std::cerr << "tessera: " << unknown_word(app) << '\n';
    return 2;
  } catch (const CLI::ParseError& error) {
    const bool named = argc > 1 && argv[1][0] != '-';
    if (named && app.get_subcommands().empty()) {
      std::cerr << "tessera: " << unknown_word(app) << '\n';
      return 2;
    }
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ,
              SIG_IGN);  // a write beyond the limit on file sizes fails, and is answered as a full disk is
  try {
    return run(argc, argv);
  } catch (const cli::Error& error) {
    std::cerr << "tessera: " << error.what() << '\n';
    return error.code() == TSR_CANCELLED ? 130 : 1;
  } catch (const std::bad_alloc&) {
    std::cerr << "tessera: the process is out of memory\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "tessera: " << error.what() << '\n';
    return 1;
  }
}
