#include <iostream>

#include "command.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string tokenizer, words, file;
  bool bos = false, around = false, special = false, begins = false;
  std::vector<int32_t> decode;
};

struct Tokens {
  std::vector<int32_t> ids;
  std::vector<size_t> begins;
};

Tokens encode(const Tokenizer& tokenizer, const std::string& words, uint32_t flags) {
  size_t count = 0;
  check(tsr_tokenizer_encode(tokenizer.get(), words.data(), words.size(), flags, nullptr, 0, &count));
  Tokens tokens{std::vector<int32_t>(count), std::vector<size_t>(count)};
  check(tsr_tokenizer_encode_ranges(tokenizer.get(), words.data(), words.size(), flags, nullptr, 0,
                                    tokens.ids.data(), count, tokens.begins.data(), &count));
  return tokens;
}
}  // namespace

void register_tokenize(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tokenize", "text to token ids, and back");
  command->footer(
      "Example:\n  tessera tokenize model.tsr \"Hello world\"\n  tessera tokenize model.gguf --decode 72 "
      "101\n  tessera tokenize folder/tokenizer.json \"Hello world\" --around");
  command
      ->add_option("tokenizer", args->tokenizer,
                   ".tsr or GGUF file, Hugging Face folder or its tokenizer.json, or `bytes`")
      ->required();
  command->add_option("text", args->words,
                      "the text (-, the default for a pipe: standard input, without its last line end); or --file or "
                      "--decode");
  command->add_option("--file", args->file, "read the text from a file (- for standard input)");
  command->add_option("--decode", args->decode, "token ids to decode");
  command->add_flag("--bos", args->bos, "prepend the beginning-of-sequence token");
  command->add_flag("--around", args->around,
                    "add the tokenizer's tokens around the text, such as BOS and EOS");
  command->add_flag("--begins", args->begins,
                    "also print the byte offset of each token, as id@byte");
  command->add_flag("--special", args->special, "recognise control tokens written out in the text");
  add_json(*command, *args);
  command->callback([args, command] {
    const bool has_none = command->count("text") + command->count("--file") + command->count("--decode") == 0;
    if (args->words == "-" || (has_none && is_input_piped()))
      args->words = read_piped_text();
    else if (command->count("text") + command->count("--file") + (command->count("--decode") > 0 ? 1 : 0) !=
             1)
      throw CLI::ValidationError("tokenize", "wanted one of a text, --file and --decode");
    const Tokenizer tokenizer = open_tokenizer(args->tokenizer);
    if (!args->decode.empty()) {
      const std::string decoded =
          text(tsr_tokenizer_decode, static_cast<const tsr_tokenizer*>(tokenizer.get()),
               static_cast<const int32_t*>(args->decode.data()), args->decode.size());
      if (args->json) return print_json({{"text", decoded}});
      std::cout << decoded << '\n';
      return;
    }
    const std::string words = args->file.empty() ? args->words : read_file(args->file);
    uint32_t flags = 0;
    if (args->bos) flags |= TSR_ENCODE_BOS;
    if (args->around) flags |= TSR_ENCODE_AROUND;
    if (args->special) flags |= TSR_ENCODE_SPECIAL;
    const Tokens tokens = encode(tokenizer, words, flags);
    if (args->json)
      return print_json({{"ids", tokens.ids}, {"begins", tokens.begins}, {"count", tokens.ids.size()}});
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      std::cout << (i > 0 ? " " : "") << tokens.ids[i];
      if (args->begins) std::cout << '@' << tokens.begins[i];
    }
    std::cout << '\n';
  });
}

}  // namespace cli
