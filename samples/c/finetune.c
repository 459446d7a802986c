/* Fine-tunes a model on a text file, on all devices named, and saves it.
 *
 *   finetune MODEL TEXT OUT [DEVICES [STEPS]]        e.g.  finetune small.tsr notes.txt tuned.tsr cpu:4 100
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

/* Prints the error and ends the program: fine in a sample's main, the library itself never does that. */
static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

/* Text out: it is ours, and freed like any handle. */
static void print_plan(const tsr_plan* plan) {
  tsr_text* json = NULL;
  check(tsr_plan_info(plan, &json));
  printf("plan %s\n", tsr_text_data(json));
  tsr_text_free(json);
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s MODEL TEXT OUT [DEVICES [STEPS]]\n", argv[0]);
    return 2;
  }
  const int64_t steps = argc > 5 ? strtoll(argv[5], NULL, 10) : 20;
  check(tsr_version_check(TSR_VERSION));

  tsr_runtime* runtime = NULL;
  tsr_model* model = NULL;
  tsr_tokenizer* tokenizer = NULL;
  tsr_dataset* dataset = NULL;
  tsr_trainer* trainer = NULL;
  tsr_plan* plan = NULL;
  tsr_options* data_options = NULL;
  tsr_options* options = NULL;

  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_model_tokenizer(model, &tokenizer));

  check(tsr_options_new(&data_options));
  check(tsr_options_set_i64(data_options, "seq", 32));
  check(tsr_options_set_f64(data_options, "eval_fraction", 0.05));
  check(tsr_dataset_new_file(argv[2], tokenizer, data_options, &dataset));

  check(tsr_options_new(&options));
  check(tsr_options_set_str(options, "devices", argc > 4 ? argv[4] : "cpu:2"));
  check(tsr_options_set_i64(options, "batch", 8));
  check(tsr_options_set_i64(options, "steps", steps));
  check(tsr_options_set_f64(options, "lr", 3e-3));
  check(tsr_options_set_str(options, "schedule", "cosine"));
  check(tsr_options_set_i64(options, "eval_batches", 4));
  check(tsr_trainer_new(runtime, model, dataset, options, &trainer));
  check(tsr_trainer_plan(trainer, &plan));
  print_plan(plan);

  for (int64_t i = 0; i < steps; ++i) {
    tsr_step step = {.struct_size = sizeof step};
    check(tsr_trainer_step(trainer, &step));
    printf("step %" PRId64 " loss %.9g\n", step.step, step.loss);
  }
  double loss = 0;
  check(tsr_trainer_evaluate(trainer, &loss));
  printf("eval_loss %.9g\n", loss);
  check(tsr_trainer_store(trainer, model));
  check(tsr_model_save(model, argv[3], NULL));

  /* Any order will do. */
  tsr_runtime_free(runtime);
  tsr_model_free(model);
  tsr_tokenizer_free(tokenizer);
  tsr_dataset_free(dataset);
  tsr_options_free(data_options);
  tsr_options_free(options);
  tsr_plan_free(plan);
  tsr_trainer_free(trainer);
  return 0;
}
