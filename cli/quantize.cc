#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "command.h"
#include "plan_text.h"
#include "progress.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string input, output;
  std::string type;
  std::optional<std::string> output_type, embedding_type, imatrix;
  bool pure = false, compress = false;
};

// "0.0613": three significant digits.
std::string error_text(double error) {
  if (error == 0) return "0";
  std::ostringstream text;
  text << std::setprecision(3) << error;
  return text.str();
}

// A note for a tensor with another type than the mix's, or without importance although others have it.
std::string note_of(const Json& tensor, bool has_importance) {
  std::string note;
  if (tensor.contains("wanted"))
    note = "in place of " + tensor["wanted"].get<std::string>() + ": rows of " +
           std::to_string(tensor["width"].get<int64_t>()) + " are no multiple of its block";
  if (has_importance && tensor["from"] != tensor["to"] && !tensor["weighted"].get<bool>())
    note += std::string(note.empty() ? "" : "; ") + "not in the importance matrix";
  return note;
}

// Aligns columns: the first left, the others right, the last unchanged.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (i == 0 || i + 1 == row.size() ? row[i] + space : space + row[i]);
    }
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

void print_report(const Json& report, const std::string& output, bool has_importance) {
  const Json& done = report["quantization"];
  std::vector<std::vector<std::string>> rows = {{"tensor", "from", "to", "before", "after", "error", ""}};
  const auto size = [](const Json& bytes) { return bytes_text(bytes.get<int64_t>()); };
  for (const Json& it : done["tensors"])
    rows.push_back({it["name"].get<std::string>(), it["from"].get<std::string>(), it["to"].get<std::string>(),
                    size(it["bytes_in"]), size(it["bytes_out"]), error_text(it["error"].get<double>()),
                    note_of(it, has_importance)});
  rows.push_back({"total", "", done["type"].get<std::string>(), size(done["bytes_in"]),
                  size(done["bytes_out"]), error_text(done["error"].get<double>()), ""});
  print_table(rows);
  std::cout << output << ": " << bytes_text(report["in"]["bytes"].get<int64_t>()) << " -> "
            << bytes_text(report["out"]["bytes"].get<int64_t>());
  if (const auto fallbacks = done["fallbacks"].get<int64_t>(); fallbacks > 0)
    std::cout << "; " << counted(fallbacks, "tensor") << " in another type than the mix has";
  std::cout << '\n';
}
}  // namespace

void register_quantize(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("quantize", "write a model's weights in fewer bits");
  command->footer(
      "Example:\n"
      "  tessera quantize model.tsr small.tsr --type q4_k_m\n"
      "  tessera quantize model-f16.gguf small.tsr --type iq4_xs --imatrix imatrix.gguf --threads 4\n"
      "Types, most bits last: q1_0 tq1_0 tq2_0 q2_0 q2_k_s q2_k q3_k_s q3_k_m q3_k_l mxfp4 iq4_xs iq4_nl\n"
      "nvfp4 nf4 q4_0 q4_k_s q4_k_m q4_1 q5_0 q5_k_s q5_k_m q5_1 q6_k q8_0 f16 bf16 f32. Those below q8_0\n"
      "are mixes: the head has more bits, and with k weights whose errors cost most (--pure: none has).\n"
      "error: root mean square of the change, relative to that of the values. `tessera score` of both files\n"
      "measures the effect.");
  command->add_option("model", args->input, ".tsr or GGUF file, or Hugging Face folder")->required();
  command->add_option("out", args->output, "file to write: .tsr, or GGUF where the name ends in .gguf")
      ->required();
  command->add_option("--type", args->type, "type of most weights; the others follow llama.cpp's rules")
      ->required();
  command->add_flag("--pure", args->pure, "this type for every weight");
  command->add_option("--output-type", args->output_type, "type of the head (default: by --type)");
  command->add_option("--embedding-type", args->embedding_type,
                      "type of the token embedding (default: by --type)");
  command->add_option("--imatrix", args->imatrix,
                      "importance matrix of llama-imatrix (GGUF or .dat): which columns matter most");
  command->add_flag("--compress", args->compress, "compress the tensors (smaller, no longer mapped)");
  command->add_option("--threads", args->threads, "encoding threads; 0: all cores of this process")
      ->capture_default_str();
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] {
    check_output(args->output);
    const Options options = make<Options>(tsr_options_new);
    set(options, "type", args->type);
    set(options, "pure", int64_t{args->pure});
    set(options, "output_type", args->output_type);
    set(options, "embedding_type", args->embedding_type);
    set(options, "imatrix", args->imatrix);
    set(options, "compress", int64_t{args->compress});
    set(options, "threads", args->threads);
    const Json report = convert(*args, "quantizing", args->input, args->output, options);
    if (!args->json) return print_report(report, args->output, args->imatrix.has_value());
    Json result = {{"out", args->output}};
    result.update(report["quantization"]);
    result["file_bytes"] = report["in"]["bytes"];
    result["out_bytes"] = report["out"]["bytes"];
    print_json(result);
  });
}

}  // namespace cli
