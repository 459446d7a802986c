// Broken training data, caches, checkpoints and run logs through the C API: each is refused with a reason, or read; 5,000
// files of each kind of rows with TESSERA_TEST_FULL=1. The readers alone run under sanitizers in tests/fuzz.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/preference_training.h"
#include "tests/capi/small_training.h"
#include "tests/full.h"
#include "tests/fuzz/random.h"

using namespace capi_test;
using tessera::fuzz::Random;
using MutantJson = nlohmann::json;

namespace {

struct SeedRows {
  const char* name;
  std::vector<const char*> rows;
};
const std::vector<SeedRows>& seed_rows() {
  static const std::vector<SeedRows> all = {
      {"text",
       {R"({"text": "The sky is blue é", "id": 1})", R"({"text": "Grass is green."})", R"({"text": "x y"})"}},
      {"prompt-completion",
       {R"({"prompt": "The sky is", "completion": " blue."})", R"({"prompt": "2 + 2 =", "completion": " 4"})",
        R"({"prompt": "Say", "completion": "yes", "source": "a"})"}},
      {"messages with tools",
       {R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": null,
          "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "2"}, {"role": "assistant", "content": "A"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}, {"role": "assistant", "content": "A"}]})",
        R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})"}},
      {"preference",
       {R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})",
        R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
          "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "B"}]})",
        R"({"prompt": [{"role": "user", "content": "Q"}], "chosen": [{"role": "assistant", "content": "A"}],
          "rejected": [{"role": "assistant", "content": "B"}]})"}},
      {"unpaired",
       {R"({"prompt": "x", "completion": "y", "label": true})",
        R"({"prompt": "z", "completion": "w", "label": false})",
        R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "A"}], "label": true})"}},
      {"OpenAI chat",
       {R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "weight": 0},
          {"role": "user", "content": "R"}, {"role": "assistant", "content": "B", "weight": 1}], "parallel_tool_calls": true})",
        R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}], "tools": []})"}},
      {"OpenAI preference",
       {R"({"input": {"messages": [{"role": "user", "content": "Q"}], "tools": [], "parallel_tool_calls": true},
          "preferred_output": [{"role": "assistant", "content": "A"}], "non_preferred_output": [{"role": "assistant", "content": "B"}]})",
        R"({"input": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]},
          "preferred_output": [{"role": "assistant", "content": "AA"}], "non_preferred_output": [{"role": "assistant", "content": "BB"}]})"}},
  };
  return all;
}

constexpr const char* kRowTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% "
    "endif %}\n"
    "{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% "
    "endif %}";

// All values within a value, itself too.
void collect(MutantJson& value, std::vector<MutantJson*>& all) {
  all.push_back(&value);
  if (value.is_structured())
    for (MutantJson& each : value) collect(each, all);
}

MutantJson hostile_value(Random& random) {
  static const std::vector<const char*> kTexts = {"null",
                                                  "true",
                                                  "-1",
                                                  "0",
                                                  "1e308",
                                                  "18446744073709551615",
                                                  "\"\"",
                                                  "\"\\u0000\"",
                                                  "\"[assistant]\"",
                                                  "[]",
                                                  "{}",
                                                  "[null]",
                                                  "[[]]",
                                                  R"([{"role": "assistant"}])",
                                                  R"({"role": "user", "content": "Q"})",
                                                  R"("{\"a\": [")",
                                                  "0.5"};
  if (random.one_in(12)) {
    MutantJson deep = 1;
    for (uint64_t left = random.below(300); left > 0; --left) deep = MutantJson::array({deep});
    return deep;
  }
  if (random.one_in(12)) return std::string(random.below(3000), 'a');
  return MutantJson::parse(kTexts[random.below(kTexts.size())]);
}

std::string mutant_row(const std::string& row, Random& random) {
  MutantJson json = MutantJson::parse(row);
  for (uint64_t left = 1 + random.below(2); left > 0; --left) {
    std::vector<MutantJson*> all;
    collect(json, all);
    MutantJson& value = *all[random.below(all.size())];
    const uint64_t kind = random.below(4);
    if (kind == 0 && value.is_object() && !value.empty()) {
      value.erase(std::next(value.begin(), static_cast<int64_t>(random.below(value.size()))));
    } else if (kind == 1 && value.is_object()) {
      static constexpr const char* kKeys[] = {"text",   "prompt",   "completion", "messages",  "label",
                                              "chosen", "images",   "tools",      "weight",    "content",
                                              "role",   "rejected", "",           "tool_calls"};
      value[kKeys[random.below(std::size(kKeys))]] = hostile_value(random);
    } else if (kind == 2 && value.is_array() && !value.empty()) {
      value.push_back(MutantJson(value[random.below(value.size())]));
    } else {
      value = hostile_value(random);
    }
  }
  std::string text = json.dump();
  for (uint64_t left = random.one_in(4) ? 1 + random.below(3) : 0; left > 0 && !text.empty(); --left) {
    static const std::string kInserted[] = {
        "\xff", std::string(1, '\0'), "\\ud800", "\xef\xbb\xbf", "\"", "{", "\r", "\\"};
    const size_t at = random.below(text.size());
    if (random.one_in(3))
      text.resize(at);
    else if (random.one_in(2))
      text[at] = static_cast<char>(random.next());
    else
      text.insert(at, kInserted[random.below(std::size(kInserted))]);
  }
  return text;
}

// A Status of bad input, with words; neither a bug nor a lack of memory.
void check_refused(const Error& error) {
  CAPTURE(error.message);
  CHECK((error.code == TSR_INVALID_ARGUMENT || error.code == TSR_UNSUPPORTED || error.code == TSR_CORRUPT ||
         error.code == TSR_NOT_FOUND || error.code == TSR_IO || error.code == TSR_FAILED_PRECONDITION));
  CHECK(!error.message.empty());
}

int64_t mutant_count(int64_t few, int64_t many) { return tessera::test::full() ? many : few; }

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string mutant_bytes(std::string bytes, Random& random) {
  for (uint64_t left = 1 + random.below(3); left > 0 && !bytes.empty(); --left) {
    const size_t at = random.below(random.one_in(2) ? std::min<size_t>(bytes.size(), 64) : bytes.size());
    switch (random.below(5)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.insert(at, std::string(1 + random.below(40), static_cast<char>(random.next()))); break;
      case 2: bytes.erase(at, 1 + random.below(8)); break;
      default: bytes[at] = static_cast<char>(random.next());
    }
  }
  return bytes;
}

// Inputs of two steps.
std::vector<int32_t> rows_read(const Dataset& data, int64_t seq) {
  const auto count = static_cast<size_t>(2 * seq);
  std::vector<int32_t> all(8 * count);
  for (size_t step = 0; step < 2; ++step) {
    int32_t* const at = all.data() + step * 4 * count;
    ok(tsr_dataset_rows(data.get(), static_cast<int64_t>(step), 2, at, at + count, at + 2 * count,
                        at + 3 * count, count, nullptr));
  }
  return all;
}

std::string info_of(const Dataset& data) {
  return capi_test::text([&](auto... out) { return tsr_dataset_info(data.get(), out...); });
}

}  // namespace

TEST_CASE("broken rows of every kind are refused with a reason, or left out and counted") {
  const Scratch scratch;
  const std::string path = scratch / "x.jsonl";
  const Tokenizer tokenizer = byte_tokenizer();
  for (const SeedRows& seed : seed_rows()) {
    CAPTURE(seed.name);
    int64_t read = 0, left_out = 0;
    const int64_t count = mutant_count(60, 5000);
    for (int64_t number = 0; number < count; ++number) {
      CAPTURE(number);
      Random random(static_cast<uint64_t>(number));
      std::string file;
      for (uint64_t left = 2 + random.below(4); left > 0; --left) {
        const std::string row = seed.rows[random.below(seed.rows.size())];
        file += random.one_in(2) ? mutant_row(row, random) : MutantJson::parse(row).dump();
        file += random.one_in(16) ? "\r\n\n" : "\n";
      }
      write_bytes(path, file);
      const auto pick = [&](std::initializer_list<const char*> all) {
        return std::string(all.begin()[random.below(all.size())]);
      };
      const bool skips = random.one_in(2);
      tsr_dataset* made = nullptr;
      const Error error = take(
          tsr_dataset_new_file(path.c_str(), tokenizer.get(),
                               options({{"seq", 32},
                                        {"skip_bad", skips},
                                        {"template", std::string(kRowTemplate)},
                                        {"mask", pick({"auto", "assistant", "completion", "all"})},
                                        {"truncation", pick({"keep_start", "keep_end", "drop", "error"})},
                                        {"untrained", pick({"drop", "error"})},
                                        {"packing", pick({"off", "off", "bfd", "bfd_split", "wrapped"})},
                                        {"eval_fraction", random.one_in(2) ? 0.3 : 0.0}})
                                   .get(),
                               &made));
      const Dataset data(made);
      if (error.code != TSR_OK) {
        check_refused(error);
        // A row that is none ends nothing where it may be left out, and else is named.
        CHECK((error.message.find("x.jsonl' line ") != std::string::npos) ==
              (!skips && error.message.find("skip_bad") != std::string::npos));
        continue;
      }
      ++read;
      const MutantJson info = MutantJson::parse(info_of(data));
      left_out += info["bad"].get<int64_t>();
      CHECK((skips || info["bad"] == 0));
      rows_read(data, info["kinds"].contains("preference") ? 64 : 32);
    }
    CHECK(read > count / 20);
    CHECK(left_out > 0);
    std::printf("mutants | %s: %lld files, %lld read, %lld rows left out\n", seed.name,
                static_cast<long long>(count), static_cast<long long>(read),
                static_cast<long long>(left_out));
  }
}

TEST_CASE("a broken file of tokens in the cache is made again") {
  const Scratch scratch;
  const std::string path = write_pairs(scratch, "pairs.jsonl", 5), cache = scratch / "cache";
  const Tokenizer tokenizer = byte_tokenizer();
  const auto read = [&] {
    tsr_dataset* made = nullptr;
    ok(tsr_dataset_new_file(path.c_str(), tokenizer.get(), options({{"seq", 16}, {"cache", cache}}).get(),
                            &made));
    const Dataset data(made);
    return std::pair(info_of(data), rows_read(data, 32));
  };
  const auto wanted = read();
  const std::string file = std::filesystem::directory_iterator(cache)->path().string(),
                    whole = bytes_of(file);
  const int64_t count = mutant_count(60, 2000);
  for (int64_t number = 0; number < count; ++number) {
    CAPTURE(number);
    Random random(static_cast<uint64_t>(number));
    write_bytes(file, mutant_bytes(whole, random));
    CHECK(read() == wanted);
    CHECK(bytes_of(file) == whole);
  }
  std::printf("mutants | files of tokens: %lld, each made again\n", static_cast<long long>(count));
}

TEST_CASE("broken log probabilities of a reference in the cache are computed again") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 5),
                          .cache = scratch / "cache",
                          .model = "llama:L=1,C=8,H=1,F=8,V=256,T=64"};
  const auto loss = [&] { return preference_step(preference_trainer(rt, run)).loss; };
  const double wanted = loss();
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(run.cache))
    if (entry.path().extension() == ".reference") file = entry.path().string();
  const std::string whole = bytes_of(file);
  const int64_t count = mutant_count(15, 500);
  for (int64_t number = 0; number < count; ++number) {
    CAPTURE(number);
    Random random(static_cast<uint64_t>(number));
    write_bytes(file, mutant_bytes(whole, random));
    CHECK(loss() == wanted);
    CHECK(bytes_of(file) == whole);
  }
  std::printf("mutants | references: %lld, each computed again\n", static_cast<long long>(count));
}

TEST_CASE("a broken checkpoint or run log of a training is refused, or what it was") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const std::string folder = scratch / "run", lines = scratch / "run.jsonl";
  const Model model = described_with_bytes("llama:L=1,C=8,H=1,F=8,V=256,T=64", 3);
  const Dataset data = repeated_text("the tiles of one mosaic lie side by side; ", 20, 16, 0);
  const auto made = [&] {
    tsr_trainer* trainer = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), data.get(), options({{"batch", 2}}).get(), &trainer));
    return Trainer(trainer);
  };
  const auto log_of = [&](const Trainer& trainer, tsr_run_log** out) {
    return take(tsr_run_log_new(trainer.get(), options({{"metrics", lines}}).get(), out));
  };
  using Log = Handle<tsr_run_log, tsr_run_log_free>;
  const Trainer trainer = made();
  {
    tsr_run_log* log = nullptr;
    REQUIRE(log_of(trainer, &log).code == TSR_OK);
    const Log owner(log);
    for (int i = 0; i < 4; ++i) {
      one_step(trainer);
      ok(tsr_run_log_step(log));
      if (i == 1) ok(tsr_trainer_save(trainer.get(), folder.c_str()));
    }
  }
  const std::string whole_lines = bytes_of(lines);
  ok(tsr_trainer_resume(trainer.get(), folder.c_str()));
  const double wanted = one_step(trainer);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().string());
  const int64_t count = mutant_count(40, 2000);
  int64_t resumed = 0, logged = 0;
  for (int64_t number = 0; number < count; ++number) {
    CAPTURE(number);
    Random random(static_cast<uint64_t>(number));
    const std::string& file = files[random.below(files.size())];
    const std::string whole = bytes_of(file);
    write_bytes(file, mutant_bytes(whole, random));
    const Error error = take(tsr_trainer_resume(trainer.get(), folder.c_str()));
    if (error.code == TSR_OK)
      CHECK(one_step(trainer) == wanted), ++resumed;
    else
      check_refused(error);
    write_bytes(file, whole);
    if (error.code != TSR_OK && number % 10 == 0) {  // a refusal leaves a trainer that works
      ok(tsr_trainer_resume(trainer.get(), folder.c_str()));
      CHECK(one_step(trainer) == wanted);
    }
    const std::string mutant = mutant_bytes(whole_lines, random);
    write_bytes(lines, mutant);
    tsr_run_log* log = nullptr;
    const Error refusal = log_of(trainer, &log);
    const Log owner(log);
    if (refusal.code == TSR_OK) {
      ++logged;
    } else {
      CHECK(refusal.code == TSR_EXISTS);
      CHECK(bytes_of(lines) == mutant);
    }
  }
  std::printf("mutants | checkpoints: %lld, %lld of them the same; run logs: %lld, %lld of them read\n",
              static_cast<long long>(count), static_cast<long long>(resumed), static_cast<long long>(count),
              static_cast<long long>(logged));
}
