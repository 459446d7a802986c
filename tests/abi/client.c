/* What programs built with this version's header do, in one: tests/abi/client-*.elf is it, compiled when the ABI was
 * new, and must go on working with every library of the same SONAME. Prints what may not change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

/* A struct whose memory goes on behind it, filled with 1s: the library must write no further than the size says. */
typedef struct guarded_step {
  tsr_step step;
  unsigned char behind[64];
} guarded_step;

int main(void) {
  tsr_runtime* runtime = NULL;
  tsr_options* options = NULL;
  tsr_model* model = NULL;
  tsr_tokenizer* tokenizer = NULL;
  tsr_dataset* dataset = NULL;
  tsr_trainer* trainer = NULL;
  tsr_generator* generator = NULL;
  tsr_text* text = NULL;
  tsr_tensor* tensor = NULL;
  check(tsr_version_check(TSR_VERSION));
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_new("llama:L=1,C=32,H=2,KV=1,F=48,V=256,T=32", NULL, &model));
  check(tsr_tokenizer_new_bytes(&tokenizer));
  check(tsr_model_set_tokenizer(model, tokenizer));

  char words[2048] = "";
  while (strlen(words) + 40 < sizeof words) strcat(words, "the sea comes in and goes out; ");
  check(tsr_options_new(&options));
  check(tsr_options_set_i64(options, "seq", 16));
  check(tsr_dataset_new_text(words, TSR_TEXT_END, tokenizer, options, &dataset));
  tsr_options_free(options);

  check(tsr_options_new(&options));
  check(tsr_options_set_i64(options, "batch", 4));
  check(tsr_options_set_f64(options, "lr", 1e-2));
  check(tsr_options_set_str(options, "devices", "cpu:2"));
  check(tsr_trainer_new(runtime, model, dataset, options, &trainer));
  double first = 0, last = 0;
  for (int i = 0; i < 8; ++i) {
    guarded_step it;
    memset(&it, 1, sizeof it);
    it.step.struct_size = sizeof it.step;
    check(tsr_trainer_step(trainer, &it.step));
    if (i == 0) first = it.step.loss;
    last = it.step.loss;
    if (it.step.step != i + 1 || it.step.struct_size != sizeof it.step) printf("a step's members moved\n");
    for (size_t k = 0; k < sizeof it.behind; ++k)
      if (it.behind[k] != 1) printf("byte %zu behind a step was written\n", k);
  }
  printf("loss %s\n", first > 4 && first < 8 && last < first ? "falls" : "does not fall");
  check(tsr_trainer_store(trainer, model));
  check(tsr_model_read(model, "token_embedding", &tensor));
  printf("%s %s [%lld, %lld]\n", tsr_tensor_name(tensor), tsr_dtype_name(tsr_tensor_dtype(tensor)),
         (long long)tsr_tensor_dims(tensor)[0], (long long)tsr_tensor_dims(tensor)[1]);
  tsr_options_free(options);

  check(tsr_options_new(&options));
  check(tsr_options_set_i64(options, "max_tokens", 5));
  check(tsr_options_set_f64(options, "temperature", 0));
  check(tsr_generator_new(runtime, model, options, &generator));
  check(tsr_generator_start(generator, "the sea", TSR_TEXT_END));
  int pieces = 0, finish = TSR_FINISH_NONE;
  for (;;) {
    tsr_piece piece;
    memset(&piece, 0, sizeof piece);
    piece.struct_size = sizeof piece;
    check(tsr_generator_next(generator, 1, &piece));
    pieces += piece.kind == TSR_PIECE;
    finish = piece.finish;
    if (piece.kind == TSR_END) break;
  }
  printf("%d pieces, finish %d\n", pieces, finish);
  check(tsr_generator_report(generator, &text));
  printf("report %s\n", strstr(tsr_text_data(text), "\"prompt_tokens\"") != NULL ? "whole" : "without prompt_tokens");

  tsr_status* error = tsr_model_load("/nowhere/model.tsr", &model);
  printf("%s\n", tsr_code_name(tsr_status_code(error)));
  tsr_status_free(error);
  tsr_text_free(text);
  tsr_tensor_free(tensor);
  tsr_generator_free(generator);
  tsr_trainer_free(trainer);
  tsr_dataset_free(dataset);
  tsr_tokenizer_free(tokenizer);
  tsr_options_free(options);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return 0;
}
