#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "command.h"
#include "plan_text.h"
#include "steps.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, file, output;
  std::optional<int64_t> seq, batch;
  std::string bos = "auto", kind = "auto";
};

std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& words) {
  size_t count = 0;
  check(tsr_tokenizer_encode(tokenizer.get(), words.data(), words.size(), 0, nullptr, 0, &count));
  std::vector<int32_t> ids(count);
  check(tsr_tokenizer_encode(tokenizer.get(), words.data(), words.size(), 0, ids.data(), ids.size(), &count));
  return ids;
}
}  // namespace

void register_imatrix(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("imatrix", "measure the importance of weight columns, for quantize");
  command->footer(
      "Example:\n"
      "  tessera imatrix model.gguf --file text.txt -o imatrix.gguf\n"
      "  tessera quantize model.gguf small.tsr --type q3_k_m --imatrix imatrix.gguf\n"
      "The file has llama.cpp's format. 100 windows of text bring most of the gain; it should resemble the model's "
      "inputs.");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  command->add_option("--file", args->file, "text file, UTF-8 (- for standard input)")->required();
  add_text_kind(*command, args->kind);
  command->add_option("-o,--out", args->output, "file to write")->required();
  command->add_option("--seq", args->seq,
                      "tokens of a window (default: the model's context length, at most 512)");
  command->add_option("--batch", args->batch,
                      "windows at once, over all devices (default: as many as devices)");
  command
      ->add_option("--bos", args->bos,
                   "begin windows with the beginning-of-sequence token: auto (as the model's texts do), always or "
                   "none")
      ->capture_default_str();
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] {
    check_output(args->output, Output::kFile);
    const Options options = make<Options>(tsr_options_new);
    set_placement(options, *args);
    set(options, "seq", args->seq);
    set(options, "batch", args->batch);
    set(options, "bos", args->bos);
    set(options, "name", args->file);
    check_options(options, "imatrix");
    const std::string input = read_file(args->file);
    check_text(input, args->file, args->kind);
    const Runtime runtime = open_runtime(*args);
    const Model model = open_model(*args, args->model);
    const std::vector<int32_t> ids = encode(model_tokenizer(model, args->model), input);
    const Work work =
        make_interruptible<Work>(tsr_imatrix_begin, runtime, model.get(), ids.data(), ids.size(),
                                 args->output.c_str(), static_cast<const tsr_options*>(options.get()));
    std::string report_text;
    {
      const Interruptible interruptible(runtime);
      Progress progress(*args);
      run_steps(work, "reading " + args->file, interruptible, progress);
      report_text = text(tsr_imatrix_finish, work.get());
    }
    Json result = {{"out", args->output}};
    result.update(Json::parse(report_text));
    if (args->json) return print_json(result);
    std::cout << args->output << ": " << counted(result["weights"].get<int64_t>(), "weight") << ", of "
              << counted(result["windows"].get<int64_t>(), "window") << " of " << result["seq"].get<int64_t>()
              << " tokens\n";
  });
}

}  // namespace cli
