/* Writes a model's file (GGUF or .tsr) as a .tsr file, a slice of a tensor at a time, and shows how far it is.
 *
 *   convert IN OUT [TYPE]        e.g.  convert stories260K.gguf stories.tsr
 *                                      convert model.gguf small.tsr q4_k_m    (quantised: types are in tsr_conversion_begin)
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

static volatile sig_atomic_t interrupted = 0;

static void interrupt(int number) {
  (void)number;
  interrupted = 1;
}

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: %s IN OUT [TYPE]\n", argv[0]);
    return 2;
  }
  check(tsr_version_check(TSR_VERSION));
  signal(SIGINT, interrupt);

  tsr_options* options = NULL;
  check(tsr_options_new(&options));
  if (argc == 4) check(tsr_options_set_str(options, "type", argv[3]));
  tsr_work* work = NULL;
  check(tsr_conversion_begin(NULL, argv[1], argv[2], options, &work));
  tsr_options_free(options);
  for (int32_t done = 0; !done && !interrupted;) {
    tsr_progress progress = {.struct_size = sizeof progress};
    check(tsr_work_step(work, &done));
    check(tsr_work_progress(work, &progress));
    fprintf(stderr, "\r%3.0f %% %-8s", 100 * progress.fraction, progress.label);
  }
  fputc('\n', stderr);
  tsr_text* report = NULL;
  if (!interrupted) check(tsr_conversion_finish(work, &report));
  printf("%s\n", interrupted ? "given up" : tsr_text_data(report));

  tsr_text_free(report);
  tsr_work_free(work); /* before finish: nothing was written */
  return interrupted ? 130 : 0;
}
