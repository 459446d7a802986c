#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
  size_t struct_size;
  void* context;
  int64_t size;
  int32_t (*read_at)(void* context, int64_t offset, void* out, size_t bytes);
  void (*release)(void* context);
} reader;

typedef struct {
  size_t struct_size;
  void* context;
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*deallocate)(void* context, void* memory, size_t bytes);
  void (*thread_started)(void* context, const char* role, int32_t number);
  void (*release)(void* context);
} hooks;

typedef struct {
  void* context;
  void (*log)(void* context, int32_t level, const char* text);
  void (*release)(void* context);
} sink;

enum { kThreads = 8 };

static void* run(void* given) {
  const reader* source = given;
  char* bytes = malloc((size_t)source->size);
  intptr_t failures = 0;
  for (int i = 0; i < 200; ++i) failures += source->read_at(source->context, i % source->size, bytes, 1) != 0;
  free(bytes);
  return (void*)failures;
}

static void* release(void* given) {
  const reader* source = given;
  source->release(source->context);
  return NULL;
}

/* The model is one more than how many reads failed. */
void* tsr_model_load_reader(const reader* source, void** out_model) {
  pthread_t threads[kThreads];
  intptr_t failures = 0;
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, run, (void*)source);
  for (int i = 0; i < kThreads; ++i) {
    void* found = NULL;
    pthread_join(threads[i], &found);
    failures += (intptr_t)found;
  }
  pthread_create(&threads[0], NULL, release, (void*)source);
  pthread_join(threads[0], NULL);
  *out_model = (void*)(failures + 1);
  return NULL;
}

/* On kThreads threads at once. */
static void run_all(void* (*body)(void*), void* given) {
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, body, given);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

static void* tell(void* given) {
  const sink* told = given;
  for (int i = 0; i < 200; ++i) told->log(told->context, i % 5, i % 2 ? "a record" : "no UTF-8: \xff");
  return NULL;
}

static void* release_sink(void* given) {
  const sink* told = given;
  told->release(told->context);
  return NULL;
}

void* tsr_runtime_set_log(void* runtime, void (*log)(void*, int32_t, const char*), void (*release_log)(void*), void* context) {
  sink told = {context, log, release_log};
  pthread_t last;
  (void)runtime;
  run_all(tell, &told);
  pthread_create(&last, NULL, release_sink, &told);
  pthread_join(last, NULL);
  return NULL;
}

static void* use_memory(void* given) {
  const hooks* host = given;
  for (int i = 0; i < 200; ++i) {
    void* memory = host->allocate(host->context, 64 + (size_t)i, 64);
    if (memory != NULL) host->deallocate(host->context, memory, 64 + (size_t)i);
  }
  return NULL;
}

static void* start_forever(void* given) {
  const hooks* host = given;
  for (int32_t i = 0;; ++i) host->thread_started(host->context, "forever", i);
  return NULL;
}

/* Threads go on to start when the program ends. */
void* tsr_runtime_new_with_hooks(const void* options, const hooks* given, void** out_runtime) {
  static hooks host;
  pthread_t forever;
  (void)options;
  host = *given;
  run_all(use_memory, &host);
  pthread_create(&forever, NULL, start_forever, &host);
  pthread_detach(forever);
  *out_runtime = &host;
  return NULL;
}
