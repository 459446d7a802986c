/* The public header for SWIG. Each language says what the words of typemaps/arguments.i mean; the idiomatic layer beside
 * it is written by hand. Handles cross as integers and never own anything on this level. */
%module raw
#define TSR_UNSTABLE_API
%{
#define TSR_UNSTABLE_API
#include <tessera/tessera.h>
%}
%include <stdint.i>
%immutable tsr_progress::unit;
%immutable tsr_progress::label;
%immutable tsr_piece::text;
%immutable tsr_event::text;
%immutable tsr_event::details;
%immutable tsr_run_event::details;
#define TSR_API

#ifdef SWIGGO
%include "typemaps/go.i"
#endif
#ifdef SWIGJAVA
%include "typemaps/java.i"
#endif
#ifdef SWIGPYTHON
%include "typemaps/python.i"
#endif
%include "typemaps/arguments.i"

/* Function pointers do not cross: callbacks are a matter of each language's own file. */
%ignore tsr_reader;
%ignore tsr_model_load_reader;
%ignore tsr_model_load_bytes;
%ignore tsr_tensor_borrow;
%ignore tsr_hooks;
%ignore tsr_runtime_new_with_hooks;
%ignore tsr_runtime_set_log;

/* An array whose length is another call's: by number instead, below. */
%ignore tsr_tensor_dims;

/* Of arrays instead of structs, below. */
%ignore tsr_entry;
%ignore tsr_program_new;
%ignore tsr_batch;
%ignore tsr_trainer_forward;
%ignore tsr_trainer_forward_backward;
%ignore tsr_trainer_backward;
%ignore tsr_adapter_trainer_forward;
%ignore tsr_adapter_trainer_forward_backward;
%ignore tsr_adapter_trainer_backward;

%include <tessera/tessera.h>

%{
#include <stdlib.h>
#include <string.h>

static tsr_batch tsr_batch_of(int64_t rows, int64_t seq, const int32_t* tokens, const int32_t* labels,
                              const int32_t* positions, const int32_t* segments, const float* weights,
                              const float* sampler_logprobs, const float* advantages) {
  tsr_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.struct_size = sizeof batch;
  batch.rows = rows;
  batch.seq = seq;
  batch.tokens = tokens;
  batch.labels = labels;
  batch.positions = positions;
  batch.segments = segments;
  batch.weights = weights;
  batch.sampler_logprobs = sampler_logprobs;
  batch.advantages = advantages;
  return batch;
}
%}
%inline %{
/* Sizes of the structs that begin with struct_size. */
static size_t tsr_raw_progress_size(void) { return sizeof(tsr_progress); }
static size_t tsr_raw_step_size(void) { return sizeof(tsr_step); }
static size_t tsr_raw_piece_size(void) { return sizeof(tsr_piece); }
static size_t tsr_raw_event_size(void) { return sizeof(tsr_event); }
static size_t tsr_raw_run_event_size(void) { return sizeof(tsr_run_event); }

/* The extent of a dimension; 0 for one that the tensor has not. */
static int64_t tsr_raw_tensor_dims(const tsr_tensor* tensor, int32_t dimension) {
  return dimension >= 0 && dimension < tsr_tensor_rank(tensor) ? tsr_tensor_dims(tensor)[dimension] : 0;
}
/* Copies bytes of a tensor from `offset` on, as many as the array and the tensor have; how many those were. */
static size_t tsr_raw_tensor_read(const tsr_tensor* tensor, size_t offset, uint8_t* items, size_t capacity) {
  const size_t size = tsr_tensor_bytes(tensor);
  const size_t count = offset >= size ? 0 : capacity < size - offset ? capacity : size - offset;
  if (count > 0) memcpy(items, (const char*)tsr_tensor_data(tensor) + offset, count);
  return count;
}
/* Copies an array into a tensor; 0 where the tensor cannot be written. */
static size_t tsr_raw_tensor_write(tsr_tensor* tensor, size_t offset, const uint8_t* bytes, size_t size) {
  const size_t all = tsr_tensor_bytes(tensor);
  const size_t count = offset >= all ? 0 : size < all - offset ? size : all - offset;
  char* data = (char*)tsr_tensor_writable(tensor);
  if (data == NULL || count == 0) return 0;
  memcpy(data + offset, bytes, count);
  return count;
}

/* tsr_program_new of entries given as arrays: their names, each with a NUL at its end, graphs and plans. The arrays are as
 * long as one another, and as there are names; where they are not there are no entries, which C refuses. */
static tsr_status* tsr_raw_program_new(tsr_devices* devices, const char* text, size_t size, const int64_t* graphs,
                                       size_t graph_count, const int64_t* plans, size_t plan_count,
                                       tsr_program** out_program) {
  size_t names = 0, count = 0, at = 0;
  for (size_t i = 0; i < size; ++i) names += text[i] == 0;
  tsr_entry* entries = (tsr_entry*)calloc(names + 1, sizeof(tsr_entry));
  if (entries != NULL && names == graph_count && names == plan_count) {
    for (; count < names; ++count) {
      entries[count].struct_size = sizeof(tsr_entry);
      entries[count].name = text + at;
      entries[count].graph = (const tsr_graph*)(intptr_t)graphs[count];
      entries[count].plan = (const tsr_plan*)(intptr_t)plans[count];
      at += strlen(text + at) + 1;
    }
  }
  tsr_status* status = tsr_program_new(devices, entries, count, out_program);
  free(entries);
  return status;
}

/* Parts of a training step, of a batch given as arrays. */
static tsr_status* tsr_raw_trainer_forward(tsr_trainer* trainer, int64_t rows, int64_t seq, const int32_t* tokens,
                                           const int32_t* labels, const int32_t* positions, const int32_t* segments,
                                           float* items, size_t capacity, size_t* out_count) {
  const tsr_batch batch = tsr_batch_of(rows, seq, tokens, labels, positions, segments, NULL, NULL, NULL);
  return tsr_trainer_forward(trainer, &batch, items, capacity, out_count);
}
static tsr_status* tsr_raw_trainer_forward_backward(tsr_trainer* trainer, int64_t rows, int64_t seq,
                                                    const int32_t* tokens, const int32_t* labels,
                                                    const int32_t* positions, const int32_t* segments,
                                                    const float* weights, const float* sampler_logprobs,
                                                    const float* advantages, const char* loss,
                                                    const tsr_options* options, double* out_loss, float* items,
                                                    size_t capacity, size_t* out_count) {
  const tsr_batch batch = tsr_batch_of(rows, seq, tokens, labels, positions, segments, weights, sampler_logprobs, advantages);
  return tsr_trainer_forward_backward(trainer, &batch, loss, options, out_loss, items, capacity, out_count);
}
static tsr_status* tsr_raw_trainer_backward(tsr_trainer* trainer, int64_t rows, int64_t seq, const int32_t* tokens,
                                            const int32_t* labels, const int32_t* positions,
                                            const int32_t* segments, const float* items, size_t count) {
  const tsr_batch batch = tsr_batch_of(rows, seq, tokens, labels, positions, segments, NULL, NULL, NULL);
  return tsr_trainer_backward(trainer, &batch, items, count);
}

/* Passes of one adapter of several, likewise. */
static tsr_status* tsr_raw_adapter_trainer_forward(tsr_adapter_trainer* trainer, int64_t adapter, int64_t rows,
                                                   int64_t seq, const int32_t* tokens, const int32_t* labels,
                                                   const int32_t* positions, const int32_t* segments,
                                                   int64_t* out_pass) {
  const tsr_batch batch = tsr_batch_of(rows, seq, tokens, labels, positions, segments, NULL, NULL, NULL);
  return tsr_adapter_trainer_forward(trainer, adapter, &batch, out_pass);
}
static tsr_status* tsr_raw_adapter_trainer_forward_backward(tsr_adapter_trainer* trainer, int64_t adapter, int64_t rows,
                                                            int64_t seq, const int32_t* tokens, const int32_t* labels,
                                                            const int32_t* positions, const int32_t* segments,
                                                            const float* weights, const float* sampler_logprobs,
                                                            const float* advantages, const char* loss,
                                                            const tsr_options* options, int64_t* out_pass) {
  const tsr_batch batch = tsr_batch_of(rows, seq, tokens, labels, positions, segments, weights, sampler_logprobs, advantages);
  return tsr_adapter_trainer_forward_backward(trainer, adapter, &batch, loss, options, out_pass);
}
static tsr_status* tsr_raw_adapter_trainer_backward(tsr_adapter_trainer* trainer, int64_t adapter, int64_t rows,
                                                    int64_t seq, const int32_t* tokens, const int32_t* labels,
                                                    const int32_t* positions, const int32_t* segments,
                                                    const float* items, size_t count, int64_t* out_pass) {
  const tsr_batch batch = tsr_batch_of(rows, seq, tokens, labels, positions, segments, NULL, NULL, NULL);
  return tsr_adapter_trainer_backward(trainer, adapter, &batch, items, count, out_pass);
}
%}

#ifdef SWIGJAVA
%include "typemaps/java_functions.i"
%include "typemaps/java_hooks.i"
#endif
#ifdef SWIGPYTHON
%include "typemaps/python_memory.i"
%include "typemaps/python_callbacks.i"
#endif
