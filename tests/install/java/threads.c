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
  enum { kThreads = 8 };
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
