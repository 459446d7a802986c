// A server that is asked and stepped by tests, and the layouts that they serve on.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/serving/scheduler/serving_core.h"
#include "serialize/sequence_file.h"
#include "tests/capi/c_api.h"
#include "tests/capi/new_core.h"
#include "tests/capi/random_tokens.h"
#include "tests/capi/submit_request.h"

namespace tessera::serving_tests {

inline Tokens joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

struct Asking {
  Tokens prompt;
  int64_t count = 4;  // tokens wanted
  uint64_t root = 0;
  int32_t priority = 0;
};

class TestServer {
 public:
  TestServer(const char* description, const ServingSettings& settings, int64_t seed = 0)
      : core_(new_core(new_runtime(), new_model(description, seed), settings)) {}

  ServingCore& core() { return *core_; }
  void cancel(int64_t number) {
    std::vector<ServingEvent> events;
    core_->cancel(number, events);
  }
  ServingCore::Counts counts() const { return core_->counts(); }

  int64_t submit(const Asking& asked) {
    const auto sampling = std::make_shared<SamplingSettings>();
    sampling->max_tokens = asked.count;
    sampling->temperature = 0.9;
    ServingRequest request;
    request.prompt = asked.prompt;
    request.sampling = sampling;
    request.seed = 5;
    request.priority = asked.priority;
    request.root = asked.root;
    const auto number = serving_tests::submit(*core_, request);
    REQUIRE_MESSAGE(number.ok(), number.status().to_string());
    given_[*number];
    return *number;
  }

  bool step() {
    std::vector<ServingEvent> events;
    const auto more = core_->step(events);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    for (const ServingEvent& event : events)
      if (event.kind == ServingEvent::Kind::kToken) given_[event.request].push_back(event.token);
    return *more;
  }

  void finish() {
    int steps = 0;
    while (step()) REQUIRE(++steps < 10000);
    const ServingCore::Counts counts = core_->counts();
    CHECK(counts.running == 0);
    CHECK(counts.waiting == 0);
    CHECK(counts.free_pages == counts.pages);  // none is lost
    CHECK(counts.free_window_pages == counts.window_pages);
  }

  Tokens given(int64_t number) const { return given_.at(number); }

  Tokens serve(const Asking& asked) {
    const int64_t number = submit(asked);
    finish();
    return given(number);
  }

  // Its results without shared pages: under a root of its own.
  Tokens serve_alone(Asking asked) {
    asked.root = next_root_++;
    return serve(asked);
  }
  uint64_t last_root() const { return next_root_ - 1; }  // of the last one served alone

  // The keys and values that pages hold of it.
  std::vector<std::byte> rows(const Tokens& tokens, uint64_t root) {
    const capi_test::Scratch folder;
    const Status saved = core_->save_sequence(tokens, root, folder / "rows");
    REQUIRE_MESSAGE(saved.ok(), saved.to_string());
    auto file = SequenceFileReader::open(folder / "rows");
    REQUIRE_MESSAGE(file.ok(), file.status().to_string());
    std::vector<std::byte> rows(static_cast<size_t>(file->header().all_row_bytes()));
    REQUIRE(file->read_rows(rows).ok());
    return rows;
  }

 private:
  const std::unique_ptr<ServingCore> core_;
  std::map<int64_t, Tokens> given_;
  uint64_t next_root_ = 1000;
};

struct ServingLayout {
  const char *devices, *parallel;
  std::optional<DType> cache;
  const char* model = kServedModel;
};
inline const ServingLayout kServingLayouts[] = {{"cpu:1", "", {}},
                                                {"cpu:1", "", DType::kF16},
                                                {"cpu:3", "tp=3", DType::kBF16},
                                                {"cpu:2", "tp=2", {}},  // one device has two heads
                                                {"cpu:2", "pp=2", {}},
                                                {"cpu:2", "tp=2", DType::kQ8_0, kBlockModel}};
inline const ServingLayout kBlockLayout = {"cpu:1", "", DType::kQ8_0, kBlockModel};

inline ServingSettings settings_of(const ServingLayout& layout, int64_t page_size = 8, int64_t pages = 512) {
  ServingSettings settings;
  settings.compute.devices = layout.devices;
  settings.compute.parallel = layout.parallel;
  settings.cache = layout.cache;
  settings.rows = 4;
  settings.step_tokens = 48;
  settings.page_size = page_size;
  settings.pages = pages;
  return settings;
}

}  // namespace tessera::serving_tests
