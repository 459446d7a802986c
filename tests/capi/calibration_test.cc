// Calibration through C: measures, writes, is read back, prices a plan; and profiles that must be refused.
#include <fstream>
#include <sstream>

#include "c_api.h"

using namespace capi_test;

namespace {

using Calibration = Handle<tsr_calibration, tsr_calibration_free>;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Model small() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("gpt2:L=1,C=32,H=2,V=64,T=16", nullptr, &made));
  return Model(made);
}

tsr_status* plan_with(const Runtime& rt, const std::string& profile, std::string* info) {
  tsr_plan* made = nullptr;
  tsr_status* status = tsr_plan_new(rt.get(), small().get(),
                                    options({{"devices", std::string("cpu:2")},
                                             {"batch", int64_t{4}},
                                             {"seq", int64_t{16}},
                                             {"profile", profile}})
                                        .get(),
                                    &made);
  if (status != nullptr) return status;
  const Plan plan(made);
  *info = text([&](auto... out) { return tsr_plan_info(plan.get(), out...); });
  return nullptr;
}

}  // namespace

TEST_CASE("a calibration in coarse grids is written, read, and says in the plan that it priced it") {
  const Runtime rt = runtime();
  tsr_work* begun = nullptr;
  ok(tsr_calibration_begin(rt.get(), options({{"seconds", 0.0}}).get(), &begun));
  const Work work(begun);
  tsr_calibration* made = nullptr;
  CHECK(take(tsr_calibration_finish(begun, &made)).code == TSR_FAILED_PRECONDITION);
  CHECK(std::string(progress_of(begun).label).find("matrix products") != std::string::npos);
  double before = -1;
  for (int32_t done = 0; done == 0;) {
    ok(tsr_work_step(begun, &done));
    CHECK(progress_of(begun).fraction > before);
    before = progress_of(begun).fraction;
  }
  CHECK(std::string(progress_of(begun).label).empty());
  ok(tsr_calibration_finish(begun, &made));
  const Calibration calibration(made);
  CHECK(take(tsr_calibration_finish(begun, &made)).message.find("taken already") != std::string::npos);
  const Scratch scratch;
  const std::string path = scratch / "deeper/machine.json";
  ok(tsr_calibration_save(calibration.get(), path.c_str()));
  const std::string written = read(path);
  CHECK(written == text([&](auto... out) { return tsr_calibration_text(calibration.get(), out...); }));
  const size_t at = written.find("\"checksum\": \"") + 13;
  const std::string checksum = written.substr(at, 16);

  std::string with, without, again;
  ok(plan_with(rt, path, &with));
  ok(plan_with(rt, "none", &without));
  ok(plan_with(rt, path, &again));
  CHECK(with.find("\"profile\":\"" + checksum + "\"") != std::string::npos);
  CHECK(without.find("\"profile\":\"\"") != std::string::npos);
  CHECK(with == again);

  std::string other = written, ignored;
  const size_t cores = other.find("\"cores\": ") + 9;
  other[cores] = other[cores] == '9' ? '8' : '9';
  write(path, other);
  CHECK(take(plan_with(rt, path, &ignored)).code == TSR_CORRUPT);
  write(path, written.substr(0, written.size() / 2));
  CHECK(take(plan_with(rt, path, &ignored)).message.find("not JSON") != std::string::npos);
  CHECK(take(plan_with(rt, path + ".absent", &ignored)).code == TSR_NOT_FOUND);
  // Good, but measured with other threads than this runtime has.
  write(path, written);
  tsr_runtime* threads = nullptr;
  ok(tsr_runtime_new(options({{"threads", int64_t{61}}}).get(), &threads));
  const Runtime wide(threads);
  const Error refused = take(plan_with(wide, path, &ignored));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find("61") != std::string::npos);
}

TEST_CASE("the profile of a graph is had through C, and unknown options are not") {
  tsr_graph* made = nullptr;
  ok(tsr_model_graph(small().get(), &made));
  const Graph graph(made);
  const Options asked = options({{"batch", int64_t{2}}, {"symbols", std::string("T=16")}});
  const std::string json =
      text([&](auto... out) { return tsr_graph_profile(graph.get(), asked.get(), out...); });
  for (const char* key :
       {"\"phases\"", "\"forward\"", "\"flops\"", "\"saved_bytes\"", "\"block.0\"", "\"matmul\""})
    CHECK_MESSAGE(json.find(key) != std::string::npos, key);
  CHECK(json.find("\"backward\"") == std::string::npos);
  tsr_text* report = nullptr;
  CHECK(take(tsr_graph_profile(graph.get(), options({{"bach", int64_t{2}}}).get(), &report)).code ==
        TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_graph_profile(graph.get(), nullptr, &report)).code != TSR_OK);  // T has no value
}
