// Conventions of the boundary: versions, statuses, options, sizes, NULLs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

TEST_CASE("a library accepts its own header and refuses a newer one, naming both versions") {
  CHECK(tsr_version() == TSR_VERSION);
  ok(tsr_version_check(TSR_VERSION));
  const Error newer = take(tsr_version_check(TSR_VERSION + 1));
  CHECK(newer.code == TSR_UNSUPPORTED);
  CHECK(newer.message.find("0.3.1") != std::string::npos);
  CHECK(newer.message.find("0.3.0") != std::string::npos);
  CHECK(take(tsr_version_check(TSR_VERSION + 10000)).code == TSR_UNSUPPORTED);
}

TEST_CASE("freeing NULL does nothing, and NULL reads as success and emptiness") {
  tsr_status_free(nullptr);
  tsr_text_free(nullptr);
  tsr_options_free(nullptr);
  tsr_runtime_free(nullptr);
  tsr_devices_free(nullptr);
  tsr_tensor_free(nullptr);
  tsr_graph_free(nullptr);
  tsr_tokenizer_free(nullptr);
  tsr_model_free(nullptr);
  tsr_work_free(nullptr);
  tsr_dataset_free(nullptr);
  tsr_plan_free(nullptr);
  tsr_program_free(nullptr);
  tsr_session_free(nullptr);
  tsr_trainer_free(nullptr);
  tsr_generator_free(nullptr);
  tsr_scorer_free(nullptr);
  tsr_embedder_free(nullptr);
  tsr_trainer_cancel(nullptr);
  tsr_generator_cancel(nullptr);
  tsr_scorer_cancel(nullptr);
  tsr_embedder_cancel(nullptr);
  tsr_session_cancel(nullptr);
  CHECK(tsr_status_code(nullptr) == TSR_OK);
  CHECK(std::string(tsr_status_message(nullptr)).empty());
  CHECK(std::string(tsr_text_data(nullptr)).empty());
  CHECK(tsr_text_size(nullptr) == 0);
  CHECK(tsr_devices_count(nullptr) == 0);
  CHECK(tsr_tensor_data(nullptr) == nullptr);
}

TEST_CASE("a required pointer that is NULL is an error that names it") {
  const Error no_out = take(tsr_options_new(nullptr));
  CHECK(no_out.code == TSR_INVALID_ARGUMENT);
  CHECK(no_out.message == "out_options is NULL");
  CHECK(take(tsr_model_load(nullptr, nullptr)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_trainer_step(nullptr, nullptr)).message == "trainer is NULL");
  CHECK(take(tsr_graph_print(nullptr, nullptr)).message == "graph is NULL");
  CHECK(take(tsr_graph_print(mlp_graph().get(), nullptr)).message == "out_text is NULL");
}

TEST_CASE("an unknown option is an error that names the nearest keys") {
  tsr_runtime* made = nullptr;
  const Error error = take(tsr_runtime_new(options({{"thread", int64_t{2}}}).get(), &made));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("unknown option 'thread'; nearest: threads") != std::string::npos);
  CHECK(made == nullptr);

  const Runtime rt = runtime();
  tsr_trainer* trainer = nullptr;
  const Error rate = take(
      tsr_trainer_new(rt.get(), mlp_model().get(), nullptr, options({{"weight_decya", 0.1}}).get(), &trainer));
  CHECK(rate.code == TSR_INVALID_ARGUMENT);
  CHECK(rate.message.find("unknown option 'weight_decya'; nearest: weight_decay") != std::string::npos);
}

TEST_CASE("an option of the wrong type or out of range says what was found and what is wanted") {
  const Runtime rt = runtime();
  tsr_trainer* trainer = nullptr;
  const Model model = mlp_model();
  const auto attempt = [&](Setting setting) {
    return take(tsr_trainer_new(rt.get(), model.get(), nullptr, options({setting}).get(), &trainer));
  };
  CHECK(attempt({"batch", std::string("eight")}).message.find("wanted an integer") != std::string::npos);
  CHECK(attempt({"batch", int64_t{0}}).message.find("option 'batch' is 0, wanted between 1 and") !=
        std::string::npos);
  CHECK(attempt({"schedule", std::string("cosin")}).message.find("wanted one of constant, cosine, linear") !=
        std::string::npos);
  CHECK(attempt({"memory_limit", std::string("2 gigs")}).message.find("wanted a size") != std::string::npos);
  CHECK(attempt({"memory_limit", INT64_MAX}).message.find("at most 1048576 TiB") != std::string::npos);
  CHECK(attempt({"dropout", -0.5}).message.find("option 'dropout' is -0.5, wanted between 0 and") !=
        std::string::npos);
  CHECK(attempt({"dropout", -1.0}).code == TSR_INVALID_ARGUMENT);
  CHECK(attempt({"momentum", 0.5}).message.find("means nothing to optimizer 'adamw'") != std::string::npos);
}

TEST_CASE("a text out is the caller's: terminated, sized without the NUL, and outlives its handle") {
  Graph graph = mlp_graph();
  tsr_text *first = nullptr, *second = nullptr;
  ok(tsr_graph_print(graph.get(), &first));
  ok(tsr_graph_print(graph.get(), &second));
  graph.reset();
  const std::string whole = tsr_text_data(first);
  CHECK(whole.starts_with("graph {"));
  CHECK(tsr_text_size(first) == whole.size());
  tsr_text_free(first);
  CHECK(tsr_text_data(second) == whole);
  tsr_text_free(second);
}

TEST_CASE("a short text: the needed size always, what fits, always terminated") {
  const Model model = mlp_model();
  ok(tsr_model_set_metadata(model.get(), "license", "Apache-2.0"));
  char small[7] = {'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  size_t size = 0;
  ok(tsr_model_metadata(model.get(), "license", small, sizeof small, &size));
  CHECK(std::string(small) == "Apache");
  CHECK(size == sizeof "Apache-2.0");
}

TEST_CASE("borrowed tensors are views, checked against their size, released once") {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const int64_t dims[] = {2, 3};
  int released = 0;
  const auto release = [](void* context) { ++*static_cast<int*>(context); };
  tsr_tensor* made = nullptr;
  ok(tsr_tensor_borrow(TSR_F32, 2, dims, values.data(), 24, release, &released, &made));
  CHECK(tsr_tensor_data(made) == values.data());
  CHECK(tsr_tensor_writable(made) == nullptr);
  CHECK(tsr_tensor_dims(made)[1] == 3);
  CHECK(released == 0);
  tsr_tensor_free(made);
  CHECK(released == 1);
  const Error error = take(tsr_tensor_borrow(TSR_F32, 2, dims, values.data(), 20, release, &released, &made));
  CHECK(error.message.find("f32[2, 3] has 24 bytes, the memory given has 20") != std::string::npos);
  CHECK(released == 2);
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK(take(tsr_tensor_new(TSR_F32, 2, huge, &made)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_tensor_new(99, 0, nullptr, &made)).code == TSR_INVALID_ARGUMENT);
}

TEST_CASE("the log is a queue: what does not fit stays") {
  const Runtime rt = runtime();
  size_t size = 7;
  ok(tsr_runtime_next_log(rt.get(), nullptr, nullptr, 0, &size));
  CHECK(size == 0);
}

namespace {
struct Hooked {
  std::mutex mutex;
  std::map<void*, size_t> memory;
  size_t most = 0, all = 0;
  bool refuses = false;
  std::set<std::string> threads;
  int released = 0;
};
void* allocate(void* context, size_t bytes, size_t alignment) {
  auto& hooked = *static_cast<Hooked*>(context);
  const std::lock_guard lock(hooked.mutex);
  if (hooked.refuses) return nullptr;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  std::memset(memory, 0x5a, bytes);  // of any content
  hooked.memory[memory] = bytes;
  hooked.all += bytes;
  hooked.most = std::max(hooked.most, hooked.all);
  return memory;
}
void deallocate(void* context, void* memory, size_t bytes) {
  auto& hooked = *static_cast<Hooked*>(context);
  const std::lock_guard lock(hooked.mutex);
  CHECK(hooked.memory.at(memory) == bytes);
  hooked.memory.erase(memory);
  hooked.all -= bytes;
  std::free(memory);
}
void note_thread(void* context, const char* role, int32_t number) {
  auto& hooked = *static_cast<Hooked*>(context);
  const std::lock_guard lock(hooked.mutex);
  hooked.threads.insert(std::string(role) + ' ' + std::to_string(number));
}
void release_hooked(void* context) { ++static_cast<Hooked*>(context)->released; }

std::vector<double> losses(tsr_runtime* runtime) {
  const Model model = described("llama:L=1,C=32,H=2,KV=1,F=48,V=256,T=32", 3);
  std::vector<int32_t> ids(600);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 97);
  tsr_dataset* data = nullptr;
  ok(tsr_dataset_new_tokens(ids.data(), ids.size(), options({{"seq", int64_t{16}}}).get(), &data));
  const Dataset dataset(data);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(
      runtime, model.get(), data,
      options({{"devices", std::string("cpu:2")}, {"parallel", std::string("dp=2")}, {"batch", int64_t{4}}})
          .get(),
      &made));
  const Trainer trainer(made);
  std::vector<double> found;
  for (int i = 0; i < 3; ++i) {
    tsr_step step{};
    step.struct_size = sizeof step;
    ok(tsr_trainer_step(made, &step));
    found.push_back(step.loss);
  }
  return found;
}
}  // namespace

TEST_CASE("arenas lie in the program's own memory, and it is told of threads that compute") {
  Hooked hooked;
  const tsr_hooks hooks{sizeof(tsr_hooks), &hooked, allocate, deallocate, note_thread, release_hooked};
  tsr_runtime* made = nullptr;
  ok(tsr_runtime_new_with_hooks(options({{"threads", int64_t{2}}}).get(), &hooks, &made));
  const std::vector<double> with_hooks = losses(made);
  CHECK(hooked.most > 2 * 4 * 10000);  // parameters and more on both devices
  CHECK(hooked.memory.empty());
  CHECK(hooked.threads.count("kernels 1") == 1);
  CHECK(hooked.threads.count("rank 1") == 1);
  CHECK(with_hooks == losses(runtime().get()));

  // An allocator that has nothing is an error.
  hooked.refuses = true;
  const Model model = described("llama:L=1,C=32,H=2,KV=1,F=48,V=256,T=32", 3);
  tsr_generator* generator = nullptr;
  const Error error = take(tsr_generator_new(made, model.get(), nullptr, &generator));
  CHECK(error.code == TSR_OUT_OF_MEMORY);
  CHECK(error.message.find("the program's allocator has no") != std::string::npos);
  tsr_runtime_free(made);
  CHECK(hooked.released == 1);

  tsr_hooks half = hooks;
  half.deallocate = nullptr;
  CHECK(take(tsr_runtime_new_with_hooks(nullptr, &half, &made)).code == TSR_INVALID_ARGUMENT);
  CHECK(hooked.released == 2);
  CHECK(take(tsr_runtime_new_with_hooks(options({{"thread", int64_t{2}}}).get(), &hooks, &made)).code ==
        TSR_INVALID_ARGUMENT);
  CHECK(hooked.released == 3);
  CHECK(take(tsr_runtime_new_with_hooks(nullptr, nullptr, &made)).code == TSR_INVALID_ARGUMENT);
}

namespace {
struct Heard {
  std::vector<std::string> records;
  tsr_runtime* runtime = nullptr;
  tsr_code nested = TSR_OK;
  int released = 0;
};
void hear(void* context, int32_t level, const char* text) {
  auto& heard = *static_cast<Heard*>(context);
  heard.records.push_back(std::to_string(level) + ' ' + text);
  heard.nested = take(tsr_runtime_set_log(heard.runtime, nullptr, nullptr, nullptr)).code;
}
void release_heard(void* context) { ++static_cast<Heard*>(context)->released; }
}  // namespace

TEST_CASE("a function of the caller's receives each record as it is made, in addition to the queue") {
  Heard first, second;
  {
    const Runtime rt = runtime();
    first.runtime = second.runtime = rt.get();
    ok(tsr_runtime_set_log(rt.get(), hear, release_heard, &first));
    // A profile that the cache folder holds damaged is passed over, which the log says.
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / "tessera_log_sink_test";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder / "tessera");
    std::ofstream(folder / "tessera" / "profile-cpu.json") << "no profile";
    setenv("XDG_CACHE_HOME", folder.c_str(), 1);
    tsr_runtime* made = nullptr;
    ok(tsr_runtime_new(options({{"profile", std::string("auto")}}).get(), &made));
    unsetenv("XDG_CACHE_HOME");
    const Runtime with_cache(made);
    first.runtime = made;
    ok(tsr_runtime_set_log(made, hear, release_heard, &second));
    second.runtime = made;
    tsr_devices* opened = nullptr;
    ok(tsr_devices_open(made, "cpu:1", &opened));
    const Devices devices(opened);
    REQUIRE(second.records.size() == 1);
    CHECK(second.records[0].starts_with("2 "));
    CHECK(second.nested == TSR_BUSY);  // a function that is called cannot replace itself
    size_t size = 0;
    ok(tsr_runtime_next_log(made, nullptr, nullptr, 0, &size));
    CHECK(size + 1 == second.records[0].size());  // the queue has it too: with a NUL, without "2 "
    ok(tsr_runtime_set_log(made, nullptr, nullptr, nullptr));
    CHECK(second.released == 1);
    CHECK(take(tsr_runtime_set_log(nullptr, hear, release_heard, &first)).code == TSR_INVALID_ARGUMENT);
    CHECK(first.released == 1);
    CHECK(first.records.empty());
    std::filesystem::remove_all(folder);
  }
  CHECK(first.released == 2);  // with the runtime
}

namespace {
struct Chained {
  tsr_runtime* other = nullptr;
  int heard = 0, released = 0;
};
void hear_and_use_other(void* context, int32_t, const char*) {
  auto& chained = *static_cast<Chained*>(context);
  ++chained.heard;
  tsr_devices* devices = nullptr;
  ok(tsr_devices_open(chained.other, "cpu:1", &devices));  // makes a record there
  tsr_devices_free(devices);
}
void hear_alone(void* context, int32_t, const char*) { ++static_cast<Chained*>(context)->heard; }
void release_and_set(void* context) {
  auto& chained = *static_cast<Chained*>(context);
  ++chained.released;
  ok(tsr_runtime_set_log(chained.other, nullptr, nullptr, nullptr));
}
}  // namespace

TEST_CASE(
    "log functions of several runtimes: each hears its own, one within another; a release may set one") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "tessera_log_chain_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "tessera");
  std::ofstream(folder / "tessera" / "profile-cpu.json") << "no profile";
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  const auto with_cache = [] {
    tsr_runtime* made = nullptr;
    ok(tsr_runtime_new(options({{"profile", std::string("auto")}}).get(), &made));
    return Runtime(made);
  };
  const Runtime first = with_cache(), second = with_cache();
  unsetenv("XDG_CACHE_HOME");
  Chained of_first{second.get()}, of_second{second.get()};
  ok(tsr_runtime_set_log(first.get(), hear_and_use_other, nullptr, &of_first));
  ok(tsr_runtime_set_log(second.get(), hear_alone, release_and_set, &of_second));
  tsr_devices* devices = nullptr;
  ok(tsr_devices_open(first.get(), "cpu:1", &devices));
  tsr_devices_free(devices);
  CHECK(of_first.heard == 1);
  CHECK(of_second.heard == 1);
  ok(tsr_runtime_set_log(second.get(), hear_alone, nullptr, &of_second));
  CHECK(of_second.released == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("hooks with members of a later version are refused, and released") {
  struct {
    tsr_hooks hooks;
    void* more;
  } later{};
  Chained released;
  later.hooks.struct_size = sizeof later;
  later.hooks.context = &released;
  later.hooks.release = [](void* context) { ++static_cast<Chained*>(context)->released; };
  later.more = &later;
  tsr_runtime* made = nullptr;
  CHECK(take(tsr_runtime_new_with_hooks(nullptr, &later.hooks, &made)).code == TSR_UNSUPPORTED);
  CHECK(released.released == 1);
}

TEST_CASE("backends: the cpu is there, absent plugins say why") {
  const Runtime rt = runtime();
  const std::string json = text([&](auto... out) { return tsr_runtime_backends(rt.get(), out...); });
  CHECK(json.find(R"({"name":"cpu","available":true)") != std::string::npos);
}
