// Training on rows of training data: packed as apart, on any devices, in an order that resumes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "small_training.h"
#include "tests/capi/largest_difference.h"
#include "tests/full.h"
#include "tests/number_after.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

constexpr const char* kLlama = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=32";

std::string write_rows(const Scratch& scratch, const char* name, const std::vector<std::string>& rows) {
  const std::string path = scratch / name;
  std::ofstream file(path);
  for (const std::string& row : rows) file << row << '\n';
  return path;
}

// Texts of so many bytes, a token each.
std::vector<std::string> texts_of(const std::vector<int>& lengths) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::string text;
    for (int k = 0; k < lengths[i]; ++k)
      text += static_cast<char>('a' + (static_cast<int>(i) * 7 + k * k + 3 * k) % 26);
    rows.push_back("{\"text\": \"" + text + "\", \"id\": " + std::to_string(i) + "}");
  }
  return rows;
}

Dataset data_of(const std::string& path, std::initializer_list<Setting> settings) {
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_file(path.c_str(), byte_tokenizer().get(), options(settings).get(), &made));
  return Dataset(made);
}

std::string refused(const std::string& path, std::initializer_list<Setting> settings) {
  tsr_dataset* made = nullptr;
  const Error error =
      take(tsr_dataset_new_file(path.c_str(), byte_tokenizer().get(), options(settings).get(), &made));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  return error.message;
}

std::string info(const Dataset& data) {
  return capi_test::text([&](auto... out) { return tsr_dataset_info(data.get(), out...); });
}

struct Rows {
  std::vector<int32_t> tokens, labels, positions, segments;
  bool operator==(const Rows&) const = default;
};
Rows rows_of(const Dataset& data, int64_t step, int64_t batch, int64_t seq) {
  const auto count = static_cast<size_t>(batch * seq);
  Rows rows{std::vector<int32_t>(count), std::vector<int32_t>(count), std::vector<int32_t>(count),
            std::vector<int32_t>(count)};
  ok(tsr_dataset_rows(data.get(), step, batch, rows.tokens.data(), rows.labels.data(), rows.positions.data(),
                      rows.segments.data(), count, nullptr));
  // An array that is too short has its beginning, and nothing behind its end.
  std::vector<int32_t> first(count, -7);
  size_t all = 0;
  ok(tsr_dataset_rows(data.get(), step, batch, first.data(), nullptr, nullptr, nullptr, count - 1, &all));
  CHECK(all == count);
  CHECK(first.back() == -7);
  CHECK(std::equal(first.begin(), first.end() - 1, rows.tokens.begin()));
  return rows;
}

Trainer trainer_of(const Runtime& rt, const char* model, const Dataset& data, int64_t batch,
                   const char* devices, const char* parallel) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), described(model).get(), data.get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", batch},
                              {"optimizer", std::string("sgd")},
                              {"momentum", 0.0},
                              {"clip_norm", 0.0},
                              {"warmup", 0},
                              {"lr", 1.0}})
                         .get(),
                     &made));
  return Trainer(made);
}

// Values after a step of plain gradient descent at rate 1: gradients, subtracted from where they began.
std::vector<float> all_values(const Trainer& trainer, const Model& model) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer.get(), name.c_str(), &value));
    const std::vector<float> own = floats(Tensor(value).get());
    values.insert(values.end(), own.begin(), own.end());
  }
  return values;
}

}  // namespace

TEST_CASE("examples that share a row give the losses and gradients that they give apart, on any devices") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const std::string path = write_rows(scratch, "x.jsonl", texts_of({20, 12, 16, 16, 10, 10, 12, 32}));
  // States are reset at each example.
  constexpr const char* kModels[] = {
      kLlama,
      "gpt2:L=2,C=32,H=4,V=256,T=32",
      "lfm2:L=2,C=32,H=4,KV=2,F=48,V=256,T=32,recurrent=1|0,tied",
      "qwen3_5:L=2,C=32,H=4,KV=2,D=8,R=4,F=48,HS=8,GS=4,VS=8,KS=6,V=256,T=32,attention_every=2,tied",
      "granitehybrid:L=2,C=32,H=4,KV=2,F=48,HS=8,GS=2,VS=8,KS=6,V=256,T=32,recurrent=1|0,conv_bias,tied",
      "nemotron_h:L=3,C=32,H=4,KV=2,D=8,F=48,HS=8,GS=2,VS=8,KS=6,V=256,T=32,halves=1|2|1,recurrent=1|0|0,conv_bias",
  };
  for (size_t i = 0; i < std::size(kModels); ++i) {
    const char* const model = kModels[i];
    CAPTURE(model);
    const Dataset unpacked = data_of(path, {{"seq", 32}});
    const Dataset packed = data_of(path, {{"seq", 32}, {"packing", std::string("bfd")}});
    CHECK(number_after(info(packed), "\"train_samples\":") == 4);
    CHECK(number_after(info(packed), "\"efficiency\":") == 1);
    const Model shape = described(model);
    const Trainer wanted = trainer_of(rt, model, unpacked, 8, "cpu:1", "");
    const double loss = one_step(wanted);
    const auto expected = all_values(wanted, shape);
    struct Form {
      const char *devices, *parallel;
    };
    constexpr Form kForms[] = {{"cpu:1", ""},          {"cpu:2", "dp=2"},         {"cpu:2", "tp=2"},
                               {"cpu:2", "tp=2,sp"},   {"cpu:2", "cp=ring:2"},    {"cpu:2", "cp=ulysses:2"},
                               {"cpu:2", "cp=gather:2"}, {"cpu:2", "pp=2,mb=2"}};
    for (size_t k = 0; k < std::size(kForms); ++k) {
      const Form& form = kForms[k];
      if (i > 1 && k > 0 && k != i && !tessera::test::full()) continue;  // one device, and another form for each
      CAPTURE(form.parallel);
      const Trainer trainer = trainer_of(rt, model, packed, 4, form.devices, form.parallel);
      CHECK(one_step(trainer) == doctest::Approx(loss).epsilon(1e-6));
      CHECK(largest_difference(all_values(trainer, shape), expected) < 1e-6);
    }
  }
}

TEST_CASE("rows of a batch keep documents apart, and nothing is learnt across their ends or of padding") {
  const Scratch scratch;
  const std::string path =
      write_rows(scratch, "x.jsonl",
                 {R"({"prompt": "ab", "completion": "cd"})", R"({"prompt": "x", "completion": "yz"})"});
  const Dataset packed = data_of(path, {{"seq", 8}, {"packing", std::string("bfd")}, {"shuffle", 0}});
  const Rows rows = rows_of(packed, 0, 1, 8);
  CHECK(rows.tokens == std::vector<int32_t>{'a', 'b', 'c', 'd', 'x', 'y', 'z', 0});
  CHECK(rows.labels == std::vector<int32_t>{-1, 'c', 'd', -1, 'y', 'z', -1, -1});
  CHECK(rows.positions == std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 0});
  CHECK(rows.segments == std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 2});
  const std::string json =
      capi_test::text([&](auto... out) { return tsr_dataset_example(packed.get(), 1, out...); });
  CHECK(json.find(R"("line":2,"prompt_tokens":1,"ids":[120,121,122],"trained":[0,1,1],"control":{}})") !=
        std::string::npos);
  tsr_text* none = nullptr;
  CHECK(take(tsr_dataset_example(packed.get(), 2, &none)).code == TSR_NOT_FOUND);
  size_t count = 0;
  CHECK(take(tsr_dataset_batch(packed.get(), 0, 1, nullptr, 0, &count)).code == TSR_FAILED_PRECONDITION);
}

TEST_CASE(
    "the order of packed rows is that of its seed, each epoch has each once, and a training resumes in it") {
  const Scratch scratch;
  const std::string path =
      write_rows(scratch, "x.jsonl", texts_of({9, 14, 21, 8, 30, 11, 17, 26, 5, 13, 19, 7}));
  const auto packed = [&](int64_t seed, const char* packing) {
    return data_of(path,
                   {{"seq", 32}, {"packing", std::string(packing)}, {"seed", seed}, {"eval_fraction", 0.2}});
  };
  for (const char* const packing : {"off", "bfd", "bfd_split", "wrapped"}) {
    const Dataset data = packed(3, packing);
    const auto epoch = static_cast<int64_t>(number_after(info(data), "\"train_samples\":"));
    const Rows first = rows_of(data, 0, epoch, 32), second = rows_of(data, 1, epoch, 32);
    CHECK(rows_of(packed(3, packing), 1, epoch, 32) == second);
    CHECK(first != second);
    const auto sorted = [](const Rows& rows) {
      std::vector<int32_t> tokens = rows.tokens;
      std::sort(tokens.begin(), tokens.end());
      return tokens;
    };
    CHECK(sorted(first) == sorted(second));
  }
  const Runtime rt = runtime();
  const auto begun = [&] { return trainer_of(rt, kLlama, packed(3, "bfd"), 2, "cpu:1", ""); };
  const Trainer whole = begun(), part = begun();
  for (int i = 0; i < 2; ++i) one_step(whole), one_step(part);
  const std::string folder = scratch / "c";
  ok(tsr_trainer_save(part.get(), folder.c_str()));
  const Trainer resumed = begun();
  ok(tsr_trainer_resume(resumed.get(), folder.c_str()));
  for (int i = 0; i < 3; ++i) CHECK(one_step(resumed) == one_step(whole));
  CHECK(evaluated(resumed) == evaluated(whole));
  const Trainer other = trainer_of(rt, kLlama, packed(4, "bfd"), 2, "cpu:1", "");
  CHECK(take(tsr_trainer_resume(other.get(), folder.c_str())).message.find("other data") !=
        std::string::npos);
}

TEST_CASE(
    "a cache is taken while files, tokenizer and options are the same, and made again when it is broken") {
  const Scratch scratch;
  const std::string path = write_rows(scratch, "x.jsonl", texts_of({9, 14, 21}));
  const std::string cache = scratch / "cache";
  const auto read = [&](int64_t most) {
    return info(data_of(path, {{"seq", 32}, {"cache", cache}, {"max_length", most}}));
  };
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache))
      names.push_back(entry.path().string());
    return names;
  };
  const std::string first = read(32);
  REQUIRE(files().size() == 1);
  const std::string kept = files()[0];
  CHECK(first.find(kept) != std::string::npos);
  const auto written = std::filesystem::last_write_time(kept);
  CHECK(read(32) == first);
  CHECK(std::filesystem::last_write_time(kept) == written);
  read(20);
  CHECK(files().size() == 2);
  std::filesystem::resize_file(kept, 70);  // a cut one, and one of other rows under this name
  CHECK(read(32) == first);
  for (const std::string& name : files())
    if (name != kept)
      std::filesystem::copy_file(name, kept, std::filesystem::copy_options::overwrite_existing);
  CHECK(read(32) == first);
  std::ofstream(path, std::ios::app) << R"({"text": "more"})" << '\n';
  CHECK(read(32) != first);
  CHECK(files().size() == 3);
}

TEST_CASE("files are mixed by their weights, and held out by a share or by a file") {
  const Scratch scratch;
  const std::string a = write_rows(scratch, "a.jsonl", {R"({"text": "aaaa"})", R"({"text": "AAAA"})"});
  const std::string b = write_rows(scratch, "b.jsonl", {R"({"prompt": "b", "completion": "bb"})"});
  const std::string files = "[{\"path\": \"" + a + "\", \"weight\": 2}, \"" + b + "\"]";
  const Dataset mixed = data_of("", {{"seq", 8}, {"files", files}});
  CHECK(number_after(info(mixed), "\"train_samples\":") == 5);
  CHECK(info(mixed).find(R"("kinds":{"prompt_completion":1,"text":2})") != std::string::npos);
  const Dataset held = data_of(a, {{"seq", 8}, {"eval_file", b}});
  CHECK(number_after(info(held), "\"train_samples\":") == 2);
  CHECK(number_after(info(held), "\"eval_samples\":") == 1);
  CHECK(refused(a, {{"files", files}}).find("not both") != std::string::npos);
  CHECK(refused("", {{"files", std::string("[{\"path\": \"x\", \"weight\": 0}]")}}).find("above 0") !=
        std::string::npos);
  CHECK(refused(a, {{"eval_file", b}, {"eval_fraction", 0.5}}).find("not both") != std::string::npos);
}

TEST_CASE("a row that is none is an error with its file and line, or is counted") {
  const Scratch scratch;
  const std::string path = write_rows(scratch, "x.jsonl",
                                      {R"({"text": "fine"})", "", R"({"text": 3})", "{", R"({"prompt": "p"})",
                                       R"({"text": "as well", "id": 1})"});
  const std::string message = refused(path, {{"seq", 8}});
  CHECK(message.find("x.jsonl' line 3: field 'text' is 3, wanted a text") != std::string::npos);
  const std::string counted = info(data_of(path, {{"seq", 8}, {"skip_bad", 1}}));
  CHECK(number_after(counted, "\"bad\":") == 3);
  CHECK(number_after(counted, "\"examples\":") == 2);
  CHECK(counted.find("\"line\":4,\"reason\":\"the row: the text is not JSON") != std::string::npos);
  CHECK(counted.find("the row is of kind prompt, those before it of kind text") != std::string::npos);
  CHECK(counted.find("\"ignored\":[\"id\"]") != std::string::npos);
  CHECK(refused(path, {{"packing", std::string("best")}}).find("bfd_split") != std::string::npos);
  const std::string list = write_rows(scratch, "l.jsonl", {"[1]", R"({"text": "fine"})"});
  CHECK(refused(list, {{"seq", 8}}).find("l.jsonl") != std::string::npos);
  CHECK(number_after(info(data_of(list, {{"seq", 8}, {"skip_bad", 1}})), "\"bad\":") == 1);
  const std::string pairs =
      write_rows(scratch, "p.jsonl", {R"({"prompt": "p", "chosen": "c", "rejected": "r"})"});
  tsr_trainer* made = nullptr;
  const Error error = take(tsr_trainer_new(runtime().get(), described(kLlama).get(),
                                           data_of(pairs, {{"seq", 8}}).get(), nullptr, &made));
  CHECK(error.code == TSR_UNSUPPORTED);
  CHECK(error.message.find("kind preference") != std::string::npos);
}

TEST_CASE("rows in memory are those of a file") {
  const Scratch scratch;
  const std::vector<std::string> rows = texts_of({9, 14, 21});
  const Dataset file = data_of(write_rows(scratch, "x.jsonl", rows), {{"seq", 32}});
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_text(text.data(), text.size(), byte_tokenizer().get(),
                          options({{"seq", 32}, {"kind", std::string("text")}}).get(), &made));
  CHECK(rows_of(Dataset(made), 0, 3, 32) == rows_of(file, 0, 3, 32));
  const Dataset array =
      data_of(write_rows(scratch, "x.json", {"", " [" + rows[0] + ",", rows[1] + ",", rows[2], "]"}),
              {{"seq", 32}, {"kind", std::string("auto")}});
  CHECK(rows_of(array, 0, 3, 32) == rows_of(file, 0, 3, 32));
  // Content decides: the same without an option, under any name, in memory and through a pipe's name.
  const Dataset unnamed = data_of(write_rows(scratch, "x.txt", rows), {{"seq", 32}});
  CHECK(rows_of(unnamed, 0, 3, 32) == rows_of(file, 0, 3, 32));
  ok(tsr_dataset_new_text(text.data(), text.size(), byte_tokenizer().get(), options({{"seq", 32}}).get(),
                          &made));
  CHECK(rows_of(Dataset(made), 0, 3, 32) == rows_of(file, 0, 3, 32));
  const Dataset plain =
      data_of(write_rows(scratch, "y.jsonl", rows), {{"seq", 8}, {"kind", std::string("plain")}});
  CHECK(number_after(info(plain), "\"tokens\":") == static_cast<double>(text.size()));
  for (const auto& [content, part] : {std::pair("prompt,completion\nQ,A", "'kind' plain"),
                                      {"caf\xe9 noir, bien noir", "byte 3 (0xe9)"},
                                      {"\x1f\x8b gzip", "gunzip"},
                                      {"[\"a\", \"b\"]", "array of texts"},
                                      {"{\"a\": 1}", "'kind' plain learns"}}) {
    CHECK(refused(write_rows(scratch, "z.txt", {content}), {{"seq", 4}}).find(part) != std::string::npos);
    const Error in_memory = take(tsr_dataset_new_text(content, std::strlen(content), byte_tokenizer().get(),
                                                      options({{"seq", 4}}).get(), &made));
    CHECK(in_memory.message.find(part) != std::string::npos);
  }
  CHECK(refused(write_rows(scratch, "w.txt", {"words and words"}),
                {{"seq", 4}, {"packing", std::string("bfd")}})
            .find("is of rows of JSON") != std::string::npos);
  const Error error = take(tsr_dataset_new_text("{", 1, byte_tokenizer().get(),
                                                options({{"kind", std::string("text")}}).get(), &made));
  CHECK(error.message.find("'text in memory' line 1") != std::string::npos);
}

TEST_CASE("rows of one's own are trained on as they are given") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const Dataset packed = data_of(write_rows(scratch, "x.jsonl", texts_of({20, 12, 16, 16})),
                                 {{"seq", 32}, {"packing", std::string("bfd")}, {"shuffle", 0}});
  const Rows rows = rows_of(packed, 0, 2, 32);
  const auto given = [&](const int32_t* labels, const float* weights, const int32_t* positions) {
    tsr_dataset* made = nullptr;
    ok(tsr_dataset_new_rows(2, 32, rows.tokens.data(), labels, weights, rows.segments.data(), positions,
                            options({{"shuffle", 0}}).get(), &made));
    return Dataset(made);
  };
  const double wanted = one_step(trainer_of(rt, kLlama, packed, 2, "cpu:1", ""));
  const Dataset same = given(rows.labels.data(), nullptr, rows.positions.data());
  CHECK(rows_of(same, 0, 2, 32) == rows);
  CHECK(rows_of(given(nullptr, nullptr, nullptr), 0, 2, 32) == rows);
  CHECK(one_step(trainer_of(rt, kLlama, same, 2, "cpu:1", "")) == wanted);
  tsr_dataset* whole = nullptr;  // documents that see each other are another training
  ok(tsr_dataset_new_rows(2, 32, rows.tokens.data(), rows.labels.data(), nullptr, nullptr, rows.positions.data(),
                          options({{"shuffle", 0}}).get(), &whole));
  CHECK(std::abs(one_step(trainer_of(rt, kLlama, Dataset(whole), 2, "cpu:1", "")) - wanted) > 1e-5);
  std::vector<float> weights(64, 1);
  weights[3] = 0;
  Rows masked = rows;
  masked.labels[3] = -1;
  CHECK(rows_of(given(nullptr, weights.data(), nullptr), 0, 2, 32) == masked);
  weights[35] = -0.5f;
  tsr_dataset* made = nullptr;
  const Error error = take(tsr_dataset_new_rows(2, 32, rows.tokens.data(), nullptr, weights.data(), nullptr,
                                                nullptr, nullptr, &made));
  CHECK(error.message.find("weights: row 1, token 3 is -0.5, wanted a finite number from 0 on") !=
        std::string::npos);
}

TEST_CASE("a label of weight 2 counts as two of it, and weights are shares of their sum, on any devices") {
  const Runtime rt = runtime();
  std::vector<int32_t> tokens;
  for (int i = 0; i < 96; ++i) tokens.push_back('a' + (i * i + i / 32) % 26);
  std::copy_n(tokens.begin(), 32, tokens.begin() + 32);  // rows A A B
  const auto given = [&](int64_t first, int64_t rows, const std::vector<float>& weights) {
    tsr_dataset* made = nullptr;
    ok(tsr_dataset_new_rows(rows, 32, tokens.data() + first * 32, nullptr,
                            weights.empty() ? nullptr : weights.data(), nullptr, nullptr,
                            options({{"shuffle", 0}}).get(), &made));
    return Dataset(made);
  };
  const auto weights_of = [](float a, float b) {
    std::vector<float> weights(64, a);
    std::fill(weights.begin() + 32, weights.end(), b);
    return weights;
  };
  const Model shape = described(kLlama);
  const Trainer thrice = trainer_of(rt, kLlama, given(0, 3, {}), 3, "cpu:1", "");
  const double loss = one_step(thrice);
  const auto expected = all_values(thrice, shape);
  struct Form {
    const char *devices, *parallel;
    float a, b;
  };
  for (const Form& form :
       {Form{"cpu:1", "", 2, 1}, Form{"cpu:1", "mb=2", 0.5f, 0.25f}, Form{"cpu:2", "dp=2,zero=1", 1, 0.5f},
        Form{"cpu:2", "tp=2", 2, 1}, Form{"cpu:2", "pp=2,mb=2", 2, 1}}) {
    CAPTURE(form.parallel);
    const Dataset weighted = given(1, 2, weights_of(form.a, form.b));
    const Trainer trainer = trainer_of(rt, kLlama, weighted, 2, form.devices, form.parallel);
    CHECK(one_step(trainer) == doctest::Approx(loss).epsilon(1e-6));
    CHECK(largest_difference(all_values(trainer, shape), expected) < 1e-6);
  }
}

TEST_CASE("weights of messages reach the loss of a training and of its evaluation") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const auto conversation = [](const char* first, const char* second) {
    return std::string(
               R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cde")") +
           first + R"(}, {"role": "user", "content": "f"}, {"role": "assistant", "content": "ghijk")" +
           second + "}]}";
  };
  const auto data = [&](const char* name, const char* first, const char* second) {
    const std::string row = conversation(first, second);
    return data_of(
        write_rows(scratch, name, {row, row}),
        {{"seq", 32},
         {"eval_fraction", 0.5},
         {"template",
          std::string("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}")}});
  };
  const auto evaluated_on = [&](const Dataset& rows) {
    return evaluated(trainer_of(rt, kLlama, rows, 1, "cpu:1", ""));
  };
  const Dataset half = data("half.jsonl", R"(, "weight": 0.5)", "");
  const double first = evaluated_on(data("first.jsonl", "", R"(, "weight": 0)")),
               second = evaluated_on(data("second.jsonl", R"(, "weight": 0)", "")), both = evaluated_on(half);
  // 3 tokens of weight 0.5 and 5 of weight 1.
  CHECK(both == doctest::Approx((1.5 * first + 5 * second) / 6.5).epsilon(1e-6));
  CHECK(one_step(trainer_of(rt, kLlama, half, 1, "cpu:1", "")) == doctest::Approx(both).epsilon(1e-6));
  // Without logits the counts are the same: all 8 labels, whatever their weights.
  for (const char* const fused_loss : {"off", "on"}) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), described(kLlama).get(), half.get(),
                       options({{"batch", 1}, {"fused_loss", std::string(fused_loss)}}).get(), &made));
    const Trainer trainer(made);
    const std::string all =
        capi_test::text([&](auto... out) { return tsr_trainer_evaluate_all(trainer.get(), out...); });
    CAPTURE(all);
    CHECK(number_after(all, "\"labels\":") == 8);
    CHECK(evaluated(trainer) == doctest::Approx(both).epsilon(1e-6));
  }
  const std::string json =
      capi_test::text([&](auto... out) { return tsr_dataset_example(half.get(), 0, out...); });
  CAPTURE(json);
  CHECK(json.find(R"("weights":[0.0,0.0,0.5,0.5,0.5,0.0,1.0,1.0,1.0,1.0,1.0])") != std::string::npos);
}
