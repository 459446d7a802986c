// tsr_request_file: results in the order of the lines, wrong lines before a model is there, adapters and interrupted files.
#include <fstream>
#include <sstream>
#include <string>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

using RequestFile = Handle<tsr_request_file, tsr_request_file_free>;

std::string write(const Scratch& scratch, const std::string& lines) {
  const std::string path = scratch / "requests.jsonl";
  std::ofstream(path) << lines;
  return path;
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

RequestFile open(const std::string& path, const std::string& out,
                 std::initializer_list<Setting> settings = {}) {
  tsr_request_file* made = nullptr;
  ok(tsr_request_file_open(path.c_str(), out.c_str(), options(settings).get(), &made));
  return RequestFile(made);
}

std::string report(const RequestFile& file) {
  return text([&](tsr_text** out) { return tsr_request_file_report(file.get(), out); });
}

constexpr const char* kDescription = "llama:L=1,C=32,H=4,KV=2,F=48,V=256,T=64";

}  // namespace

TEST_CASE("results of a file of requests are in the order of its lines, and a failed one fails alone") {
  const Scratch scratch;
  const std::string path =
      write(scratch,
            "{\"prompt\": \"long\", \"max_tokens\": 30, \"id\": [1]}\n{\"ids\": [5], \"max_tokens\": 2}\n"
            "{\"prompt\": \"a\", \"temperature\": -1}\n{\"prompt\": \"b\", \"choices\": [\"yes\"]}\n");
  const std::string out = scratch / "texts.jsonl";
  const RequestFile file = open(path, out, {{"ids", 1}});
  double done = 0;
  CHECK(take(tsr_request_file_step(file.get(), &done)).code == TSR_FAILED_PRECONDITION);
  const Runtime rt = runtime();
  const Model model = described_with_bytes(kDescription, 7);
  ok(tsr_request_file_start(file.get(), rt.get(), model.get(), options({{"seed", 1}}).get()));
  while (done < 1) ok(tsr_request_file_step(file.get(), &done));
  const std::string results = read(out);
  CHECK(results.find("{\"line\":1,\"id\":[1],\"text\":") == 0);
  CHECK(results.find("\n{\"line\":2,") < results.find("\n{\"line\":3,\"finish\":\"failed\",\"error\":"));
  CHECK(results.find("{\"line\":4,\"text\":\"yes\",\"finish\":\"stop\"") != std::string::npos);
  CHECK(results.find("\"ids\":[") != std::string::npos);
  CHECK(!std::filesystem::exists(out + ".part"));
  CHECK(report(file).find("\"requests\":4,\"done\":4,\"failed\":1,\"first_failure\":\"" + path +
                          ": line 3: ") != std::string::npos);
}

TEST_CASE("a result has the message of an answer with calls, whole or cut") {
  const Scratch scratch;
  const std::string ask = R"({"messages": [{"role": "user", "content": "Hi"}], )";
  const std::string path = write(
      scratch, ask + R"("max_tokens": 20, "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]})" +
                   "\n" + ask + R"("choices": ["yes"]})" + "\n");
  const std::string out = scratch / "texts.jsonl";
  const RequestFile file = open(path, out);
  const Runtime rt = runtime();
  const Model model = described_with_bytes(kDescription, 7);
  ok(tsr_model_set_metadata(model.get(), "chat_template",
                            "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>\n"
                            "{{ c.function | tojson }}\n</tool_call>{% endfor %}{% endfor %}"));
  ok(tsr_request_file_start(file.get(), rt.get(), model.get(), options({{"seed", 1}}).get()));
  for (double done = 0; done < 1;) ok(tsr_request_file_step(file.get(), &done));
  const std::string results = read(out), second = results.substr(results.find('\n') + 1);
  CHECK(results.find(R"({"line":1,"text":"","finish":"length",)") == 0);
  CHECK(results.find(R"("message":{"role":"assistant","content":"","cut_call":{"id":")") < results.find('\n'));
  CHECK(second.find(R"({"line":2,"text":"yes","finish":"stop",)") == 0);
  CHECK(second.find("message") == std::string::npos);
}

TEST_CASE("a wrong line is told with its number before a model is there, and leaves no file") {
  const Scratch scratch;
  const std::string out = scratch / "texts.jsonl";
  tsr_request_file* none = nullptr;
  const Error wrong = take(tsr_request_file_open(
      write(scratch, "{\"prompt\": \"a\"}\n{\"prompt\": 3}\n").c_str(), out.c_str(), nullptr, &none));
  CHECK(wrong.code == TSR_INVALID_ARGUMENT);
  CHECK(wrong.message.find("requests.jsonl: line 2: 'prompt' is '3', wanted a text") != std::string::npos);
  CHECK(!std::filesystem::exists(out + ".part"));
  const std::string path = write(scratch, "{\"prompt\": \"a\", \"adapter\": \"mine\"}\n");
  CHECK(take(tsr_request_file_open(path.c_str(), out.c_str(), options({{"epochs", 1}}).get(), &none)).code ==
        TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_request_file_open((scratch / "none").c_str(), out.c_str(), nullptr, &none)).code ==
        TSR_NOT_FOUND);
  std::ofstream(out + ".part") << "{\"line\":1}\n";
  CHECK(take(tsr_request_file_open(path.c_str(), out.c_str(), nullptr, &none)).code ==
        TSR_EXISTS);
  std::filesystem::remove(out + ".part");
  const RequestFile file = open(path, out, {{"adapters", "{\"mine\": \"" + (scratch / "absent") + "\"}"}});
  const Error absent = take(tsr_request_file_start(file.get(), runtime().get(),
                                                   described_with_bytes(kDescription, 7).get(), nullptr));
  CHECK(absent.message.find("line 1: ") != std::string::npos);
  CHECK(absent.message.find("absent: there is no such file") != std::string::npos);
}
