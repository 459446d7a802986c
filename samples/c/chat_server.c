/* The core of a chat server for many users, without sockets: lines "USER text" on standard input, answers "USER: text" on
 * standard output, of all users at once. "USER /stop" ends the answer in progress. --stream prints pieces as they come.
 *   chat_server [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]       e.g.  chat_server chat.gguf 200 cpu:4 0.7
 */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

typedef struct { char* data; size_t size; } buffer;
typedef struct {
  char name[64];
  buffer history, answer, waiting; /* messages: JSON without the last bracket; the text so far; lines not yet submitted */
  size_t answered;                 /* bytes of the history up to the last answer */
  int64_t request;                 /* in progress, or -1 */
} user;

static tsr_engine* engine;
static tsr_options* per_request;
static user users[1000];
static int user_count, in_progress, is_streaming;

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  exit(1);
}

static void append(buffer* out, const char* text, size_t size) {
  if ((out->data = realloc(out->data, out->size + size + 1)) == NULL) exit(1);
  if (size > 0) memcpy(out->data + out->size, text, size);
  out->data[out->size += size] = 0;
}

static void append_message(buffer* history, const char* role, const char* text, size_t size) {
  char part[64];
  append(history, part, snprintf(part, sizeof part, "%c{\"role\":\"%s\",\"content\":\"", history->size > 0 ? ',' : '[', role));
  for (size_t i = 0; i < size; ++i) {
    const unsigned char c = (unsigned char)text[i];
    append(history, part, snprintf(part, sizeof part, c == '"' || c == '\\' ? "\\%c" : c < 0x20 ? "\\u%04x" : "%c", c));
  }
  append(history, "\"}", 2);
}

/* Prints a line for a user, control characters as spaces. */
static void say(const user* to, const char* text, size_t size) {
  printf("%s: ", to->name);
  for (size_t i = 0; i < size; ++i) putchar((unsigned char)text[i] < 0x20 ? ' ' : text[i]);
  putchar('\n');
  fflush(stdout);
}

/* Submits the next line that waits, unless an answer is in progress. What is wrong with it is this user's matter alone. */
static void submit_waiting(user* who) {
  while (who->request < 0 && who->waiting.size > 0) {
    const size_t size = strcspn(who->waiting.data, "\n");
    append_message(&who->history, "user", who->waiting.data, size);
    append(&who->history, "]", 1);
    memmove(who->waiting.data, who->waiting.data + size + 1, who->waiting.size -= size);
    --who->waiting.size;
    tsr_status* status = tsr_engine_submit_messages(engine, per_request, who->history.data, who->history.size--, &who->request);
    in_progress += status == NULL;
    if (status == NULL) return;
    say(who, tsr_status_message(status), strlen(tsr_status_message(status)));
    tsr_status_free(status);
    who->history.size = who->answered;
  }
}

static void take_line(const char* line) {
  char name[64];
  int size = 0;
  if (sscanf(line, "%63s %n", name, &size) < 1) return;
  user* from = users;
  while (from < users + user_count && strcmp(from->name, name) != 0) ++from;
  if (from == users + user_count) {
    if (user_count++ == sizeof users / sizeof *users) exit(1);
    *from = (user){.request = -1};
    strcpy(from->name, name);
  }
  if (strncmp(line += size, "/stop", 5) == 0) {
    from->waiting.size = 0;
    tsr_engine_cancel(engine, from->request); /* nothing happens where there is none */
  } else {
    append(&from->waiting, line, strcspn(line, "\n"));
    append(&from->waiting, "\n", 1);
    submit_waiting(from);
  }
}

static void take_event(const tsr_event* event) {
  user* to = users;
  while (to->request != event->request) ++to;
  append(&to->answer, event->text, event->text_size);
  if (is_streaming && event->text_size > 0) say(to, event->text, event->text_size);
  if (event->kind != TSR_EVENT_END) return;
  const int failed = event->finish == TSR_FINISH_FAILED;
  if (failed) to->history.size = to->answered;
  else append_message(&to->history, "assistant", to->answer.data, to->answer.size);
  if (failed) say(to, event->details, event->details_size);
  else if (!is_streaming) say(to, to->answer.data, to->answer.size);
  to->answered = to->history.size;
  --in_progress;
  to->answer.size = 0;
  to->request = -1;
  submit_waiting(to);
}

int main(int argc, char** argv) {
  is_streaming = argc > 1 && strcmp(argv[1], "--stream") == 0;
  argc -= is_streaming, argv += is_streaming;
  if (argc < 2) {
    fprintf(stderr, "usage: %s [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]\n", argv[-is_streaming]);
    return 2;
  }
  tsr_runtime* runtime; tsr_model* model; tsr_options* options;
  check(tsr_version_check(TSR_VERSION));
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_load(argv[1], &model));
  check(tsr_options_new(&options));
  check(tsr_options_new(&per_request));
  check(tsr_options_set_i64(options, "max_tokens", argc > 2 ? strtoll(argv[2], NULL, 10) : 200));
  check(tsr_options_set_str(options, "devices", argc > 3 ? argv[3] : "cpu:1"));
  check(tsr_options_set_f64(options, "temperature", argc > 4 ? strtod(argv[4], NULL) : 0));
  if (argc > 5) check(tsr_options_set_str(per_request, "template", argv[5]));
  check(tsr_engine_new(runtime, model, options, &engine));
  struct pollfd ready[] = {{.fd = 0, .events = POLLIN}, {.events = POLLIN}};
  check(tsr_engine_descriptor(engine, &ready[1].fd));
  setvbuf(stdin, NULL, _IONBF, 0); /* poll does not see what a buffer holds */
  static char* line;
  static size_t capacity;
  while ((ready[0].fd >= 0 || in_progress > 0) && poll(ready, 2, -1) > 0) {
    if (ready[0].revents != 0 && getline(&line, &capacity, stdin) < 0) ready[0].fd = -1; /* what is in progress goes on */
    else if (ready[0].revents != 0) take_line(line);
    for (tsr_event event = {.struct_size = sizeof event}; ready[1].revents != 0;) {
      check(tsr_engine_next(engine, 0, &event));
      if (event.kind == TSR_EVENT_PENDING) break;
      take_event(&event);
    }
  }
  tsr_engine_free(engine);
  tsr_options_free(per_request);
  tsr_options_free(options);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  return 0;
}
