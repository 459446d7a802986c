/* Reinforcement learning on a task whose answers are checked: a small model that begins at random learns to say the number
 * after the one that it is given. Each round draws a group of answers to every question by an engine on the weights that are being
 * trained, rewards those that are right, compares each reward with its group's mean (GRPO), and updates by the loss ppo.
 *
 *   grpo [ROUNDS [DEVICES]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { kNumbers = 8, kGroup = 32, kRows = kNumbers * kGroup, kUpdates = 2 };

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

/* Draws kGroup answers to each question: labels[question * kGroup + i]. */
static void draw(tsr_engine* engine, int64_t seed, int32_t* labels) {
  tsr_options* request = NULL;
  check(tsr_options_new(&request));
  check(tsr_options_set_i64(request, "n", kGroup));
  check(tsr_options_set_i64(request, "max_tokens", 1));
  check(tsr_options_set_f64(request, "temperature", 1));
  int64_t first = -1;
  for (int32_t question = 0; question < kNumbers; ++question) {
    int64_t number = 0;
    check(tsr_options_set_i64(request, "seed", seed + question));
    check(tsr_engine_submit_tokens(engine, request, &question, 1, &number));
    if (first < 0) first = number;
  }
  for (int ended = 0; ended < kRows;) {
    tsr_event event = {.struct_size = sizeof event};
    check(tsr_engine_next(engine, -1, &event));
    if (event.kind == TSR_EVENT_END) ++ended;
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0)
      labels[(event.request - first) * kGroup + event.index] = event.token;
  }
  tsr_options_free(request);
}

/* Fills in advantages; returns the share of answers that are right. */
static double judge(const int32_t* labels, float* advantages) {
  double right = 0;
  for (int question = 0; question < kNumbers; ++question) {
    double mean = 0;
    for (int i = 0; i < kGroup; ++i) mean += labels[question * kGroup + i] == (question + 1) % kNumbers;
    right += mean;
    mean /= kGroup;
    const double deviation = sqrt(mean * (1 - mean));
    for (int i = 0; i < kGroup; ++i) {
      const double reward = labels[question * kGroup + i] == (question + 1) % kNumbers;
      advantages[question * kGroup + i] = (float)((reward - mean) / (deviation + 1e-4));
    }
  }
  return right / kRows;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 30;
  const char* devices = argc > 2 ? argv[2] : "cpu:1";
  check(tsr_version_check(TSR_VERSION));
  tsr_runtime* runtime = NULL;
  tsr_model* model = NULL;
  tsr_options *options = NULL, *loss = NULL;
  tsr_trainer* trainer = NULL;
  tsr_engine* engine = NULL;
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_new("llama:L=1,C=32,H=2,KV=2,F=64,V=16,T=8", NULL, &model));
  check(tsr_options_new(&options));
  check(tsr_options_set_str(options, "devices", devices));
  check(tsr_options_set_str(options, "losses", "ppo"));
  check(tsr_options_set_i64(options, "batch", kRows));
  check(tsr_options_set_i64(options, "seq", 1));
  check(tsr_options_set_i64(options, "warmup", 0));
  check(tsr_options_set_f64(options, "lr", 1e-2));
  check(tsr_trainer_new(runtime, model, NULL, options, &trainer));
  check(tsr_engine_new_for_trainer(trainer, NULL, &engine));
  check(tsr_options_new(&loss));
  check(tsr_options_set_f64(loss, "scale", 1.0 / kRows));

  static int32_t tokens[kRows], labels[kRows];
  static float advantages[kRows], sampler[kRows];
  for (int i = 0; i < kRows; ++i) tokens[i] = i / kGroup;
  double right = 0;
  for (int round = 0; round < rounds; ++round) {
    draw(engine, (int64_t)round * kNumbers, labels);
    right = judge(labels, advantages);
    if (round % 5 == 0 || round + 1 == rounds) printf("round %d: %.0f %% right\n", round, 100 * right);
    tsr_batch batch = {.struct_size = sizeof batch, .rows = kRows, .seq = 1, .tokens = tokens, .labels = labels};
    size_t count = 0;
    check(tsr_trainer_forward(trainer, &batch, sampler, kRows, &count));
    batch.sampler_logprobs = sampler;
    batch.advantages = advantages;
    for (int update = 0; update < kUpdates; ++update) {
      check(tsr_trainer_forward_backward(trainer, &batch, "ppo", loss, NULL, NULL, 0, NULL));
      check(tsr_trainer_optimizer_step(trainer, NULL, NULL));
    }
  }

  tsr_engine_free(engine);
  tsr_trainer_free(trainer);
  tsr_options_free(loss);
  tsr_options_free(options);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return right > 0.9 || rounds < 30 ? 0 : 1;
}
