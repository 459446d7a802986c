#include "usage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "handle.h"

namespace cli {

namespace {

// "; did you mean --lr?", or a replacement; "": no hint.
std::string hint(const char* kind, const std::string& word, const std::vector<std::string>& known) {
  std::string words;
  for (const std::string& each : known) words += each + ' ';
  const std::string hint = text(tsr_word_hint, kind, word.c_str(), words.c_str());
  return hint.empty() ? hint : "; " + hint;
}

}  // namespace

std::string quoted(const std::string& word) {
  constexpr size_t kMost = 60;
  std::string text;
  for (const char c : word.substr(0, kMost)) text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return "'" + text + (word.size() > kMost ? "...'" : "'");
}

namespace {

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<const CLI::App*> all_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

bool is_integer(const std::string& text) {
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
}

std::string unknown_option(const CLI::App& app, const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::string message = "unknown option " + quoted(name);
  if (&command == &app) {
    std::string owners;
    for (const CLI::App* other : all_commands(app))
      if (std::ranges::count(option_names(*other), name) > 0)
        owners += (owners.empty() ? "" : ", ") + other->get_name();
    if (!owners.empty()) return message + " before a command; after its name it belongs to: " + owners;
  }
  return message + hint("option", name, option_names(command));
}

// An unexpected word is mostly the text or file of an option.
std::string extra_word(const CLI::App& command, const std::string& word) {
  static constexpr std::pair<const char*, const char*> kOptionFor[] = {
      {"generate", "--prompt"}, {"train", "--data"},   {"eval", "--data"},  {"import", "--out"},
      {"new", "--out"},         {"merge", "--out"},    {"score", "--file"}, {"quantize", "--type"},
      {"export", "--out"},      {"imatrix", "--file"},
  };
  const std::string message = "unexpected word " + quoted(word);
  if (command.get_name() == "tokenize") return message + "; a text of several words wants quotes around it";
  for (const auto& [name, option] : kOptionFor) {
    if (command.get_name() != name) continue;
    if (command.count(option) == 0) return message + "; did you mean " + option + " " + quoted(word) + "?";
    if (option == std::string("--prompt"))
      return message + "; a text of several words wants quotes around it";
    if (option == std::string("--data") || option == std::string("--file"))
      return message + "; several files are joined by `cat FILES |` and " + option + " -";
  }
  return message;
}

std::string command_list(const CLI::App& app) {
  std::string list;
  for (const CLI::App* command : all_commands(app)) list += (list.empty() ? "" : ", ") + command->get_name();
  return list;
}

// "an integer" for options whose type the library shows as INT.
std::string wanted_text(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  const std::string type = found == nullptr ? "" : found->get_type_name();
  return type.starts_with("INT")     ? "an integer"
         : type.starts_with("FLOAT") ? "a number"
         : type.starts_with("TEXT")  ? "a text"
                                     : "a value";
}

// Completes the parser's messages that lack the found or the expected value.
std::string value_message(const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {  // "Could not convert: --steps = abc"
    const size_t colon = text.find(": "), equals = text.find(" = ");
    if (colon != std::string::npos && equals != std::string::npos && equals > colon) {
      const std::string option = text.substr(colon + 2, equals - colon - 2);
      return option + " is " + quoted(text.substr(equals + 3)) + ", wanted " + wanted_text(command, option);
    }
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {  // "--steps: 1 required INT missing"
    const std::string option = text.substr(0, text.find(':'));
    if (text.find(" missing") != std::string::npos)
      return option + " has no value, wanted " + wanted_text(command, option) + " after it";
    if (text.find("At Most 1") != std::string::npos) return option + " is given more than once";
  }
  return text;
}

std::string misspelt_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : all_commands(app)) names.push_back(command->get_name());
  const std::string known = hint("command", word, names);
  return "no command is called " + quoted(word) +
         (known.empty() ? "; there are " + command_list(app) : known);
}

}  // namespace

std::string misread_option(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = nullptr;
  const auto takes_value = [](const CLI::Option* option) {
    return option != nullptr && option->get_items_expected_min() > 0;
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (command == nullptr) {
      for (const CLI::App* each : all_commands(app))
        if (each->get_name() == word) command = each;
      continue;
    }
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    if (word[1] == '-' || word.size() == 2) {  // its value may begin with a dash
      if (name == word && takes_value(command->get_option_no_throw(name))) ++i;
      continue;
    }
    const CLI::Option* const letter = command->get_option_no_throw(word.substr(0, 2));
    if (letter == nullptr) continue;  // unknown to the parser too
    const std::string known = hint("option", name, option_names(*command));
    const bool is_value =
        takes_value(letter) && (!letter->get_type_name().starts_with("INT") || is_integer(word.substr(2)));
    if (known.empty() && is_value) continue;
    return "unknown option " + quoted(name) + known + " (see `tessera " + command->get_name() + " --help`)";
  }
  return "";
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const CLI::App* sub : app.get_subcommands()) command = sub;
  const std::string help =
      " (see `tessera " + (command == &app ? "" : command->get_name() + " ") + "--help`)";
  const bool about_count = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                           dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!about_count) return value_message(*command, error) + help;
  // An unknown option or word is the likelier cause of a missing one; options come before words.
  std::vector<std::string> rest = app.remaining();
  if (command != &app) {
    const std::vector<std::string> own = command->remaining();
    rest.insert(rest.end(), own.begin(), own.end());
  }
  // After -- there are no options.
  const auto end = std::ranges::find(words, "--");
  std::erase(rest, "--");
  const auto is_option = [&](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && std::find(words.begin(), end, word) != end;
  };
  if (const auto option = std::ranges::find_if(rest, is_option); option != rest.end()) {
    const bool before = std::ranges::count(app.remaining(), *option) > 0;
    return unknown_option(app, before ? app : *command, *option) + help;
  }
  if (command == &app && end != words.end())
    return "a command is missing before --, behind which words are no commands: " + command_list(app) + help;
  if (!rest.empty())
    return (command == &app ? misspelt_command(app, rest.front()) : extra_word(*command, rest.front())) +
           help;
  if (command == &app) return "a command is missing: " + command_list(app) + help;
  return std::string(error.what()) + help;
}

}  // namespace cli
