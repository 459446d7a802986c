/* Sequences that are forked, rewound, saved and restored go on; prints the tokens of each, which every language has to repeat.
 *   sequences MODEL FILE        FILE is written */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

static tsr_runtime* runtime;
static tsr_model* model;
static tsr_options *settings, *keep;

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  exit(1);
}

static tsr_engine* new_engine(void) {
  tsr_engine* engine;
  check(tsr_engine_new(runtime, model, settings, &engine));
  return engine;
}

/* Prints and gives the sequence of the text that follows a sequence, which may be NULL, and then these tokens. */
static tsr_sequence* go_on(tsr_engine* engine, const char* name, const tsr_sequence* from, const char* more) {
  int32_t ids[64];
  const size_t count = strlen(more);
  for (size_t i = 0; i < count; ++i) ids[i] = more[i];
  int64_t request;
  if (from == NULL) check(tsr_engine_submit_tokens(engine, keep, ids, count, &request));
  else check(tsr_engine_submit_sequence(engine, keep, from, ids, count, &request));
  tsr_event event = {.struct_size = sizeof event};
  do check(tsr_engine_next(engine, -1, &event));
  while (event.kind != TSR_EVENT_END);
  tsr_sequence* sequence;
  size_t size;
  check(tsr_engine_take_sequence(engine, request, 0, &sequence));
  check(tsr_sequence_tokens(sequence, ids, sizeof ids / sizeof *ids, &size));
  printf("%s:", name);
  for (size_t i = 0; i < size; ++i) printf(" %d", (int)ids[i]);
  printf("\n");
  return sequence;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_options_new(&settings));
  check(tsr_options_set_str(settings, "devices", "cpu:2"));
  check(tsr_options_set_f64(settings, "temperature", 0));
  check(tsr_options_set_i64(settings, "max_tokens", 8));
  check(tsr_options_new(&keep));
  check(tsr_options_set_i64(keep, "keep", 1));
  tsr_engine* engine = new_engine();
  tsr_sequence *fork, *restored, *made[5];
  made[0] = go_on(engine, "first", NULL, "A computer");
  check(tsr_sequence_fork(made[0], &fork));
  check(tsr_sequence_rewind(fork, 12));
  made[1] = go_on(engine, "fork", fork, " x");
  made[2] = go_on(engine, "original", made[0], "");
  check(tsr_engine_save_sequence(engine, made[0], argv[2]));
  tsr_engine_free(engine);
  engine = new_engine();
  check(tsr_engine_restore_sequence(engine, argv[2], &restored));
  made[3] = go_on(engine, "restored", restored, "");
  made[4] = go_on(engine, "elsewhere", fork, " x");
  for (int i = 0; i < 5; ++i) tsr_sequence_free(made[i]);
  tsr_sequence_free(restored);
  tsr_sequence_free(fork);
  tsr_engine_free(engine);
  tsr_options_free(keep);
  tsr_options_free(settings);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return 0;
}
