#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "serialize/training_data/example.h"
#include "serialize/training_data/line_reader.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

// Broken rows of every kind, read from a file and made examples of, with a template that takes them apart.
class TrainingRowLoader final : public Loader {
 public:
  TrainingRowLoader()
      : path_((std::filesystem::temp_directory_path() / ("tessera_rows_" + std::to_string(getpid())))
                  .string()) {
    auto tokenizer = Tokenizer::create(TokenizerData{});
    check_ok(tokenizer.status());
    tokenizer_ = *tokenizer;
  }
  ~TrainingRowLoader() override { unlink(path_.c_str()); }
  std::string_view name() const override { return "training row"; }
  Outcome run(Random& random) override {
    std::string text;
    for (uint64_t left = 1 + random.below(4); left > 0; --left) {
      std::string row(random.pick<std::string_view>(kRows));
      if (!random.one_in(4)) mutate_text(row, random);
      text += row + (random.one_in(8) ? "\r\n\n" : "\n");
    }
    std::ofstream(path_, std::ios::binary) << text;
    ExampleOptions options;
    options.part = static_cast<TrainedPart>(random.below(4));
    options.max_length = static_cast<int64_t>(random.below(40));
    options.truncation = static_cast<Truncation>(random.below(5));
    auto maker = ExampleMaker::create(tokenizer_, kTemplate, options);
    check_ok(maker.status());
    Result<LineReader> reader = LineReader::open(path_);
    check_ok(reader.status());
    Status status;
    for (;;) {
      const auto lines = reader->read(1 + random.below(200));
      if (!lines.ok()) return {true, lines.status()};
      if (lines->empty()) return {true, status};
      for (const LineReader::Line& line : *lines)
        if (const Status made = use_row(line.text, *maker, options); !made.ok()) status = made;
    }
  }

 private:
  static Status use_row(const std::string& line, ExampleMaker& maker, const ExampleOptions& options) {
    TSR_ASSIGN_OR_RETURN(const Json json, parse_json(line, "row"));
    TSR_ASSIGN_OR_RETURN(const TrainingRow row, parse_row(json, std::nullopt));
    TSR_ASSIGN_OR_RETURN(const RowExamples made, maker.make(row));
    for (const TokenExample& example : made.examples) {
      TSR_CHECK(example.ids.size() == example.trained.size() && example.prompt <= example.ids.size(),
                "an example's sizes");
      TSR_CHECK(options.max_length == 0 || options.truncation == Truncation::kSplit ||
                    static_cast<int64_t>(example.ids.size()) <= options.max_length,
                "an example that is too long");
    }
    return {};
  }

  static constexpr std::string_view kTemplate =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% "
      "endif %}\n"
      "{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% "
      "endif %}";
  static constexpr std::string_view kRows[] = {
      R"({"text": "The sky is blue \u00e9", "id": 1})",
      R"({"prompt": "The sky is", "completion": " blue."})",
      R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "A"}]})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}, {"role": "assistant", "content": "A", "weight": 0},
          {"role": "assistant", "content": "B", "weight": 1}], "tools": "[{\"type\": \"function\"}]", "parallel_tool_calls": true})",
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f",
          "arguments": "{\"x\": 1}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "2"}]})",
      R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})",
      R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})",
      R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
          "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "B"}]})",
      R"({"input": {"messages": [{"role": "user", "content": "Q"}], "tools": []}, "preferred_output": [{"role": "assistant", "content": "A"}],
          "non_preferred_output": [{"role": "assistant", "content": "B"}]})",
      R"({"prompt": "x", "completion": "y", "label": true, "chat_template_kwargs": {}})",
  };

  std::string path_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Loader> training_row_loader() { return std::make_unique<TrainingRowLoader>(); }

}  // namespace tessera::fuzz
