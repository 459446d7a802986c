// Training data: rows of every kind, what is learnt of them, and the rows of batches that they are packed into.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "serialize/training_data/example.h"
#include "serialize/training_data/line_reader.h"
#include "serialize/training_data/packing.h"
#include "serialize/training_data/row.h"
#include "serialize/training_data/token_file.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// A token a byte, a few merges across words, and control tokens.
std::shared_ptr<const Tokenizer> tokenizer() {
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.tokens = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
  data.types.assign(5, TokenType::kControl);
  data.types[0] = TokenType::kUnknown;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    data.tokens.push_back(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
    data.types.push_back(TokenType::kByte);
  }
  for (const char* const token : {"a", "b", "c", "ab", "bc"}) {
    data.tokens.emplace_back(token);
    data.types.push_back(TokenType::kNormal);
  }
  data.scores.assign(data.tokens.size(), 0);
  data.unknown = 0, data.bos = 1, data.eos = 2;
  data.add_bos = true;
  data.add_space_prefix = false;
  data.end_ids = {2, 4};
  return ok(Tokenizer::create(std::move(data)));
}

TrainingRow row_of(std::string_view json, std::optional<RowKind> kind = std::nullopt) {
  return ok(parse_row(Json::parse(json), kind));
}

std::string refusal(std::string_view json, std::optional<RowKind> kind = std::nullopt) {
  const Result<TrainingRow> row = parse_row(Json::parse(json), kind);
  REQUIRE_MESSAGE(!row.ok(), json);
  return std::string(row.status().message());
}

// Tokens as text, those that are learnt between brackets.
std::string shown(const TokenExample& example) {
  const auto words = tokenizer();
  std::string text;
  bool inside = false;
  for (size_t i = 0; i < example.ids.size(); ++i) {
    if ((example.trained[i] != 0) != inside) text += (inside = !inside) ? "[" : "]";
    const std::string& token = words->data().tokens[static_cast<size_t>(example.ids[i])];
    text += words->data().types[static_cast<size_t>(example.ids[i])] == TokenType::kByte
                ? std::string(1, static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16)))
                : token;
  }
  return text + (inside ? "]" : "");
}

RowExamples made(std::string_view json, ExampleOptions options = {},
                 std::string_view chat_template = kChatMl) {
  return ok(ok(ExampleMaker::create(tokenizer(), chat_template, options)).make(row_of(json)));
}

std::string only(std::string_view json, ExampleOptions options = {},
                 std::string_view chat_template = kChatMl) {
  const RowExamples examples = made(json, options, chat_template);
  REQUIRE(examples.examples.size() == 1);
  return shown(examples.examples[0]);
}

std::string make_refusal(std::string_view json, ExampleOptions options = {},
                         std::string_view chat_template = kChatMl) {
  const auto examples = ok(ExampleMaker::create(tokenizer(), chat_template, options)).make(row_of(json));
  REQUIRE(!examples.ok());
  return std::string(examples.status().message());
}

constexpr std::string_view kTwoTurns =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},
                     {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "So"}]})";

}  // namespace

TEST_CASE("the fields of a row tell its kind") {
  const std::pair<const char*, RowKind> rows[] = {
      {R"({"text": "The sky is blue."})", RowKind::kText},
      {R"({"prompt": "The sky is"})", RowKind::kPrompt},
      {R"({"prompt": [{"role": "user", "content": "What color is the sky?"}]})", RowKind::kPrompt},
      {R"({"prompt": "The sky is", "completion": " blue."})", RowKind::kPromptCompletion},
      {R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "It is blue."}]})",
       RowKind::kPromptCompletion},
      {R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})",
       RowKind::kMessages},
      {R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})",
       RowKind::kMessages},
      {R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})", RowKind::kPreference},
      {R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})", RowKind::kPreference},
      {R"({"input": {"messages": [{"role": "user", "content": "Q"}], "tools": [], "parallel_tool_calls": true},
           "preferred_output": [{"role": "assistant", "content": "A"}],
           "non_preferred_output": [{"role": "assistant", "content": "B"}]})",
       RowKind::kPreference},
      {R"({"prompt": "The sky is", "completion": " blue.", "label": true})", RowKind::kUnpaired},
  };
  for (const auto& [json, kind] : rows) CHECK_MESSAGE(row_of(json).kind == kind, json);
  CHECK(row_of(R"({"conversations": [{"from": "gpt", "value": "A"}]})").completion ==
        Json::parse(R"([{"role": "assistant", "content": "A"}])"));
  CHECK(row_of(R"({"messages": [{"role": "user", "content": "Q", "tool_calls": []},
                                {"role": "assistant", "content": "A", "tool_calls": [], "audio": {}, "function_call": null,
                                 "refusal": "", "annotations": [], "reasoning_content": ""}],
                   "tools": [], "documents": [], "images": [], "functions": null})")
            .completion == Json::parse(R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])"));
  CHECK(row_of(R"({"text": "a", "id": 3, "source": "b"})").ignored ==
        std::vector<std::string>{"id", "source"});
  CHECK(row_of(R"({"text": "a", "prompt": "b"})", RowKind::kText).ignored ==
        std::vector<std::string>{"prompt"});
}

TEST_CASE("the common beginning of two answers becomes their prompt") {
  const TrainingRow texts = row_of(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})");
  CHECK(texts.prompt == "The sky is");
  CHECK(texts.completion == " blue.");
  CHECK(texts.rejected == " green.");
  const TrainingRow accents = row_of(R"({"chosen": "xé", "rejected": "xè"})");  // differ in their last byte
  CHECK(accents.prompt == "x");
  const TrainingRow chats = row_of(
      R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
          "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "B"}]})");
  CHECK(chats.prompt.size() == 1);
  CHECK(chats.completion[0]["content"] == "A");
  CHECK(refusal(R"({"chosen": "same", "rejected": "same"})").find("equal") != std::string::npos);
}

TEST_CASE("a row that is none is refused with what was found and what was wanted") {
  const std::pair<const char*, const char*> rows[] = {
      {R"([1])", "the row is [1], wanted an object"},
      {R"({"question": "Q", "answer": "A"})", "the row has fields 'question', 'answer': wanted 'text'"},
      {R"({"text": 3})", "field 'text' is 3, wanted a text"},
      {R"({"text": ""})", "field 'text' is empty"},
      {R"({"messages": []})", "'messages' is an empty array"},
      {R"({"messages": [{"content": "x"}]})", "wanted an object with a text 'role'"},
      {R"({"messages": [{"role": "assistant", "content": ""}]})", "is an empty answer"},
      {R"({"messages": [{"role": "user"}]})", "has no 'content'"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "text alone is learnt"},
      {R"({"messages": [{"role": "user", "content": "x", "weight": 0}]})", "has a weight"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": -0.5}]})",
       "is -0.5, wanted a number from 0 to 1"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": "1"}]})",
       "wanted a number from 0 to 1"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": 1e300}]})",
       "wanted a number from 0 to 1"},
      {R"({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]})", "wanted role assistant"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}]}]})",
       "'arguments' of a call"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}},
                                                             {"id": "1", "function": {"name": "g"}}]}]})",
       "is that of two calls"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
                        {"role": "tool", "tool_call_id": "2", "content": "x"}]})",
       "which no message before it makes"},
      {R"({"prompt": "x", "completion": [{"role": "assistant", "content": "A"}]})",
       "as the row's other fields have"},
      {R"({"prompt": "x", "completion": ""})", "'completion' is empty"},
      {R"({"prompt": "x", "completion": "y", "label": 1})", "field 'label' is 1, wanted true or false"},
      {R"({"prompt": "x", "chosen": "y"})", "field 'rejected' is missing"},
      {R"({"text": "x", "images": ["a.png"]})", "has the field 'images'"},
      {R"({"text": "x", "tools": [{}]})", "has 'tools' and texts without a template"},
      {R"({"messages": [{"role": "assistant", "content": "A"}], "tools": "[1]"})", "field 'tools' is [1]"},
      {R"({"prompt": "x", "completions": ["y"], "labels": [true]})", "has the field 'labels'"},
  };
  for (const auto& [json, wanted] : rows) {
    const std::string message = refusal(json);
    CHECK_MESSAGE(message.find(wanted) != std::string::npos, message);
  }
  CHECK(refusal(R"({"text": "x"})", RowKind::kMessages).find("'messages' is missing") != std::string::npos);
}

TEST_CASE("of a text all is learnt, with the ends that the tokenizer has") {
  CHECK(only(R"({"text": "Hi"})") == "[<s>Hi</s>]");
  CHECK(only(R"({"text": "Hi"})", {.append_end = false}) == "[<s>Hi]");
  CHECK(only(R"({"text": "Hi</s>"})", {.special = true}) == "[<s>Hi</s>]");
  const RowExamples written = made(R"({"text": "</s>"})");
  CHECK(written.examples[0].ids.size() == 6);  // BOS, four bytes and the end
  CHECK(make_refusal(R"({"text": "Hi"})", {.part = TrainedPart::kAssistant}).find("wanted all") !=
        std::string::npos);
}

TEST_CASE("texts that a template rendered before are noted, and read as it meant them with option special") {
  const char* text = R"({"text": "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|></s>"})";
  const RowExamples letters = made(text);
  CHECK(letters.written_control ==
        TokenNameCounts{{"<s>", 1}, {"</s>", 1}, {"<|im_start|>", 2}, {"<|im_end|>", 2}});
  // BOS and EOS are not there twice.
  CHECK(only(text, {.special = true}) ==
        "[<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|></s>]");
  CHECK(made(text, {.special = true}).written_control.empty());
  CHECK(made(R"({"prompt": "<|im_start|>a", "completion": "b"})").written_control.at("<|im_start|>") >= 1);
  CHECK(made(R"({"text": "1 < 2, <|im_star, <unk>, <0x41>"})").written_control.empty());
  CHECK(made(kTwoTurns).written_control.empty());
  CHECK(written_control_note({}, "a", "b").empty());
  const std::string note = written_control_note(letters.written_control, "3 rows hold", "they are letters");
  CHECK(note.find("3 rows hold control tokens written out ('</s>', '<s>', ") == 0);
  CHECK(note.find("they are letters: option 'special' 1 (--special)") != std::string::npos);
}

TEST_CASE("of a prompt with a completion the completion is learnt, from where their tokens part") {
  CHECK(only(R"({"prompt": "Sky!", "completion": "blue"})") == "<s>Sky![blue</s>]");
  CHECK(only(R"({"prompt": "Sky!", "completion": "blue"})", {.part = TrainedPart::kAll}) ==
        "[<s>Sky!blue</s>]");
  // "a" and "b" become one token, which is not the prompt's.
  CHECK(only(R"({"prompt": "xa", "completion": "b"})") == "<s>x[ab</s>]");
  CHECK(
      only(
          R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "A"}]})") ==
      "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n[A<|im_end|>\n]");
}

TEST_CASE("of messages the assistant's turns are learnt, unless their weight is 0") {
  CHECK(only(kTwoTurns) ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yo<|im_end|>]\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n[So<|im_end|>]\n");
  constexpr std::string_view kWeighted =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "weight": 0},
                       {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "So", "weight": 1}]})";
  const std::string weighted =
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
      "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n[So<|im_end|>]\n";
  CHECK(only(kWeighted) == weighted);
  constexpr std::string_view kMarked =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% "
      "generation %}"
      "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif "
      "%}{{ '\\n' }}"
      "{% endfor %}";
  CHECK(only(kWeighted, {}, kMarked) == weighted);
  CHECK(make_refusal(kWeighted, {.part = TrainedPart::kAll}).find("weight 0") != std::string::npos);
  CHECK(
      only(
          R"({"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "A"}]})",
          {.part = TrainedPart::kAll})
          .starts_with("[<|im_start|>user\n<|im_end|>"));
  CHECK(make_refusal(kTwoTurns, {}, "").find("there is no chat template") != std::string::npos);
  CHECK(make_refusal(kTwoTurns, {}, "{{ raise_exception('roles must alternate') }}")
            .find("roles must alternate") != std::string::npos);
}

TEST_CASE("weights of messages are those of the tokens that are learnt of them") {
  const RowExamples weighted = made(
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "weight": 0.25},
                       {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "So", "weight": 3},
                       {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "So"}]})");
  const TokenExample& example = weighted.examples[0];
  REQUIRE(example.weights.size() == example.ids.size());
  std::vector<float> learnt;
  for (size_t i = 0; i < example.ids.size(); ++i) {
    if (example.trained[i] != 0 && (learnt.empty() || learnt.back() != example.weights[i]))
      learnt.push_back(example.weights[i]);
    if (example.trained[i] == 0) CHECK(example.weights[i] == 1);
  }
  CHECK(learnt == std::vector<float>{0.25f, 3, 1});
  CHECK(made(kTwoTurns).examples[0].weights.empty());
  CHECK(only(R"({"messages": [{"role": "user", "content": "Hi"},
                              {"role": "assistant", "content": "Yo", "weight": 0.25}]})") ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yo<|im_end|>]\n");
}

TEST_CASE("calls of tools are given to a template as objects, or as text where it wants them so") {
  constexpr std::string_view kCall =
      R"({"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f",
          "arguments": "{\"x\": 1}"}}]}], "tools": "[{\"type\": \"function\"}]"})";
  ExampleOptions all;
  all.part = TrainedPart::kAll;
  CHECK(only(kCall, all, "{{ messages[0].tool_calls[0].function.arguments.x }}{{ tools|length }}") == "[11]");
  CHECK(
      only(kCall, all, "{{ 'x' + messages[0].tool_calls[0].function.arguments }}").starts_with("[x{\"x\":"));
}

TEST_CASE("a preference is two examples with one prompt, and an unpaired row has a role") {
  const RowExamples pair = made(R"({"prompt": "Sky!", "chosen": "blue", "rejected": "green"})");
  REQUIRE(pair.examples.size() == 2);
  CHECK(shown(pair.examples[0]) == "<s>Sky![blue</s>]");
  CHECK(shown(pair.examples[1]) == "<s>Sky![green</s>]");
  CHECK(pair.examples[0].role == ExampleRole::kChosen);
  CHECK(pair.examples[1].role == ExampleRole::kRejected);
  CHECK(pair.examples[0].prompt == pair.examples[1].prompt);
  // The prompt of both leaves out the tokens that merge with one answer.
  const RowExamples merged = made(R"({"prompt": "xa", "chosen": "b", "rejected": "!"})");
  CHECK(shown(merged.examples[0]) == "<s>x[ab</s>]");
  CHECK(shown(merged.examples[1]) == "<s>x[a!</s>]");
  CHECK(made(R"({"prompt": "x", "completion": "y", "label": false})").examples[0].role ==
        ExampleRole::kUnwanted);
  const RowExamples prompt = made(R"({"prompt": [{"role": "user", "content": "Q"}]})");
  CHECK(shown(prompt.examples[0]) == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("what is too long is cut, dropped or refused, and so is what teaches nothing") {
  constexpr std::string_view kRow = R"({"prompt": "12345", "completion": "6789"})";  // 11 tokens
  const auto limited = [&](int64_t most, Truncation truncation) {
    return made(kRow, {.max_length = most, .truncation = truncation});
  };
  CHECK(shown(limited(11, Truncation::kError).examples.at(0)) == "<s>12345[6789</s>]");
  CHECK(shown(limited(8, Truncation::kKeepStart).examples.at(0)) == "<s>12345[67]");
  const TokenExample tail = limited(7, Truncation::kKeepEnd).examples.at(0);
  CHECK(shown(tail) == "45[6789</s>]");
  CHECK(tail.prompt == 2);
  CHECK(limited(10, Truncation::kDrop).dropped == RowExamples::Dropped::kLong);
  CHECK(limited(10, Truncation::kSplit).examples.at(0).ids.size() == 11);
  const RowExamples nothing = limited(6, Truncation::kKeepStart);
  CHECK(nothing.dropped == RowExamples::Dropped::kUntrained);
  CHECK(nothing.examples.empty());
  CHECK(make_refusal(kRow, {.max_length = 10, .truncation = Truncation::kError})
            .find("11 tokens, wanted at most 10") != std::string::npos);
  ExampleOptions strict;
  strict.max_length = 6, strict.refuses_untrained = true;
  CHECK(make_refusal(kRow, strict).find("none of its 6 tokens is learnt") != std::string::npos);
}

TEST_CASE("examples are packed by best fit, cut or wrapped") {
  const std::vector<uint32_t> lengths = {3, 7, 12, 5, 3, 2};
  const auto rows = [&](Packing packing) {
    const PackedRows packed = PackedRows::pack(lengths, 10, packing);
    std::string text;
    for (size_t i = 0; i < packed.size(); ++i) {
      text += i > 0 ? " |" : "";
      for (const ExamplePiece& piece : packed.row(i))
        text += " " + std::to_string(piece.example) + ":" + std::to_string(piece.begin) + "+" +
                std::to_string(piece.count);
    }
    return text;
  };
  CHECK(rows(Packing::kOff) == " 0:0+3 | 1:0+7 | 2:0+10 | 3:0+5 | 4:0+3 | 5:0+2");
  CHECK(rows(Packing::kBfd) == " 2:0+10 | 1:0+7 0:0+3 | 3:0+5 4:0+3 5:0+2");
  CHECK(rows(Packing::kBfdSplit) == " 2:0+10 | 1:0+7 0:0+3 | 3:0+5 4:0+3 2:10+2 | 5:0+2");
  CHECK(rows(Packing::kWrapped) == " 0:0+3 1:0+7 | 2:0+10 | 2:10+2 3:0+5 4:0+3 | 5:0+2");
  CHECK(PackedRows::pack({}, 10, Packing::kBfd).size() == 0);
}

TEST_CASE("lines are counted through blank ones, any ends and the end of the file") {
  const auto path = std::filesystem::temp_directory_path() / "tessera_lines_test.jsonl";
  std::ofstream(path, std::ios::binary) << "\xef\xbb\xbf{\"a\":1}\r\n\n  \n{\"b\":2}\n{\"c\":3}";
  LineReader reader = ok(LineReader::open(path.string()));
  std::vector<std::pair<int64_t, std::string>> lines;
  for (;;) {
    const auto some = ok(reader.read(1));
    if (some.empty()) break;
    CHECK(some.size() == 1);
    lines.emplace_back(some[0].number, some[0].text);
  }
  CHECK(lines ==
        std::vector<std::pair<int64_t, std::string>>{{1, "{\"a\":1}"}, {4, "{\"b\":2}"}, {5, "{\"c\":3}"}});
  std::filesystem::remove(path);
  CHECK(LineReader::open("/nowhere/x.jsonl").status().code() == StatusCode::kNotFound);
  CHECK(LineReader::open("/").status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a file of tokens has the weights that are not 1, and one with runs that do not fit is corrupt") {
  const auto folder = std::filesystem::temp_directory_path() / "tessera_weights_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "x.tokens").string();
  TokenFileWriter writer = ok(TokenFileWriter::create(path));
  TokenExample example{{5, 6, 7, 8}, {0, 1, 1, 1}, 1, ExampleRole::kPlain, {1, 0.5f, 0.5f, 1}};
  REQUIRE(writer.add(example, {}).ok());
  example.weights = {};
  REQUIRE(writer.add(example, {}).ok());
  example.weights = {3, 1, 0.25f, 0.25f};
  REQUIRE(writer.add(example, {}).ok());
  const auto file = ok(writer.finish("about", true));
  CHECK(file->has_weights());
  const auto weights_of = [&](size_t record, uint32_t begin, size_t count) {
    std::vector<float> weights(count);
    file->fill_weights(file->records()[record], begin, weights);
    return weights;
  };
  CHECK(weights_of(0, 0, 4) == std::vector<float>{1, 0.5f, 0.5f, 1});
  CHECK(weights_of(1, 0, 4) == std::vector<float>{1, 1, 1, 1});
  CHECK(weights_of(2, 0, 4) == std::vector<float>{3, 1, 0.25f, 0.25f});
  CHECK(weights_of(2, 1, 2) == std::vector<float>{1, 0.25f});
  // Any changed byte, the version and the number of runs among them.
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(path, std::ios::binary) << changed;
    CHECK(TokenFile::open(path).status().code() == StatusCode::kCorrupt);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a file of tokens gives back what was put in, and one with a changed byte is corrupt") {
  const auto folder = std::filesystem::temp_directory_path() / "tessera_tokens_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "x.tokens").string();
  TokenFileWriter writer = ok(TokenFileWriter::create(path));
  TokenExample example{{5, 6, 7}, {0, 1, 1}, 1, ExampleRole::kChosen};
  TokenRecord record;
  record.line = 9;
  REQUIRE(writer.add(example, record).ok());
  example.ids = {8}, example.trained = {0}, example.prompt = 0;
  REQUIRE(writer.add(example, record).ok());
  const auto file = ok(writer.finish("about", true));
  REQUIRE(file->records().size() == 2);
  CHECK(file->records()[0].trained == 2);
  CHECK(file->records()[0].line == 9);
  CHECK(file->largest_token() == 8);
  CHECK(file->about() == "about");
  std::vector<uint32_t> tokens(2);
  REQUIRE(file->read(file->records()[0], 1, tokens).ok());
  CHECK(tokens == std::vector<uint32_t>{6 | kTrainedBit, 7 | kTrainedBit});

  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] ^= 4;
    std::ofstream(path, std::ios::binary) << changed;
    CHECK(TokenFile::open(path).status().code() == StatusCode::kCorrupt);
  }
  for (const size_t size : {size_t{0}, size_t{40}, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    CHECK(TokenFile::open(path).status().code() == StatusCode::kCorrupt);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace tessera
