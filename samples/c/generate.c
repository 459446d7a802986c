/* Continues a prompt, printing the text as it comes.
 *
 *   generate MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]        e.g.  generate tuned.tsr "Once upon" 50 cpu:2 0.8
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]\n", argv[0]);
    return 2;
  }
  check(tsr_version_check(TSR_VERSION));

  tsr_runtime* runtime = NULL;
  tsr_model* model = NULL;
  tsr_options* options = NULL;
  tsr_generator* generator = NULL;

  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_options_new(&options));
  check(tsr_options_set_i64(options, "max_tokens", argc > 3 ? strtoll(argv[3], NULL, 10) : 100));
  check(tsr_options_set_str(options, "devices", argc > 4 ? argv[4] : "cpu:1"));
  check(tsr_options_set_f64(options, "temperature", argc > 5 ? strtod(argv[5], NULL) : 0));
  check(tsr_generator_new(runtime, model, options, &generator));

  /* The generator computes on a thread of its own; a program with an event loop would poll with timeout 0. */
  check(tsr_generator_start(generator, argv[2], TSR_TEXT_END));
  fputs(argv[2], stdout);
  for (;;) {
    tsr_piece piece = {.struct_size = sizeof piece};
    check(tsr_generator_next(generator, 0.1, &piece));
    if (piece.kind == TSR_END) break;
    if (piece.kind == TSR_PENDING) continue;
    fwrite(piece.text, 1, piece.text_size, stdout);
    fflush(stdout);
  }
  putchar('\n');

  tsr_generator_free(generator);
  tsr_options_free(options);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return 0;
}
