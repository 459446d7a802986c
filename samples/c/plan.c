/* Shows how a model would be trained on some devices, before anything large is allocated: the plan, the seconds of a step,
 * the bytes of each device, and what else was considered.
 *
 *   plan MODEL DEVICES [BATCH]        e.g.  plan small.tsr cpu:4 8
 */
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

/* Reports are well-formed JSON on one line. These few lines find their way in it; a larger program has a library. */

/* The comma or bracket behind a value, or behind a key with its value. */
static const char* skip(const char* at) {
  int depth = 0;
  do {
    if (*at == '"')
      for (++at; *at != '"'; ++at) at += *at == '\\';
    depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    ++at;
  } while (depth > 0 || (*at != ',' && *at != '}' && *at != ']'));
  return at;
}

/* The value of a key of an object. */
static const char* member(const char* object, const char* key) {
  const size_t size = strlen(key);
  for (const char* at = object + 1; *at == '"'; at = skip(at), at += *at == ',')
    if (strncmp(at + 1, key, size) == 0 && at[1 + size] == '"') return at + size + 3;
  fprintf(stderr, "the report has no %s\n", key);
  exit(1);
}

/* Items of an array, one after another: the first of item NULL; NULL behind the last. */
static const char* next_item(const char* array, const char* item) {
  const char* at = item == NULL ? array : skip(item);
  return at[0] == ']' || at[1] == ']' ? NULL : at + 1;
}

static int is_empty(const char* text) { return text[1] == '"'; }

static void print_text(const char* before, const char* text) {
  fputs(before, stdout);
  for (++text; *text != '"'; ++text) putchar(*text == '\\' ? *++text : *text);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL DEVICES [BATCH]\n", argv[0]);
    return 2;
  }
  check(tsr_version_check(TSR_VERSION));

  tsr_runtime* runtime = NULL;
  tsr_model* model = NULL;
  tsr_options* options = NULL;
  tsr_plan* plan = NULL;
  tsr_text* report = NULL;

  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_options_new(&options));
  check(tsr_options_set_str(options, "devices", argv[2]));
  check(tsr_options_set_i64(options, "batch", argc > 3 ? strtoll(argv[3], NULL, 10) : 8));
  check(tsr_plan_new(runtime, model, options, &plan));
  check(tsr_plan_info(plan, &report));

  const char* info = tsr_text_data(report);
  const char* mesh = member(info, "mesh");
  print_text("strategy ", member(info, "strategy"));
  print_text("\nmesh ", is_empty(mesh) ? "\"none\"" : mesh);
  printf("\nstep %.6f s\n", strtod(member(info, "predicted_step_seconds"), NULL));
  const char* devices = member(info, "devices");
  for (const char* device = NULL; (device = next_item(devices, device)) != NULL;) {
    print_text("device ", member(device, "name"));
    printf(" %lld bytes\n", strtoll(member(member(device, "arena_bytes"), "predicted"), NULL, 10));
  }
  const char* candidates = member(info, "candidates");
  for (const char* candidate = NULL; (candidate = next_item(candidates, candidate)) != NULL;) {
    print_text("candidate ", member(candidate, "strategy"));
    const char* rejected = member(candidate, "rejected");
    if (is_empty(rejected))
      printf(" %.6f s %lld bytes", strtod(member(candidate, "step_seconds"), NULL),
             strtoll(member(candidate, "arena_bytes"), NULL, 10));
    else
      print_text(" rejected: ", rejected);
    putchar('\n');
  }

  tsr_text_free(report);
  tsr_plan_free(plan);
  tsr_options_free(options);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return 0;
}
