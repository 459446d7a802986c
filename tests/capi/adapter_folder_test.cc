// Folders of adapters that stand for their base with them.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/capi/c_api.h"
#include "tests/capi/parameter_values.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kLlama = "llama:L=2,C=8,H=2,KV=1,F=12,V=16,T=8";

void export_adapters(const Model& model, const std::string& path) {
  tsr_work* made = nullptr;
  ok(tsr_export_begin_for_model(nullptr, model.get(), path.c_str(),
                                options({{"format", std::string("peft")}}).get(), &made));
  const Work work(made);
  step_through(made);
  ok(tsr_export_finish(made, nullptr));
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE(
    "a folder of adapters opens its base with them, also once both are moved, and says what to pass where it "
    "is gone") {
  const Scratch scratch;
  const std::string place = scratch / "place", moved = scratch / "moved";
  std::filesystem::create_directories(place + "/models");
  ok(tsr_model_save(described(kLlama).get(), (place + "/models/base.tsr").c_str(), nullptr));
  tsr_model* made = nullptr;
  ok(tsr_model_load((place + "/models/base.tsr").c_str(), &made));
  const Model base(made);
  ok(tsr_model_add_adapters(base.get(), options({{"rank", 2}}).get(), &made));
  const Model model(made);
  export_adapters(model, place + "/adapter");
  const auto config = [](const std::string& folder) {
    std::ifstream file(folder + "/adapter_config.json");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(has(config(place + "/adapter"), "/place/models/base.tsr\""));
  const auto opened = [](const std::string& path) {
    tsr_model* found = nullptr;
    ok(tsr_model_load(path.c_str(), &found));
    return values_of(Model(found));
  };
  CHECK(opened(place + "/adapter") == values_of(model));
  // A file with both, whose adapters came with it, is no base to name; one made of the folder has the values.
  tsr_work* conversion = nullptr;
  ok(tsr_conversion_begin(nullptr, (place + "/adapter").c_str(), (place + "/both.tsr").c_str(), nullptr,
                          &conversion));
  step_through(conversion);
  ok(tsr_conversion_finish(conversion, nullptr));
  tsr_work_free(conversion);
  CHECK(opened(place + "/both.tsr") == values_of(model));
  ok(tsr_model_load((place + "/both.tsr").c_str(), &made));
  const Model both(made);
  export_adapters(both, place + "/nameless");
  CHECK(has(config(place + "/nameless"), "\"base_model_name_or_path\": null"));
  CHECK(has(take(tsr_model_load((place + "/nameless").c_str(), &made)).message, "does not name the model"));
  std::filesystem::rename(place, moved);
  CHECK(opened(moved + "/adapter") == values_of(model));
  std::filesystem::remove(moved + "/models/base.tsr");
  const Error error = take(tsr_model_load((moved + "/adapter").c_str(), &made));
  CHECK(error.code == TSR_NOT_FOUND);
  CHECK(has(error.message, "--adapter"));
}
