#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <optional>
#include <string_view>

#include "command.h"
#include "inference.h"
#include "plan_text.h"
#include "steps.h"
#include "text_files.h"

namespace cli {

namespace {

struct Arguments : Common {
  std::string model, file, text, kind = "auto";
  Inference inference;
  std::optional<int64_t> seq, stride, batch;
  std::string bos = "auto";
  bool lines = false, ids = false, special = false;
};

struct TokenTexts {
  std::vector<int32_t> ids;
  std::vector<size_t> lengths;
  std::vector<std::pair<size_t, std::string_view>>
      pieces;  // first byte in the input, and text, of each token
};

// For each token.
struct TokenScores {
  std::vector<float> logprobs;  // NaN: not scored
  std::vector<uint8_t> greedy;
  Json report;
};

// Totals: sums over all scored tokens.
struct Totals {
  int64_t tokens = 0, greedy = 0;
  double nll = 0, squares = 0;  // sums of nll and of its square
  int64_t bytes = 0;            // of the scored tokens' texts

  double mean() const { return nll / static_cast<double>(tokens); }
  // Standard error of the mean.
  double error() const {
    const auto n = static_cast<double>(tokens);
    return tokens < 2 ? 0 : std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
  double bits_per_byte() const { return nll / std::log(2.0) / static_cast<double>(bytes); }
};

// Adds the tokens of the text at `begin`.
void encode(const tsr_tokenizer* tokenizer, std::string_view words, size_t begin, bool special,
            TokenTexts& texts) {
  const uint32_t flags = special ? TSR_ENCODE_SPECIAL : 0;
  std::vector<int32_t> ids(words.size() + 8);
  std::vector<size_t> begins;
  size_t count = ids.size();
  do {
    ids.resize(count);
    begins.resize(count);
    check(tsr_tokenizer_encode_ranges(tokenizer, words.data(), words.size(), flags, nullptr, 0, ids.data(),
                                      ids.size(), begins.data(), &count));
  } while (count > ids.size());
  texts.ids.insert(texts.ids.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) {
    const size_t end = i + 1 < count ? begins[i + 1] : words.size();
    texts.pieces.emplace_back(begin + begins[i], words.substr(begins[i], end - begins[i]));
  }
  texts.lengths.push_back(count);
}

std::vector<int32_t> parse_ids(std::string_view words) {
  constexpr std::string_view kSpaces = " \t\r\n,";
  std::vector<int32_t> ids;
  for (size_t at = words.find_first_not_of(kSpaces); at != words.npos;
       at = words.find_first_not_of(kSpaces, at)) {
    const size_t end = std::min(words.find_first_of(kSpaces, at), words.size());
    const std::string word(words.substr(at, std::min<size_t>(end - at, 40)));
    char* rest = nullptr;
    const long id = std::strtol(word.c_str(), &rest, 10);
    if (*rest != '\0' || id < 0 || id > std::numeric_limits<int32_t>::max())
      throw Error(TSR_INVALID_ARGUMENT, "--ids: found '" + word + "', wanted token ids such as 15043 3186");
    ids.push_back(static_cast<int32_t>(id));
    at = end;
  }
  return ids;
}

// `tokenizer` null: the input is token ids.
TokenTexts read_texts(const Arguments& args, const tsr_tokenizer* tokenizer, const std::string& input) {
  TokenTexts texts;
  const auto add = [&](size_t begin, size_t size) {
    const std::string_view words = std::string_view(input).substr(begin, size);
    if (!args.ids) return encode(tokenizer, words, begin, args.special, texts);
    const std::vector<int32_t> ids = parse_ids(words);
    texts.ids.insert(texts.ids.end(), ids.begin(), ids.end());
    texts.pieces.resize(texts.ids.size());
    texts.lengths.push_back(ids.size());
  };
  if (tokenizer != nullptr && !args.special) {
    const std::string note =
        Json::parse(text(tsr_tokenizer_written_control, tokenizer, input.data(), input.size()))["note"];
    if (!note.empty()) std::cerr << note << '\n';
  }
  size_t begin = std::string_view(input).starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte-order mark
  if (!args.lines) {
    add(begin, input.size() - begin);
    return texts;
  }
  while (begin < input.size()) {
    const size_t end = std::min(input.find('\n', begin), input.size());
    const size_t size = end - begin - (end > begin && input[end - 1] == '\r' ? 1 : 0);
    add(begin, size);
    begin = end + 1;
  }
  return texts;
}

Options scorer_options(const Arguments& args) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "seq", args.seq);
  set(options, "stride", args.stride);
  set(options, "batch", args.batch);
  set(options, "bos", args.bos);
  if (args.lines && !args.ids) set(options, "share_prefixes", int64_t{1});
  set_inference(options, args.inference);
  return options;
}

TokenScores score_texts(const Arguments& args, const Runtime& runtime, const Model& model,
                        const TokenTexts& texts) {
  const Options options = scorer_options(args);
  const Scorer scorer = make_interruptible<Scorer>(tsr_scorer_new, runtime, model.get(),
                                                   static_cast<const tsr_options*>(options.get()));
  {
    const Interruptible interruptible(runtime);
    interruptible.check(tsr_scorer_start(scorer.get(), texts.ids.data(), texts.ids.size(),
                                         texts.lengths.data(), texts.lengths.size()));
    run_steps_with_eta(scorer, tsr_scorer_step, "scored",
                   counted(static_cast<int64_t>(texts.ids.size()), "token"), interruptible, args);
  }
  TokenScores scores{std::vector<float>(texts.ids.size()), std::vector<uint8_t>(texts.ids.size()), {}};
  check(tsr_scorer_logprobs(scorer.get(), scores.logprobs.data(), scores.logprobs.size(), nullptr));
  check(tsr_scorer_greedy(scorer.get(), scores.greedy.data(), scores.greedy.size(), nullptr));
  scores.report = Json::parse(text(tsr_scorer_report, scorer.get()));
  return scores;
}

Totals print_tokens(const Arguments& args, const TokenTexts& texts, const TokenScores& scores) {
  Totals totals;
  size_t number = 0, end = texts.lengths.front();  // of the text
  for (size_t token = 0; token < texts.ids.size(); ++token) {
    while (token == end) end += texts.lengths[++number];
    const auto& [offset, piece] = texts.pieces[token];
    const double logprob = static_cast<double>(scores.logprobs[token]);
    const bool scored = !std::isnan(logprob);
    if (scored) {
      ++totals.tokens;
      totals.greedy += scores.greedy[token];
      totals.nll -= logprob;
      totals.squares += logprob * logprob;
      totals.bytes += static_cast<int64_t>(piece.size());
    }
    if (!args.json) continue;
    Json line;
    if (args.lines) line["line"] = number;
    line["token"] = texts.ids[token];
    if (!args.ids) {
      line["text"] = piece;
      line["offset"] = offset;
    }
    line["logprob"] = scored ? Json(scores.logprobs[token]) : Json(nullptr);
    line["greedy"] = scored ? Json(scores.greedy[token] != 0) : Json(nullptr);
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }
  return totals;
}

void print_totals(const Totals& totals, const Json& report, bool has_bytes) {
  const double mean = totals.mean(), perplexity = std::exp(mean);
  const double seconds = report["seconds"].get<double>();
  std::cout << "perplexity  " << perplexity << " +- " << perplexity * totals.error() << '\n'
            << "loss        " << mean << " nats a token, " << mean / std::log(2.0) << " bits\n";
  if (has_bytes)
    std::cout << "bytes       " << totals.bits_per_byte() << " bits a byte, of " << totals.bytes
              << " bytes\n";
  std::cout << "tokens      " << totals.tokens << " scored of " << report["tokens"].get<int64_t>() << " in "
            << counted(report["windows"].get<int64_t>(), "window") << " of " << report["seq"].get<int64_t>()
            << ", stride " << report["stride"].get<int64_t>() << '\n'
            << "greedy      " << 100 * static_cast<double>(totals.greedy) / static_cast<double>(totals.tokens)
            << " % of them are the likeliest\n"
            << "speed       " << seconds_text(seconds)
            << (seconds > 0 ? ", " + rate_text(static_cast<double>(totals.tokens) / seconds) + " tokens/s"
                            : "")
            << '\n';
}

void print_result(const Totals& totals, const Json& report, bool has_bytes) {
  Json result = {{"tokens", totals.tokens},
                 {"nll", totals.nll},
                 {"loss", totals.mean()},
                 {"perplexity", std::exp(totals.mean())},
                 {"perplexity_error", std::exp(totals.mean()) * totals.error()},
                 {"greedy", totals.greedy}};
  if (has_bytes) {
    result["bytes"] = totals.bytes;
    result["bits_per_byte"] = totals.bits_per_byte();
  }
  result["report"] = report;
  print_json(result);
}

// `is_given`: the text is --text.
void run_score(Arguments& args, bool is_given) {
  if (args.file.empty() && !is_given && !is_input_piped())
    throw CLI::ValidationError("score", "wanted --file FILE, --text TEXT or a piped text");
  check_options(scorer_options(args), "scorer");
  if (args.file.empty()) args.file = "-";
  const std::string input = is_given ? args.text : read_file(args.file);
  if (!args.ids && !is_given) check_text(input, args.file, args.kind);
  const Runtime runtime = open_runtime(args);
  const Model model = open_model(args, args.model);
  Tokenizer tokenizer;
  if (!args.ids) tokenizer = model_tokenizer(model, args.model);
  const TokenTexts texts = read_texts(args, tokenizer.get(), input);
  const TokenScores scores = score_texts(args, runtime, model, texts);
  if (std::ranges::all_of(scores.logprobs, [](float logprob) { return std::isnan(logprob); }))
    throw Error(TSR_INVALID_ARGUMENT,
                args.file + " has " + counted(static_cast<int64_t>(texts.ids.size()), "token") +
                    ", and none with another before it; wanted at least two in a text, or --bos always");
  const Totals totals = print_tokens(args, texts, scores);
  args.json ? print_result(totals, scores.report, !args.ids) : print_totals(totals, scores.report, !args.ids);
}
}  // namespace

void register_score(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("score", "log probabilities of a text's tokens; perplexity");
  command->footer(
      "Example:\n  tessera score model.tsr --file text.txt\n"
      "  tessera score model.gguf --file text.txt --seq 512 --stride 256 --devices cpu:2 --parallel dp=2 "
      "--batch 8\n"
      "  tessera score model.tsr --file answers.txt --lines --json   # each line is a text of its own\n"
      "With --json a line for each token, {\"token\", \"text\", \"offset\": its first byte in the file, "
      "\"logprob\": "
      "natural logarithm, null\nwhere nothing is before it, \"greedy\": whether no token was likelier, "
      "\"line\" with "
      "--lines, from 0}, then one for all: {\"tokens\":\nscored, \"nll\": their sum, negated, "
      "\"perplexity\", ...}.");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  CLI::Option* const file = command->add_option(
      "--file", args->file,
      "text file, UTF-8 (-: standard input, the default for a pipe)");
  command->add_option("--text", args->text, "the text")->excludes(file);
  add_text_kind(*command, args->kind);
  command->add_flag(
      "--lines", args->lines,
      "each line of the file is a text; prefixes that lines share are computed once, unless --stride, --batch or "
      "--parallel is given");
  command->add_flag("--ids", args->ids, "the file holds token ids in place of text");
  command->add_option("--seq", args->seq,
                      "tokens of a window (default: the model's context length, at most 2048)");
  command->add_option(
      "--stride", args->stride,
      "tokens between the starts of two windows: each token has at least seq - stride before it (default: half of "
      "seq)");
  command->add_option("--batch", args->batch,
                      "windows at once, over all devices (default: as many as devices)");
  command
      ->add_option(
          "--bos", args->bos,
          "begin windows with the beginning-of-sequence token: auto (as the model's texts do), always or none")
      ->capture_default_str();
  add_inference(*command, args->inference);
  command->add_flag("--special", args->special,
                    "recognise control tokens written out in the text, such as </s>");
  add_adapter_file(*command, *args);
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args, command] { run_score(*args, command->count("--text") > 0); });
}

}  // namespace cli
