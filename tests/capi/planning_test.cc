// Plans through C, and the low level: graph -> plan -> program -> session.
#include <fstream>

#include "c_api.h"

using namespace capi_test;

namespace {

Model llama() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=64", nullptr, &made));
  return Model(made);
}

std::string info(const Plan& plan) {
  return text([&](auto... out) { return tsr_plan_info(plan.get(), out...); });
}

}  // namespace

TEST_CASE("a plan is made without weights and names mesh, strategy, bytes and candidates") {
  const Runtime rt = runtime();
  tsr_plan* made = nullptr;
  ok(tsr_plan_new(
      rt.get(), llama().get(),
      options({{"devices", std::string("cpu:4")}, {"batch", int64_t{8}}, {"seq", int64_t{32}}}).get(),
      &made));
  const Plan plan(made);
  const std::string json = info(plan);
  for (const char* key :
       {"\"mesh\"", "\"strategy\"", "\"predicted_step_seconds\"", "\"arena_bytes\"", "\"candidates\""})
    CHECK(json.find(key) != std::string::npos);
  // Step, bound and gap of the explanation agree.
  const std::string explained = text([&](auto... out) { return tsr_plan_explain(plan.get(), out...); });
  const auto number = [&](const std::string& key) {
    const size_t at = explained.find('"' + key + "\":");
    REQUIRE_MESSAGE(at != std::string::npos, key);
    return std::stod(explained.substr(at + key.size() + 3));
  };
  CHECK(number("bound_seconds") <= number("step_seconds"));
  CHECK(number("gap") == doctest::Approx(1 - number("bound_seconds") / number("step_seconds")));
  ok(tsr_plan_new(rt.get(), llama().get(), options({{"mode", std::string("generate")}}).get(), &made));
  CHECK(info(Plan(made)).find("\"strategy\"") != std::string::npos);
  CHECK(take(tsr_plan_new(rt.get(), llama().get(), options({{"mode", std::string("run")}}).get(), &made))
            .code == TSR_INVALID_ARGUMENT);
}

TEST_CASE("plans predicted fastest are run where that is asked for, and say what they took") {
  const Runtime rt = runtime();
  tsr_plan* made = nullptr;
  const auto asked = [](int64_t measure) {
    return options({{"devices", std::string("cpu:2")},
                    {"batch", int64_t{4}},
                    {"seq", int64_t{16}},
                    {"measure", measure}});
  };
  ok(tsr_plan_new(rt.get(), llama().get(), asked(3).get(), &made));
  const std::string json = info(Plan(made));
  size_t measured = 0;
  for (size_t at = 0; (at = json.find("\"measured_step_seconds\"", at)) != std::string::npos; ++at)
    ++measured;
  CHECK(measured == 3);
  ok(tsr_plan_new(rt.get(), llama().get(), asked(0).get(), &made));
  CHECK(info(Plan(made)).find("\"measured_step_seconds\"") == std::string::npos);
  // Decoding keeps a cache, and its tokens come one by one.
  ok(tsr_plan_new(
      rt.get(), llama().get(),
      options({{"mode", std::string("generate")}, {"devices", std::string("cpu:2")}, {"measure", int64_t{2}}})
          .get(),
      &made));
  CHECK(info(Plan(made)).find("\"measured_step_seconds\"") != std::string::npos);
  const Error error = take(tsr_plan_new(rt.get(), llama().get(), asked(-1).get(), &made));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("measure") != std::string::npos);
}

TEST_CASE("a plan that cannot fit is refused with the smallest limit that would work") {
  const Runtime rt = runtime();
  tsr_plan* made = nullptr;
  const Handle<tsr_status, tsr_status_free> status(tsr_plan_new(
      rt.get(), llama().get(),
      options({{"devices", std::string("cpu:2")}, {"memory_limit", std::string("64KiB")}}).get(), &made));
  CHECK(tsr_status_code(status.get()) == TSR_OUT_OF_MEMORY);
  const std::string message = tsr_status_message(status.get());
  // The numbers that the message says are there as numbers.
  const auto number = [&](const char* key) {
    int64_t value = -1;
    CHECK(tsr_status_number(status.get(), key, nullptr) == tsr_status_number(status.get(), key, &value));
    return value;
  };
  CHECK(number("limit_bytes") == 64 << 10);
  CHECK(number("smallest_limit_bytes") > 64 << 10);
  CHECK(number("needed_bytes") == number("smallest_limit_bytes"));
  CHECK(message.find('(' + std::to_string(number("smallest_limit_bytes")) + " bytes)") != std::string::npos);
  const bool some_do = message.find("number of devices that would do is") != std::string::npos;
  CHECK((number("smallest_devices") > 2) == some_do);
  CHECK(number("no_such_key") == -1);
  CHECK(tsr_status_number(nullptr, "limit_bytes", nullptr) == 0);
}

// Layouts with which decoding is as small need not be alike for the prompt (tp=2 with sp and without).
TEST_CASE("the smallest limit is the same whatever limit it is named for, and works") {
  const Runtime rt = runtime();
  struct Case {
    const char *model, *devices, *parallel;
  };
  for (const Case& c :
       {Case{"gpt2:L=2,C=4,H=1,V=3,T=16", "cpu:2", ""}, Case{"gpt2:L=2,C=6,H=1,V=3,T=16", "cpu:4", "tp=4"}}) {
    INFO(c.model);
    tsr_model* raw = nullptr;
    ok(tsr_model_new(c.model, nullptr, &raw));
    const Model model(raw);
    const auto plan = [&](int64_t limit) {
      tsr_plan* made = nullptr;
      const Error error = take(tsr_plan_new(rt.get(), model.get(),
                                            options({{"devices", std::string(c.devices)},
                                                     {"mode", std::string("generate")},
                                                     {"parallel", std::string(c.parallel)},
                                                     {"memory_limit", limit}})
                                                .get(),
                                            &made));
      tsr_plan_free(made);
      return error;
    };
    const auto named = [&](int64_t limit) {
      const Error none = plan(limit);
      REQUIRE(none.code == TSR_OUT_OF_MEMORY);
      return std::stoll(none.message.substr(none.message.find('(') + 1));
    };
    const int64_t least = named(64);
    CHECK(named(least - 1) == least);
    for (const int64_t more : {0, 1, 50, 100, 200, 400, 800}) {
      CAPTURE(more);
      CHECK(plan(least + more).code == TSR_OK);
    }
  }
}

TEST_CASE(
    "the limit and the devices named when nothing fits are true of all entries, trained or served, pinned or "
    "not") {
  const Runtime rt = runtime();
  tsr_model* raw = nullptr;
  ok(tsr_model_new("gpt2:L=2,C=64,H=4,V=256,T=128", nullptr, &raw));
  const Model model(raw);
  struct Case {
    const char *mode, *parallel;
    int64_t limit;
  };
  for (const Case& c : {Case{"train", "dp=2,zero=3", 1 << 20}, Case{"train", "tp=2", 1 << 20},
                        Case{"generate", "", 256 << 10}, Case{"generate", "tp=2", 256 << 10}}) {
    INFO(c.mode, " ", c.parallel);
    const auto plan = [&](int64_t limit, int64_t devices) {
      Options given = options({{"devices", "cpu:" + std::to_string(devices)},
                               {"mode", std::string(c.mode)},
                               {"parallel", std::string(c.parallel)},
                               {"memory_limit", limit}});
      if (c.mode == std::string("train")) {
        ok(tsr_options_set_i64(given.get(), "batch", 4));
        ok(tsr_options_set_i64(given.get(), "seq", 64));
      }
      tsr_plan* made = nullptr;
      const Error error = take(tsr_plan_new(rt.get(), model.get(), given.get(), &made));
      tsr_plan_free(made);
      return error;
    };
    const Error none = plan(c.limit, 2);
    MESSAGE(none.message);
    REQUIRE(none.code == TSR_OUT_OF_MEMORY);
    CHECK(none.message.find("instruction") != std::string::npos);
    CHECK(none.message.find("kept between runs") != std::string::npos);
    const size_t open = none.message.find('(');
    REQUIRE(none.message.find(" bytes)") != std::string::npos);
    const int64_t least = std::stoll(none.message.substr(open + 1));
    CHECK(plan(least, 2).code == TSR_OK);
    CHECK(plan(least - least / 100, 2).code == TSR_OUT_OF_MEMORY);
    const std::string phrase = "number of devices that would do is ";
    const size_t at = none.message.find(phrase);
    if (at == std::string::npos) {
      CHECK(none.message.find("devices would not do either") != std::string::npos);
      continue;
    }
    const int64_t devices = std::stoll(none.message.substr(at + phrase.size()));
    CHECK(plan(c.limit, devices).code == TSR_OK);
    CHECK(plan(c.limit, devices - 1).code != TSR_OK);
  }
}

TEST_CASE("a saved plan is followed instead of planning, and refused for another graph") {
  const Runtime rt = runtime();
  const Scratch scratch;
  const std::string path = scratch / "plan.txt";
  const Model model = llama();
  const Setting devices{"devices", std::string("cpu:2")}, seq{"seq", int64_t{32}}, batch{"batch", int64_t{4}};
  tsr_plan* made = nullptr;
  ok(tsr_plan_new(rt.get(), model.get(),
                  options({devices, seq, batch, {"parallel", std::string("tp=2")}}).get(), &made));
  const Plan pinned(made);
  ok(tsr_plan_save(made, path.c_str()));
  ok(tsr_plan_new(rt.get(), model.get(), options({devices, seq, batch, {"plan_file", path}}).get(), &made));
  const Plan followed(made);
  const auto print = [](const Plan& plan) {
    return text([&](auto... out) { return tsr_plan_text(plan.get(), out...); });
  };
  CHECK(print(followed) == print(pinned));
  const Error other = take(tsr_plan_new(
      rt.get(), model.get(),
      options({devices, seq, batch, {"plan_file", path}, {"optimizer", std::string("sgd")}}).get(), &made));
  CHECK(other.code != TSR_OK);
}

TEST_CASE(
    "a plan that is tampered with, or is of something else, is refused with what was found and wanted") {
  const Runtime rt = runtime();
  const Scratch scratch;
  const std::string path = scratch / "plan.txt";
  const Model model = llama();
  const Setting devices{"devices", std::string("cpu:4")}, seq{"seq", int64_t{32}}, batch{"batch", int64_t{4}};
  tsr_plan* made = nullptr;
  ok(tsr_plan_new(rt.get(), model.get(),
                  options({devices, seq, batch, {"parallel", std::string("dp=2,tp=2,zero=1")}}).get(),
                  &made));
  const Plan plan(made);
  const std::string good = text([&](auto... out) { return tsr_plan_text(plan.get(), out...); });
  const auto follow = [&](const std::string& content, const Setting& on, const Setting& tokens,
                          const Setting& sequences) {
    std::ofstream(path) << content;
    return take(tsr_plan_new(rt.get(), model.get(),
                             options({on, tokens, sequences, {"plan_file", path}}).get(), &made));
  };
  const auto refused = [&](const std::string& from, const std::string& to, const char* says) {
    const size_t at = good.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from, " is not in the plan:\n", good.substr(0, 600));
    const Error error = follow(std::string(good).replace(at, from.size(), to), devices, seq, batch);
    CHECK(error.code != TSR_OK);
    CHECK_MESSAGE(error.message.find(says) != std::string::npos, error.message);
  };
  REQUIRE(follow(good, devices, seq, batch).code == TSR_OK);
  tsr_plan_free(made);
  // Another graph, another mesh, words that contradict it.
  const size_t fingerprint = good.find("graph ") + 6;
  refused(good.substr(fingerprint, 4), good[fingerprint] == '1' ? "2345" : "1234", "");
  refused("dp=2, tp=2", "dp=2, tp=3", "devices");
  refused("dp=2,tp=2,zero=1", "dp=4,tp=2", "is for 8 devices, its meshes have 4");
  refused("stored", "storde", "");
  // Other sizes than asked for.
  CHECK(follow(good, devices, seq, {"batch", int64_t{8}})
            .message.find("it is for a batch of 4, 8 is asked for") != std::string::npos);
  CHECK(
      follow(good, devices, {"seq", int64_t{16}}, batch).message.find("it is for T = 32, 16 is asked for") !=
      std::string::npos);
  // Another entry, and another model.
  CHECK(take(tsr_plan_new(rt.get(), model.get(), options({{"mode", std::string("generate")}, {"plan_file", path}}).get(), &made))
            .message.find("it is the plan of a training step, wanted one of generation: make one with `tessera plan MODEL "
                          "--mode generate`") != std::string::npos);
  tsr_model* other = nullptr;
  ok(tsr_model_new("gpt2:L=1,C=32,H=4,V=64,T=32", nullptr, &other));
  const Model gpt2(other);
  CHECK(take(tsr_plan_new(rt.get(), gpt2.get(), options({devices, seq, batch, {"plan_file", path}}).get(), &made))
            .message.find("it is of another model: it places 'block.0.") != std::string::npos);
  CHECK(follow(good, {"devices", std::string("cpu:2")}, seq, batch).message.find("devices") !=
        std::string::npos);
}

TEST_CASE("blanks in words of a searched plan change nothing") {
  const auto estimate = [](const std::string& words) {
    const std::string report = text([&](auto... out) {
      return tsr_plan_estimate("gpt2:L=24,C=4096,H=32,V=51200,T=2048",
                               options({{"cluster", std::string("dgx-a100-40gb:32")},
                                        {"batch", int64_t{128}},
                                        {"memory_limit", std::string("6GiB")},
                                        {"parallel", "tp=4,pp=4:1f1b,mb=1," + words}})
                                   .get(),
                               out...);
    });
    return report;
  };
  const std::string away = estimate("offload=auto");
  CHECK(away.find("@host") != std::string::npos);
  CHECK(estimate("offload = auto") == away);
  CHECK(estimate(" offload= auto ") == away);
  CHECK(estimate("zero = 2") == estimate("zero=2"));
}

TEST_CASE("the low level: plan, program and session of a graph on two devices compute its values") {
  const Runtime rt = runtime();
  tsr_devices* devices_raw = nullptr;
  ok(tsr_devices_open(rt.get(), "cpu:2", &devices_raw));
  const Devices devices(devices_raw);
  CHECK(tsr_devices_count(devices_raw) == 2);
  CHECK(text([&](auto... out) { return tsr_devices_info(devices_raw, out...); }).find("\"text\":\"cpu:2\"") !=
        std::string::npos);
  tsr_graph* graph_raw = nullptr;
  ok(
      tsr_graph_parse("graph {\n  symbol B\n  input x: f32[B, 2]\n  parameter w: f32[2, 2]\n"
                      "  y = matmul(x, w) : f32[B, 2]\n  output y = y\n}",
                      TSR_TEXT_END, &graph_raw));
  Graph graph(graph_raw);
  tsr_plan* plan_raw = nullptr;
  ok(tsr_plan_new_for_graph(devices_raw, graph_raw, options({{"batch", int64_t{4}}}).get(), &plan_raw));
  Plan plan(plan_raw);
  const tsr_entry entry = {sizeof(tsr_entry), "main", graph_raw, plan_raw};
  tsr_program* program_raw = nullptr;
  ok(tsr_program_new(devices_raw, &entry, 1, &program_raw));
  Program program(program_raw);
  CHECK(text([&](auto... out) { return tsr_program_info(program_raw, out...); }).find("\"instructions\"") !=
        std::string::npos);
  CHECK(!text([&](auto... out) { return tsr_program_print(program_raw, 1, out...); }).empty());
  tsr_text* printed = nullptr;
  CHECK(take(tsr_program_print(program_raw, 2, &printed)).code == TSR_INVALID_ARGUMENT);

  tsr_session* session_raw = nullptr;
  ok(tsr_session_new(program_raw, options({{"measure_memory", int64_t{1}}}).get(), &session_raw));
  const Session session(session_raw);
  graph.reset();
  plan.reset();
  program.reset();
  CHECK(take(tsr_session_run(session_raw, "main")).code == TSR_FAILED_PRECONDITION);  // w was never written
  ok(tsr_session_write(session_raw, "w", tensor_f32({2, 2}, {1, 2, 3, 4}).get()));
  ok(tsr_session_feed(session_raw, "main", "x", tensor_f32({4, 2}, {1, 0, 0, 1, 1, 1, 2, -1}).get()));
  ok(tsr_session_run(session_raw, "main"));
  tsr_tensor* out = nullptr;
  ok(tsr_session_fetch(session_raw, "main", "y", &out));
  CHECK(floats(Tensor(out).get()) == std::vector<float>{1, 2, 3, 4, 4, 6, -1, 0});
  tsr_tensor* weights = nullptr;
  ok(tsr_session_read(session_raw, "w", &weights));
  CHECK(floats(Tensor(weights).get()) == std::vector<float>{1, 2, 3, 4});
  CHECK(text([&](auto... out_text) {
          return tsr_session_report(session_raw, out_text...);
        }).find("\"measured\"") != std::string::npos);
  CHECK(take(tsr_session_run(session_raw, "mian")).code == TSR_NOT_FOUND);
}

TEST_CASE("a plan's trace has a process for each device and a thread for each stream") {
  const Runtime rt = runtime();
  tsr_plan* made = nullptr;
  const auto plan = [&](int64_t trace) {
    ok(tsr_plan_new(rt.get(), llama().get(),
                    options({{"devices", std::string("cpu:2")},
                             {"parallel", std::string("dp=2,zero=3")},
                             {"batch", int64_t{4}},
                             {"seq", int64_t{16}},
                             {"trace", trace}})
                        .get(),
                    &made));
    return Plan(made);
  };
  const Plan traced = plan(1);
  const std::string json = text([&](auto... out) { return tsr_plan_trace(traced.get(), out...); });
  for (const char* part : {"\"process_name\"", "rank 1 (cpu:1)", "\"thread_name\"", "\"compute\"",
                           "\"ph\":\"X\"", "all_gather dp", "\"micro_batch\"", "\"bytes\""})
    CHECK_MESSAGE(json.find(part) != std::string::npos, part);
  const Plan plain = plan(0);
  tsr_text* trace = nullptr;
  CHECK(take(tsr_plan_trace(plain.get(), &trace)).code == TSR_FAILED_PRECONDITION);
}

TEST_CASE(
    "a plan explains itself: as JSON with every documented key, and as a page that needs nothing else") {
  const Runtime rt = runtime();
  tsr_plan* made = nullptr;
  ok(tsr_plan_new(rt.get(), llama().get(),
                  options({{"devices", std::string("cpu:2")},
                           {"seq", int64_t{32}},
                           {"parallel", std::string("tp=2")},
                           {"memory_limit", std::string("64MiB")}})
                      .get(),
                  &made));
  const Plan plan(made);
  const std::string json = text([&](auto... out) { return tsr_plan_explain(made, out...); });
  for (const char* key : {"\"lowered\":true", "\"step_seconds\"", "\"time\"", "\"critical\"", "\"memory\"",
                          "\"memory_bytes\"", "\"memory_limit\":67108864", "\"peak\"", "\"blocks\"",
                          "\"tensors\"", "\"runners_up\"", "\"reasons\"", "\"axis\":\"tp\""})
    CHECK_MESSAGE(json.find(key) != std::string::npos, key);
  const std::string page = text([&](auto... out) { return tsr_plan_page(made, out...); });
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.find("\"timeline\"") != std::string::npos);
  CHECK(page.find("block.1.q") != std::string::npos);
  // Nothing is fetched from anywhere.
  for (const char* outside : {"src=\"", "href=\"", "@import", "url("})
    CHECK_MESSAGE(page.find(outside) == std::string::npos, outside);
}

TEST_CASE("a plan of a graph is saved, loaded and parsed, and explained again") {
  const Runtime rt = runtime();
  tsr_graph* graph_raw = nullptr;
  ok(
      tsr_graph_parse("graph {\n  symbol B\n  input x: f32[B, 2]\n  parameter w: f32[2, 1]\n"
                      "  y = matmul(x, w) : f32[B, 1]\n  output y = y\n}",
                      TSR_TEXT_END, &graph_raw));
  const Graph graph(graph_raw);
  tsr_devices* devices_raw = nullptr;
  ok(tsr_devices_open(rt.get(), "cpu:2", &devices_raw));
  const Devices devices(devices_raw);
  const Scratch scratch;
  const std::string path = scratch / "plan.txt";
  tsr_plan* made = nullptr;
  ok(tsr_plan_new_for_graph(devices_raw, graph_raw, options({{"batch", int64_t{4}}}).get(), &made));
  const Plan plan(made);
  const auto print = [](const tsr_plan* it) {
    return text([&](auto... out) { return tsr_plan_text(it, out...); });
  };
  const auto explain = [](const tsr_plan* it) {
    return text([&](auto... out) { return tsr_plan_explain(it, out...); });
  };
  ok(tsr_plan_save(made, path.c_str()));
  tsr_plan* loaded_raw = nullptr;
  ok(tsr_plan_load_for_graph(devices_raw, graph_raw, path.c_str(), &loaded_raw));
  const Plan loaded(loaded_raw);
  CHECK(print(loaded_raw) == print(made));
  CHECK(explain(loaded_raw).find("\"memory_bytes\"") != std::string::npos);
  tsr_plan* parsed_raw = nullptr;
  const std::string written = print(made);
  ok(tsr_plan_parse_for_graph(devices_raw, graph_raw, written.data(), written.size(), &parsed_raw));
  CHECK(print(Plan(parsed_raw).get()) == written);
  CHECK(
      take(tsr_plan_load_for_graph(devices_raw, graph_raw, (scratch / "absent").c_str(), &parsed_raw)).code ==
      TSR_NOT_FOUND);
  CHECK(take(tsr_plan_parse_for_graph(devices_raw, graph_raw, "no plan", TSR_TEXT_END, &parsed_raw)).code ==
        TSR_INVALID_ARGUMENT);
}

TEST_CASE("pins are read from JSON text and carried out, or refused with an example") {
  const Runtime rt = runtime();
  tsr_plan* made = nullptr;
  const auto plan = [&](std::string pins) {
    return tsr_plan_new(rt.get(), llama().get(),
                        options({{"devices", std::string("cpu:2")},
                                 {"seq", int64_t{32}},
                                 {"parallel", std::string("tp=2")},
                                 {"pins", std::move(pins)}})
                            .get(),
                        &made);
  };
  ok(plan("{\"stored\": {\"block.*.up\": \"{[], [tp]}\"}}"));
  const Plan pinned(made);
  CHECK(text([&](auto... out) { return tsr_plan_explain(made, out...); }).find("[\"up\",\"{[], [tp]}\"]") !=
        std::string::npos);
  for (const char* bad : {"{", "[]", "{\"stored\": 3}", "{\"sotred\": {}}", "{\"keep\": [\"nothing\"]}"}) {
    const Error error = take(plan(bad));
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(error.message.find("pins") != std::string::npos);
  }
}
