/* Ranks answers to a prompt by how likely a model finds them, as tests of multiple choice do.
 *
 *   score MODEL PROMPT ANSWER...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

static void check(tsr_status* error) {
  if (!error) return;
  fprintf(stderr, "%s\n", tsr_status_message(error));
  exit(1);
}

/* Token ids of prompt + answer into ids, which has room for `room`. */
static size_t encode(const tsr_tokenizer* tokenizer, const char* prompt, const char* answer, int32_t* ids,
                     size_t room) {
  const size_t size = strlen(prompt) + strlen(answer);
  char* text = malloc(size + 1);
  size_t count = 0;
  snprintf(text, size + 1, "%s%s", prompt, answer);
  check(tsr_tokenizer_encode(tokenizer, text, size, 0, ids, room, &count));
  free(text);
  if (count <= room) return count;
  fprintf(stderr, "a text has %zu tokens, this sample has room for %zu\n", count, room);
  exit(1);
}

enum { kRoom = 1 << 16, kMostAnswers = 100 };

int main(int argc, char** argv) {
  static int32_t ids[kRoom];
  static float logprobs[kRoom];
  size_t lengths[kMostAnswers], count = 0, before;
  if (argc < 4 || argc - 3 > kMostAnswers) {
    fprintf(stderr, "usage: %s MODEL PROMPT ANSWER...\n", argv[0]);
    return 2;
  }
  const int answers = argc - 3;

  tsr_runtime* runtime;
  tsr_model* model;
  tsr_tokenizer* tokenizer;
  tsr_options* options;
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_model_tokenizer(model, &tokenizer));
  before = encode(tokenizer, argv[2], "", ids, kRoom);
  for (int i = 0; i < answers; ++i) {
    lengths[i] = encode(tokenizer, argv[2], argv[3 + i], ids + count, kRoom - count);
    count += lengths[i];
  }

  /* To score many batches, make a scorer once: tsr_scorer_new, tsr_scorer_score. */
  check(tsr_options_new(&options));
  check(tsr_options_set_str(options, "bos", "auto"));
  check(tsr_options_set_i64(options, "batch", answers));
  check(tsr_model_score(runtime, model, options, ids, count, lengths, (size_t)answers, logprobs, NULL));

  const float* text = logprobs;
  for (int i = 0; i < answers; text += lengths[i++]) {
    double sum = 0;
    for (size_t token = before > 0 ? before : 1; token < lengths[i]; ++token) sum += text[token];
    printf("%10.4f  %s\n", sum, argv[3 + i]);
  }

  tsr_options_free(options);
  tsr_tokenizer_free(tokenizer);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return 0;
}
