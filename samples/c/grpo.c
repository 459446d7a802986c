/* Reinforcement learning on a task whose answers are checked: a small model that begins at random learns to say the number
 * after the one that it is given, and then to stop. Each round draws a group of answers to every question by an engine on
 * the weights that are being trained, rewards the tokens that are right, compares each reward with its group's mean (GRPO),
 * and updates by the loss ppo.
 *
 *   grpo [ROUNDS [DEVICES]]
 */
#define TSR_UNSTABLE_API /* engines on the weights of a trainer */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

/* Token kEnd ends a text. An answer has at most kSeq tokens, the end included. */
enum { kNumbers = 8, kEnd = 15, kGroup = 32, kSeq = 2, kRows = kNumbers * kGroup, kUpdates = 2 };

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

/* Draws kGroup answers to each question: labels[question * kGroup + i][kSeq], -1 behind the end. The token that ends a text
 * has no event: it is a label all the same, or nothing would teach when to stop. */
static void draw(tsr_engine* engine, int64_t seed, int32_t (*labels)[kSeq]) {
  int taken[kRows] = {0};
  for (int i = 0; i < kRows * kSeq; ++i) labels[i / kSeq][i % kSeq] = -1;
  tsr_options* request = NULL;
  check(tsr_options_new(&request));
  check(tsr_options_set_i64(request, "n", kGroup));
  check(tsr_options_set_i64(request, "max_tokens", kSeq));
  check(tsr_options_set_str(request, "stop_ids", "15")); /* "stop_token" of the end's details says which, of several */
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
    const int64_t row = (event.request - first) * kGroup + event.index;
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0) labels[row][taken[row]++] = event.token;
    if (event.kind == TSR_EVENT_END && event.finish == TSR_FINISH_STOP) labels[row][taken[row]] = kEnd;
  }
  tsr_options_free(request);
}

/* Of each token by itself: the right number, and then the end. */
static double reward_of(int question, const int32_t* answer, int t) {
  return answer[t] == (t == 0 ? (question + 1) % kNumbers : kEnd);
}

/* Fills in advantages; returns the share of answers that are right. */
static double judge(int32_t (*labels)[kSeq], float (*advantages)[kSeq]) {
  double right = 0;
  for (int question = 0; question < kNumbers; ++question) {
    int32_t(*const group)[kSeq] = labels + question * kGroup;
    for (int i = 0; i < kGroup; ++i) right += reward_of(question, group[i], 0) + reward_of(question, group[i], 1) == 2;
    for (int t = 0; t < kSeq; ++t) {
      double mean = 0;
      for (int i = 0; i < kGroup; ++i) mean += reward_of(question, group[i], t) / kGroup;
      const double deviation = sqrt(fmax(0, mean * (1 - mean)));
      for (int i = 0; i < kGroup; ++i)
        advantages[question * kGroup + i][t] =
            (float)((reward_of(question, group[i], t) - mean) / (deviation + 1e-4));
    }
  }
  return right / kRows;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 60;
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
  check(tsr_options_set_i64(options, "seq", kSeq));
  check(tsr_options_set_i64(options, "warmup", 0));
  check(tsr_options_set_f64(options, "lr", 3e-3));
  check(tsr_trainer_new(runtime, model, NULL, options, &trainer));
  check(tsr_engine_new_for_trainer(trainer, NULL, &engine));
  check(tsr_options_new(&loss));
  check(tsr_options_set_f64(loss, "scale", 1.0 / kRows));

  static int32_t tokens[kRows][kSeq], labels[kRows][kSeq];
  static float advantages[kRows][kSeq], sampler[kRows][kSeq];
  double right = 0;
  for (int round = 0; round < rounds; ++round) {
    draw(engine, (int64_t)round * kNumbers, labels);
    right = judge(labels, advantages);
    for (int i = 0; i < kRows; ++i) {
      tokens[i][0] = i / kGroup;
      for (int t = 1; t < kSeq; ++t) tokens[i][t] = labels[i][t - 1] >= 0 ? labels[i][t - 1] : 0;
    }
    if (round % 5 == 0 || round + 1 == rounds) printf("round %d: %.0f %% right\n", round, 100 * right);
    tsr_batch batch = {
        .struct_size = sizeof batch, .rows = kRows, .seq = kSeq, .tokens = tokens[0], .labels = labels[0]};
    size_t count = 0;
    check(tsr_trainer_forward(trainer, &batch, sampler[0], kRows * kSeq, &count));
    batch.sampler_logprobs = sampler[0];
    batch.advantages = advantages[0];
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
  return right > 0.9 || rounds < 60 ? 0 : 1;
}
