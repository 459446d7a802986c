/* A tiny training run on four ranks, dp=2,tp=2, with the long work around it on its own threads, some generation, and an
 * engine that several threads use at once: what the thread sanitizer watches. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "tiny_training: %s\n", tsr_status_message(status));
  exit(1);
}

static tsr_options* new_options(void) {
  tsr_options* options = NULL;
  check(tsr_options_new(&options));
  return options;
}

static void step_through(tsr_work* work) {
  for (int32_t done = 0; !done;) check(tsr_work_step(work, &done));
}

/* Once to the end, once given up. */
static void plan(tsr_runtime* runtime, tsr_model* model) {
  tsr_options* options = new_options();
  tsr_work* work = NULL;
  tsr_plan* made = NULL;
  check(tsr_options_set_str(options, "devices", "cpu:2"));
  check(tsr_plan_begin(runtime, model, options, &work));
  step_through(work);
  check(tsr_plan_finish(work, &made));
  tsr_work_free(work);
  tsr_plan_free(made);
  check(tsr_plan_begin(runtime, model, options, &work));
  tsr_work_free(work);
  tsr_options_free(options);
}

static void save(tsr_trainer* trainer) {
  char folder[] = "/tmp/tiny_training.XXXXXX", command[64];
  if (mkdtemp(folder) == NULL) exit(1);
  tsr_work* saving = NULL;
  check(tsr_checkpoint_begin(trainer, folder, &saving));
  step_through(saving);
  check(tsr_checkpoint_finish(saving));
  tsr_work_free(saving);
  snprintf(command, sizeof command, "rm -r %s", folder);
  if (system(command) != 0) exit(1);
}

static void train(tsr_runtime* runtime, tsr_model* model, const tsr_tokenizer* tokenizer) {
  char text[4000];
  for (size_t i = 0; i < sizeof text; ++i) text[i] = "abcdefg hij klmn"[(i * i + i / 7) % 16];
  tsr_options* options = new_options();
  tsr_dataset* dataset = NULL;
  check(tsr_options_set_i64(options, "seq", 16));
  tsr_work* reading = NULL;
  check(tsr_dataset_begin_text(runtime, text, sizeof text, tokenizer, options, &reading));
  step_through(reading);
  check(tsr_dataset_finish(reading, &dataset));
  tsr_work_free(reading);
  tsr_options_free(options);

  options = new_options();
  tsr_trainer* trainer = NULL;
  check(tsr_options_set_str(options, "devices", "cpu:4"));
  check(tsr_options_set_str(options, "parallel", "dp=2,tp=2,zero=1"));
  check(tsr_options_set_i64(options, "batch", 4));
  check(tsr_trainer_new(runtime, model, dataset, options, &trainer));
  plan(runtime, model);
  tsr_options_free(options);
  tsr_step step;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  for (int i = 0; i < 4; ++i) {
    check(tsr_trainer_step(trainer, &step));
    printf("step %lld loss %.6f\n", (long long)step.step, step.loss);
  }
  save(trainer);
  check(tsr_trainer_store(trainer, model));
  tsr_trainer_free(trainer);
  tsr_dataset_free(dataset);
}

static void generate(tsr_runtime* runtime, tsr_model* model) {
  tsr_options* options = new_options();
  tsr_generator* generator = NULL;
  check(tsr_options_set_str(options, "devices", "cpu:2"));
  check(tsr_options_set_str(options, "parallel", "tp=2"));
  check(tsr_options_set_i64(options, "max_tokens", 6));
  check(tsr_generator_new(runtime, model, options, &generator));
  tsr_options_free(options);
  check(tsr_generator_start(generator, "abc", 3));
  tsr_piece piece;
  memset(&piece, 0, sizeof piece);
  piece.struct_size = sizeof piece;
  do check(tsr_generator_next(generator, -1, &piece));
  while (piece.kind != TSR_END);
  tsr_generator_free(generator);
}

enum { kClients = 3, kRequests = 6 };

/* Requests of one thread, some of which it cancels. */
static void* submit(void* context) {
  tsr_engine* engine = context;
  tsr_options* options = new_options();
  check(tsr_options_set_i64(options, "max_tokens", 8));
  check(tsr_options_set_i64(options, "logprobs", 2));
  for (int i = 0; i < kRequests; ++i) {
    int64_t request = -1;
    if (i == 3) check(tsr_options_set_str(options, "regex", "[a-f]{1,9}"));
    check(tsr_engine_submit(engine, options, "abc", 3, &request));
    if (i % 3 == 2) tsr_engine_cancel(engine, request);
    tsr_text* report = NULL;
    check(tsr_engine_report(engine, &report));
    tsr_text_free(report);
  }
  tsr_options_free(options);
  return NULL;
}

static void serve(tsr_runtime* runtime, tsr_model* model, const char* parallel, int64_t cache_tokens) {
  tsr_options* options = new_options();
  tsr_engine* engine = NULL;
  check(tsr_options_set_str(options, "devices", "cpu:2"));
  check(tsr_options_set_str(options, "parallel", parallel));
  check(tsr_options_set_str(options, "speculation", "ngram"));
  check(tsr_options_set_i64(options, "sequences", 4));
  check(tsr_options_set_i64(options, "cache_tokens", cache_tokens));
  check(tsr_engine_new(runtime, model, options, &engine));
  tsr_options_free(options);
  int32_t descriptor = -1;
  check(tsr_engine_descriptor(engine, &descriptor));
  pthread_t clients[kClients];
  for (int i = 0; i < kClients; ++i)
    if (pthread_create(&clients[i], NULL, submit, engine) != 0) exit(1);
  tsr_event event;
  memset(&event, 0, sizeof event);
  event.struct_size = sizeof event;
  for (int ended = 0; ended < kClients * kRequests; ended += event.kind == TSR_EVENT_END)
    check(tsr_engine_next(engine, 10, &event));
  for (int i = 0; i < kClients; ++i) pthread_join(clients[i], NULL);
  submit(engine);
  tsr_engine_free(engine); /* while it works */
}

int main(void) {
  tsr_options* options = new_options();
  tsr_runtime* runtime = NULL;
  tsr_model* model = NULL;
  tsr_tokenizer* tokenizer = NULL;
  check(tsr_options_set_i64(options, "threads", 2));
  check(tsr_runtime_new(options, &runtime));
  tsr_options_free(options);
  check(tsr_model_new("llama:L=2,C=16,H=4,KV=2,F=32,V=256,T=32", NULL, &model));
  check(tsr_tokenizer_new_bytes(&tokenizer));
  check(tsr_model_set_tokenizer(model, tokenizer));
  train(runtime, model, tokenizer);
  generate(runtime, model);
  serve(runtime, model, "tp=2", 128); /* two pages: requests give way to one another */
  serve(runtime, model, "dp=2", 128); /* replicas with a page each: one takes over what waits for the other */
  tsr_tokenizer_free(tokenizer);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  puts("tiny_training: done");
  return 0;
}
