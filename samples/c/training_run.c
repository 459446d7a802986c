/* Trains a model as `tessera train` does: evaluations, the best checkpoint, early stopping, samples, a page of the run. Run
 * again after a kill it goes on from its last checkpoint.
 *
 *   training_run MODEL DATA OUT [STEPS]        e.g.  training_run small.tsr notes.txt tuned.tsr 60
 */
#define TSR_UNSTABLE_API /* training runs */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "usage: %s MODEL DATA OUT [STEPS]\n", argv[0]), 2;
  const char* out = argv[3];
  char page[4096], folder[4096], outcome[64] = "";
  snprintf(page, sizeof page, "%s.html", out);
  tsr_runtime* runtime;
  tsr_model* model;
  tsr_tokenizer* tokenizer;
  tsr_dataset* dataset;
  tsr_trainer* trainer;
  tsr_run* run;
  tsr_options *of_data, *of_trainer, *of_run;
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_model_tokenizer(model, &tokenizer));
  check(tsr_options_new(&of_data)), check(tsr_options_new(&of_trainer)), check(tsr_options_new(&of_run));
  check(tsr_options_set_i64(of_data, "seq", 32)), check(tsr_options_set_f64(of_data, "eval_fraction", 0.1));
  check(tsr_dataset_new_file(argv[2], tokenizer, of_data, &dataset));
  check(tsr_options_set_i64(of_trainer, "steps", argc > 4 ? strtoll(argv[4], NULL, 10) : 60));
  check(tsr_options_set_i64(of_trainer, "batch", 8)), check(tsr_options_set_f64(of_trainer, "lr", 1e-3));
  check(tsr_trainer_new(runtime, model, dataset, of_trainer, &trainer));

  check(tsr_options_set_str(of_run, "out", out)), check(tsr_options_set_str(of_run, "report", page));
  check(tsr_options_set_i64(of_run, "eval_every", 10)), check(tsr_options_set_i64(of_run, "keep_best", 1));
  check(tsr_options_set_i64(of_run, "patience", 3)), check(tsr_options_set_i64(of_run, "keep", 2));
  check(tsr_options_set_str(of_run, "samples", "Once upon a time"));
  tsr_status* absent = tsr_run_resumed_folder(out, folder, sizeof folder, &(size_t){0});
  if (absent == NULL) check(tsr_options_set_str(of_run, "resume", folder));
  tsr_status_free(absent);
  check(tsr_run_new(trainer, of_run, &run));

  tsr_run_event event = {.struct_size = sizeof event, .kind = TSR_RUN_STEP};
  while (event.kind != TSR_RUN_END) {
    check(tsr_run_next(run, &event));
    if (event.kind == TSR_RUN_STEP) printf("step %lld loss %.9g\n", (long long)event.step, event.loss);
    else if (event.kind == TSR_RUN_EVALUATION) printf("eval_loss %.9g\n", event.loss);
    else if (event.kind != TSR_RUN_END) puts(event.details);
  }
  sscanf(event.details, "{\"outcome\":\"%63[^\"]", outcome);
  puts(outcome);
  tsr_run_free(run), tsr_trainer_free(trainer), tsr_dataset_free(dataset), tsr_tokenizer_free(tokenizer);
  tsr_model_free(model), tsr_runtime_free(runtime);
  tsr_options_free(of_data), tsr_options_free(of_trainer), tsr_options_free(of_run);
}
