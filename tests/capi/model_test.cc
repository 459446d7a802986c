// Models and tokenizers through C: sources, parameters, metadata, round trips.
#include <algorithm>
#include <cmath>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <thread>

#include "c_api.h"
#include "tests/capi/parameter_values.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a model saved and loaded is the same from a path, from memory and through a callback") {
  const Scratch scratch;
  const std::string path = scratch / "m.tsr";
  const Model model = mlp_model(7);
  ok(tsr_model_set_metadata(model.get(), "license", "MIT"));
  tsr_tokenizer* bytes_tokenizer = nullptr;
  ok(tsr_tokenizer_new_bytes(&bytes_tokenizer));
  ok(tsr_model_set_tokenizer(model.get(), bytes_tokenizer));
  tsr_tokenizer_free(bytes_tokenizer);
  for (const int64_t compress : {0, 1}) {
    ok(tsr_model_save(model.get(), path.c_str(), options({{"compress", compress}}).get()));
    const std::string bytes = read_file(path);
    int released = 0;
    const auto release = [](void* context) { ++*static_cast<int*>(context); };
    struct Source {
      const std::string* bytes;
      int* released;
    } source{&bytes, &released};
    tsr_reader reader = {};
    reader.struct_size = sizeof reader;
    reader.context = &source;
    reader.size = static_cast<int64_t>(bytes.size());
    reader.read_at = [](void* context, int64_t offset, void* out, size_t count) -> int32_t {
      const std::string& from = *static_cast<Source*>(context)->bytes;
      std::copy_n(from.data() + offset, count, static_cast<char*>(out));
      return 0;
    };
    reader.release = [](void* context) { ++*static_cast<Source*>(context)->released; };
    tsr_model* loaded[3] = {};
    ok(tsr_model_load(path.c_str(), &loaded[0]));
    ok(tsr_model_load_bytes(bytes.data(), bytes.size(), release, &released, &loaded[1]));
    ok(tsr_model_load_reader(&reader, &loaded[2]));
    tsr_tensor* wanted = nullptr;
    ok(tsr_model_read(model.get(), "w1", &wanted));
    const Tensor owner(wanted);
    for (tsr_model* one : loaded) {
      const Model freed(one);
      tsr_tensor* found = nullptr;
      ok(tsr_model_read(one, "w1", &found));
      CHECK(floats(Tensor(found).get()) == floats(wanted));
      CHECK(short_text([&](auto... out) { return tsr_model_metadata(one, "license", out...); }) == "MIT");
      tsr_tokenizer* tokenizer = nullptr;
      ok(tsr_model_tokenizer(one, &tokenizer));
      CHECK(tsr_tokenizer_vocabulary_size(tokenizer) == 256);
      tsr_tokenizer_free(tokenizer);
    }
    CHECK(released == 2);
  }
}

TEST_CASE("files that are not models say so and name the path") {
  const Scratch scratch;
  tsr_model* made = nullptr;
  CHECK(take(tsr_model_load((scratch / "absent.tsr").c_str(), &made)).code == TSR_NOT_FOUND);
  std::ofstream(scratch / "junk.tsr") << "this is no model at all, only a line of text";
  const Error junk = take(tsr_model_load((scratch / "junk.tsr").c_str(), &made));
  CHECK(junk.code != TSR_OK);
  CHECK(junk.message.find("junk.tsr") != std::string::npos);
  CHECK(take(tsr_model_new("lama:L=2", nullptr, &made)).message.find("llama") != std::string::npos);
}

TEST_CASE(
    "a model whose file is written to is told so when its values are used; one whose file is replaced lives "
    "on") {
  const Scratch scratch;
  const std::string path = scratch / "m.tsr", copy = scratch / "copy.tsr";
  const auto load = [&] {
    ok(tsr_model_save(mlp_model(7).get(), path.c_str(), nullptr));
    tsr_model* made = nullptr;
    ok(tsr_model_load(path.c_str(), &made));
    return Model(made);
  };
  const auto shrink = [&] {
    std::filesystem::resize_file(path, 64);
  };                        // its mapping ends: reading on is SIGBUS
  const auto touch = [&] {  // by a file of the same size, maybe
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  };
  for (const std::function<void()>& write : {std::function<void()>(shrink), std::function<void()>(touch)}) {
    const Model model = load();
    write();
    const Error saved = take(tsr_model_save(model.get(), copy.c_str(), nullptr));
    CHECK(saved.code == TSR_CHANGED);
    CHECK(saved.message.find("m.tsr: was written to") != std::string::npos);
    tsr_tensor* value = nullptr;
    CHECK(take(tsr_model_read(model.get(), "w1", &value)).code == TSR_CHANGED);
    // A value of the caller's own is none of the file's.
    ok(tsr_model_write(model.get(), "b1", tensor_f32({16}, std::vector<float>(16, 2.5f)).get()));
    ok(tsr_model_read(model.get(), "b1", &value));
    tsr_tensor_free(value);
    // Nor are a model's with adapters others than the model's.
    const Model again = load();
    tsr_model* adapted = nullptr;
    ok(tsr_model_add_adapters(again.get(), options({{"on", "w1"}, {"rank", int64_t{2}}}).get(), &adapted));
    const Model owner(adapted);
    write();
    CHECK(take(tsr_model_save(adapted, copy.c_str(), nullptr)).code == TSR_CHANGED);
  }
  CHECK(!std::filesystem::exists(copy));
  const Model replaced = load(), other = load();  // saving renames
  ok(tsr_model_save(replaced.get(), copy.c_str(), nullptr));
  ok(tsr_model_save(other.get(), path.c_str(), nullptr));
  std::filesystem::remove(path);
  ok(tsr_model_save(other.get(), copy.c_str(), nullptr));
}

TEST_CASE("who lent a value may ask the model when it is given back") {
  const Model model = mlp_model();
  struct Asked {
    tsr_model* model;
    int answers = 0;
  } asked{model.get()};
  // On a thread of its own: a model that is locked meanwhile fails the test, and does not hang it.
  const auto release = [](void* context) {
    auto* asked = static_cast<Asked*>(context);
    std::promise<bool> promise;
    std::future<bool> answer = promise.get_future();
    std::thread([model = asked->model, promise = std::move(promise)]() mutable {
      size_t count = 0;
      promise.set_value(tsr_model_parameter_count(model, &count) == nullptr && count == 3);
    }).detach();
    if (answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready && answer.get())
      ++asked->answers;
  };
  const std::vector<float> values(16, 2.5f);
  const int64_t dims[] = {16};
  for (int i = 0; i < 2; ++i) {
    tsr_tensor* lent = nullptr;
    ok(tsr_tensor_borrow(TSR_F32, 1, dims, values.data(), 64, release, &asked, &lent));
    ok(tsr_model_write(model.get(), "b1", lent));
    tsr_tensor_free(lent);
    CHECK(asked.answers == i);
  }
  ok(tsr_model_write(model.get(), "b1", tensor_f32({16}, values).get()));
  CHECK(asked.answers == 2);
}

TEST_CASE("any parameter can be read and written by name; the nearest names are given for a wrong one") {
  const Model model = mlp_model();
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  CHECK(count == 3);
  CHECK(short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), 0, out...); }) == "w1");
  ok(tsr_model_write(model.get(), "b1", tensor_f32({16}, std::vector<float>(16, 2.5f)).get()));
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(model.get(), "b1", &value));
  CHECK(floats(Tensor(value).get()) == std::vector<float>(16, 2.5f));
  const Error name = take(tsr_model_read(model.get(), "w3", &value));
  CHECK(name.code == TSR_NOT_FOUND);
  CHECK(name.message.find("w1") != std::string::npos);
  const Error shape =
      take(tsr_model_write(model.get(), "b1", tensor_f32({15}, std::vector<float>(15)).get()));
  CHECK(shape.message.find("f32[16]") != std::string::npos);
  tsr_model* other = nullptr;
  tsr_graph* graph = nullptr;
  ok(tsr_model_graph(model.get(), &graph));
  const Graph owner(graph);
  ok(tsr_model_new_from_graph(graph, options({{"seed", int64_t{1}}}).get(), &other));
  const Model same(other);
  const auto w1 = [](const Model& from) {
    tsr_tensor* read = nullptr;
    ok(tsr_model_read(from.get(), "w1", &read));
    return floats(Tensor(read).get());
  };
  CHECK(w1(same) == w1(model));
  CHECK(w1(mlp_model(2)) != w1(model));
}

TEST_CASE("a model's table grows and shrinks by rows, with tokens of its tokenizer or without") {
  const Model model = described("llama:L=1,C=8,H=2,F=12,V=260,T=8");
  tsr_tokenizer* bytes = nullptr;
  ok(tsr_tokenizer_new_bytes(&bytes));
  const Tokenizer tokenizer(bytes);
  ok(tsr_model_set_tokenizer(model.get(), bytes));
  const Values before = values_of(model);
  const auto resized = [&](int64_t rows, const char* tokens = "", Error* error = nullptr) {
    tsr_model* made = nullptr;
    const Options with = options({{"tokens", std::string(tokens)}, {"multiple", int64_t{4}}});
    const Error told = take(tsr_model_resize_tokens(model.get(), rows, with.get(), &made));
    if (error == nullptr) REQUIRE_MESSAGE(told.code == TSR_OK, told.message);
    if (error != nullptr) *error = told;
    return Model(made);
  };
  const Model wide = resized(270, R"(["<|x|>", "<|y|>"])");
  const Values after = values_of(wide);
  for (const char* const name : {"token_embedding", "output"}) {
    const std::vector<float>&old = before.at(name), &now = after.at(name);
    REQUIRE(now.size() == 272 * 8);  // a multiple of 4
    CHECK(std::equal(old.begin(), old.end(), now.begin()));
    for (size_t c = 0; c < 8; ++c) {
      double mean = 0;
      for (size_t row = 0; row < 260; ++row) mean += static_cast<double>(old[row * 8 + c]) / 260;
      for (size_t row = 260; row < 272; ++row)
        CHECK(std::abs(static_cast<double>(now[row * 8 + c]) - mean) < 1e-5);
    }
  }
  CHECK(values_of(resized(270, R"(["<|x|>", "<|y|>"])")) == after);  // the same bits by the same seed
  tsr_tokenizer* found = nullptr;
  ok(tsr_model_tokenizer(wide.get(), &found));
  const Tokenizer more(found);
  CHECK(tsr_tokenizer_vocabulary_size(found) == 258);
  int32_t ids[4];
  size_t count = 0;
  ok(tsr_tokenizer_encode(found, "a<|y|>", TSR_TEXT_END, TSR_ENCODE_SPECIAL, ids, 4, &count));
  REQUIRE(count == 2);
  CHECK(ids[1] == 257);
  // Rows without a token decode to nothing; past the table they are wrong.
  const int32_t last = 271, past = 272;
  CHECK(text([&](auto... out) { return tsr_tokenizer_decode(found, &last, 1, out...); }).empty());
  tsr_text* decoded = nullptr;
  CHECK(take(tsr_tokenizer_decode(found, &past, 1, &decoded)).code == TSR_INVALID_ARGUMENT);
  CHECK(values_of(resized(256)).at("token_embedding").size() == 256 * 8);
  Error error;
  resized(250, "", &error);
  CHECK(error.message.find("252 rows, the tokenizer has 256 tokens") != std::string::npos);
  resized(0, R"(["<|x|>", ""])", &error);
  CHECK(error.message.find("a token of 0 bytes") != std::string::npos);
}

TEST_CASE("texts encoded together have the ids that each has alone") {
  tsr_tokenizer* made = nullptr;
  ok(tsr_tokenizer_new_bytes(&made));
  const Tokenizer tokenizer(made);
  const char* const text = "abcde";
  const size_t lengths[] = {2, 0, 3};
  for (const int32_t threads : {0, 1, 3}) {
    int32_t ids[5] = {};
    size_t counts[3] = {}, count = 0;
    ok(tsr_tokenizer_encode_batch(made, text, lengths, 3, TSR_ENCODE_AROUND, threads, ids, 5, counts,
                                  &count));
    CHECK(count == 5);
    CHECK(counts[0] == 2);
    CHECK(counts[1] == 0);
    CHECK(counts[2] == 3);
    for (int32_t i = 0; i < 5; ++i) CHECK(ids[i] == 'a' + i);
  }
  size_t count = 0;
  CHECK(take(tsr_tokenizer_encode_batch(made, text, lengths, 3, 0, -1, nullptr, 0, nullptr, &count)).code ==
        TSR_INVALID_ARGUMENT);
}

TEST_CASE("the byte tokenizer goes both ways, and counts are had before the ids") {
  tsr_tokenizer* made = nullptr;
  ok(tsr_tokenizer_new_bytes(&made));
  const Tokenizer tokenizer(made);
  size_t count = 0;
  ok(tsr_tokenizer_encode(made, "h\xc3\xa9!", TSR_TEXT_END, 0, nullptr, 0, &count));
  REQUIRE(count == 4);
  int32_t ids[4];
  ok(tsr_tokenizer_encode(made, "h\xc3\xa9!", TSR_TEXT_END, 0, ids, 4, &count));
  CHECK(ids[0] == 'h');
  CHECK(text([&](auto... out) { return tsr_tokenizer_decode(made, ids, 4, out...); }) == "h\xc3\xa9!");
  ids[1] = 0;  // a NUL is a byte like others
  CHECK(text([&](auto... out) { return tsr_tokenizer_decode(made, ids, 4, out...); }) ==
        std::string("h\0\xa9!", 4));
  size_t begins[4];
  const size_t literal[] = {1, 3};
  ok(tsr_tokenizer_encode_ranges(made, "h\xc3\xa9!", TSR_TEXT_END, 0, literal, 2, ids, 4, begins, &count));
  CHECK(count == 4);
  CHECK(begins[3] == 3);
  for (const size_t number : {size_t{1}, size_t{2}}) {
    const size_t wrong[] = {3, 9};
    CHECK(
        take(tsr_tokenizer_encode_ranges(made, "hello", 5, 0, wrong, number, ids, 4, begins, &count)).code ==
        TSR_INVALID_ARGUMENT);
  }
  const int32_t beyond = 256;
  tsr_text* decoded = nullptr;
  CHECK(take(tsr_tokenizer_decode(made, &beyond, 1, &decoded)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_tokenizer_encode(made, "x", 1, 64, nullptr, 0, &count)).code == TSR_INVALID_ARGUMENT);
}
