// Generation through C: the published transcript, streaming, stops, cancelling.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "c_api.h"
#include "capi/handles.h"
#include "naive_llama.h"
#include "small_training.h"
#include "tests/number_after.h"
#include "tests/skip.h"
#include "text/tokenizer/tokenizer.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

// "" where the shared data is not there: the case counts as skipped.
std::string shared(const char* name) {
  const char* set = std::getenv("TESSERA_TEST_DATA");
  const std::filesystem::path folder =
      set ? std::filesystem::path(set) : std::filesystem::path(TSR_SOURCE_DIR) / ".." / "shared" / "data";
  const std::filesystem::path path = folder / name;
  if (std::filesystem::exists(path)) return path.string();
  tessera::test::skip("no shared data (TESSERA_TEST_DATA names the folder that has it)");
  return {};
}

struct Generated {
  std::string text;
  std::vector<int32_t> tokens;
  int32_t finish = TSR_FINISH_NONE;
};

Generated collect(tsr_generator* generator) {
  Generated all;
  for (;;) {
    tsr_piece piece = {};
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(generator, -1, &piece));
    if (piece.kind == TSR_END) {
      all.finish = piece.finish;
      return all;
    }
    REQUIRE(piece.kind == TSR_PIECE);
    all.text.append(piece.text, piece.text_size);
    if (piece.token >= 0) all.tokens.push_back(piece.token);
  }
}

// Takes the likeliest token unless told otherwise.
Generator generator(const Runtime& rt, const Model& model, std::initializer_list<Setting> settings) {
  tsr_generator* made = nullptr;
  const Options chosen = options(settings);
  if (std::ranges::none_of(
          settings, [](const Setting& setting) { return std::string_view(setting.first) == "temperature"; }))
    ok(tsr_options_set_f64(chosen.get(), "temperature", 0));
  ok(tsr_generator_new(rt.get(), model.get(), chosen.get(), &made));
  return Generator(made);
}

Generated generate(const Generator& from, const char* prompt) {
  ok(tsr_generator_start(from.get(), prompt, TSR_TEXT_END));
  return collect(from.get());
}

Model load(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

Model random_bytes_model() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("gpt2:L=2,C=32,H=4,V=256,T=64", options({{"seed", int64_t{5}}}).get(), &made));
  tsr_tokenizer* tokenizer = nullptr;
  ok(tsr_tokenizer_new_bytes(&tokenizer));
  ok(tsr_model_set_tokenizer(made, tokenizer));
  tsr_tokenizer_free(tokenizer);
  return Model(made);
}

// The blocks' matrices eight times as large as they begin, so that heads attend to some tokens and not to
// others.
Model model_with_opinions(const std::string& shorthand) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(shorthand.c_str(), options({{"seed", int64_t{3}}}).get(), &made));
  Model model(made);
  size_t count = 0;
  ok(tsr_model_parameter_count(made, &count));
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(made, i, out...); });
    tsr_tensor* read = nullptr;
    ok(tsr_model_read(made, name.c_str(), &read));
    const Tensor tensor(read);
    if (!name.starts_with("block.") || tsr_tensor_rank(read) != 2) continue;
    tsr_tensor* written = nullptr;
    ok(tsr_tensor_new(TSR_F32, 2, tsr_tensor_dims(read), &written));
    const Tensor owned(written);
    const auto* from = static_cast<const float*>(tsr_tensor_data(read));
    auto* const to = static_cast<float*>(tsr_tensor_writable(written));
    for (size_t at = 0; at < tsr_tensor_bytes(read) / sizeof(float); ++at) to[at] = 8 * from[at];
    ok(tsr_model_write(made, name.c_str(), written));
  }
  return model;
}

}  // namespace

TEST_CASE("a greedy transcript is what a naive model in f64 writes, on one, two and three devices") {
  const Runtime rt = runtime();
  for (const auto& [shorthand, shape] :
       {std::pair<std::string, LlamaShape>{"llama:L=3,C=48,H=6,KV=3,F=76,V=131,T=64",
                                           {3, 48, 6, 3, 76, 131, false, false}},
        {"llama:L=2,C=40,H=4,KV=2,F=52,V=97,T=64,tied=1,rope_half=1", {2, 40, 4, 2, 52, 97, true, true}}}) {
    INFO(shorthand);
    const Model model = model_with_opinions(shorthand);
    const NaiveLlama naive(model, shape);
    const std::vector<int32_t> prompt = {5, 17, 80, 2};
    std::vector<int32_t> wanted = prompt;
    for (int i = 0; i < 40; ++i) {
      std::vector<double> logits = naive.logits(wanted);
      const auto best = std::max_element(logits.begin(), logits.end());
      wanted.push_back(static_cast<int32_t>(best - logits.begin()));
      const double top = *best;
      *best = -INFINITY;
      // Else rounding may decide: take another seed.
      REQUIRE(top - *std::max_element(logits.begin(), logits.end()) > 1e-4);
    }
    wanted.erase(wanted.begin(), wanted.begin() + static_cast<int64_t>(prompt.size()));
    for (const char* devices : {"cpu:1", "cpu:2", "cpu:3"}) {
      INFO(devices);
      const Generator from = generator(
          rt, model, {{"devices", std::string(devices)}, {"max_tokens", int64_t{40}}, {"temperature", 0.0}});
      ok(tsr_generator_start_tokens(from.get(), prompt.data(), prompt.size()));
      CHECK(collect(from.get()).tokens == wanted);
    }
  }
}

TEST_CASE(
    "stories260K reproduces its published greedy transcript, on one, two and three devices, after a round "
    "trip") {
  const std::string path = shared("models/stories260K.gguf");
  if (path.empty()) return;
  std::ifstream file(shared("models/stories260K.greedy200.txt"), std::ios::binary);
  const std::string wanted{std::istreambuf_iterator<char>(file), {}};
  const Runtime rt = runtime();
  const Model model = load(path);
  for (const char* devices : {"cpu:1", "cpu:2", "cpu:3"}) {
    INFO(devices);
    const Generator from =
        generator(rt, model, {{"devices", std::string(devices)}, {"max_tokens", int64_t{200}}});
    const Generated made = generate(from, "");
    CHECK(made.text == wanted);
    CHECK(made.tokens.size() == 200);
    CHECK(made.finish == TSR_FINISH_LENGTH);
  }
  const Scratch scratch;
  ok(tsr_model_save(model.get(), (scratch / "s.tsr").c_str(), nullptr));
  const Generator again = generator(rt, load(scratch / "s.tsr"), {{"max_tokens", int64_t{200}}});
  CHECK(generate(again, "").text == wanted);
  CHECK(generate(again, "").text == wanted);  // a generator starts again each time
}

TEST_CASE("a prompt in chunks continues like the same text generated one by one") {
  const std::string path = shared("models/stories260K.gguf");
  if (path.empty()) return;
  const Runtime rt = runtime();
  const Model model = load(path);
  const Generator from = generator(rt, model, {{"max_tokens", int64_t{160}}});
  const std::vector<int32_t> tokens = generate(from, "").tokens;
  for (const size_t given : {size_t{2}, size_t{17}, size_t{40}, size_t{140}}) {
    INFO(given);
    std::vector<int32_t> prompt = {1};
    prompt.insert(prompt.end(), tokens.begin(), tokens.begin() + static_cast<int64_t>(given));
    ok(tsr_generator_start_tokens(from.get(), prompt.data(), prompt.size()));
    const Generated rest = collect(from.get());
    const size_t compare = std::min<size_t>(20, tokens.size() - given);
    CHECK(std::vector<int32_t>(rest.tokens.begin(), rest.tokens.begin() + static_cast<int64_t>(compare)) ==
          std::vector<int32_t>(tokens.begin() + static_cast<int64_t>(given),
                               tokens.begin() + static_cast<int64_t>(given + compare)));
  }
}

TEST_CASE("sampling repeats for a seed and differs between seeds") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  const auto sample = [&](int64_t seed, const char* devices) {
    const Generator from = generator(rt, model,
                                     {{"temperature", 1.0},
                                      {"seed", seed},
                                      {"max_tokens", int64_t{30}},
                                      {"devices", std::string(devices)}});
    return generate(from, "ab").tokens;
  };
  CHECK(sample(1, "cpu:1") == sample(1, "cpu:1"));
  CHECK(sample(1, "cpu:1") != sample(2, "cpu:1"));
}

TEST_CASE(
    "one generator draws any number of samples, and each can be repeated by the seed that its report names") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  tsr_generator* made = nullptr;  // as it is made by default
  ok(tsr_generator_new(rt.get(), model.get(), options({{"max_tokens", int64_t{12}}}).get(), &made));
  const Generator from(made);
  const auto text_of = [&](std::initializer_list<Setting> settings) {
    ok(tsr_generator_start_with(from.get(), options(settings).get(), "ab", TSR_TEXT_END));
    return collect(from.get());
  };
  const auto seed = [&] {
    const std::string said = text([&](auto... out) { return tsr_generator_report(from.get(), out...); });
    return std::stoll(said.substr(said.find("\"seed\":") + 7));
  };
  // Without a seed every start is a sample of its own, named in the report.
  std::set<std::vector<int32_t>> texts;
  std::vector<int32_t> last;
  for (int i = 0; i < 40; ++i) {
    last = generate(from, "ab").tokens;
    texts.insert(last);
  }
  CHECK(texts.size() == 40);
  const int64_t drawn = seed();
  CHECK(drawn >= 0);
  CHECK(drawn < int64_t{1} << 53);
  CHECK(text_of({{"seed", drawn}}).tokens == last);
  CHECK(seed() == drawn);
  // Nothing of a text's own settings is left for the next.
  const std::vector<int32_t> greedy = text_of({{"temperature", 0.0}, {"max_tokens", int64_t{5}}}).tokens;
  CHECK(greedy.size() == 5);
  CHECK(text_of({{"temperature", 0.0}, {"seed", int64_t{3}}}).tokens.size() == 12);
  CHECK(text_of({{"top_k", int64_t{1}}, {"max_tokens", int64_t{5}}}).tokens == greedy);
  CHECK(generate(from, "ab").tokens.size() == 12);
  const std::vector<int32_t> ids = {'a', 'b'};
  ok(tsr_generator_start_tokens_with(from.get(), options({{"seed", drawn}}).get(), ids.data(), ids.size()));
  CHECK(collect(from.get()).tokens == last);
  const std::string stop = std::to_string(greedy[2]);
  CHECK(text_of({{"temperature", 0.0}, {"stop_ids", stop}}).finish == TSR_FINISH_STOP);
  CHECK(text_of({{"temperature", 0.0}}).finish == TSR_FINISH_LENGTH);
  CHECK(text_of({{"echo", int64_t{1}}}).text.starts_with("ab"));
  // A generator with a seed repeats it for texts without one of their own.
  const Generator seeded =
      generator(rt, model, {{"seed", drawn}, {"temperature", 0.8}, {"max_tokens", int64_t{12}}});
  CHECK(generate(seeded, "ab").tokens == last);
  CHECK(generate(seeded, "ab").tokens == last);

  const auto refused = [&](std::initializer_list<Setting> settings) {
    return take(tsr_generator_start_with(from.get(), options(settings).get(), "ab", TSR_TEXT_END));
  };
  CHECK(refused({{"temprature", 1.0}}).message.find("nearest: temperature") != std::string::npos);
  CHECK(refused({{"context", int64_t{8}}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refused({{"top_p", 2.0}}).message.find("'top_p' is 2, wanted between 0 and 1") != std::string::npos);
}

TEST_CASE("a generation ends at its limits: tokens, context, stop ids") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  const Generator limited = generator(rt, model, {{"max_tokens", int64_t{5}}});
  const Generated five = generate(limited, "abc");
  CHECK(five.tokens.size() == 5);
  CHECK(five.finish == TSR_FINISH_LENGTH);
  const Generator full = generator(rt, model, {{"context", int64_t{20}}});
  CHECK(generate(full, "0123456789").tokens.size() == 11);  // 10 more in the cache, and the one sampled last
  const Error long_prompt = take(tsr_generator_start(full.get(), "0123456789012345678901", TSR_TEXT_END));
  CHECK(long_prompt.code == TSR_INVALID_ARGUMENT);
  CHECK(long_prompt.message.find("the prompt has 22 tokens, the context holds 20") != std::string::npos);
  CHECK(long_prompt.message.find("raise option 'context'") != std::string::npos);
  const std::string endless(1000, 'a');
  CHECK(take(tsr_generator_start(full.get(), endless.c_str(), TSR_TEXT_END))
            .message.find("the prompt has 1000 tokens, the context holds 20 and the model ") != std::string::npos);
  const std::string third = std::to_string(five.tokens[2]);
  const Generator stopping = generator(rt, model, {{"max_tokens", int64_t{5}}, {"stop_ids", third}});
  const Generated stopped = generate(stopping, "abc");
  CHECK(stopped.finish == TSR_FINISH_STOP);
  CHECK(stopped.tokens.size() <= 2);
  const Generator echoing = generator(rt, model, {{"max_tokens", int64_t{1}}, {"echo", int64_t{1}}});
  CHECK(generate(echoing, "abc").text.starts_with("abc"));
  // At any token of the tokenizer that ends texts, not its EOS alone.
  tessera::TokenizerData data;
  data.end_ids = {five.tokens[2]};
  auto made = tessera::Tokenizer::create(std::move(data));
  REQUIRE(made.ok());
  const tsr_tokenizer tokenizer{*made};
  ok(tsr_model_set_tokenizer(model.get(), &tokenizer));
  int32_t end = -1;
  size_t count = 0;
  ok(tsr_tokenizer_end_ids(&tokenizer, &end, 1, &count));
  CHECK(count == 1);
  CHECK(end == five.tokens[2]);
  const Generator ending = generator(rt, model, {{"max_tokens", int64_t{5}}});
  const Generated ended = generate(ending, "abc");
  CHECK(ended.finish == TSR_FINISH_STOP);
  CHECK(ended.tokens.size() <= 2);
}

TEST_CASE("keys and values of a generator are its context's, once") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  constexpr int64_t kTokenBytes = 2 * 2 * 32 * sizeof(float);  // of two layers, C = 32
  const auto figure = [&](int64_t context, const char* key) {
    const Generator from = generator(rt, model, {{"context", context}});
    return number_after(text([&](auto... out) { return tsr_generator_report(from.get(), out...); }), key);
  };
  CHECK(figure(20, "\"full_cache_bytes\":") == 20 * kTokenBytes);
  // A page holds a short context, in steps of 16 tokens; scratch and a table of one page are the same.
  const auto more = figure(48, "\"max_live_bytes\":") - figure(32, "\"max_live_bytes\":");
  CHECK(more >= 16 * kTokenBytes);
  CHECK(more <= 16 * kTokenBytes + 1024);
}

TEST_CASE("control tokens in a prompt are text, or with the option special these tokens") {
  const std::string path = shared("models/stories260K.gguf");
  if (path.empty()) return;
  const Runtime rt = runtime();
  const Model model = load(path);
  const auto prompt_tokens = [&](int64_t special) {
    const Generator from = generator(rt, model, {{"max_tokens", int64_t{1}}, {"special", special}});
    generate(from, "</s>");
    return number_after(text([&](auto... out) { return tsr_generator_report(from.get(), out...); }),
                        "\"prompt_tokens\":");
  };
  CHECK(prompt_tokens(0) > 2);
  CHECK(prompt_tokens(1) == 2);  // BOS and it
}

TEST_CASE("an echoed prompt comes in whole characters too") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  const Generator echoing = generator(rt, model, {{"max_tokens", int64_t{3}}, {"echo", int64_t{1}}});
  const std::string prompt = "a漢é";
  ok(tsr_generator_start(echoing.get(), prompt.data(), prompt.size() - 1));  // the last one is cut
  std::vector<std::string> texts;
  for (;;) {
    tsr_piece piece = {};
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(echoing.get(), -1, &piece));
    if (piece.kind == TSR_END) break;
    texts.emplace_back(piece.text, piece.text_size);
  }
  REQUIRE(texts.size() >= 5);
  CHECK(std::vector(texts.begin(), texts.begin() + 5) == std::vector<std::string>{"a", "", "", "漢", ""});
  std::string whole;
  for (const std::string& text : texts) whole += text;
  CHECK(whole.starts_with(prompt.substr(0, prompt.size() - 1)));
}

TEST_CASE("after fork a generator answers with an error, even where its worker was at work") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  const Generator from = generator(rt, model, {});
  for (int attempt = 0; attempt < 10; ++attempt) {
    ok(tsr_generator_start(from.get(), "a", TSR_TEXT_END));
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);
      tsr_piece piece = {};
      piece.struct_size = sizeof piece;
      tsr_tensor* logits = nullptr;
      tsr_text* report = nullptr;
      int refused = 0;
      for (tsr_status* answer :
           {tsr_generator_next(from.get(), -1, &piece), tsr_generator_start(from.get(), "b", TSR_TEXT_END),
            tsr_generator_logits(from.get(), &logits), tsr_generator_report(from.get(), &report)})
        refused += tsr_status_code(answer) == TSR_FORKED;
      tsr_generator_cancel(from.get());
      tsr_generator_free(from.get());
      _exit(refused);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 4);
    CHECK(collect(from.get()).finish != TSR_FINISH_CANCELLED);  // the parent goes on
  }
}

TEST_CASE("logits of the last token can be read, polling does not wait, and cancelling ends the text") {
  const Runtime rt = runtime();
  const Model model = random_bytes_model();
  const Generator from = generator(rt, model, {});
  tsr_tensor* logits = nullptr;
  CHECK(take(tsr_generator_logits(from.get(), &logits)).code == TSR_FAILED_PRECONDITION);
  tsr_piece piece = {};
  piece.struct_size = sizeof piece;
  CHECK(take(tsr_generator_next(from.get(), 0, &piece)).code == TSR_FAILED_PRECONDITION);
  ok(tsr_generator_start(from.get(), "a", TSR_TEXT_END));
  ok(tsr_generator_next(from.get(), 0, &piece));
  CHECK((piece.kind == TSR_PENDING || piece.kind == TSR_PIECE || piece.kind == TSR_END));
  tsr_generator_cancel(from.get());
  const Generated rest = collect(from.get());
  CHECK((rest.finish == TSR_FINISH_CANCELLED || rest.finish == TSR_FINISH_LENGTH));
  const Error without = take(tsr_generator_logits(from.get(), &logits));
  const Tensor owner(logits);
  if (rest.tokens.empty() && piece.kind != TSR_PIECE && without.code != TSR_OK) {  // nothing was computed
    CHECK(without.code == TSR_FAILED_PRECONDITION);
    CHECK(without.message.find("cancelled before its first token") != std::string::npos);
  } else {
    CHECK(without.code == TSR_OK);
    CHECK(tsr_tensor_dims(logits)[0] == 256);
  }
  CHECK(text([&](auto... out) {
          return tsr_generator_report(from.get(), out...);
        }).find("\"prompt_tokens\":1") != std::string::npos);
}

TEST_CASE("a text that outgrows the first factors of its rotations is computed again with the second") {
  const Runtime rt = runtime();
  const Model model = described(
      "phi3:L=2,C=32,H=4,F=48,V=97,T=64,rope_half,rope_rows=2,rope_switch=20,rope_magnitude=1.2", 3);
  ok(tsr_model_write(model.get(), "rope_factors",
                     tensor_f32({2, 4}, {1, 1.1f, 1.2f, 1.3f, 2, 3, 5, 8}).get()));
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 9; ++i) prompt.push_back((i * 37 + 11) % 97);
  const auto continued = [&](const Generator& writer, const std::vector<int32_t>& ids) {
    ok(tsr_generator_start_tokens(writer.get(), ids.data(), ids.size()));
    return collect(writer.get()).tokens;
  };
  const auto fresh = [&](int64_t tokens) { return generator(rt, model, {{"context", 64}, {"max_tokens", tokens}}); };
  const Generator writer = fresh(30);
  const std::vector<int32_t> grown = continued(writer, prompt);
  REQUIRE(grown.size() == 30);
  // Each token is what the text before it gives as a prompt: short ones by one row of factors, long ones by the other.
  for (const size_t made : {size_t{0}, size_t{10}, size_t{11}, size_t{12}, size_t{13}, size_t{29}}) {
    std::vector<int32_t> before = prompt;
    before.insert(before.end(), grown.begin(), grown.begin() + static_cast<std::ptrdiff_t>(made));
    CHECK(continued(fresh(1), before) == std::vector<int32_t>{grown[made]});
  }
  // The caches of a long text are of no use to a short one.
  CHECK(continued(writer, prompt) == grown);
}
