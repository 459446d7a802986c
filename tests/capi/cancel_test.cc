// Calls that plan, load and measure end soon after tsr_runtime_cancel, wherever in them it comes, and leave
// nothing behind.
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  REQUIRE(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of one core. Planning `kDeep` to its end takes some thirty; slow machines took 0.15 after a cancel.
constexpr double kSoonS = 1;

// What `call` returns when it is cancelled `after` its beginning. Fails where it then computes on for long:
// by the thread's own clock, which other work on the machine does not move.
Error cancelled(const Runtime& rt, std::chrono::milliseconds after,
                const std::function<tsr_status*()>& call) {
  std::atomic<bool> began{false}, is_read{false};
  Error error;
  double end_s = 0;
  std::thread thread([&] {
    began = true;
    error = take(call());
    end_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    while (!is_read) std::this_thread::yield();  // its clock ends with it
  });
  while (!began) std::this_thread::yield();
  std::this_thread::sleep_for(after);
  clockid_t clock{};
  REQUIRE(pthread_getcpuclockid(thread.native_handle(), &clock) == 0);
  const double cancel_s = seconds_of(clock);
  tsr_runtime_cancel(rt.get());
  is_read = true;
  thread.join();
  CHECK(end_s - cancel_s < kSoonS);
  return error;
}

constexpr const char* kDeep = "llama:L=400,C=64,H=4,F=96,V=256,T=64";

}  // namespace

TEST_CASE("planning is cancelled, wherever it is, and plans as before afterwards") {
  const Runtime rt = runtime();
  const Model deep = described(kDeep), small = described("llama:L=1,C=64,H=4,F=96,V=256,T=64"),
              shallow = described("llama:L=8,C=64,H=4,F=96,V=256,T=64");
  const auto plan = [&](const Model& model, int64_t limit, const std::string& devices = "cpu:2") {
    tsr_plan* made = nullptr;
    tsr_status* const status =
        tsr_plan_new(rt.get(), model.get(),
                     options({{"devices", devices}, {"memory_limit", limit}}).get(), &made);
    tsr_plan_free(made);
    return status;
  };
  for (const int64_t limit : {int64_t{1} << 40, int64_t{100} << 20})
    for (const int after : {2, 30, 110, 270}) {
      CAPTURE(after);
      CHECK(cancelled(rt, std::chrono::milliseconds(after), [&] { return plan(deep, limit); }).code ==
            TSR_CANCELLED);
    }
  // Nothing fits on one device: soon told, and then on how many it would.
  for (const int after : {400, 1200})
    CHECK(cancelled(rt, std::chrono::milliseconds(after), [&] { return plan(shallow, 20 << 10, "cpu:1"); }).code ==
          TSR_CANCELLED);
  tsr_runtime_cancel(rt.get());  // without a call in progress
  tsr_runtime_cancel(nullptr);
  ok(plan(small, int64_t{1} << 40));
}

TEST_CASE("trainers, generators and calibrations are cancelled while they are made") {
  const Runtime rt = runtime();
  const Model deep = described_with_bytes(kDeep, 7);
  const auto trainer = [&] {
    tsr_trainer* made = nullptr;
    tsr_status* const status = tsr_trainer_new(rt.get(), deep.get(), bytes_dataset().get(), nullptr, &made);
    tsr_trainer_free(made);
    return status;
  };
  const auto generator = [&] {
    tsr_generator* made = nullptr;
    tsr_status* const status = tsr_generator_new(rt.get(), deep.get(), nullptr, &made);
    tsr_generator_free(made);
    return status;
  };
  CHECK(cancelled(rt, std::chrono::milliseconds(40), trainer).code == TSR_CANCELLED);
  CHECK(cancelled(rt, std::chrono::milliseconds(40), generator).code == TSR_CANCELLED);

  tsr_work* made = nullptr;
  ok(tsr_calibration_begin(rt.get(), options({{"seconds", 2000.0}}).get(), &made));
  const Work calibration(made);
  const auto next = [&] { return std::string(progress_of(made).label); };
  const std::string first = next();
  const Error error = cancelled(rt, std::chrono::milliseconds(40),
                                [&] { return tsr_work_step(made, nullptr); });
  CHECK(error.code == TSR_CANCELLED);
  CHECK(next() == first);
}
