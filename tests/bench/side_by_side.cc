// Adapters side by side: seconds a step of eight adapters in one batch, of one adapter with the same tokens, and of eight one after
// another, each as an ordinary training of its own. Runs alternate; medians, and ratios of the speeds.
//   side_by_side [MODEL [TOKENS [STEPS]]]     MODEL: a description or a file; TOKENS: of each adapter's row
#define TSR_UNSTABLE_API
#include <tessera/tessera.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int64_t kAdapters = 8, kRank = 16;

void ok(tsr_status* status) {
  if (status == nullptr) return;
  std::fprintf(stderr, "side_by_side: %s\n", tsr_status_message(status));
  std::exit(1);
}

struct Setting {
  const char* key;
  int64_t number;
  const char* text = nullptr;
};

tsr_options* options(const std::vector<Setting>& settings) {
  tsr_options* made = nullptr;
  ok(tsr_options_new(&made));
  for (const Setting& it : settings)
    ok(it.text ? tsr_options_set_str(made, it.key, it.text) : tsr_options_set_i64(made, it.key, it.number));
  return made;
}

tsr_model* model_of(const std::string& source) {
  tsr_model* model = nullptr;
  const bool is_file = source.find(':') == std::string::npos;
  ok(is_file ? tsr_model_load(source.c_str(), &model) : tsr_model_new(source.c_str(), nullptr, &model));
  return model;
}

struct Rows {
  int64_t rows, seq;
  std::vector<int32_t> tokens, labels;

  Rows(int64_t count, int64_t tokens_of_row) : rows(count), seq(tokens_of_row) {
    for (int64_t i = 0; i < rows * seq; ++i) tokens.push_back(static_cast<int32_t>((i * 7919) % 251));
    for (int64_t i = 0; i < rows * seq; ++i) labels.push_back((i + 1) % seq == 0 ? -1 : tokens[static_cast<size_t>(i + 1)]);
  }
  tsr_batch batch() const {
    tsr_batch made = {};
    made.struct_size = sizeof made;
    made.rows = rows;
    made.seq = seq;
    made.tokens = tokens.data();
    made.labels = labels.data();
    return made;
  }
};

// A step of `count` adapters in slots, of `rows` rows each.
class SideBySide {
 public:
  SideBySide(tsr_runtime* runtime, tsr_model* model, int64_t count, int64_t rows, int64_t seq) : rows_(rows, seq) {
    ok(tsr_adapter_trainer_new(runtime, model,
                               options({{"batch", count * rows}, {"seq", seq}, {"adapters", kAdapters}, {"adapter_rank", kRank}}),
                               &trainer_));
    for (int64_t i = 0; i < count; ++i) {
      adapters_.emplace_back();
      ok(tsr_adapter_trainer_add(trainer_, options({{"rank", kRank}, {"seed", i}}), &adapters_.back()));
    }
  }
  void step() {
    const tsr_batch batch = rows_.batch();
    int64_t pass = 0;
    for (const int64_t adapter : adapters_) {
      ok(tsr_adapter_trainer_forward_backward(trainer_, adapter, &batch, "cross_entropy", nullptr, &pass));
      ok(tsr_adapter_trainer_update(trainer_, adapter, nullptr, &pass));
    }
    for (;;) {
      tsr_text* text = nullptr;
      ok(tsr_adapter_trainer_next(trainer_, &text));
      const bool ends = tsr_text_size(text) == 0;
      tsr_text_free(text);
      if (ends) return;
    }
  }

 private:
  Rows rows_;
  tsr_adapter_trainer* trainer_ = nullptr;
  std::vector<int64_t> adapters_;
};

// Steps of an ordinary trainer of one adapter.
class Alone {
 public:
  Alone(tsr_runtime* runtime, tsr_model* model, int64_t rows, int64_t seq) : rows_(rows, seq) {
    tsr_model* adapted = nullptr;
    ok(tsr_model_add_adapters(model, options({{"rank", kRank}}), &adapted));
    ok(tsr_trainer_new(runtime, adapted, nullptr, options({{"batch", rows}, {"seq", seq}, {"losses", 0, "cross_entropy"}}), &trainer_));
  }
  void step() {
    const tsr_batch batch = rows_.batch();
    ok(tsr_trainer_forward_backward(trainer_, &batch, "cross_entropy", nullptr, nullptr, nullptr, 0, nullptr));
    ok(tsr_trainer_optimizer_step(trainer_, nullptr, nullptr));
  }

 private:
  Rows rows_;
  tsr_trainer* trainer_ = nullptr;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string source = argc > 1 ? argv[1] : "llama:L=12,C=576,H=9,KV=3,F=1536,V=32000,T=512";
  const int64_t seq = argc > 2 ? std::atoll(argv[2]) : 64, steps = argc > 3 ? std::atoll(argv[3]) : 5;
  tsr_runtime* runtime = nullptr;
  ok(tsr_runtime_new(nullptr, &runtime));
  tsr_model* model = model_of(source);
  SideBySide together(runtime, model, kAdapters, 1, seq), one(runtime, model, 1, kAdapters, seq);
  Alone ordinary(runtime, model, kAdapters, seq), single(runtime, model, 1, seq);
  const std::pair<const char*, std::function<void()>> kinds[] = {
      {"eight adapters, one batch", [&] { together.step(); }},
      {"one adapter in a slot, the same tokens", [&] { one.step(); }},
      {"one adapter, an ordinary training, the same tokens", [&] { ordinary.step(); }},
      {"eight ordinary trainings, one after another", [&] {
         for (int64_t i = 0; i < kAdapters; ++i) single.step();
       }}};
  std::vector<double> seconds[4];
  for (int64_t step = -1; step < steps; ++step)
    for (size_t kind = 0; kind < 4; ++kind) {
      const double taken = seconds_of(kinds[kind].second);
      if (step >= 0) seconds[kind].push_back(taken);
    }
  const double first = median(seconds[0]);
  for (size_t kind = 0; kind < 4; ++kind)
    std::printf("%-52s %8.3f s  %7.0f tokens/s  speed of eight in one batch: %.2f of it\n", kinds[kind].first,
                median(seconds[kind]), static_cast<double>(kAdapters * seq) / median(seconds[kind]), median(seconds[kind]) / first);
  return 0;
}
