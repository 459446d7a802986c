// Shares of the cores between training and an engine: by window, inference's share of the time with the cores and of the CPU
// time, the longest wait of a step, and the cores that the process has had. Without a share (-1): what both get from the
// system's scheduler.
//   core_share [WINDOW_SECONDS [WINDOWS [MODEL]]]
#include <tessera/tessera.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kBatch = 8, kMicroBatch = 2, kSeq = 128, kSequences = 4;

void ok(tsr_status* status) {
  if (status == nullptr) return;
  std::fprintf(stderr, "core_share: %s\n", tsr_status_message(status));
  std::exit(1);
}

struct Setting {
  const char* key;
  int64_t number;
  const char* text = nullptr;
};

tsr_options* options(std::initializer_list<Setting> settings) {
  tsr_options* made = nullptr;
  ok(tsr_options_new(&made));
  for (const Setting& it : settings)
    ok(it.text ? tsr_options_set_str(made, it.key, it.text) : tsr_options_set_i64(made, it.key, it.number));
  return made;
}

double number_after(const std::string& text, const char* side, const char* key) {
  const size_t at = text.find(std::string("\"") + key + "\":", text.find(side));
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + std::strlen(key) + 3);
}

std::string report(const tsr_runtime* runtime) {
  tsr_text* made = nullptr;
  ok(tsr_runtime_share(runtime, &made));
  const std::string text = tsr_text_data(made);
  tsr_text_free(made);
  return text;
}

class Measured {
 public:
  Measured(double share, const char* description) : share_(share) {
    ok(tsr_runtime_new(nullptr, &runtime_));
    if (share >= 0) {
      tsr_options* chosen = options({});
      ok(tsr_options_set_f64(chosen, "inference_share", share));
      ok(tsr_runtime_set_share(runtime_, chosen));
      tsr_options_free(chosen);
    }
    ok(tsr_model_new(description, nullptr, &model_));
    std::vector<int32_t> tokens(kSeq * 4 * kBatch + 1);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7919 % 250);
    tsr_dataset* data = nullptr;
    ok(tsr_dataset_new_tokens(tokens.data(), tokens.size(), options({{"seq", kSeq}}), &data));
    const std::string parallel = "mb=" + std::to_string(kMicroBatch);
    ok(tsr_trainer_new(runtime_, model_, data, options({{"batch", kBatch}, {"parallel", 0, parallel.c_str()}}), &trainer_));
    ok(tsr_engine_new(runtime_, model_, options({{"context", 512}, {"sequences", kSequences}}), &engine_));
    for (int64_t i = 0; i < kSequences; ++i) submit();
    training_ = std::thread([this] { train(); });
    serving_ = std::thread([this] { serve(); });
  }
  ~Measured() {
    ends_ = true;
    training_.join();
    serving_.join();
    tsr_engine_free(engine_);
    tsr_trainer_free(trainer_);
    tsr_model_free(model_);
    tsr_runtime_free(runtime_);
  }

  void run(double window_s, int windows) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    std::string before = report(runtime_);
    const int64_t steps = steps_, tokens = tokens_;
    const std::clock_t cpu = std::clock();
    for (int window = 0; window < windows; ++window) {
      std::this_thread::sleep_for(std::chrono::duration<double>(window_s));
      const std::string now = report(runtime_);
      if (share_ >= 0)
        std::printf("share %.2f  window %d  %.3f of the time  %.3f of the CPU time\n", share_, window + 1,
                    share_of(before, now, "seconds"), share_of(before, now, "cpu_seconds"));
      before = now;
    }
    const double seconds = window_s * windows, trained = number_after(before, "\"training\"", "seconds");
    std::printf("share %.2f  %.2f training steps/s  %.1f tokens/s  %.2f cores", share_,
                static_cast<double>(steps_ - steps) / seconds, static_cast<double>(tokens_ - tokens) / seconds,
                static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC / seconds);
    if (share_ >= 0 && steps_ > 0) {
      const double batch_s = trained / static_cast<double>(steps_ * kBatch / kMicroBatch);
      const double longest = number_after(before, "\"inference\"", "longest_wait_seconds");
      std::printf("  micro-batch %.0f ms  longest wait %.0f ms, %.2f of one; most within one wait: %.0f", batch_s * 1e3, longest * 1e3,
                  longest / batch_s, number_after(before, "\"inference\"", "longest_wait_micro_batches"));
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static double share_of(const std::string& before, const std::string& now, const char* key) {
    const double inference = number_after(now, "\"inference\"", key) - number_after(before, "\"inference\"", key);
    const double training = number_after(now, "\"training\"", key) - number_after(before, "\"training\"", key);
    return inference / (inference + training);
  }
  void submit() {
    const std::vector<int32_t> prompt(16, 5);
    int64_t request = 0;
    ok(tsr_engine_submit_tokens(engine_, options({{"max_tokens", 256}, {"ignore_eos", 1}}), prompt.data(), prompt.size(), &request));
  }
  void train() {
    while (!ends_) {
      tsr_step step{};
      step.struct_size = sizeof step;
      ok(tsr_trainer_step(trainer_, &step));
      ++steps_;
    }
  }
  void serve() {
    while (!ends_) {
      tsr_event event{};
      event.struct_size = sizeof event;
      tsr_status* status = tsr_engine_next(engine_, 0.1, &event);
      if (status != nullptr) {
        tsr_status_free(status);
        continue;
      }
      tokens_ += event.kind == TSR_EVENT_TOKEN;
      if (event.kind == TSR_EVENT_END) submit();
    }
  }

  const double share_;
  tsr_runtime* runtime_ = nullptr;
  tsr_model* model_ = nullptr;
  tsr_trainer* trainer_ = nullptr;
  tsr_engine* engine_ = nullptr;
  std::atomic<bool> ends_{false};
  std::atomic<int64_t> steps_{0}, tokens_{0};
  std::thread training_, serving_;
};

}  // namespace

int main(int count, char** words) {
  const double window_s = count > 1 ? std::atof(words[1]) : 10;
  const int windows = count > 2 ? std::atoi(words[2]) : 3;
  const char* model = count > 3 ? words[3] : "llama:L=6,C=512,H=8,KV=4,F=1408,V=4096,T=512";
  for (const double share : {-1.0, 0.25, 0.5, 0.75}) Measured(share, model).run(window_s, windows);
  return 0;
}
