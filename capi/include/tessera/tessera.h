/* Tessera: train and run models on every device of a machine, from any language that can call C.
 *
 * This header is the manual. It includes <stddef.h> and <stdint.h> alone and compiles as C11 and C++.
 *
 * ## The main job
 *
 *     tsr_runtime_new      threads, plugins, log
 *     tsr_model_load       a .tsr or GGUF file, or a Hugging Face folder; tsr_model_new makes one from a description such as
 *                          "llama:L=2,C=64,..."
 *     tsr_dataset_*        texts, conversations or token ids
 *     tsr_trainer_new      plans the use of all devices (or follows a given plan); reports each device's bytes
 *     tsr_trainer_step     one optimizer step; call it in a loop
 *     tsr_trainer_store    trained values back into a model; tsr_model_save writes it
 *     tsr_generator_*      generates tokens, streamed
 *     tsr_engine_*         many requests at once, their events in one queue
 *     tsr_chat_*           renders conversations as text and tokens in the model's training format
 *     tsr_scorer_*         log probabilities of given tokens: perplexity, multiple choice
 *     tsr_embedder_*       vectors of texts, and their classes by a classifier
 *
 * Below it lies the low level: graph (builder) -> plan -> program -> session.
 *
 * ## Contents
 *
 * Sections begin with a line of "====", in this order:
 *   version, status, text, options    what a call says, and takes
 *   runtime, work                     threads, plugins, log; long work in steps
 *   devices, calibration              what computes; measured prices
 *   tensor, graph                     values; models of your own
 *   tokenizer, model, chat, dataset   what is read
 *   plan                              how a model is computed, in what time and bytes; absent clusters
 *   program, session                  the low level
 *   trainer, run log, training run    training
 *   adapters side by side             many trainings of adapters in the same batches
 *   generator, engine                 texts; many at once
 *   scorer, embedder                  log probabilities; vectors, classes; importance matrices
 *
 * ## Conventions
 *
 * Names        tsr_<noun>_<verb>. Outputs come last and are named out_*; they are written only on success. A function with
 *              _take_ in its name returns each result once; the result then belongs to the caller.
 * const        A handle is const in calls without a visible effect on it; filling a cache inside is no such effect.
 *              Functions that compute, wait or take are not const.
 * Errors       A function that can fail returns tsr_status*: NULL is success; anything else is an error
 *              object that the caller frees with tsr_status_free. Its message says what was found, what was
 *              wanted and what to do. Nothing here aborts, exits, throws or unwinds into the caller. NULL for
 *              a required pointer is TSR_INVALID_ARGUMENT. A bug in the library is TSR_INTERNAL. Every
 *              function may return these two, TSR_OUT_OF_MEMORY, and in a forked child TSR_FORKED. "Codes:" lists
 *              the codes of its other errors; "Codes: none": there are no others.
 * Ownership    A handle that a function returns is freed by the matching *_free; *_free(NULL) does nothing.
 *              Handles count references inside: a trainer keeps what it needs of its model, dataset and
 *              runtime, so handles may be freed in any order. Pointers returned by accessors (names, data)
 *              live as long as their handle.
 * Threads      One thread at a time may use a handle, different handles are independent. Exceptions:
 *              immutable handles (status, text, tokenizer, chat, dataset, devices, plan, program, calibration)
 *              may be used from any number of threads, and so may models and runtimes, which lock inside.
 *              *_cancel may be called from any thread while another is inside a call on the same handle.
 * fork         Threads do not survive fork(): in the child, every call that would use a runtime's devices
 *              returns TSR_FORKED, and frees do nothing. Make the runtime after forking.
 * Text out     `tsr_text** out_text`: a new text (a report, a trace, a page, decoded tokens). The caller
 *              owns it and frees it with tsr_text_free.
 * Short text   `char* buffer, size_t capacity, size_t* out_size`: a copy of a name, a path, the value of a key or a
 *              log record, cut to the capacity and always NUL-terminated
 *              when capacity > 0; *out_size is the size of the whole text with its NUL. Ask with (NULL, 0),
 *              allocate, ask again.
 * Arrays out   `T* items, size_t capacity, size_t* out_count`: the same, without a terminator.
 * Text in      UTF-8. `const char* text, size_t size`: size in bytes, or TSR_TEXT_END when NUL-terminated.
 * Long work    tsr_<result>_begin returns a tsr_work; tsr_work_step advances it by a short step, until *out_done is 1;
 *              tsr_<result>_finish returns the result, and tsr_work_free cancels it at any moment: section "work".
 * Options      A tsr_options is a set of keyed values. Each function that takes one lists its keys; an
 *              unknown key, or a value of the wrong type, is TSR_INVALID_ARGUMENT and the message names the
 *              nearest known keys. NULL means all defaults. An integer is accepted in place of a real.
 * Structs      Begin with struct_size, which the caller sets to sizeof(the struct); zero the rest. They may grow at
 *              the end, and program and library may be of different versions. A newer library takes members that
 *              the program does not know as 0. An older library refuses inputs whose unknown members are not 0
 *              (TSR_UNSUPPORTED), and leaves the unknown members of outputs as they are.
 * JSON         Reports are JSON objects on one line, UTF-8. Keys are only ever added.
 * Bytes        Counts of bytes are exact; a size in text ("2GiB", "512MiB", "4096") is powers of 1024 for
 *              KiB, MiB, GiB.
 *
 * ## Environment
 *
 * Read once, by tsr_runtime_new, when the option of the same meaning is not given:
 *   TESSERA_THREADS      threads that kernels may use (option "threads")
 *   TESSERA_PLUGIN_PATH  folder of backend plugins (option "plugin_path")
 *   TESSERA_LOG          debug | info | warning | error (option "log_level")
 *   TESSERA_PROFILE      device profile that prices plans: a file, "auto" or "none" (option "profile")
 *   XDG_CACHE_HOME       parent of the cache folder, default HOME/.cache: profiles that are saved without a path, and
 *                        tokens of datasets with the option cache "auto". There is no option of this meaning
 *   TMPDIR               folder of tensors offloaded to files (option "offload_folder")
 *
 * ## Stability
 *
 * Two tiers. Stable: within one SONAME, values of enumerators never change, structs and key sets only grow, and functions
 * are only added. Unstable, may change with any version: declarations that a program sees only if it defines
 * TSR_UNSTABLE_API before it includes this header, and the option keys of sampling.
 * The SONAME contains the major version, before 1.0 the minor one too: see tsr_version_check, docs/reference/stability.md.
 */
/* The layout is by hand. clang-format off */
#ifndef TESSERA_TESSERA_H_
#define TESSERA_TESSERA_H_

#include <stddef.h>
#include <stdint.h>

#define TSR_VERSION_MAJOR 0
#define TSR_VERSION_MINOR 3
#define TSR_VERSION_PATCH 0
#define TSR_VERSION (TSR_VERSION_MAJOR * 10000 + TSR_VERSION_MINOR * 100 + TSR_VERSION_PATCH)

/* The library itself knows both tiers. */
#if defined(TSR_BUILDING_LIBRARY) && !defined(TSR_UNSTABLE_API)
#define TSR_UNSTABLE_API
#endif

#if defined(TSR_BUILDING_LIBRARY) && defined(__GNUC__)
#define TSR_API __attribute__((visibility("default")))
#else
#define TSR_API
#endif

/* Size of a NUL-terminated text. */
#define TSR_TEXT_END ((size_t)-1)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_status tsr_status;
typedef struct tsr_text tsr_text;
typedef struct tsr_options tsr_options;
typedef struct tsr_runtime tsr_runtime;
typedef struct tsr_work tsr_work;
typedef struct tsr_devices tsr_devices;
typedef struct tsr_tensor tsr_tensor;
typedef struct tsr_graph tsr_graph;
typedef struct tsr_tokenizer tsr_tokenizer;
typedef struct tsr_model tsr_model;
typedef struct tsr_chat tsr_chat;
typedef struct tsr_dataset tsr_dataset;
typedef struct tsr_plan tsr_plan;
typedef struct tsr_calibration tsr_calibration;
typedef struct tsr_program tsr_program;
typedef struct tsr_session tsr_session;
typedef struct tsr_trainer tsr_trainer;
typedef struct tsr_adapter_trainer tsr_adapter_trainer;
typedef struct tsr_run_log tsr_run_log;
typedef struct tsr_run tsr_run;
typedef struct tsr_generator tsr_generator;
typedef struct tsr_engine tsr_engine;
typedef struct tsr_sequence tsr_sequence;
typedef struct tsr_request_file tsr_request_file;
typedef struct tsr_scorer tsr_scorer;
typedef struct tsr_embedder tsr_embedder;

/* ================================================================ version */

/* The library's TSR_VERSION: major * 10000 + minor * 100 + patch. */
TSR_API uint32_t tsr_version(void);

/* Checks the header that a program was compiled with against the library that it runs with:
 *   tsr_status* error = tsr_version_check(TSR_VERSION);
 * TSR_UNSUPPORTED when the major versions differ, the library is older, or (before 1.0) the minor versions
 * differ.
 * Codes: TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_version_check(uint32_t header_version);

/* ================================================================ status */

typedef int32_t tsr_code;
enum {
  TSR_OK = 0,
  TSR_INVALID_ARGUMENT = 1,    /* a wrong value of the caller */
  TSR_NOT_FOUND = 2,           /* a file, tensor, op, device, backend does not exist */
  TSR_CORRUPT = 3,             /* a file violates its format */
  TSR_UNSUPPORTED = 4,         /* valid, but beyond this build or backend */
  TSR_OUT_OF_MEMORY = 5,       /* an allocation failed, or a plan cannot fit the memory limit */
  TSR_IO = 6,                  /* the operating system refused a read or a write */
  TSR_CANCELLED = 7,           /* ended by *_cancel */
  TSR_ABORTED = 8,             /* another device failed first */
  TSR_FAILED_PRECONDITION = 9, /* not in this state: nothing fed, not done yet, no tokenizer, made without that option */
  TSR_TIMEOUT = 10,
  TSR_INTERNAL = 11,           /* a bug in Tessera or in a plugin; please report the message */
  TSR_NOT_FINITE = 12,         /* a loss, gradient or result is not finite; no value was changed by it */
  TSR_VALUES_LOST = 13,        /* the values on the devices are lost: resume, restore, or make the object again */
  TSR_BUSY = 14,               /* in use by another thread, handle or process: try again later */
  TSR_EXISTS = 15,             /* existing files would be overwritten: allow it, or name another path */
  TSR_CHANGED = 16,            /* an open file was written to: open it again */
  TSR_FORKED = 17              /* a forked child: make the runtime after forking */
};

/* TSR_OK and "" for NULL. The message lives as long as the status. */
TSR_API tsr_code tsr_status_code(const tsr_status* status);
TSR_API const char* tsr_status_message(const tsr_status* status);

/* A number in the error's message. Returns 1 if the error has it, and writes it to out_value (which may be
 * NULL), else 0. Keys, of TSR_OUT_OF_MEMORY:
 *   needed_bytes          bytes of the plan or tensor
 *   limit_bytes           the exceeded limit
 *   smallest_limit_bytes  the least memory_limit of a device that has a plan
 *   smallest_devices      the fewest devices that have a plan within the given limit */
TSR_API int32_t tsr_status_number(const tsr_status* status, const char* key, int64_t* out_value);
/* The keys of an error's numbers, from 0 on; NULL past the last. They live as long as the status. */
TSR_API const char* tsr_status_number_key(const tsr_status* status, size_t number);
TSR_API void tsr_status_free(tsr_status* status);

/* "invalid_argument" for TSR_INVALID_ARGUMENT; "unknown" for other numbers. */
TSR_API const char* tsr_code_name(tsr_code code);

/* ================================================================ text */

/* A text returned by a call: UTF-8, unless the call says otherwise. Immutable. The data are NUL-terminated and live
 * as long as the text; its size is in bytes, without the NUL. NULL reads as "". */
TSR_API const char* tsr_text_data(const tsr_text* text);
TSR_API size_t tsr_text_size(const tsr_text* text);
TSR_API void tsr_text_free(tsr_text* text);

/* ================================================================ options */

/* Keyed values. A set may be used for any number of calls, and changed or freed between them. Setting a key
 * again replaces its value. Keys are checked by the function that consumes the set.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_options_new(tsr_options** out_options);
TSR_API tsr_status* tsr_options_set_i64(tsr_options* options, const char* key, int64_t value);
TSR_API tsr_status* tsr_options_set_f64(tsr_options* options, const char* key, double value);
TSR_API tsr_status* tsr_options_set_str(tsr_options* options, const char* key, const char* value);
TSR_API tsr_status* tsr_options_set_i64_list(tsr_options* options, const char* key, const int64_t* values,
                                             size_t count);
/* Checks options before models and data are read. consumer: trainer, run (tsr_run_new), plan (tsr_plan_new), generator,
 * engine, scorer, embedder, imatrix, or dataset (tsr_dataset_new_file). TSR_INVALID_ARGUMENT has the message that the
 * consumer's constructor would give; TSR_NOT_FOUND: no such consumer.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_options_check(const tsr_options* options, const char* consumer);
/* A hint for an unknown word, as the end of an error message: for misspellings "did you mean --lr?", for words of other
 * projects (transformers, PEFT, TRL, llama.cpp, vLLM, Ollama, ...) "instead: `tessera chat MODEL`". `known`: the valid words,
 * separated by spaces; hints spell options as `known` does ("lr", "--lr"). kind: "option", or "command" of the program tessera.
 * The text is empty if there is no hint.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_word_hint(const char* kind, const char* word, const char* known, tsr_text** out_text);
TSR_API void tsr_options_free(tsr_options* options);

/* ================================================================ runtime */

/* Backends, the thread pool of their kernels, and the log. Several independent runtimes may exist. May be called from any
 * thread.
 *
 * Options
 *   threads       i64   threads that kernels may use; 0 (default): as many as the process may run on
 *   plugin_path   str   folder of libtessera_<backend>.so; default: next to libtessera, or next to the program
 *                       that it is linked into; never the working directory. A plugin is not loaded if it or its
 *                       folder is writable by others than owner and root: tsr_runtime_backends reports it
 *   profile       str   device profile that prices plans without an option of their own: auto (default): the one in the cache
 *                       folder, if it has one of these devices | a file of tsr_calibration_save | none: built-in
 *                       rates
 *   log_level     str   debug | info | warning (default) | error: the least severity of kept records
 *   log_capacity  i64   records kept before the oldest is dropped (default 1000)
 *   processes     str   "auto" (default): where a launcher (mpirun, srun) started this process as one of several, and the plugin
 *                       libtessera_mpi.so is present, devices are those of all of them, and handles on devices are collective: every
 *                       process makes the same calls in the same order. "none": this process alone
 *   mpi_comm      i64   the program's own communicator, MPI_Comm_c2f, in place of MPI_COMM_WORLD; -1 (default): none. MPI has
 *                       the thread level MPI_THREAD_MULTIPLE then, and is finalized after the runtime is freed
 *   process_timeout f64 seconds after which a process that is not heard of is lost, and the others' calls end (default 30; 0: never)
 * TSR_NOT_FOUND: no such profile. An absent plugin is not an error: see tsr_runtime_backends.
 * TSR_FAILED_PRECONDITION: MPI has another thread level, or is finalized. TSR_TIMEOUT: not all processes have started.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION, TSR_TIMEOUT. */
TSR_API tsr_status* tsr_runtime_new(const tsr_options* options, tsr_runtime** out_runtime);

#ifdef TSR_UNSTABLE_API
/* Functions of the program for memory and threads. Each may be NULL; allocate and deallocate are both set or both NULL.
 * Any thread calls them, several at a time; they may not call this library. */
typedef struct tsr_hooks {
  size_t struct_size;
  void* context;
  /* Memory of arenas on CPU devices (huge pages, a NUMA node, an accounted pool), of any content, aligned to `alignment`, a
   * power of two; NULL where there is none, which is TSR_OUT_OF_MEMORY. Weights that handles over a model share, and what
   * a call needs for a moment, are not taken from it. */
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*deallocate)(void* context, void* memory, size_t bytes);
  /* Called first by each computing thread, which it may pin or name. role: "kernels" (number: 1 to threads - 1
   * of the pool), "rank" (the device's number; device 0 computes in the calling thread), "stream" (the device's number),
   * "generator" (0), "engine" (the replica's number), "work" (0: long work that a thread of its own does). */
  void (*thread_started)(void* context, const char* role, int32_t number);
  /* Called last, once: when the runtime and its handles are freed, or when tsr_runtime_new_with_hooks fails. */
  void (*release)(void* context);
} tsr_hooks;

/* tsr_runtime_new with hooks. Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_runtime_new_with_hooks(const tsr_options* options, const tsr_hooks* hooks,
                                               tsr_runtime** out_runtime);
#endif  /* TSR_UNSTABLE_API */

/* The available backends, and the reasons for the absence of others:
 *   {"backends": [{"name": "cpu", "available": true, "reason": "", "device_count": 2147483647,
 *                  "devices": ["..."]},
 *                 {"name": "cuda", "available": false, "reason": "libtessera_cuda.so: not found", ...}]}
 * device_count is 2147483647 for virtual devices, which have no limit.
 * Codes: none. */
TSR_API tsr_status* tsr_runtime_backends(const tsr_runtime* runtime, tsr_text** out_text);

enum { TSR_LOG_DEBUG = 0, TSR_LOG_INFO = 1, TSR_LOG_WARNING = 2, TSR_LOG_ERROR = 3 };

/* Takes the oldest record from the log queue. *out_size is 0 when there is none; a record that does not fit
 * into `capacity` stays queued, with its needed size in *out_size.
 * Codes: none. */
TSR_API tsr_status* tsr_runtime_next_log(tsr_runtime* runtime, int32_t* out_level, char* buffer,
                                         size_t capacity, size_t* out_size);

/* Passes each log record to a function of the caller, in addition to the queue; NULL ends that. `text` is NUL-terminated and
 * valid during the call. The logging thread calls it, one call at a time, and it must return soon; it may
 * not call this function for the same runtime (TSR_BUSY), nor wait for another thread that uses the runtime.
 * Once this returns the previous function is no longer called. release may be NULL; else release(context) is called when `log` is
 * replaced, when the runtime and all its handles are freed, and when this call fails. May be called from any thread.
 * Codes: TSR_BUSY. */
TSR_API tsr_status* tsr_runtime_set_log(tsr_runtime* runtime,
                                        void (*log)(void* context, int32_t level, const char* text),
                                        void (*release)(void* context), void* context);

#ifdef TSR_UNSTABLE_API
/* Shares the runtime's cores between inference (engines, generators, scorers, embedders) and training (trainers, also their
 * evaluations and parts of steps) by turns; options NULL or empty: no turns (the default), all compute at once. It holds from the next turn on,
 * for handles that exist too. Results are the same bits with and without. Devices of their own (GPUs) take no turns.
 *   inference_share   f64   share of the cores' time, 0 to 1, that inference has while both sides have work
 * A turn is a step of an engine or generator, a batch of a scorer or embedder, or a micro-batch of training; the handles of one
 * side compute at once, as without a share. The side behind its share goes next; time that a side has no work for is the other's.
 *   - A step that waits begins at the end of training's present micro-batch at the latest, also where inference is ahead: with 0 it has
 *     one turn between two micro-batches. Where a step takes longer than its share of a micro-batch, inference therefore has more
 *     than its share: a trainer with fewer micro-batches has more.
 *   - Training lets a step go first between two kernels already once inference is 5 ms behind.
 *   - Training waits for a whole step of inference (engines: option step_tokens), with 1 for all steps that follow one another.
 *   - Engines on a trainer's weights compute between the micro-batches of tsr_trainer_step too, and wait for its update alone.
 * A call that waits for its turn ends with TSR_CANCELLED by the *_cancel of its handle. May be called from any thread.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_runtime_set_share(tsr_runtime* runtime, const tsr_options* options);

/* Handles made later with `runtime` take turns with those of `other`: one share for both, which either sets. For programs with
 * a runtime each for serving and for training. Any thread. Codes: none. */
TSR_API tsr_status* tsr_runtime_join_share(tsr_runtime* runtime, const tsr_runtime* other);

/* {"inference_share": null without turns,
 *  "inference": {"turns", "seconds": with the cores, "cpu_seconds": of the process meanwhile, by all threads,
 *                "longest_wait_seconds", "longest_wait_micro_batches": of training, begun or in progress, within one wait},
 *  "training": {"turns", "seconds", "cpu_seconds"}}
 * of turns since the runtime was made; what runs without turns is not counted. Any thread.
 * Codes: none. */
TSR_API tsr_status* tsr_runtime_share(const tsr_runtime* runtime, tsr_text** out_text);

/* The processes that this runtime runs with (option processes): {"process": this one's number, "processes", "host": the number
 * of this machine, "hosts", "host_name": its name | null, "transport": "mpi" | null}. Any thread.
 * Codes: none. */
TSR_API tsr_status* tsr_runtime_world(const tsr_runtime* runtime, tsr_text** out_text);
#endif  /* TSR_UNSTABLE_API */

/* Cancels calls in progress on this runtime that plan, load or measure: they return TSR_CANCELLED within about a tenth of a
 * second, and change nothing. Any thread may call it, and signal handlers. The calls are tsr_plan_new and tsr_plan_*_for_graph, tsr_program_new,
 * tsr_trainer_new, tsr_generator_new, tsr_engine_new, tsr_scorer_new and the steps of scorers, tsr_embedder_new, tsr_embedder_embed
 * and the steps of embedders, tsr_calibration_begin, tsr_imatrix_begin, and tsr_work_step. Later calls are not cancelled. */
TSR_API void tsr_runtime_cancel(tsr_runtime* runtime);
TSR_API void tsr_runtime_free(tsr_runtime* runtime);

/* ================================================================ work */

/* Long work in steps, for programs that show progress or may cancel it. One handle type for all kinds:
 *
 *     tsr_model_begin_load(NULL, path, NULL, &work);
 *     for (int32_t done = 0; !done;) tsr_work_step(work, &done);
 *     tsr_model_finish(work, &model);
 *     tsr_work_free(work);
 *
 *   tsr_model_begin_load                                        loads a model's file            tsr_model_finish
 *   tsr_dataset_begin_file, _begin_text                         reads a dataset                 tsr_dataset_finish
 *   tsr_plan_begin, _begin_for_graph                            plans                           tsr_plan_finish
 *   tsr_trainer_begin                                           makes a trainer                 tsr_trainer_finish
 *   tsr_checkpoint_begin, _begin_snapshot                       saves a checkpoint              tsr_checkpoint_finish
 *   tsr_conversion_begin, _begin_for_model, _begin_for_trainer  writes a model, also quantised  tsr_conversion_finish
 *   tsr_export_begin, _begin_for_model                          writes it for other projects    tsr_export_finish
 *   tsr_imatrix_begin                                           makes an importance matrix      tsr_imatrix_finish
 *   tsr_calibration_begin                                       measures devices                tsr_calibration_finish
 *
 * begin checks arguments, options and paths. A step takes about 50 ms (of a calibration some seconds), and fails with the
 * errors of the call that does all at once (tsr_plan_new for tsr_plan_begin). Planning, reading, making a trainer and
 * saving run in a background thread; their steps wait for it, at most a tenth of a second. finish requires finished work
 * (else TSR_FAILED_PRECONDITION) of its kind (else TSR_INVALID_ARGUMENT), and returns the result once. Freeing the work
 * cancels it: before finish no existing file is changed, and the files written so far are removed. tsr_runtime_cancel makes
 * a step return TSR_CANCELLED. Background work then has ended; other work can go on with the next step.
 *
 * Handles with results between steps, or with further inputs, have steps of their own: runs and engines (events), generators
 * (pieces), files of requests, run logs, scorers and embedders. */

/* *out_done, which may be NULL: 1 when all is done, else 0.
 * Codes: TSR_CANCELLED, TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_IO, TSR_FAILED_PRECONDITION,
 * TSR_TIMEOUT, TSR_ABORTED, TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_BUSY, TSR_EXISTS, TSR_CHANGED. */
TSR_API tsr_status* tsr_work_step(tsr_work* work, int32_t* out_done);

typedef struct tsr_progress {
  size_t struct_size;
  double fraction;     /* estimated share of the work done, from 0 to 1; never falls, and is 1 at the end */
  int64_t done, total; /* counted in `unit`; total 0: not counted */
  const char* unit;    /* "bytes", "windows", "measurements"; "" without a count */
  const char* label;   /* the current part, for people: "checking"; "" at the end */
} tsr_progress;

/* The progress of the work. The texts are valid until the next call with this work. Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_work_progress(const tsr_work* work, tsr_progress* out_progress);
/* Frees the work, and cancels it unless it was finished. Waits for a thread of its own. */
TSR_API void tsr_work_free(tsr_work* work);

/* ================================================================ devices */

/* The devices that a plan is made for and a session runs on; one rank each. Immutable.
 *
 * `text`: "cpu:4" four virtual devices sharing the machine's cores; "cuda" every GPU; "cuda:0,1" those two;
 * "cuda:0,0" two ranks on one GPU. TSR_NOT_FOUND or TSR_UNSUPPORTED with the reason when the backend cannot
 * be used.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_devices_open(tsr_runtime* runtime, const char* text, tsr_devices** out_devices);
TSR_API int32_t tsr_devices_count(const tsr_devices* devices); /* 0 for NULL */

/* {"text": "cpu:4", "devices": [{"name", "kind", "memory_bytes", "matmul_flops_per_s", "memory_bytes_per_s"}],
 *  "shared_cores", "link": {"bytes_per_s", "latency_s"}}
 * Codes: none. */
TSR_API tsr_status* tsr_devices_info(const tsr_devices* devices, tsr_text** out_text);
TSR_API void tsr_devices_free(tsr_devices* devices);

/* ================================================================ calibration */

/* Measures the devices of a backend (matrix products by shape and element type, attention, kernels of
 * training steps, how devices share cores, collectives, messages, copies between tiers) and makes their
 * profile: a JSON file, versioned, with a checksum over its content. Plans priced with it say so ("profile"
 * in tsr_plan_info). Run it on an idle machine: where other processes take more than a tenth of the shared cores
 * meanwhile, the log reports it, and the profile's content has "others_share".
 * With several processes it is collective: the first of each machine measures its devices and has the machine's profile, and of several
 * machines the network between them is measured ("network": bytes a second in one direction, seconds of a message).
 *
 * Options
 *   devices   str   "cpu" (default), "cuda", "cuda:0,1"
 *   seconds   f64   approximate duration (default 60); below 10 fewer shapes are measured
 *
 * Long work: a step makes the next measurement, some seconds; tsr_progress names it in `label`. The result is
 * immutable.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_CANCELLED. */
TSR_API tsr_status* tsr_calibration_begin(tsr_runtime* runtime, const tsr_options* options, tsr_work** out_work);
TSR_API tsr_status* tsr_calibration_finish(tsr_work* work, tsr_calibration** out_calibration);
/* The file's text. Codes: none. */
TSR_API tsr_status* tsr_calibration_text(const tsr_calibration* calibration, tsr_text** out_text);
/* path NULL: <cache folder>/tessera/profile-<backend>.json, where "auto" looks. Codes: TSR_INVALID_ARGUMENT, TSR_IO. */
TSR_API tsr_status* tsr_calibration_save(const tsr_calibration* calibration, const char* path);
/* The path of that file, for path NULL. Codes: none. */
TSR_API tsr_status* tsr_calibration_default_path(const tsr_calibration* calibration, char* buffer,
                                                 size_t capacity, size_t* out_size);
TSR_API void tsr_calibration_free(tsr_calibration* calibration);

/* ================================================================ tensor */

#define TSR_MAX_RANK 6

/* Element types. e4m3 and e5m2 are codes of 8-bit floats, multiplied by a scale; training with
 * precision fp8 produces them by itself. The block types are those of GGUF, bit for bit, and nf4: blocks of consecutive
 * elements of the last dimension, which is a multiple of the block, with their bytes:
 *   32 elements    q4_0 18, q4_1 20, q5_0 22, q5_1 24, q8_0 34, iq4_nl 18, mxfp4 17
 *   256 elements   q2_k 84, q3_k 110, q4_k 144, q5_k 176, q6_k 210, iq1_s 50, iq1_m 56, iq2_xxs 66, iq2_xs 74,
 *                  iq2_s 82, iq3_xxs 98, iq3_s 110, iq4_xs 136, tq1_0 54, tq2_0 66
 *   others         64 nvfp4 36, 128 q1_0 18, 64 q2_0 18, 64 nf4 36
 * nf4 is that of QLoRA: the largest magnitude as f32, then 32 bytes of two codes, the first in the high four bits, each
 * the index of one of 16 values that the magnitude multiplies. */
typedef int32_t tsr_dtype;
enum {
  TSR_F32 = 0,
  TSR_F64 = 1,
  TSR_F16 = 2,
  TSR_BF16 = 3,
  TSR_I32 = 4,
  TSR_I64 = 5,
  TSR_I8 = 6,
  TSR_U8 = 7,
  TSR_Q8_0 = 8,
  TSR_Q4_0 = 9,
  TSR_E4M3 = 10,
  TSR_E5M2 = 11,
  TSR_Q4_1 = 12,
  TSR_Q5_0 = 13,
  TSR_Q5_1 = 14,
  TSR_Q2_K = 15,
  TSR_Q3_K = 16,
  TSR_Q4_K = 17,
  TSR_Q5_K = 18,
  TSR_Q6_K = 19,
  TSR_IQ1_S = 20,
  TSR_IQ1_M = 21,
  TSR_IQ2_XXS = 22,
  TSR_IQ2_XS = 23,
  TSR_IQ2_S = 24,
  TSR_IQ3_XXS = 25,
  TSR_IQ3_S = 26,
  TSR_IQ4_NL = 27,
  TSR_IQ4_XS = 28,
  TSR_TQ1_0 = 29,
  TSR_TQ2_0 = 30,
  TSR_MXFP4 = 31,
  TSR_NVFP4 = 32,
  TSR_Q1_0 = 33,
  TSR_Q2_0 = 34,
  TSR_NF4 = 35
};

/* A whole tensor in host memory, row-major and contiguous. rank 0 is a scalar. */

/* Owned, filled with zeros. dims [rank], each >= 0. Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tensor_new(tsr_dtype dtype, int32_t rank, const int64_t* dims,
                                   tsr_tensor** out_tensor);

/* A view of the caller's memory, without a copy. `bytes` is checked against dtype and dims. The memory must
 * stay valid and unchanged until `release(context)` is called, from any thread, which happens after
 * its last use (also when this call fails), and may itself call this library; with release NULL the
 * memory must outlive the tensor and everything it was written into (models borrow, sessions
 * and trainers copy).
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tensor_borrow(tsr_dtype dtype, int32_t rank, const int64_t* dims, const void* data,
                                      size_t bytes, void (*release)(void* context), void* context,
                                      tsr_tensor** out_tensor);

/* A tensor's type, dims, values and count of bytes. For NULL they are TSR_F32, 0 and NULL. All
 * pointers live as long as the tensor. */
TSR_API tsr_dtype tsr_tensor_dtype(const tsr_tensor* tensor);
TSR_API int32_t tsr_tensor_rank(const tsr_tensor* tensor);
TSR_API const int64_t* tsr_tensor_dims(const tsr_tensor* tensor); /* [rank] */
TSR_API size_t tsr_tensor_bytes(const tsr_tensor* tensor);
TSR_API const void* tsr_tensor_data(const tsr_tensor* tensor);
TSR_API void* tsr_tensor_writable(tsr_tensor* tensor); /* NULL for borrowed and file-backed tensors */
TSR_API const char* tsr_tensor_name(const tsr_tensor* tensor); /* as read or fetched; "" for others */
TSR_API void tsr_tensor_free(tsr_tensor* tensor);

TSR_API const char* tsr_dtype_name(tsr_dtype dtype); /* "f32"; "unknown" for other numbers */

/* ================================================================ graph */

/* A model as a graph of ops (docs/reference/ops.md lists them), built node by node or read from text. Each node is
 * checked when it is added: the message of a wrong shape names both shapes. A value is a tensor of one graph.
 *
 * Extents may be symbols: tsr_graph_symbol returns the extent for dims. "B" is the batch: it is bound to
 * the trainer's "batch" option and divided by data parallelism. "T" is the sequence, bound to "seq". */
typedef uint32_t tsr_value;

/* A graph without nodes. Codes: none. */
TSR_API tsr_status* tsr_graph_new(tsr_graph** out_graph);

/* The text form, exact both ways:
 *   graph {
 *     symbol B
 *     input x: f32[B, 64]
 *     parameter w: f32[64, 10]
 *     y = matmul(x, w) : f32[B, 10]
 *     output logits = y
 *   }
 * TSR_INVALID_ARGUMENT names the line.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_parse(const char* text, size_t size, tsr_graph** out_graph);
TSR_API tsr_status* tsr_graph_print(const tsr_graph* graph, tsr_text** out_text);

/* Declares a symbol, or finds it again. capacity: its largest value, 0 for no limit. *out_extent goes into
 * dims.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_symbol(tsr_graph* graph, const char* name, int64_t capacity,
                                     int64_t* out_extent);

/* Names are not empty and unique in the graph. Dims are copied. Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_input(tsr_graph* graph, const char* name, tsr_dtype dtype, int32_t rank,
                                    const int64_t* dims, tsr_value* out_value);
TSR_API tsr_status* tsr_graph_parameter(tsr_graph* graph, const char* name, tsr_dtype dtype, int32_t rank,
                                        const int64_t* dims, tsr_value* out_value);

/* Adds a node: op by name, inputs [input_count], attributes as options (NULL: all defaults). The results are
 * written to outputs [capacity]; *out_count is the op's number of results (out_count may be NULL). A smaller capacity
 * is no error: tsr_graph_find returns the rest. TSR_NOT_FOUND names the nearest ops;
 * TSR_INVALID_ARGUMENT for shapes, types and attributes.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_graph_node(tsr_graph* graph, const char* op, const tsr_value* inputs,
                                   size_t input_count, const tsr_options* attributes, tsr_value* outputs,
                                   size_t capacity, size_t* out_count);

/* Scope of the nodes added from here on: "block.0.attention". It names nodes in messages, plans and
 * traces.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_scope(tsr_graph* graph, const char* scope);
TSR_API tsr_status* tsr_graph_rename(tsr_graph* graph, tsr_value value, const char* name);

/* A frozen parameter (trainable 0) gets no gradient, no optimizer state and no memory for either.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_set_trainable(tsr_graph* graph, tsr_value parameter, int32_t trainable);

/* Makes a value fetchable under `name`; replaces an output of that name. Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_graph_output(tsr_graph* graph, const char* name, tsr_value value);
TSR_API tsr_status* tsr_graph_find(const tsr_graph* graph, const char* tensor_name, tsr_value* out_value);

/* Type of a value. dims [TSR_MAX_RANK]; symbols are negative, as tsr_graph_symbol returned them. Each output
 * may be NULL.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_type(const tsr_graph* graph, tsr_value value, tsr_dtype* out_dtype,
                                   int32_t* out_rank, int64_t* out_dims);

/* Graph to graph; `graph` stays unchanged.
 *
 * token_loss: adds inputs "labels" i32 [B, T] (-1: ignored) and "loss_scale" f32 [] and the output "loss",
 *             for a graph with the output "logits" [B, T, V].
 * training:   forward with a scalar output "loss" -> the whole step: forward, backward, optimizer. Adds the
 *             inputs "lr" and "step" (f32 [], 1 for the first step) and the outputs "loss" and "grad_norm".
 *             Options: optimizer, beta1, beta2, eps, momentum, decay_rate, clip_threshold, muon_scale, weight_decay,
 *             groups, lora_plus_ratio, clip_norm, loss_scaling, loss_scaling_interval, as for tsr_trainer_new.
 * evaluation: forward with a scalar output "loss" -> that output alone.
 * segments:   adds the input "segments" i32 [B, T]: attention in both directions sees tokens with the same number
 *             alone, which separates padding from text in batches of unequal length. Before the loss and training.
 * decoding:   language model -> one step of its incremental form: N tokens of R sequences, keys and values in pages that
 *             are state, "<scope>.k_pages" and "<scope>.v_pages" [P, S, KV, D]. Options: context (i64, required: tokens
 *             that a sequence may hold), rows (R, default 1), page_size (S, default 64 or what the context needs), pages
 *             (P, default as many as R whole contexts fill), sample (i64, default 1: append sampling). Symbols left: N,
 *             and W, the requested rows of logits.
 *             Inputs i32: "tokens", "row" (of page_table; -1: padding), "positions" and "slot" (where the token's keys and
 *             values go: page * S + place in the page; -1: nowhere), all [B, N] with B = 1; "page_table" [R, M], the pages of each
 *             sequence, M = context / S rounded up; "wanted" [W], positions in the step whose logits are computed (-1:
 *             none). Inputs that the model does not read are left out. Where a context is beyond the switch of its
 *             rotations (rope_switch), R is 1 and there is "rope_row" [1]: 1 for sequences up to it, else 2.
 *             Outputs: "logits" f32 [W, V]. With sample also "token" i32 [W], and inputs "temperature", "top_p" f32 [],
 *             "top_k" i32 [], "seed" i64 [], and "start" and "length" i32 [W], whose sum is the number of tokens before
 *             the one drawn. A sequence continues from what earlier steps left in its pages.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_graph_token_loss(const tsr_graph* graph, tsr_graph** out_graph);
TSR_API tsr_status* tsr_graph_segments(const tsr_graph* graph, tsr_graph** out_graph);
TSR_API tsr_status* tsr_graph_training(const tsr_graph* graph, const tsr_options* options,
                                       tsr_graph** out_graph);
TSR_API tsr_status* tsr_graph_evaluation(const tsr_graph* graph, tsr_graph** out_graph);
#ifdef TSR_UNSTABLE_API
TSR_API tsr_status* tsr_graph_decoding(const tsr_graph* graph, const tsr_options* options,
                                       tsr_graph** out_graph);
#endif  /* TSR_UNSTABLE_API */

/* The operations and bytes of a graph on one device, without running it: JSON {"phases":
 * {"forward", "backward", "update"}, "saved_bytes", "ops": [{"op", "count", ...}], "blocks": [{"block",
 * ...}], "nodes": [...]}. Everywhere: "flops" (a multiply and an add are two), "bytes_read", "bytes_written",
 * "saved_bytes" (results of forward that backward reads), "transient_bytes" (the most that is live at once
 * in addition to those; a sum over no nodes). Options: batch (i64, default 1), symbols ("T=128", every symbol
 * except B), nodes (i64, 1: list every node; default 0).
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_graph_profile(const tsr_graph* graph, const tsr_options* options, tsr_text** out_text);
TSR_API void tsr_graph_free(tsr_graph* graph);

/* ================================================================ tokenizer */

/* Text <-> token ids. Immutable. */

/* 256 tokens, one a byte. Codes: none. */
TSR_API tsr_status* tsr_tokenizer_new_bytes(tsr_tokenizer** out_tokenizer);
/* The tokenizer inside a .tsr or GGUF file (a vocabulary-only GGUF file too), of a Hugging Face folder, or of a .json file
 * in one, used as its tokenizer.json. Of a folder tokenizer.json is read, else tokenizer.model,
 * vocab.json with merges.txt, or vocab.txt; and tokenizer_config.json, generation_config.json and config.json if they
 * exist. TSR_NOT_FOUND when there is none, TSR_CORRUPT, TSR_UNSUPPORTED naming the unknown part.
 * Codes: TSR_NOT_FOUND, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tokenizer_load(const char* path, tsr_tokenizer** out_tokenizer);

enum {
  TSR_ENCODE_SPECIAL = 1, /* recognise control tokens written out in the text, such as <s> */
  TSR_ENCODE_BOS = 2,     /* prepend the beginning-of-sequence token, if there is one */
  TSR_ENCODE_AROUND =
      4 /* add the tokenizer's tokens around texts: BOS and EOS, [CLS] and [SEP], ... */
};
/* The tokens of a text: "Arrays out". Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tokenizer_encode(const tsr_tokenizer* tokenizer, const char* text, size_t size,
                                         uint32_t flags, int32_t* ids, size_t capacity, size_t* out_count);

/* The same. literal [literal_count]: begin and end, two a part, of parts of the text in which no control,
 * user-defined or added token is recognised, whatever they spell, so that a user's text never becomes a control token;
 * in bytes, in order and disjoint. begins [capacity], or NULL: the byte offset of each token.
 * TSR_INVALID_ARGUMENT for ranges out of order or past the text, and where a pattern of the vocabulary takes too many
 * steps on this text.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tokenizer_encode_ranges(const tsr_tokenizer* tokenizer, const char* text, size_t size,
                                                uint32_t flags, const size_t* literal, size_t literal_count,
                                                int32_t* ids, size_t capacity, size_t* begins,
                                                size_t* out_count);

/* Several texts at once: text holds them one after another, lengths [text_count] the bytes of each. ids [capacity]: the ids
 * of all texts, one text after another; counts [text_count], or NULL: each text's number of ids. threads: 0 for one a core.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tokenizer_encode_batch(const tsr_tokenizer* tokenizer, const char* text,
                                               const size_t* lengths, size_t text_count, uint32_t flags,
                                               int32_t threads, int32_t* ids, size_t capacity, size_t* counts,
                                               size_t* out_count);

/* {"tokens": {text: count}, "note": a sentence with the remedy, "" for none}: control tokens written out in a
 * text, for example one that a chat template rendered before. Without TSR_ENCODE_SPECIAL they are encoded as letters.
 * Codes: none. */
TSR_API tsr_status* tsr_tokenizer_written_control(const tsr_tokenizer* tokenizer, const char* text, size_t size,
                                                  tsr_text** out_json);

/* The bytes of ids [count]; control tokens and the space that SentencePiece puts before a text are left out. They are not
 * necessarily whole UTF-8 characters, and a NUL may be among them. A model's tokenizer (tsr_model_tokenizer) decodes ids of
 * table rows without a token as empty text. TSR_INVALID_ARGUMENT for an id out of range.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_tokenizer_decode(const tsr_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                         tsr_text** out_text);
TSR_API int32_t tsr_tokenizer_vocabulary_size(const tsr_tokenizer* tokenizer);
TSR_API int32_t tsr_tokenizer_bos(const tsr_tokenizer* tokenizer); /* -1: none */
TSR_API int32_t tsr_tokenizer_eos(const tsr_tokenizer* tokenizer);
/* Every token that ends generation, ascending: of a text, a turn or a message. EOS is one of them. Codes: none. */
TSR_API tsr_status* tsr_tokenizer_end_ids(const tsr_tokenizer* tokenizer, int32_t* ids, size_t capacity,
                                          size_t* out_count);
TSR_API void tsr_tokenizer_free(tsr_tokenizer* tokenizer);

/* ================================================================ model */

/* A forward graph, named parameter values, a tokenizer and metadata. Any thread; locks inside. Tensor data of
 * a file stays in the file (mapped) until it is used. So a model's file must not be written to while the model
 * exists: replace it by renaming another to it, as tsr_model_save does. If it was written to, functions
 * that use its values fail with TSR_CHANGED; views of tsr_model_read cannot. Graph, tokenizer and
 * metadata are copied while the file is opened, never mapped: a file that is cut shorter meanwhile is TSR_CORRUPT.
 * Values have no such protection: where the file is cut shorter while a call reads them, the system ends the process
 * (SIGBUS). */

/* From a file: .tsr, GGUF or safetensors, recognised by its first bytes, or from a Hugging Face folder (config.json and
 * model.safetensors, or the shards that model.safetensors.index.json names), or any safetensors file
 * in it. Keys that config.json leaves out have the defaults of its model_type's class; a key whose value requests an absent feature
 * is TSR_UNSUPPORTED by its name. A GGUF file must hold all tensors of its model (of one
 * that holds only a vocabulary, use tsr_tokenizer_load), and match the family's architecture:
 * the message names the first key or tensor that differs. Of a model in several GGUF files
 * (PREFIX-00001-of-00003.gguf, as llama.cpp's gguf-split names them) give any one: the others are opened from its
 * folder. A folder of PEFT's adapters opens as its base with them: the base is the one that adapter_config.json names
 * (base_model_name_or_path; of a folder that was written here also by its place relative to the folder), TSR_NOT_FOUND
 * where it names none or the base is absent. TSR_NOT_FOUND (of a missing part too), TSR_IO, TSR_CORRUPT, TSR_INVALID_ARGUMENT
 * where a part has another name, TSR_UNSUPPORTED.
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_CORRUPT, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_model_load(const char* path, tsr_model** out_model);

/* The same as long work. Unpacking, decoding and checking take long: values stored in the model's own form
 * stay in the file. The first step reads the file's tables, the last makes the model; they take as long as tsr_model_load of
 * an uncompressed file. runtime: its tsr_runtime_cancel ends a step; may be NULL.
 * Options
 *   verify   i64   1: every checksum of a .tsr file is checked; for other files TSR_UNSUPPORTED (default 0)
 * begin fails with TSR_NOT_FOUND and TSR_IO, a step as tsr_model_load does.
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_UNSUPPORTED, TSR_CORRUPT. */
TSR_API tsr_status* tsr_model_begin_load(tsr_runtime* runtime, const char* path, const tsr_options* options,
                                         tsr_work** out_work);
TSR_API tsr_status* tsr_model_finish(tsr_work* work, tsr_model** out_model);

/* From memory, which is borrowed: it must stay valid and unchanged until release(context) is called (also
 * when this call fails); release may be NULL, then the memory must outlive the model and everything made from
 * it. A part of a model in several GGUF files is TSR_UNSUPPORTED, here and through a callback: it has no name, by which
 * the others are found.
 * Codes: TSR_CORRUPT, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_model_load_bytes(const void* data, size_t size, void (*release)(void* context),
                                         void* context, tsr_model** out_model);

/* Through a callback, for archives, databases, encrypted stores. read_at fills `out` with `bytes` bytes from
 * `offset` and returns 0, or anything else for failure (TSR_IO); it may be called from several threads, until
 * release. */
typedef struct tsr_reader {
  size_t struct_size;
  void* context;
  int64_t size; /* of the whole file, bytes */
  int32_t (*read_at)(void* context, int64_t offset, void* out, size_t bytes);
  /* May be NULL; called after the last read, also when the load fails.
 * Codes: TSR_IO, TSR_CORRUPT, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED. */
  void (*release)(void* context);
} tsr_reader;
TSR_API tsr_status* tsr_model_load_reader(const tsr_reader* reader, tsr_model** out_model);

/* From a description, without weights: family and sizes,
 *   "gpt2:L=12,C=768,H=12,V=50257,T=1024"    "llama:L=22,C=2048,H=32,KV=4,F=5632,V=32000,T=2048"
 * Parameters are drawn when they are first needed, from `seed` and the parameter's name alone (so not from
 * the layout); planning needs none.
 * Options: seed (i64, default 0).
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_model_new(const char* description, const tsr_options* options, tsr_model** out_model);

/* From a graph of one's own (copied). Options: seed, as above. Parameters named "*.bias" and such start at 0,
 * norm weights at 1, the rest normal with deviation 0.02 or by their fan-in; write others with
 * tsr_model_write.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_model_new_from_graph(const tsr_graph* graph, const tsr_options* options,
                                             tsr_model** out_model);

/* A model with low-rank adapters: beside the product with a weight W, now frozen, one with two small
 * trained matrices, y = x W + alpha/rank * (x A) B. They are parameters like others
 * ("block.0.q.lora_a", "block.0.q.lora_b": saved, planned, sharded) and begin without effect: the new model
 * computes the same as `model`, whose values it shares.
 * Options
 *   rank          i64   columns of A and rows of B (default 16)
 *   alpha         f64   default: the rank
 *   on            str   weights that get adapters (default: all matrices of the blocks that only products read, except
 *                       routers of experts): a comma-separated list of parameters' names, "*" for any characters
 *                       ("block.*.q.weight"); of Hugging Face's modules, whole or the end after a dot ("q_proj",
 *                       "lm_head"); "all-linear", all linear modules except the head; or "re:" and one regular
 *                       expression for whole names of modules.
 *                       The head and tables get adapters only where they are named
 *   exclude       str   weights without adapters, named likewise
 *   layers        str   blocks with adapters, by number: "0,2,5-7" (default: all)
 *   ranks, alphas str   ranks and alphas of single weights, "q_proj=4,block.0.*=2"; the first match counts
 *   rslora        i64   1: the adapters' scale is alpha/sqrt(rank) (default 0: alpha/rank)
 *   dora          i64   1: each output of W' = W + alpha/rank * A B is scaled by m/|W'|, with a trained magnitude m,
 *                       "block.0.q.lora_magnitude", and the norm a constant to gradients (default 0)
 *   init          str   zero (default): A random, B 0 | pissa: A and B start as the principal part of W, its `rank` largest
 *                       singular values, which A0 and B0 subtract again: y = x W + alpha/rank * ((x A) B - (x A0) B0), where A0 and B0
 *                       ("block.0.q.lora_a0") are frozen; so W keeps its type, and the new model computes what `model`
 *                       does. Not with dora, nor for tables
 *   dropout       f64   dropout probability on x, before A, in training (default 0); not with dora, nor for
 *                       tables. The trainer's option dropout overrides it
 *   also          str   other parameters that train, in full: names as for `on`, and modules of norms and biases too
 * TSR_INVALID_ARGUMENT, TSR_NOT_FOUND.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_add_adapters(const tsr_model* model, const tsr_options* options,
                                           tsr_model** out_model);
/* The same with the adapters of another project's file for `model`: a folder that PEFT's save_pretrained wrote
 * (adapter_config.json, adapter_model.safetensors; LoRA), or a GGUF adapter. Ranks and factors are those of the file; parts of a fused
 * tensor share their first matrix; parameters that the file has in full (modules_to_save, biases) replace the model's
 * and are trained too. `model` is of a known family, from whatever file. options may be NULL; there are none yet.
 * docs/guides/adapters.md. TSR_NOT_FOUND; TSR_CORRUPT for tensors that are missing or contradict the configuration;
 * TSR_INVALID_ARGUMENT for an adapter of another model; TSR_UNSUPPORTED names the part without a form here.
 * Codes: TSR_NOT_FOUND, TSR_CORRUPT, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_IO, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_load_adapters(const tsr_model* model, const char* path,
                                            const tsr_options* options, tsr_model** out_model);
#ifdef TSR_UNSTABLE_API
/* `model` made ready for a method of tsr_plan_methods (not "auto") and for tsr_trainer_new: for full another handle over `model`, else
 * a model with adapters. qlora:TYPE quantises the weights in memory, which takes time and the bytes of the quantised weights.
 * adapters: options of tsr_model_add_adapters; NULL for full. `model` stays as it is and may be freed first; the result is
 * freed with tsr_model_free. TSR_INVALID_ARGUMENT, TSR_NOT_FOUND.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_for_method(tsr_model* model, const char* method, const tsr_options* adapters,
                                         tsr_model** out_model);
#endif  /* TSR_UNSTABLE_API */
/* A model without adapters that computes the same as `model`: every W becomes W + alpha/rank * A B (dora: m/|W'| W'), rounded
 * to W's type where it is stored in bf16 or f16; where it is in blocks, or f16 does not hold the sum, f32.
 * TSR_FAILED_PRECONDITION where there are none. TSR_UNSUPPORTED for an adapter's bias where W's product has none.
 * Codes: TSR_FAILED_PRECONDITION, TSR_UNSUPPORTED, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_merge_adapters(const tsr_model* model, tsr_model** out_model);

/* A model with `rows` rows in its token table, and in its head and the head's bias where these are parameters of their own;
 * 0: as many as the table has, or as its tokenizer has tokens where those are more. The first rows keep their bits. New ones
 * are drawn from a normal distribution with the mean of the old rows and 1e-9 of their covariance (a bias: its mean and
 * 1e-9 of its deviation), the distribution of transformers' resize_token_embeddings, by `seed` and not by torch's
 * generator; they have the type of the others. Fewer rows cut the last ones off. `model` stays as it is. Options (NULL: none):
 *   tokens       str   a JSON array of texts: tokens that the tokenizer gets first, with the next ids
 *   special      i64   1 (default): they are control tokens; 0: text, found always
 *   multiple     i64   rows are rounded up to a multiple of this (default 1)
 *   seed         i64   of the new rows (default 0)
 * TSR_INVALID_ARGUMENT for rows below the tokenizer's tokens, and a token that is empty or known; TSR_FAILED_PRECONDITION
 * for a model with adapters, or without a tokenizer where there are tokens; TSR_UNSUPPORTED for a model of no known family.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_UNSUPPORTED, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_resize_tokens(const tsr_model* model, int64_t rows, const tsr_options* options,
                                            tsr_model** out_model);

/* Writes a .tsr file, or where `path` ends in .gguf a GGUF file: to a temporary name, synced, renamed over `path`. Parameters
 * not drawn yet are drawn. Options: compress (i64, default 0; not of GGUF). TSR_IO; TSR_INVALID_ARGUMENT, with the remedy,
 * for the name of another format (.safetensors, .onnx, .bin, .pt ...), and for the file
 * of a model that was made of another one or trained since, unless that file is the result of the run that the model
 * resumed (tsr_trainer_resume); a loaded model may be saved over its own .tsr file. Of GGUF also as tsr_export_begin.
 * Codes: TSR_IO, TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_save(const tsr_model* model, const char* path, const tsr_options* options);
/* Whether tsr_model_save could write `path` now, for a check before hours of work: name, folder and permissions.
 * Files that a killed save of `path` left next to it are removed, as by tsr_model_save. TSR_INVALID_ARGUMENT, TSR_NOT_FOUND,
 * TSR_IO.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO. */
TSR_API tsr_status* tsr_model_check_path(const char* path);

/* Long work: writes a model's file as a .tsr file, or as GGUF where out_path ends in .gguf (then as tsr_export_begin with format
 * gguf), in bounded memory: a slice of a tensor at a time, however large the file is. in_path: .tsr or GGUF, or a Hugging Face
 * folder. The file is the one that tsr_model_load and then tsr_model_save would write, byte for byte, unless `type` quantises it.
 * Before finish nothing is at out_path, or what was there. runtime: its tsr_runtime_cancel ends a step; may be NULL.
 * Options
 *   compress         i64   as for tsr_model_save (default 0)
 *   verify           i64   1: the written file is read again, and every checksum checked (default 1)
 * and, to quantise:
 *   type             str   (in letters of either case) element type of most weights, the others following from it as in llama.cpp: q2_k, q2_k_s,
 *                          q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k, q4_0, q4_1, q5_0, q5_1, q8_0,
 *                          iq4_nl, iq4_xs, tq1_0, tq2_0, mxfp4, nvfp4, nf4, q1_0, q2_0, bf16, f16, f32; q3_k, q4_k and
 *                          q5_k are their _m (default: every value keeps its type)
 *   pure             i64   1: every weight has the type itself (default 0)
 *   output_type      str   of the head, also where it is the token embedding (default: by type)
 *   embedding_type   str   of the token embedding (default: by type)
 *   imatrix          str   file of llama.cpp's llama-imatrix, either form: the importance of each column of a weight
 *   threads          i64   of the encoding; the same bytes for any number (default 0: all cores of this process)
 * Norms, biases and weights that no op reads in fewer bits stay as they are. Where a row is no multiple of a type's block the
 * weight has another type, as in llama.cpp: docs/reference/models.md.
 * begin fails with TSR_NOT_FOUND, TSR_IO, and as tsr_model_check_path does; TSR_INVALID_ARGUMENT where out_path is a source file of
 * the model, or of one that it was made of. A step fails as tsr_model_load and tsr_model_save do (TSR_INVALID_ARGUMENT where out_path is another
 * part of the model read), and with TSR_CHANGED where the file
 * read was written to meanwhile; after a failure to read or write a value begin another conversion.
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_conversion_begin(tsr_runtime* runtime, const char* in_path, const char* out_path,
                                         const tsr_options* options, tsr_work** out_work);
/* The same of a model in memory, which must not be written to until finish: the file that tsr_model_save, with `type`
 * tsr_model_quantize, would write, byte for byte. Parameters not drawn yet are drawn. "in" of the report has the format
 * "memory".
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_conversion_begin_for_model(tsr_runtime* runtime, const tsr_model* model,
                                                   const char* out_path, const tsr_options* options,
                                                   tsr_work** out_work);
/* The same with the trained values: the file that tsr_trainer_save_model would write, byte for byte, or that quantised
 * (with `type`). Steps use the trainer: until the conversion is finished or freed other calls with the trainer are
 * TSR_BUSY.
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT, TSR_BUSY, TSR_VALUES_LOST. */
TSR_API tsr_status* tsr_conversion_begin_for_trainer(tsr_trainer* trainer, const tsr_model* model,
                                                     const char* out_path, const tsr_options* options,
                                                     tsr_work** out_work);
/* Syncs the file and renames it over out_path. out_report may be NULL:
 * {"architecture", "parameters": count of elements, "in": {"format": "tsr" | "gguf", "bytes": of the file (of all
 *  parts of a split model), "stored": [{"type": "q8_0", "tensors", "bytes"}]}, "out": {the same}}; of GGUF also "notes" as an export; with `type` also "quantization": {"type", "bytes_in",
 *  "bytes_out": of all values, "error", "fallbacks": count, "tensors": [{"name", "from": "f32", "to": "q5_0",
 *  "bytes_in", "bytes_out", "error": root mean square of the differences by that of the values read, "weighted":
 *  whether the imatrix has it, and of fallbacks "wanted": "q4_k", "width"}]}
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_conversion_finish(tsr_work* work, tsr_text** out_report);

/* Long work: writes a model for other projects, in bounded memory: a Hugging Face folder
 * (config.json, safetensors, tokenizer) that transformers loads, or a GGUF file that llama.cpp loads. in_path: .tsr, GGUF
 * or a Hugging Face folder. The second form writes a model in memory, such as one just trained, which must not be written
 * to until finish; its parameters that were not drawn yet are drawn.
 * Before finish nothing is at out_path, or what was there. A folder is written
 * where there is none, an empty one, or an earlier export, which it replaces. runtime: whose tsr_runtime_cancel ends a
 * step; may be NULL.
 * Options
 *   format           str   hf, gguf, or of the adapters alone peft: a folder that PEFT loads onto the model without them
 *                          (default: by the name: gguf where out_path ends in .gguf, else hf). A name that says
 *                          another format is refused with the remedy
 *   adapters         i64   gguf: 1: adapters alone, as llama.cpp puts them on the model without them (default 0)
 *   merged           i64   1: hf and gguf: adapters are taken into the weights first (default 0)
 *   type             str   hf: f32, bf16 or f16, of every value (default: matrices as they are, blocks as f16; norms and
 *                          biases as most of the matrices where that holds their values exactly, else f32).
 *                          peft: likewise (default f32).
 *                          gguf: as for tsr_conversion_begin (default: every value keeps its type; norms, biases, routers
 *                          and tables of positions are f32)
 *   tokenizer        i64   0: without tokenizer (default 1)
 *   threads          i64   of the encoding; the same bytes for any number (default 0: all cores of this process)
 *   shard_bytes      i64 or str   hf: bytes of a safetensors file at most (default 5000000000)
 *   pure, output_type, embedding_type, imatrix    gguf: as for tsr_conversion_begin
 * begin fails with TSR_NOT_FOUND, TSR_IO, and as tsr_model_check_path does; TSR_INVALID_ARGUMENT where out_path has other
 * files, or is the path that the model is read from. A step fails with TSR_UNSUPPORTED, which names it, for a part without
 * a form in the other project, with TSR_FAILED_PRECONDITION for a model with adapters (merged,
 * tsr_model_merge_adapters), with peft for one without, with TSR_CHANGED
 * where the file read was written to meanwhile, and as tsr_model_load and tsr_model_save do; after a failure begin
 * another export.
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_export_begin(tsr_runtime* runtime, const char* in_path, const char* out_path,
                                     const tsr_options* options, tsr_work** out_work);
TSR_API tsr_status* tsr_export_begin_for_model(tsr_runtime* runtime, const tsr_model* model,
                                               const char* out_path, const tsr_options* options,
                                               tsr_work** out_work);
/* Renames the written files over out_path. out_report may be NULL:
 * {"architecture", "parameters": count of elements, "in": as tsr_conversion_finish has it, "format", "bytes": of all files, "files": names within a folder,
 *  "stored": [{"type": "bf16", "tensors", "bytes"}], "notes": ["omitted parts, with reasons"], and of a gguf with type
 *  "quantization": as tsr_conversion_finish has it}
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_export_finish(tsr_work* work, tsr_text** out_report);

/* Writes a loaded model as a quantised .tsr file in one call, a parameter at a time; the model stays as it is. Options:
 * those of tsr_conversion_begin; `type` is needed. *out_report: its "quantization"; may be NULL. runtime:
 * its tsr_runtime_cancel ends it; may be NULL. TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED for types that can only
 * be read, TSR_IO, and as a read of the parameters fails; then `path` is as it was.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_IO, TSR_NOT_FOUND, TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_quantize(tsr_runtime* runtime, const tsr_model* model, const char* path,
                                       const tsr_options* options, tsr_text** out_report);

/* Reads a .tsr file through and checks every checksum. TSR_CORRUPT names the tensor.
 * Codes: TSR_NOT_FOUND, TSR_IO, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_model_verify(const char* path);

/* {"architecture", "parameters": count of elements, "parameter_bytes", "tensors": [{"name", "dtype",
 *  "shape"}], "inputs": [...], "outputs": [...], "symbols": [{"name", "capacity"}], "metadata": {...},
 *  "tokenizer": null | {"kind", "vocabulary_size", "bos", "eos"}, "graph_nodes", "ops": [{"op", "count"}], the most
 *  frequent first, "frozen_parameters": count of elements, "draft_parameters": those of "parameters" that only a block
 *  for speculation mtp reads, "file": null | {"format": "tsr" | "gguf" | "huggingface", "stored":
 *  [{"type": "q8_0", "tensors", "bytes"}], "keys_used": {...}, "keys_unused": {...}, "files": count, parts of a
 *  split model, "read": names of the files with its weights, "unread": names of files next to them that hold another copy
 *  of the weights (an index next to a whole model.safetensors)}, "adapters": null | {"rank", "alpha", "on" and so on: options of tsr_model_add_adapters, "bytes",
 *  "weights": [{"weight", "rank", "factor"}]}}
 * keys_used are the entries of a GGUF file's metadata or of config.json that were read, with their values; keys_unused the
 * others. Metadata "description" of a model of one of the families is its shorthand, as for
 * tsr_model_new.
 * Codes: none. */
TSR_API tsr_status* tsr_model_info(const tsr_model* model, tsr_text** out_text);

/* *out_size is 0 when the key is absent. Setting "" removes it. Codes: none. */
TSR_API tsr_status* tsr_model_metadata(const tsr_model* model, const char* key, char* buffer, size_t capacity,
                                       size_t* out_size);
TSR_API tsr_status* tsr_model_set_metadata(tsr_model* model, const char* key, const char* value);

/* Parameters by number, in graph order, 0 .. *out_count - 1. Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_model_parameter_count(const tsr_model* model, size_t* out_count);
TSR_API tsr_status* tsr_model_parameter_name(const tsr_model* model, size_t number, char* buffer,
                                             size_t capacity, size_t* out_size);

/* One parameter's value. read is a view that stays as it was when the model changes. write borrows the
 * tensor's memory; dtype and dims must be the parameter's. TSR_NOT_FOUND names the nearest parameters.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_read(const tsr_model* model, const char* parameter, tsr_tensor** out_tensor);
TSR_API tsr_status* tsr_model_write(tsr_model* model, const char* parameter, const tsr_tensor* value);

/* A copy, without a block that predicts further tokens. Codes: none. */
TSR_API tsr_status* tsr_model_graph(const tsr_model* model, tsr_graph** out_graph);
/* TSR_NOT_FOUND: it has none. Codes: TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_model_tokenizer(const tsr_model* model, tsr_tokenizer** out_tokenizer);
/* NULL removes it. Codes: none. */
TSR_API tsr_status* tsr_model_set_tokenizer(tsr_model* model, const tsr_tokenizer* tokenizer);
TSR_API void tsr_model_free(tsr_model* model);

/* ================================================================ chat */

/* A chat template: turns the messages of a conversation into the text, and the tokens, that a model was trained on.
 * Templates are Jinja as Hugging Face's transformers sets it up, in a sandbox: a template's computation, recursion
 * and memory are bounded, and it reads its inputs alone. Unknown syntax is refused
 * with line and column. Immutable.
 *
 *     tsr_chat_new(model, NULL, &chat);
 *     tsr_options_set_i64(options, "add_generation_prompt", 1);
 *     messages = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
 *     tsr_chat_encode(chat, options, messages, TSR_TEXT_END, ids, 512, NULL, &count);
 *     tsr_generator_start_tokens(generator, ids, count);
 *
 * messages, a JSON array: {"role": "system" | "user" | "assistant" | "tool" | ..., "content": a text, or parts as
 * [{"type": "text", "text"}], and further keys of the template: "tool_calls" [{"type": "function", "function": {"name",
 * "arguments"}}], "tool_call_id", "name", "reasoning_content"}. Members other than the content that are null or empty
 * ("tool_calls": [], say) are left out, and so are empty tools and documents; reasoning under the names
 * "reasoning_content", "thinking" and "reasoning" reaches templates that read any of the first two.
 *
 * The parts of the text that come from the caller's data (messages, tools, documents, variables) are tracked by character.
 * Encoding recognises no control token in them, so that no user's words become one. Roles that templates
 * know (system, developer, user, assistant, model, tool, function, ...) count as the template's. */

/* The template of a model: the metadata "chat_template", which GGUF and Hugging Face files bring along, and .tsr files
 * keep. Options
 *   name      str   of another template of the model: metadata "chat_template.<name>", say tool_use
 *   template  str   the text of one, in the place of the model's
 * TSR_NOT_FOUND where the model has none; TSR_INVALID_ARGUMENT and TSR_UNSUPPORTED as tsr_chat_new_text. The model's
 * tokenizer, if it has one, brings bos_token, eos_token, unk_token and pad_token.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_chat_new(const tsr_model* model, const tsr_options* options, tsr_chat** out_chat);
/* From a template's text. tokenizer may be NULL: then nothing can be encoded, and there are no special tokens.
 * TSR_INVALID_ARGUMENT for an invalid template, TSR_UNSUPPORTED for parts of Jinja that chat templates do not use.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED. */
TSR_API tsr_status* tsr_chat_new_text(const char* text, size_t size, const tsr_tokenizer* tokenizer,
                                      tsr_chat** out_chat);

/* The text of a conversation. Options
 *   add_generation_prompt   i64   1: with the beginning of the assistant's next message (default 0)
 *   continue_final_message  i64   1: the text ends within the last message, for a model to go on with (default 0)
 *   tools                   str   JSON array of tools, as functions' schemas (default: none)
 *   documents               str   JSON array (default: none)
 *   variables               str   JSON object of further variables, say {"enable_thinking": false} (default: none)
 *   now                     i64   seconds since 1970 that templates with a date print (default: now)
 * TSR_INVALID_ARGUMENT for invalid messages, and where the template fails, refuses them or takes more than it
 * may, with the reason.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_chat_render(const tsr_chat* chat, const tsr_options* options, const char* messages,
                                    size_t size, tsr_text** out_text);
/* {"text", "data": [[begin, end], ...], bytes of the text that the caller's data made, "assistant": the same of those
 * that the assistant says, or null with "assistant_reason" (see tsr_chat_encode)}
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_chat_render_ranges(const tsr_chat* chat, const tsr_options* options,
                                           const char* messages, size_t size, tsr_text** out_text);

/* Its tokens: "Arrays out". The template writes BOS where it is wanted. assistant [capacity], or NULL: 1 for tokens
 * that the assistant says, the one that ends its turn included, 0 for all others: what a model is trained on. They are
 * those inside of {% generation %} where the template has that. Where it has not, an answer is what follows the
 * generation prompt up to the end of its turn; TSR_UNSUPPORTED, with the remedy, where the template renders earlier
 * answers otherwise and their text is not found. TSR_FAILED_PRECONDITION without a tokenizer.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_chat_encode(const tsr_chat* chat, const tsr_options* options, const char* messages,
                                    size_t size, int32_t* ids, size_t capacity, uint8_t* assistant,
                                    size_t* out_count);

/* A model's answer as a message, JSON: {"role": "assistant", "content": a text, and where there are any
 * "reasoning_content": a text, "tool_calls": [{"id", "type": "function", "function": {"name", "arguments": an object}}]}.
 * How answers are written (the marks of reasoning and of calls, JSON or parameters) is read off the template. text is
 * what the tokens' pieces give, with the control tokens of tsr_chat_markers written out. What is no well-formed call
 * stays in the content as it is written; white space between the parts is dropped. A call that brings no id gets one of
 * nine letters and digits, another one in each answer. Where the text ends within a call, as when a limit of tokens cuts it,
 * the calls before it are in tool_calls, and the message has "cut_call": {"id", "name": "" until it is complete, "arguments":
 * a text: the beginning of the arguments' JSON, "" before it}. That of a template that writes JSON is as it is written; of
 * another syntax it is the members that are complete. Nothing of the call, nor of a mark that is cut, is content. Options
 *   prompt       str  the text that the answer follows: where its end begins something, say <think>, the answer goes on
 *                     within it (default: the generation prompt of the template without variables)
 *   in_thinking  i64  1: the answer begins within its reasoning; 0: it does not (default: as the prompt says)
 *   tools        str  JSON array of tools, whose schemas say which arguments are texts where the template writes them
 *                     bare: a bare 4 is a text where the schema names texts and allows this one, by any keyword; null
 *                     is none where null is allowed too. Without a schema what reads as JSON is that value
 *   partial      i64  1: the answer is incomplete. Returns what is certain: content and reasoning only grow from one call
 *                     to the next with a longer text, and calls are those that are whole (default 0)
 *   seed         i64  of made ids: the same seed, the same ids, as for the parts of one answer (default: drawn)
 * TSR_INVALID_ARGUMENT for options.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_chat_parse(const tsr_chat* chat, const tsr_options* options, const char* text,
                                   size_t size, tsr_text** out_json);
/* {"ID": text}: the control tokens that tsr_chat_parse reads, such as <tool_call> and </think> where these are control
 * tokens. A control token's piece has no text: where one of them is generated, its text here belongs into the answer.
 * TSR_FAILED_PRECONDITION without a tokenizer.
 * Codes: TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_chat_markers(const tsr_chat* chat, tsr_text** out_json);
/* The conversation without its oldest turns, as many as exceed most_tokens tokens, with the options of
 * tsr_chat_encode: {"messages", "dropped": count of messages that were left out, "tokens"}. Messages of the system and of the
 * developer that begin it stay, and so does the last turn. A turn is a message of the user and what follows it: calls of
 * tools go with their results. TSR_INVALID_ARGUMENT where the last turn alone is too long. As tsr_chat_encode otherwise.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_chat_fit(const tsr_chat* chat, const tsr_options* options, const char* messages,
                                 size_t size, int64_t most_tokens, tsr_text** out_json);
TSR_API void tsr_chat_free(tsr_chat* chat);

/* ================================================================ dataset */

/* The training data of a trainer: rows of `seq` tokens with their labels. Of preferences without packing a row holds a pair, the
 * chosen answer from token 0 on and the rejected one from token `seq` on, each behind the prompt. Immutable. Three kinds:
 *   text      token ids cut into samples of seq + 1 tokens (inputs and labels shifted by one), stride seq
 *   examples  rows of JSON (conversations, prompts with completions, preferences, texts), of which some tokens are
 *             learnt; one example a row with padding, or several, which attention then keeps apart
 *   rows      of your own: tsr_dataset_new_rows
 *
 * The sample at place j of global step n depends on (seed, n * batch + j) alone, never on the devices: a run
 * resumed on another device count sees the same data. Each epoch visits every training sample once, in an
 * order of its own.
 *
 * Options
 *   seq            i64   tokens a sample (default 128)
 *   eval_fraction  f64   of texts the last part of the samples, of examples a share drawn by the seed, kept for
 *                        evaluation (default 0); 1: all of them
 *   shuffle        i64   1 (default) or 0: in order
 *   seed           i64   of the order (default 0)
 *   special        i64   of texts. 1: control tokens written out in them are these tokens, so that </s> between
 *                        documents teaches where one ends, and a conversation that a chat template rendered before is
 *                        read as the template meant it; 0 (default): they are text like other text ("note" of
 *                        tsr_dataset_info). In messages they always are text
 *   kind           str   auto (default): the content decides whether the data are rows of JSON (an object a line, one
 *                        array, or objects one after another; a path that ends in .jsonl or .ndjson are rows), and the
 *                        fields which | plain: one text, whatever its content | text | prompt | prompt_completion |
 *                        messages | preference | unpaired: rows of that kind
 * Further options of examples (docs/guides/training-data.md has all formats, and which fields are read)
 *   files          str   JSON: [{"path": text, "weight": number}], with the path "": an epoch has each example
 *                        of a file `weight` times; of a fraction a share drawn by the seed (default weight 1)
 *   template       str   the chat template's text (tsr_model_metadata "chat_template"); messages want one
 *   mask           str   the tokens that are learnt: auto (default) | assistant | completion | all. auto: of messages the
 *                        assistant's turns, of a prompt with a completion the completion, of texts all
 *   max_length     i64   maximum tokens of an example (default: seq; with packing bfd_split and wrapped any number)
 *   truncation     str   of longer ones: keep_start (default) | keep_end | drop | error
 *   untrained      str   examples without learnt tokens: drop (default), and count | error
 *   skip_bad       i64   1: invalid rows are left out and counted; 0 (default): they are an error
 *   append_end     i64   1 (default): the tokenizer's EOS ends texts and completions. Templates end messages themselves
 *   packing        str   off (default): an example a row, padded | bfd (whole examples by best fit, longer ones are
 *                        cut off at seq) | bfd_split (longer ones continue in another row) | wrapped (one after
 *                        another, cut where a row ends). Attention and positions keep documents apart
 *   eval_file      str   a file whose rows are for evaluation (default: none)
 *   cache          str   a folder of cached tokens, keyed by contents of the files, tokenizer,
 *                        template and options; "auto": $XDG_CACHE_HOME/tessera, else ~/.cache/tessera (default: none;
 *                        tokens are in a file without a name in $TMPDIR)
 *   now            i64   the date that templates print, seconds since 1970 (default 1721952000, 26 July 2024: the same
 *                        tokens on every day)
 * Texts are plain UTF-8; a byte-order mark before it is skipped. The path "-" is the rest of standard
 * input. The option template has no effect on a text.
 * TSR_INVALID_ARGUMENT when the text holds no whole sample for training, when the data is of a format that is not read (CSV,
 * gzip, zip, Parquet, Arrow, SQLite, PDF, a model's file, UTF-16 ...: named, with the remedy) or not UTF-8 (with the byte's
 * place), when a plain text has options of rows, when the path is a folder or a device without an end, when a pipe has not ended after half of
 * the memory that the process may have; with file and line for an invalid row.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO, TSR_UNSUPPORTED, TSR_CHANGED. */
TSR_API tsr_status* tsr_dataset_new_file(const char* path, const tsr_tokenizer* tokenizer,
                                         const tsr_options* options, tsr_dataset** out_dataset);
TSR_API tsr_status* tsr_dataset_new_text(const char* text, size_t size, const tsr_tokenizer* tokenizer,
                                         const tsr_options* options, tsr_dataset** out_dataset);
TSR_API tsr_status* tsr_dataset_new_tokens(const int32_t* ids, size_t count, const tsr_options* options,
                                           tsr_dataset** out_dataset);

/* `rows` rows of `seq` tokens of your own; copied. Each pointer except tokens may be NULL.
 * tokens     [rows, seq]  ids
 * labels     [rows, seq]  the token that should follow, or -1 (NULL: the next token of the document)
 * weights    [rows, seq]  factors on the losses of labels, 0: the label does not count; a loss is divided by the sum of
 *                         weights in the whole batch. TSR_INVALID_ARGUMENT below 0 and of no finite number (NULL: all 1)
 * segments   [rows, seq]  number of the document that a token is of: attention sees tokens with the same number alone
 *                         (NULL: a row is one)
 * positions  [rows, seq]  of the token in its document, 0 to seq - 1 (NULL: from 0 wherever the number changes)
 * Options: eval_fraction, shuffle, seed. TSR_INVALID_ARGUMENT names the row and the token.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_dataset_new_rows(int64_t rows, int64_t seq, const int32_t* tokens, const int32_t* labels,
                                         const float* weights, const int32_t* segments, const int32_t* positions,
                                         const tsr_options* options, tsr_dataset** out_dataset);

/* The same as long work: reading a text and finding its tokens take long. The given text is copied. runtime: whose
 * tsr_runtime_cancel ends it; may be NULL. begin fails where options are wrong, a step as tsr_dataset_new_* does otherwise.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_dataset_begin_file(tsr_runtime* runtime, const char* path, const tsr_tokenizer* tokenizer,
                                           const tsr_options* options, tsr_work** out_work);
TSR_API tsr_status* tsr_dataset_begin_text(tsr_runtime* runtime, const char* text, size_t size,
                                           const tsr_tokenizer* tokenizer, const tsr_options* options,
                                           tsr_work** out_work);
TSR_API tsr_status* tsr_dataset_finish(tsr_work* work, tsr_dataset** out_dataset);

/* Whether `text` is plain text in UTF-8, for functions that read texts alone (scoring, importance matrices). `name` begins messages.
 * takes_tables: 1 for lines of tab-separated texts. TSR_INVALID_ARGUMENT, with the remedy, for rows of JSON, a table, a binary
 * format, and bytes that are not UTF-8.
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_text_check(const char* text, size_t size, const char* name, int32_t takes_tables);
/* All of a file, of a pipe, or of standard input for "-": at most `most` bytes (0: any) and half of the memory.
 * TSR_INVALID_ARGUMENT for folders, devices and what is longer.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO. */
TSR_API tsr_status* tsr_text_read(const char* path, size_t most, tsr_text** out_text);
/* Writes a text to a file: whole or not at all, with the permissions of the file that it replaces; straight into what a link, a device
 * or a pipe leads to. check_path: the error that it would return, before hours of work; takes_devices 0: devices,
 * pipes and sockets are errors too. TSR_NOT_FOUND: the folder.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO, TSR_OUT_OF_MEMORY. */
TSR_API tsr_status* tsr_text_write(const char* text, size_t size, const char* path);
TSR_API tsr_status* tsr_text_check_path(const char* path, int32_t takes_devices);

/* {"tokens", "seq", "train_samples", "eval_samples", "unigram_entropy", "seed", "shuffle"}; unigram_entropy
 * is that of the token frequencies of the whole text (of examples: of the learnt tokens), nats a token: the loss of a model
 * of these frequencies alone; not of rows of your own. Of texts and of examples "written_control" {text: count} has the
 * control tokens of the tokenizer written out in texts and read as letters, for example where a chat template
 * rendered them before, and "note" is a sentence with the remedy (else ""); a trainer of such data logs it. Of examples also: "kinds" {kind: examples}, "rows", "examples",
 * "trained_tokens", "prompt_tokens", "packing", "packed_tokens", "efficiency" (the share of places that hold a token),
 * rows that were left out ("bad", "too_long", "untrained") with the first hundred as "omissions" [{"file", "line",
 * "reason"}], "truncated" (examples), "ignored" (fields that changed nothing), "shortest", "median" and "longest"
 * (tokens), "lengths" [[most tokens, examples]], "cache" (path or null).
 * Codes: TSR_IO. */
TSR_API tsr_status* tsr_dataset_info(const tsr_dataset* dataset, tsr_text** out_text);

/* Example `number` of a file of training data, in the order of its rows: {"kind", "role" (plain, chosen, rejected,
 * wanted, unwanted, prompt), "row", "file", "line", "prompt_tokens", "ids", "trained", "control"}; trained has 1 for each token that
 * is learnt; "weights", where a message of the dataset has one that is neither 0 nor 1, has each token's, 0 where it is
 * not learnt; "control" has the texts of control tokens by id. Examples of one row have the same "row". TSR_NOT_FOUND past the last, TSR_FAILED_PRECONDITION of other kinds of
 * datasets.
 * Codes: TSR_NOT_FOUND, TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_dataset_example(const tsr_dataset* dataset, int64_t number, tsr_text** out_json);

/* The trainer's inputs at global step `step` (from 0), [batch, seq] each, of pairs [batch, 2 seq]: tokens, labels (-1: none), positions and
 * segments (numbers of documents). Each may be NULL, or holds `capacity` items: "Arrays out", *out_count is of each. Weights
 * of labels, which it feeds where rows have some, are in tsr_dataset_example. With option accumulate a trainer's step feeds the rows of that
 * many of these steps.
 * Codes: TSR_INVALID_ARGUMENT, TSR_IO. */
TSR_API tsr_status* tsr_dataset_rows(const tsr_dataset* dataset, int64_t step, int64_t batch, int32_t* tokens,
                                     int32_t* labels, int32_t* positions, int32_t* segments, size_t capacity,
                                     size_t* out_count);

/* The training batch of global step `step` (from 0) of a text: ids [batch, seq + 1] into items.
 * TSR_FAILED_PRECONDITION of other kinds.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_dataset_batch(const tsr_dataset* dataset, int64_t step, int64_t batch, int32_t* items,
                                      size_t capacity, size_t* out_count);
TSR_API void tsr_dataset_free(tsr_dataset* dataset);

/* ================================================================ plan */

/* A plan of a model's computation on some devices: the mesh, the sharding of each tensor, micro-batches; with the
 * predicted time and the bytes of each device. Immutable.
 *
 * Planning allocates none of that memory: this is the memory estimate. The bytes are exact (the program's
 * arena). */

/* The plan that tsr_trainer_new, tsr_generator_new or tsr_engine_new would make from these options; the keys are theirs, and
 *   mode   str   "train" (default), "generate", or "serve": an engine's, whose memory tsr_plan_info has as "serving". Pages
 *                that do not fit are planned all the same, and "fits" says so
 * Without a dataset "seq" is 128 for a language model, or its context length when that is shorter.
 * The option "pins" holds single decisions of yours, as JSON text; the planner chooses the rest around
 * them. Names may hold '*', which matches any characters:
 *   {"stored": {"block.*.fc.weight": "{[tp], []}"},   where a parameter or state is stored, as a plan's text
 *                                                     has it
 *    "ops": {"block.*.fc.weight": "n over tp"},       how the operation that reads it (or of that scope) is
 *                                                     split: its factors over axes of the mesh, or "whole"
 *    "keep": ["block.*.attention"],                   never computed again for backward
 *    "stages": ["block.3", "block.7"]}                where the second, third, ... stage of a pipeline begins
 * TSR_OUT_OF_MEMORY when no plan fits: the message has the smallest sufficient limit, the smallest
 * sufficient number of devices, and the tensors that fill the device, at which instruction.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_CANCELLED. */
TSR_API tsr_status* tsr_plan_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                 tsr_plan** out_plan);

#ifdef TSR_UNSTABLE_API
/* Methods that could train a model without adapters, and the memory of each. The most general first:
 *   full         all parameters, which are f32 (those of the option `trained`)
 *   lora         low-rank adapters (tsr_model_add_adapters); the base is kept as the model has it
 *   qlora:TYPE   low-rank adapters; the base is kept in TYPE, as `tessera quantize --type TYPE` chooses it for each weight
 * Each is planned as tsr_trainer_new would plan it, under the same limit: nothing is allocated, and no value is read.
 * options: those of tsr_trainer_new, and
 *   method   str   auto (default): full, lora, and qlora with q8_0, nf4 and q4_0 where these make the model smaller
 *                  | one of them
 * adapters: those of tsr_model_add_adapters. Both may be NULL, and so may dataset (then as for tsr_plan_new). The text is
 * {"method": the first that fits without offloading to a file, else the first that fits at all,
 *  "methods": [{"method", "weight_bytes": of all parameters as they are kept, "fits": true, "strategy", "step_seconds",
 *               "bytes", "host_bytes", "file_bytes": lists by device}
 *            | {"method", "weight_bytes", "fits": false, "error", and "smallest_limit_bytes": the smallest limit that would
 *               do, or, if no method fits and another needs less, "least_bytes": a lower bound on its bytes}]}
 * To train: tsr_model_for_method, then tsr_trainer_new with the same options without `method`.
 * TSR_OUT_OF_MEMORY: no method fits; the message names the one that needs least.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_CANCELLED. */
TSR_API tsr_status* tsr_plan_methods(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                                     const tsr_options* options, const tsr_options* adapters,
                                     tsr_text** out_text);
#endif  /* TSR_UNSTABLE_API */

#ifdef TSR_UNSTABLE_API
/* The memory of a trainer and of engines over one model, together, before anything is allocated: they would be made with the options
 * `trainer` and `engine`, of which engines have several alike. dataset: the trainer's, or NULL. Options
 *   engines       i64   their number (default 1)
 *   weights       str   trainer (default): those of tsr_engine_new_for_trainer, on the weights that it trains | model: those of
 *                       tsr_engine_new, on the model, which share weights that do not train with the trainer, and with each other
 *   memory_limit  str   of all of them together, on all devices; default: the memory of the trainer's devices
 * The text is {"trainer": {"devices": [bytes of each], "host_bytes": offloaded, "shared_bytes": 0, "bytes"},
 *              "engines": [{..., "shared_bytes": weights in memory that is counted before, "bytes": without these}],
 *              "bytes": together, "limit_bytes"}
 * Each limit of one handle (its option memory_limit) holds too. TSR_OUT_OF_MEMORY: above the limit; the error has needed_bytes and
 * limit_bytes.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_CANCELLED. */
TSR_API tsr_status* tsr_plan_jointly(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                                     const tsr_options* trainer, const tsr_options* engine, const tsr_options* options,
                                     tsr_text** out_text);
#endif  /* TSR_UNSTABLE_API */

/* The memory that a model needs: {"inference": {"context", "plan", "bytes": [of each device]}, "lora": {"rank", "batch", "seq", ...},
 * "full": {"batch", "seq", ...}}: to generate one text, to train low-rank adapters, and to train all parameters; "error" in place of plan and
 * bytes where it cannot be planned. Nothing is allocated. Options: devices, parallel, memory_limit, host_memory_limit, profile as
 * for a trainer; context (default 2048) and seq (default 512), at most the model's context; batch (default 1); rank (default 8).
 * Codes: TSR_INVALID_ARGUMENT, TSR_CANCELLED. */
TSR_API tsr_status* tsr_model_needs(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options, tsr_text** out_text);

/* A plan for any graph (the low level). Options: batch (i64, default 1), symbols (str: "T=128"), and parallel, pins,
 * memory_limit as for tsr_plan_new.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_CANCELLED. */
TSR_API tsr_status* tsr_plan_new_for_graph(const tsr_devices* devices, const tsr_graph* graph,
                                           const tsr_options* options, tsr_plan** out_plan);

/* The same as long work; model and graph are as they were when it began. A step fails as tsr_plan_new does.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_plan_begin(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                   tsr_work** out_work);
TSR_API tsr_status* tsr_plan_begin_for_graph(const tsr_devices* devices, const tsr_graph* graph,
                                             const tsr_options* options, tsr_work** out_work);
TSR_API tsr_status* tsr_plan_finish(tsr_work* work, tsr_plan** out_plan);

/* Reads a plan of this graph from the text of tsr_plan_text or the file of tsr_plan_save. (For a model,
 * give the path to tsr_plan_new or tsr_trainer_new as option "plan_file".) TSR_INVALID_ARGUMENT: a syntax error, with its
 * line, or the plan of another graph; TSR_NOT_FOUND: no such file.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO, TSR_CANCELLED. */
TSR_API tsr_status* tsr_plan_parse_for_graph(const tsr_devices* devices, const tsr_graph* graph,
                                             const char* text, size_t size, tsr_plan** out_plan);
TSR_API tsr_status* tsr_plan_load_for_graph(const tsr_devices* devices, const tsr_graph* graph,
                                            const char* path, tsr_plan** out_plan);

/* The plan as text, which can be edited and passed as option "plan_file". Codes: none. */
TSR_API tsr_status* tsr_plan_text(const tsr_plan* plan, tsr_text** out_text);

/* {"mesh": "dp=2, tp=2", "strategy": "dp=2,tp=2,zero=1", "predicted_step_seconds", "gap", "global_batch", "device_count": of all processes, "network_bytes": that cross machines in a step, where there are several,
 *  "micro_batches", "symbols": {"T": 128}, "devices": [{"name", "arena_bytes": {"predicted"}, and
 *  "host_arena_bytes", "file_arena_bytes" where something is offloaded}],
 *  "candidates": [{"strategy", "step_seconds", "arena_bytes": bounded by the memory limit, "rejected"}]}
 * With mode "serve", "devices" are those of one replica, and "serving" describes the engine:
 *   "replicas", "sequences"     replicas; sequences at once, in all replicas
 *   "context", "page_tokens"    tokens of a sequence at most; tokens of a page of the cache
 *   "sequences_that_fit"        sequences of a whole context that the devices' limits have room for
 *   "cache_tokens", "cache_bytes", "cache_bytes_per_token"   of all replicas; the last of one
 *   "weight_bytes"              weights of one replica; "arranged_weight_bytes": those copied into a kernel's own layout
 *   "window", "window_cache_tokens", "window_bytes_per_token"   of models with windows shorter than the context
 *   "devices"                   [{"name", "arena_bytes": {"predicted"} (as tsr_engine_report), "draft_bytes" (of a draft
 *                               model or block), "limit_bytes", "fits"}], of all replicas
 * Codes: none. */
TSR_API tsr_status* tsr_plan_info(const tsr_plan* plan, tsr_text** out_text);
/* The predicted trace of one run (of the training step), in the form of tsr_trainer_take_trace: the same events at
 * predicted times. TSR_FAILED_PRECONDITION without the option "trace".
 * Codes: TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_plan_trace(const tsr_plan* plan, tsr_text** out_text);
TSR_API tsr_status* tsr_plan_save(const tsr_plan* plan, const char* path); /* its text */

/* The reasons for the plan and its costs, as JSON, computed from its program and the program's simulated
 * run:
 *   "lowered"        true; false for hardware that is not present (tsr_plan_estimate)
 *   "strategy", "mesh", "devices", "global_batch", "micro_batches", "step_seconds", and where known
 *   "bound_seconds", "gap"
 *   "time"           [{"cause", "axis", "seconds", "hidden_seconds"}]: seconds add up to the step of the
 *                    device that finishes last ("critical"). Causes: compute, recompute, communication
 *                    (exposed, over "axis"; "pp" between stages), offload, bubble, waiting, update. Overlapped
 *                    time is hidden_seconds
 *   "memory"         [{"cause", "bytes", "tier"}] of the fullest device at its peak: those of tier "device"
 *                    add up to "memory_bytes", the arena, to the byte. Causes: parameters, optimizer, caches,
 *                    inputs, gradients, activations (kept for backward), logits, gathered (parameters, for
 *                    use), communication, transient, workspace, reserved, unused (between buffers); of tier
 *                    "host" also offloaded
 *   "memory_limit", "bytes_by_device"
 *   "peak"           {"device", "entry", "instruction", "instructions", "what", "largest": [{"name", "cause",
 *                    "bytes"}]}
 *   "blocks"         [{"name", "count", "stage", "ops": [[name, factors]], "parameters": [[name, stored]],
 *                    "recomputed", "recompute", "offloaded", "chunks"}]: consecutive blocks with equal decisions
 *                    are one
 *   "tensors"        [{"name", "kind", "type", "sharding", "tier", "stage", "bytes", "first", "last", "note",
 *                    "count"}]: bytes on the fullest device, alive from instruction first to last (-1:
 *                    always)
 *   "runners_up"     [{"strategy", "step_seconds", "loses_seconds", "bytes", "over_bytes", "why"}]: the extra seconds of
 *                    each, or the bytes beyond the limit
 *   "words"          [text]: the meaning of the strategy, without terms of parallelism
 *   "reasons"        [text]
 * Codes: TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_plan_explain(const tsr_plan* plan, tsr_text** out_text);
/* The same as one self-contained HTML page: the timeline of every stream, memory over the step under
 * its limit, time and memory by cause, every tensor, the runners-up.
 * Codes: TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_plan_page(const tsr_plan* plan, tsr_text** out_text);
TSR_API void tsr_plan_free(tsr_plan* plan);

#ifdef TSR_UNSTABLE_API
/* Time and memory of one training step on a cluster that need not be present. The step is that of a trainer with the same options.
 * A few of the model's blocks are lowered, and extrapolated to the time and memory of the whole program on every device. A complete
 * mesh in `parallel` is priced as it is; otherwise the fastest step within the memory limit is searched.
 * `description` is a shorthand of tsr_model_new, of any family, or the path of a .tsr or GGUF file or a Hugging Face
 * folder, whose own description is taken ("description" of the result); no weight is read. TSR_NOT_FOUND: no such file;
 * TSR_UNSUPPORTED: a file of a graph of your own, or with adapters.
 *   seq        i64   tokens of a sequence (default: the description's T, which it may not exceed)
 *   method     str   full, lora, qlora:TYPE, or auto: the first of full, lora, qlora:q8_0, qlora:nf4, qlora:q4_0 that fits,
 *                    with adapters of rank `lora` (default 16). Adds "method" and "methods": [{"method", "fits", and
 *                    "strategy", "step_seconds", "bytes" by device, or "error", "smallest_limit_bytes"}]
 *   cluster    str   PRESET:COUNT (required) or a file NAME.json. Presets: dgx-v100-16gb, dgx-v100-32gb,
 *                    dgx-a100-40gb, dgx-a100-80gb, dgx-h100, dgx-h200, pcie-rtx-4090, pcie-rtx-5000,
 *                    pcie-a100-80gb, ..., cpu. Kinds of a file may set reserved_bytes: contexts,
 *                    communicators and workspaces of a device, outside any plan; else 3/16 of its
 *                    memory_bytes, 3 GiB at most. They count under the memory limit. Several joined by + : every
 *                    choice of their kinds is searched, the others idle
 *   batch      i64   sequences in one step, over all devices (default 8)
 *   parallel   str   the words of a trainer: "tp=8,dp=32,pp=2:1f1b,mb=4,sp,zero=1,recompute=full"; complete when the product of tp,
 *                    dp, pp, cp and ep is the cluster's number of devices. Words left out of a complete mesh are off. Words left out
 *                    otherwise are searched, except owt, keep and chunks, which are off. recompute=some recomputes the fewest blocks
 *                    with which the step fits. offload=auto (the default): none if some plan fits without; else the first of optimizer,
 *                    params+grads+optimizer, and these with activations, with which some plan fits
 *   memory_limit     bytes per device, or "40GiB" (default: the device's)
 *   certificate    i64   1: {"certificate"} of the whole space is added, for tsr_plan_check (default 0)
 *   verify     str   on: the whole program of the first, the last, the fullest and the slowest device of the pipeline is lowered, and
 *                    must fit. auto (the default): on if that takes less than a second. off: never. Without it, a hundredth of the
 *                    limit stays free
 *   within     f64   searched: of plans with as many stages and at most this share slower than "fastest", the
 *                    one with least tensor parallelism, then smallest micro-batches (default 0.02; with a
 *                    certificate 0)
 *   lora       i64   rank of adapters of the weights that tsr_model_add_adapters chooses; only they train (default 0: none)
 *   adapters, adapter_rank, adapter_weights, adapter_dropout, losses   as of tsr_adapter_trainer_new, in f32: the step of all slots
 *   base       str   model, bf16, f16 or a block type (nf4, q4_0, ...): how the blocks' frozen weights are stored (default:
 *                    under adapters as most of a file's are, else model)
 *   precision, optimizer, trained, frozen, weights, fused_loss, dropout, clip_norm, ...   as for a trainer, except that precision
 *                    is bf16 by default, and fused_loss auto is off. TSR_UNSUPPORTED, with the reason: precision tf32, optimizer
 *                    muon, preferences, accumulate, and options that say where a trainer runs
 * Yields {"predicted_step_seconds", "tokens_per_second", "parameters", "devices", "parallel",
 * "micro_batches", "seconds": {"compute", "recompute", "communication", "offload", "bubble", "gradients", "update"},
 * "stages": [{"blocks", "recomputed", "memory_bytes"}], "reserved_bytes", ...}: seconds by cause of the device
 * that ends last; memory_bytes has reserved_bytes in it. A search adds {"gap", "bound_seconds",
 * "fastest", "search", "candidates"}: bound_seconds is a lower bound over the plans searched, and gap is
 * relative to it. "composed" is {"memory_bytes" (of the fullest device), "by_device" (of the pipeline), "fits"}, with what
 * the device reserves. "verified", where it
 * was lowered whole, is {"devices": [{"device", "memory_bytes"}]}. "explanation" is as
 * tsr_plan_explain has it; a device there is a stage of the pipeline.
 * With mode=generate the best way to serve text is searched instead: objective (latency, the default, or
 * throughput), prompt and new (tokens, 512 and 128), batch (sequences in all; 0: one for latency, the fastest number for throughput),
 * kv_budget (bytes a device), dtype; parallel pins tp, pp, dp, batch (sequences of a replica) and prefill (of
 * them, prompts read at a time). Yields {"parallel", "time_to_first_token_seconds", "time_per_token_seconds",
 * "request_seconds", "tokens_per_second", "kv_bytes", "weight_bytes", "memory_bytes", "token_seconds",
 * "bound", "gap", "candidates", "explanation"}; the explanation's step then is a request: "serving" has its
 * figures, and every share of "time" its "phase".
 * Any family that can be served has a plan. "bound" is over the plans searched: tokens a second, or seconds.
 * Of devices of several kinds one kind is used: "kinds" has what is used and what is idle.
 * TSR_OUT_OF_MEMORY when nothing fits: what fills the device, the smallest limit that works, how many devices
 * would do.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY. */
TSR_API tsr_status* tsr_plan_estimate(const char* description, const tsr_options* options, tsr_text** out_text);
/* The same explained, as a page like tsr_plan_page's.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY. */
TSR_API tsr_status* tsr_plan_estimate_page(const char* description, const tsr_options* options, tsr_text** out_text);

/* Checks a certificate of tsr_plan_estimate. It has the request, the plan found, and every plan of the searched
 * space that no bound excludes, with its step and bytes. Without a search, the space is enumerated again in
 * another order; the listed plans are composed again, and all others excluded by their bounds. Yields {"valid": true, "plan",
 * "step_seconds", "bound_seconds", "gap", "configurations", "composed", "closed_by_bound", "too_large", ...}. TSR_CORRUPT names the
 * first false claim, with the computed and the claimed value.
 * Codes: TSR_INVALID_ARGUMENT, TSR_CORRUPT. */
TSR_API tsr_status* tsr_plan_check(const char* certificate, tsr_text** out_text);
#endif  /* TSR_UNSTABLE_API */

/* ================================================================ program, session (the low level) */

/* A lowered plan: per device a fixed arena and a list of instructions. Entries share parameters and
 * state by name. Immutable. */
typedef struct tsr_entry {
  size_t struct_size;
  const char* name; /* "train_step" */
  const tsr_graph* graph;
  const tsr_plan* plan; /* of this graph, or of one that differs in names alone */
} tsr_entry;
/* TSR_INVALID_ARGUMENT for a plan of another graph. Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_CANCELLED. */
TSR_API tsr_status* tsr_program_new(const tsr_devices* devices, const tsr_entry* entries, size_t entry_count,
                                    tsr_program** out_program);
/* {"fingerprint", "devices": [{"name", "arena_bytes": {"predicted"}, "max_live_bytes", "peak"}],
 *  "entries": [{"name", "instructions"}]}
 * Codes: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_program_info(const tsr_program* program, tsr_text** out_text);
TSR_API tsr_status* tsr_program_print(const tsr_program* program, int32_t rank, tsr_text** out_text);
TSR_API void tsr_program_free(tsr_program* program);

/* A program in memory, with state of its own. Several sessions may run at once, one thread each.
 * Options: measure_memory (i64, default 0), trace (i64, default 0); offload_folder, host_memory_limit,
 * watchdog (default 0: never) as for the trainer.
 * Codes: TSR_INVALID_ARGUMENT, TSR_IO. */
TSR_API tsr_status* tsr_session_new(const tsr_program* program, const tsr_options* options,
                                    tsr_session** out_session);

/* Parameters, constants and state by name, as whole tensors; values are copied. Parameters must be written
 * before the first run; state starts as zeros. TSR_NOT_FOUND names the nearest; TSR_INVALID_ARGUMENT for
 * another type.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_VALUES_LOST, TSR_CHANGED. */
TSR_API tsr_status* tsr_session_write(tsr_session* session, const char* name, const tsr_tensor* value);
TSR_API tsr_status* tsr_session_read(const tsr_session* session, const char* name, tsr_tensor** out_tensor);
/* All parameters of the program from a model. Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_CHANGED. */
TSR_API tsr_status* tsr_session_write_model(tsr_session* session, const tsr_model* model);

/* Inputs keep their value until fed again; docs/reference/ops.md defines indices outside a table or vocabulary
 * for the op that reads them (mostly 0). Outputs keep theirs until the next run; before the first run of their entry
 * a fetch is TSR_FAILED_PRECONDITION.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT,
 * TSR_VALUES_LOST. */
TSR_API tsr_status* tsr_session_feed(tsr_session* session, const char* entry, const char* input,
                                     const tsr_tensor* value);
TSR_API tsr_status* tsr_session_run(tsr_session* session, const char* entry);
TSR_API tsr_status* tsr_session_fetch(const tsr_session* session, const char* entry, const char* output,
                                      tsr_tensor** out_tensor);
/* Any thread: the run in progress returns TSR_CANCELLED. */
TSR_API void tsr_session_cancel(tsr_session* session);
/* After a failed or cancelled run the session accepts only write, read and free until this call (else TSR_VALUES_LOST); state must
 * be written again.
 * Codes: none. */
TSR_API tsr_status* tsr_session_restore(tsr_session* session);

/* {"devices": [{"name", "arena_bytes": {"predicted", "measured"}, "max_live_bytes"}], "comm": [{"collective",
 *  "axis", "calls", "bytes"}], "allocations"}; measured is -1 without measure_memory. On CPU devices of trainers,
 * generators and scorers "shared_weight_bytes": bytes of the arena that are read-only weights, in
 * the model (in its file, where that is mapped and has them in the program's layout) or in memory that all these
 * handles over the model share ("copied_weight_bytes"); the rest is this handle's own. Where a backend reports it (cuda),
 * "device_bytes" of a device: predicted, what was in use of all its memory (contexts, libraries, other processes)
 * before the arenas of this session were made, and those; measured, what is in use now.
 * Codes: none. */
TSR_API tsr_status* tsr_session_report(const tsr_session* session, tsr_text** out_text);
/* The trace since the last call, in Chrome's format (a JSON array), for chrome://tracing or Perfetto:
 * pid is the rank, tid its stream (compute, collectives, copies, one for each peer and direction), with bytes,
 * micro-batch and entry as arguments, and of kernels variant, operands, and the flops and bytes of memory that the
 * op takes at least. Times are the device's where it reports them (cuda), so that tracing does not
 * change the run, and a launch of several kernels is recorded as the first; else the host's. Needs the option "trace".
 * Codes: TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_session_take_trace(tsr_session* session, tsr_text** out_text);
/* The kernels of a trace (tsr_session_take_trace, tsr_trainer_take_trace, tsr_generator_take_trace) with the time that each would take if nothing but memory or
 * products bound it: {"entry", "runs", "seconds", "floor_seconds", "launches", "kernels": [{"op", "variant", "operands", "count", "seconds",
 * "floor_seconds"}], the longest first}: all of one run, on the rank that was busy longest. What is no kernel counts under its own
 * name, without floor. A launch of several kernels is recorded as the first of them: their floors are added up there. Options
 *   entry         str   whose runs (default train_step)
 *   bytes_per_s   f64   of a large copy, read and written (default 0: unknown)
 *   flops_per_s   f64   of a large product (default 0: unknown)
 * TSR_CORRUPT for what is no trace.
 * Codes: TSR_INVALID_ARGUMENT, TSR_CORRUPT. */
TSR_API tsr_status* tsr_trace_kernels(const char* text, size_t size, const tsr_options* options, tsr_text** out_text);
TSR_API void tsr_session_free(tsr_session* session);

/* ================================================================ trainer */

/* Trains a model on all given devices. It copies the values that it trains, and shares those that it only
 * reads (tsr_session_report): the model stays as it is until tsr_trainer_store.
 *
 * With a dataset the model is a language model (inputs "tokens", "positions", output "logits") and its loss
 * is the mean token loss. Without one (dataset NULL) the graph has a scalar output "loss" of its own and
 * inputs that are fed by tsr_trainer_feed. Where such a graph has the input "loss_scale" (f32 []), the
 * trainer feeds 1 / (labels of the whole batch that are not negative), or where no single input holds the
 * labels of a cross entropy 1 / batch, until you feed another value: a loss written as reduce_sum(...) *
 * loss_scale is exact under any number of micro-batches. (So is a reduce_mean, and a penalty on weights in
 * addition to either; where micro-batches would change the result, as of a norm over the batch, more
 * than one is refused, and plans have one.) An input "seed" (i64 [], for dropout) is fed too; the names "lr" and "step"
 * are the training step's own.
 *
 * Options
 *   devices        str   "cpu:4" (default "cpu:1")
 *   parallel       str   pins decisions, the planner makes the rest: "dp=2,tp=2,sp,zero=1,mb=4" (default "":
 *                        all planned)
 *   plan_file      str   a plan from tsr_plan_save instead of planning; it must be of this very graph
 *   profile        str   device profile that prices the plan: a file, "auto" or "none" (default: the runtime's)
 *   pins           str   single decisions in addition to `parallel`, as JSON text; see tsr_plan_new (default:
 *                      none)
 *   measure        i64   time this many of the plans predicted fastest, and take the
 *                        fastest: for machines with inaccurate prices; the plan may then differ
 *                        from call to call (default 0)
 *   tune           i64   1: matmul algorithms missing in the profile are timed before the first step,
 *                        and the fastest is stored in the profile's file. From then on it is taken, with tune
 *                        or without, by every program on this device with this build and cuBLASLt, and may
 *                        leave other bits than before. Needs a profile; nothing to time on cpu (default 0)
 *   memory_limit   i64 bytes or str "2GiB", per device (default: the device's. Of all CPU devices together
 *                        that is 80 % of the least of physical memory, the control groups' limits and what is
 *                        left of RLIMIT_AS and RLIMIT_DATA.) Tensors offloaded to host memory count too on
 *                        CPU devices, whose own memory that is; there the planner offloads to a file
 *   batch          i64   sequences (rows) in one step, over all devices (default 8)
 *   accumulate     i64   batches of the dataset per step: gradient accumulation (default 1). Each
 *                        runs by itself: their number changes no memory beyond the gradients'. Steps, `steps`, rates and
 *                        "tokens_per_step" count updates. A step equals one of a batch that many times as large, to
 *                        rounding: losses are divided by the labels of all its batches (except the reference point of
 *                        kto, which is each batch's). Not with `losses`, nor without a dataset
 *   seq            i64   tokens a sequence; default and only choice with a dataset: the dataset's
 *   symbols        str   values of further symbols of an own graph: "N=10,M=4"
 *   steps          i64   length of the schedule (default 100); tsr_trainer_step may go on after it, at the
 *                        rate of its last step
 *   lr             f64   peak learning rate (default 1e-4: for weights that are trained already; from scratch
 *                        1e-3 and more is usual)
 *   schedule       str   constant (default) | cosine | linear | wsd: from lr down to lr * lr_end over `steps`. As
 *                        is usual, the end lies one step after the last, whose rate thus is above it: step s
 *                        of a linear schedule has lr * (steps - s + 1) / (steps - warmup)
 *                        wsd stays at lr and goes down over the last steps alone
 *   decay_fraction f64   wsd: fraction of `steps` that decay (default 0.1)
 *   decay_shape    str   of wsd: linear (default) | sqrt, which is 1 - sqrt(x) of the way down
 *   warmup         i64   steps of linear rise: step s of them has lr * s / warmup (default 10; 0: none)
 *   lr_end         f64   of cosine, linear and wsd: the rate at the end as a fraction of lr (default 0)
 *   optimizer      str   adamw (default) | adamw8 | adafactor | lion | muon | sgd. adamw8: moments in 8 bits, in
 *                        blocks of 256 (128, 64: of what divides the last dim) with one f32 each; f32 for parameters
 *                        below 4096 elements. adafactor: second moments of matrices as means of rows and columns, at
 *                        the given rate. muon: matrices of blocks, which are those of two dims with a number in their
 *                        names ("block.0.q.weight"), step along their orthogonalized momentum; others as adamw
 *   beta1 beta2    f64   of adamw, adamw8 (0.9, 0.999), lion (0.9, 0.99), muon, for what it updates as adamw (0.9, 0.95)
 *   eps            f64   of adamw, adamw8, muon (1e-8); of adafactor (1e-30), added to squares of gradients
 *   momentum       f64   of sgd (0.9), muon (0.95)
 *   decay_rate     f64   of adafactor: step t keeps 1 - t^-decay_rate of its means (0.8)
 *   clip_threshold f64   of adafactor: bound on the root mean square of an update (1)
 *   muon_scale     str   of muon: match_rms_adamw (default), 0.2 sqrt(max(in, out)) times the direction, so that one rate
 *                        serves all parameters; original: sqrt(max(1, out / in))
 *   weight_decay   f64   (adamw, adamw8 0.01, muon 0.1, others 0); of matrices alone: not of biases, and parameters of
 *                        one dim
 *   groups         str   parameters with a rate and decay of their own, as JSON: a list of {"match": "block.0.*",
 *                        "lr_factor": 0.5, "weight_decay": 0.1}. Of those whose match ("*": any characters)
 *                        describes a parameter's name the first counts: its rate is lr_factor (default 1) times
 *                        the schedule's, its decay weight_decay, also of biases and norms (default: as without a
 *                        group). A match of no parameter that trains is TSR_INVALID_ARGUMENT
 *   lora_plus_ratio      f64   factor on the rate of "*.lora_b", in addition to groups (default 1)
 *   clip_norm      f64   maximum global gradient norm (default 1.0); 0: no bound
 *   seed           i64   of dropout (default 0) and of parameters not drawn yet (default: the model's)
 *   dropout        f64   overrides the probability of every dropout op of the model, which must have one
 *   precision      str   f32 (default) | tf32 | bf16 | f16 | fp8: type of the computation; parameters and
 *                        optimizer state stay f32. tf32: f32, but matrix products (linear layers, experts,
 *                        the output head; not attention) may round their operands to 10 bits of mantissa,
 *                        and sum in f32: on GPUs several times as fast; the CPU rounds too, and gains
 *                        nothing. bf16 runs on any device, and CPUs with AVX512_BF16 multiply faster in it;
 *                        f16 needs devices with such kernels: cuda. fp8: products of weights
 *                        of the blocks multiply numbers of 8 bits, one scale a tensor (e4m3; gradients e5m2);
 *                        what is not such a product is in bf16 on GPUs, which must be of compute capability
 *                        8.9 or later, and in f32 on the CPU
 *   weights        str   model (default) | bf16: parameters that train are stored in bf16, without an f32
 *                        copy, and each update rounds by random bits, so that the expectation of the stored value
 *                        is the exact one; gradients and optimizer state stay f32. With precision f32, tf32
 *                        or bf16, on any device. The random bits come from seed, step, parameter and
 *                        element, not from the plan. Weights that are read begin rounded to nearest. Checkpoints hold
 *                        bf16 and are resumed with the same choice; tsr_trainer_store writes the same numbers
 *                        in the model's type. With evaluate_only also f16 and block types, as for a generator
 *   activations    str   f32 (default) | q8 | bf16 | auto: with evaluate_only, as for a generator
 *   fused_loss     str   on: output head and losses of tokens are one computation, a few rows at a time, so that
 *                        no logits are held, with any option loss and losses; off: two; auto (default): one on
 *                        GPUs where no plan is slower for it, and elsewhere where logits do not fit the memory
 *   loss_scaling   f64   first factor on the loss while it is differentiated, a power of two (default: 65536
 *                        with precision f16, else 0: none). A step whose gradient is not finite is left out
 *                        and halves it; tsr_trainer_step then takes the next batch (without a dataset: the
 *                        same data again). It is saved with checkpoints
 *   loss_scaling_interval  i64   finite steps after which the factor is doubled (default 2000)
 *   trained        str   names of parameters that train, written as those of `frozen`; all others do not (default:
 *                        all that can; in a model with adapters only these)
 *   frozen         str   names of parameters to leave untrained; "*" matches any characters; comma-separated
 *   loss           str   cross_entropy (default): of tokens | dpo | ipo | hinge | robust | orpo | simpo | cpo: of
 *                        preferences, with a dataset of pairs, of which `batch` are in a step | kto: with a dataset of
 *                        single answers with a label. docs/guides/training.md has the formulas. They sum log
 *                        probabilities of answers' tokens. Dropout is 0 unless the option dropout says otherwise. A model's auxiliary
 *                        loss of experts is added, as to cross_entropy. An option that a loss does not read is refused
 *   beta           f64   of all preference losses (default 0.1)
 *   label_smoothing  f64   fraction of pairs with swapped labels: of dpo, simpo, cpo, and of robust, below 0.5
 *                        (default 0)
 *   simpo_gamma    f64   of simpo: the margin (default 0.5)
 *   cpo_alpha      f64   of cpo: weight of the chosen answers' token loss (default 1)
 *   desirable_weight     f64   of kto: weight of wanted answers (default 1)
 *   undesirable_weight   f64   of kto: weight of unwanted answers (default 1)
 *   reference      str   of dpo, ipo, hinge, robust and kto: the path of a model with the same vocabulary, read and freed
 *                        before the first step (default: the model as it is given, without its adapters). Its log
 *                        probabilities are computed once, on these devices, and lie in the dataset's cache, where that
 *                        has one, for the next run
 *   losses         str   what tsr_trainer_forward_backward and tsr_trainer_backward may compute, comma-separated:
 *                        cross_entropy, importance_sampling, ppo, cispo, dro, gspo, gradient (default "": steps are
 *                        whole, and no memory is held for their parts). Without a dataset the model is a language model all the
 *                        same, and tsr_trainer_step wants its inputs fed
 *   batch_segments i64   1: a row of tsr_batch may hold several documents (default 0)
 *   eval_batches   i64   most batches tsr_trainer_evaluate reads (default 0: the whole evaluation part)
 *   evaluate_only  i64   1: no training step is planned or held, only tsr_trainer_evaluate works (default 0)
 *   measure_memory i64   1 (default): the first two steps also measure the memory really touched; 0: not
 *   trace          i64   1: record runs, for tsr_trainer_take_trace, and predicted runs, for tsr_plan_trace
 *                        (default 0)
 *   host_memory_limit    i64 bytes or str, of host memory for offloaded tensors, all devices together
 *                        (default 0: no limit)
 *   offload_folder str   folder of tensors offloaded to file, in files without a name (default: $TMPDIR, else
 *                        /tmp)
 *   watchdog       f64   seconds without progress, while every device waits for others, after which a step
 *                        fails with TSR_TIMEOUT, naming the devices that wait and for what (default 60; 0:
 *                        never)
 * TSR_INVALID_ARGUMENT for a dataset in whose held-out rows no label counts. TSR_OUT_OF_MEMORY when no plan fits, before any
 * large allocation. TSR_FAILED_PRECONDITION where processes that run together (option processes of tsr_runtime_new) differ in an option
 * other than devices, in the data or in the model's graph.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_IO,
 * TSR_FAILED_PRECONDITION, TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_trainer_new(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                                    const tsr_options* options, tsr_trainer** out_trainer);

/* The same as long work: planning, log probabilities of a preference loss's reference, and upload of the model's values. A
 * step fails as tsr_trainer_new does; tsr_runtime_cancel ends it.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_trainer_begin(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                                      const tsr_options* options, tsr_work** out_work);
TSR_API tsr_status* tsr_trainer_finish(tsr_work* work, tsr_trainer** out_trainer);

/* Feeds an input of an own graph; it keeps its value until fed again. Copies. dims are those of the whole
 * batch. TSR_INVALID_ARGUMENT for token ids, positions and labels outside the tables and the vocabulary that they
 * index (a negative label is left out of the loss), and for what the trainer feeds itself: "lr", "step", "seed",
 * and with a dataset "tokens", "labels" and "loss_scale".
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_BUSY. */
TSR_API tsr_status* tsr_trainer_feed(tsr_trainer* trainer, const char* input, const tsr_tensor* value);

typedef struct tsr_step {
  size_t struct_size;
  int64_t step;      /* 1 for the first */
  double loss;       /* of the batch, before the update */
  double grad_norm;  /* global, before clipping */
  double lr;
  double seconds;    /* wall time of this step */
  /* Of a preference loss, before the update; else 0. A reward is beta times the excess of an answer's log probability (a mean over
   * its tokens with orpo and simpo) over the reference's, or without a reference times that log probability. */
  double chosen_reward;    /* mean over the batch; with kto over wanted answers */
  double rejected_reward;  /* with kto over unwanted answers */
  double reward_margin;    /* chosen_reward - rejected_reward */
  double reward_accuracy;  /* share of pairs whose chosen answer has the higher reward; with kto of answers on the right
                              side of the batch's reference point */
} tsr_step;

/* One optimizer step. out_step may be NULL.
 *
 * A loss or a gradient that is not finite is TSR_NOT_FINITE: such a step is left out inside the
 * program (parameters and optimizer state keep their values, the step is not counted), so the trainer can
 * still be stored, saved, or stepped again after feeding other data, which is up to the caller; the next
 * tsr_trainer_step of a dataset takes the next batch. After TSR_CANCELLED or a device error the values on the
 * devices are lost, and calls that need them are TSR_VALUES_LOST: tsr_trainer_resume, or free.
 *
 * Rows of a dataset in which no label counts make no step: where a whole step has only such rows, they are skipped
 * (parameters, optimizer state, step number and schedule stay), and the step takes the next
 * rows. The log warns of the first; "unlabelled_steps" of tsr_trainer_report counts them. TSR_FAILED_PRECONDITION
 * where no row for training has a label, and where all labels that were fed are negative (unless loss_scale was fed).
 * Codes: TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_FAILED_PRECONDITION, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT, TSR_IO,
 * TSR_CHANGED. */
TSR_API tsr_status* tsr_trainer_step(tsr_trainer* trainer, tsr_step* out_step);

/* The rate of the next step and of those after it, in place of the schedule's; below 0: the schedule's again. Factors of
 * groups apply to it. A checkpoint does not hold it. TSR_INVALID_ARGUMENT for no number, and above 1e6.
 * Codes: TSR_INVALID_ARGUMENT, TSR_BUSY. */
TSR_API tsr_status* tsr_trainer_set_lr(tsr_trainer* trainer, double lr);

/* Mean loss over the dataset's evaluation part (own graphs: of the inputs fed), without dropout or update. Of a preference
 * loss the report then has the rewards (tsr_trainer_report).
 * Codes: TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT, TSR_IO, TSR_CHANGED. */
TSR_API tsr_status* tsr_trainer_evaluate(tsr_trainer* trainer, double* out_loss);
/* An evaluation with all its numbers: {"loss": nats a label, "perplexity": e^loss, "accuracy": null | the share of labels that
 * are predicted, from 0 to 1, "labels", "correct": the counts of labels and of those predicted, "seconds"}. A label is
 * predicted where no token has a higher logit; equal logits all count. A fused loss is counted without holding logits. Counts
 * are the same on any plan to rounding of the logits. Graphs of your own have no known labels, and a preference loss counts
 * none: accuracy is null, labels and correct are 0. A preference loss has "rewards": {"chosen_reward", "rejected_reward",
 * "reward_margin", "reward_accuracy"}, as in tsr_step. A number that is not finite is null. Errors are those of
 * tsr_trainer_evaluate.
 * Codes: TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT, TSR_IO, TSR_CHANGED. */
TSR_API tsr_status* tsr_trainer_evaluate_all(tsr_trainer* trainer, tsr_text** out_text);

/* A step in parts, for losses and loops of your own (option losses, docs/guides/training.md): any number of
 * accumulations, each forward and backward over a batch from your memory, and an update. Gradients are added up on the
 * devices, where the plan has their place. tsr_trainer_step neither reads nor changes them.
 *
 * Arrays are [rows, seq], and are read before the call returns. Fewer rows than the option batch, and shorter ones than
 * the option seq, are filled up with tokens without weight; of more rows, make several batches. labels[t] is the token
 * that is to follow tokens[0..t]: the next one as a rule; negative: without weight, and the other values there count
 * as 0. */
typedef struct tsr_batch {
  size_t struct_size;
  int64_t rows, seq;
  const int32_t* tokens;
  const int32_t* labels;
  const int32_t* positions;       /* NULL: 0, 1, ... in each row */
  const int32_t* segments;        /* number of the document, with option batch_segments; NULL: one a row */
  const float* weights;           /* of tokens in cross_entropy, and in the mean of gspo; NULL: 1 */
  const float* sampler_logprobs;  /* of labels when they were drawn: for all losses except cross_entropy */
  const float* advantages;        /* of labels: for the same losses */
} tsr_batch;

/* Log probabilities of the labels, f32 [rows, seq], 0 where a label is negative; without dropout. "Arrays out": the
 * batch is computed in each call, so pass room for all at once.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT. */
TSR_API tsr_status* tsr_trainer_forward(tsr_trainer* trainer, const tsr_batch* batch, float* items, size_t capacity,
                                        size_t* out_count);

/* Adds the gradients of a loss of the batch, and returns its value and the log probabilities it is computed from (items
 * as above; NULL with capacity 0: none; out_count may be NULL). With p the log probability of a label, q
 * sampler_logprobs, A advantages, r = exp(p - q), clip(r) = min(max(r, 1 - eps_low), 1 + eps_high), sums over all
 * labels that are not negative:
 *   cross_entropy        -sum weights p
 *   importance_sampling  -sum r A
 *   ppo                  -sum min(r A, clip(r) A)
 *   cispo                -sum clip(r) A p, clip(r) a constant
 *   dro                  -sum (A p - beta / 2 (p - q)^2): direct reward optimization (arXiv:2405.19107), by token
 *   gspo                 ppo with the ratio of the token's document, exp(mean of p - q), as the value of r, whose gradient
 *                        is that of the token's own (GSPO-token, arXiv:2507.18071). A document is a row, or its tokens
 *                        of one segment. The mean weighs labels by weights, of which a document has some above 0
 * Options: scale f64, what the sum is multiplied by (default 1: sums, so that accumulations add up to the sum over all
 * their batches; 1 / labels for a mean); eps_low, eps_high f64 of ppo, cispo (0.2) and gspo (3e-4 and 4e-4, the paper's);
 * beta f64 of dro (0.05); aux_scale f64, the same as scale for a model's own auxiliary loss, a mean over the batch's rows (1). TSR_FAILED_PRECONDITION for a loss that is not among
 * the option losses.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT. */
TSR_API tsr_status* tsr_trainer_forward_backward(tsr_trainer* trainer, const tsr_batch* batch, const char* loss,
                                                 const tsr_options* options, double* out_loss, float* items,
                                                 size_t capacity, size_t* out_count);

/* Adds the gradients of sum(gradients * p), for a loss of your own with `gradients` f32 [rows, seq], its derivatives by the
 * log probabilities that tsr_trainer_forward returned. Needs the loss gradient among the option losses.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT. */
TSR_API tsr_status* tsr_trainer_backward(tsr_trainer* trainer, const tsr_batch* batch, const float* gradients,
                                         size_t count);

/* The update of tsr_trainer_step from the gradients added up since the last one, which are 0 afterwards. Options, of this
 * step alone: lr f64 (default: the schedule's), clip_norm f64 (0: no bound), and of optimizers adamw, adamw8, lion and sgd
 * their settings, beta1, beta2, eps, weight_decay, momentum; defaults and ranges are the trainer's. weight_decay is that of
 * parameters that decay without a group of their own. The plan stays as it is, and equal settings give equal bits.
 * out_step may be NULL; its loss is the sum of the accumulations' losses.
 * TSR_FAILED_PRECONDITION where there was no accumulation, TSR_NOT_FINITE where a loss or the norm is not finite;
 * TSR_FAILED_PRECONDITION also where none of the accumulations had a label that counts (negative ones, and those of weight 0, do not): parameters and optimizer state
 * keep their values, and the gradients are dropped.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED,
 * TSR_TIMEOUT. */
TSR_API tsr_status* tsr_trainer_optimizer_step(tsr_trainer* trainer, const tsr_options* options, tsr_step* out_step);

/* A checkpoint is a folder: parameters, optimizer state, step, place in the data, schedule and options,
 * independent of devices and plan. save replaces the folder at once or not at all. resume continues bit for
 * bit on equal devices, with the plan that the checkpoint records in place of the trainer's own (unless options parallel,
 * pins or plan_file ask for another), and to rounding on others, which the log reports; it refuses a checkpoint of another model
 * (TSR_INVALID_ARGUMENT names the first difference). Parameters that no step changes (option frozen, the base
 * under adapters) are not in it if the model was loaded with values: the first save or resume reads those once, for a
 * hash of each, and resume requires a model with the same. A value of tsr_trainer_write is in it. Gradients that wait for
 * tsr_trainer_optimizer_step are not: save is TSR_FAILED_PRECONDITION until then, and resume drops them. Where resume fails
 * on the way (TSR_CORRUPT for damaged tensors, TSR_IO) the values on the devices are lost, as after TSR_CANCELLED.
 * Codes: TSR_FAILED_PRECONDITION, TSR_EXISTS, TSR_BUSY, TSR_VALUES_LOST, TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT,
 * TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_trainer_save(tsr_trainer* trainer, const char* folder);
/* The same as long work. Until it is finished or freed the trainer is in use: other calls with it are
 * TSR_BUSY. A step fails as tsr_trainer_save does. Before finish the folder is as it was.
 * Codes: TSR_FAILED_PRECONDITION, TSR_EXISTS, TSR_BUSY, TSR_VALUES_LOST, TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_checkpoint_begin(tsr_trainer* trainer, const char* folder, tsr_work** out_work);
/* The same of a copy in host memory ("snapshot_bytes" in tsr_trainer_report). The copy is made before this returns: the
 * trainer may train on, or be freed, while any one thread writes the checkpoint. notes: texts and numbers by any keys, such
 * as a loop's best loss, which tsr_checkpoint_info returns as texts; may be NULL. Several at a time need a folder
 * each. Errors are those of tsr_trainer_save before it writes.
 * Codes: TSR_FAILED_PRECONDITION, TSR_EXISTS, TSR_BUSY, TSR_VALUES_LOST, TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_checkpoint_begin_snapshot(tsr_trainer* trainer, const char* folder, const tsr_options* notes,
                                                  tsr_work** out_work);
/* Puts the checkpoint in its place. Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_checkpoint_finish(tsr_work* work);
/* Whether tsr_trainer_save could write `folder` now, before the first step: TSR_EXISTS where it holds
 * files that belong to no checkpoint, TSR_BUSY where another process saves to it, TSR_NOT_FOUND, TSR_IO. Files that a killed
 * save left are removed; the checkpoint in it stays.
 * Codes: TSR_EXISTS, TSR_BUSY, TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_trainer_check_folder(const char* folder);
/* Continues from a checkpoint. TSR_INVALID_ARGUMENT, naming the checkpoint's value, this trainer's and the remedy, where
 * the option loss, optimizer, batch or accumulate, the data, the model, its adapters, the trained parameters or the option
 * weights differ; batch counts only where both train in whole steps (option losses). All else may differ, and is this
 * trainer's: docs/guides/runs.md has the list.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CORRUPT, TSR_IO, TSR_BUSY, TSR_CANCELLED. */
TSR_API tsr_status* tsr_trainer_resume(tsr_trainer* trainer, const char* folder);

/* The trained state, with or without the optimizer's. Options: optimizer (i64, default 1). With 1 save_state is
 * tsr_trainer_save and load_state is tsr_trainer_resume. With 0 save_state writes a checkpoint of parameters alone, a third
 * of the bytes under AdamW, and load_state takes the parameters of any checkpoint, whatever its optimizer, batch and data
 * were: the optimizer's state is 0, and the step and the place in the data are those of a new trainer. Values are equal bit
 * for bit on any devices and plan; those trained in bf16 (option weights) widen to f32. Errors are those of
 * save and resume; TSR_INVALID_ARGUMENT also where load_state with optimizer 1 finds parameters alone.
 * Codes: TSR_FAILED_PRECONDITION, TSR_EXISTS, TSR_BUSY, TSR_VALUES_LOST, TSR_NOT_FOUND, TSR_IO, TSR_INVALID_ARGUMENT,
 * TSR_CORRUPT, TSR_CANCELLED. */
TSR_API tsr_status* tsr_trainer_save_state(tsr_trainer* trainer, const char* folder, const tsr_options* options);
TSR_API tsr_status* tsr_trainer_load_state(tsr_trainer* trainer, const char* folder, const tsr_options* options);

/* The checkpoint's content: {"step", "values": {"batch", "optimizer", "lr", ...} as texts, and "holds": "parameters" where
 * it was saved without the optimizer, "parts": "1" of a training in parts (option losses), "adapters": null | {"rank",
 * "alpha", "on", and as texts "ranks", "alphas", "rslora", "dora", "also" where they are not the defaults}, the options of
 * tsr_model_add_adapters that make the model it is of, "base": null | {"path" of the
 * model's file ("" without one), "tensors", "bytes", "fingerprint"}, the parameters that it omits:
 * fingerprints are equal if their names, types and contents are, "tensors": [{"name", "dtype", "shape"}] in it,
 * "notes": texts of tsr_checkpoint_begin_snapshot}.
 * Codes: TSR_NOT_FOUND, TSR_CORRUPT, TSR_IO, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_checkpoint_info(const char* folder, tsr_text** out_text);

/* Copies the current values of all parameters into `model`, which may be the trained one or another with these
 * parameters. The model then holds a copy of them in host memory.
 * Codes: TSR_INVALID_ARGUMENT, TSR_BUSY, TSR_VALUES_LOST. */
TSR_API tsr_status* tsr_trainer_store(tsr_trainer* trainer, tsr_model* model);

/* Writes the .tsr file that tsr_trainer_store and then tsr_model_save would write, byte for byte, without that copy:
 * `model` stays as it is, and one tensor at a time is in host memory. Options: compress, as for
 * tsr_model_save.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO, TSR_BUSY, TSR_VALUES_LOST, TSR_CANCELLED. */
TSR_API tsr_status* tsr_trainer_save_model(tsr_trainer* trainer, const tsr_model* model, const char* path,
                                           const tsr_options* options);

/* One parameter or optimizer state ("<parameter>.m") by name. read is TSR_VALUES_LOST where the values are
 * lost.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_VALUES_LOST, TSR_BUSY. */
TSR_API tsr_status* tsr_trainer_read(const tsr_trainer* trainer, const char* name, tsr_tensor** out_tensor);
TSR_API tsr_status* tsr_trainer_write(tsr_trainer* trainer, const char* name, const tsr_tensor* value);

/* {"step", "unlabelled_steps" (tsr_trainer_step), "tokens_per_step", "plan": {as tsr_plan_info}, "devices": [{"name", "arena_bytes": {"predicted",
 *  "measured"}, "max_live_bytes", "shared_weight_bytes" as tsr_session_report, and "host_arena_bytes",
 *  "file_arena_bytes" where something is offloaded}],
 *  "comm": [{"collective", "axis", "calls", "bytes"}] (of all training steps),
 *  "allocations_after_first_step", "skipped_steps", "saving": {"model_bytes", "checkpoint_bytes": that a file of
 *  tsr_trainer_save_model and a folder of tsr_trainer_save hold, "memory_bytes": that either takes while it is
 *  written, "snapshot_bytes": host memory of tsr_checkpoint_begin_snapshot}, "preference": of a preference loss, the "rewards" of
 *  the last evaluation (tsr_trainer_evaluate_all)}. An arena holds steps and evaluations: measured is the highest
 * address used so far.
 * Codes: TSR_BUSY. */
TSR_API tsr_status* tsr_trainer_report(const tsr_trainer* trainer, tsr_text** out_text);
TSR_API tsr_status* tsr_trainer_take_trace(tsr_trainer* trainer, tsr_text** out_text);
TSR_API tsr_status* tsr_trainer_plan(const tsr_trainer* trainer, tsr_plan** out_plan);

/* Any thread: the step, evaluation or save in progress returns TSR_CANCELLED, and a resume before its first
 * change. Without a call in progress it has no effect. */
TSR_API void tsr_trainer_cancel(tsr_trainer* trainer);
TSR_API void tsr_trainer_free(tsr_trainer* trainer);

#ifdef TSR_UNSTABLE_API
/* ================================================================ adapters side by side */

/* Many low-rank adapters, trained in the same batches over one frozen model: a service's tenants, the candidates of a search.
 * Each has its own rows, rank, alpha, weights, loss scale, learning rate, optimizer settings, clipping, step and moments. An
 * adapter's values, losses and log probabilities are those that it would have alone with the same options, to the bit on
 * devices that do not split the batch (cpu:1, tp, pp), else to rounding: rows of an adapter are added up in their order, and a
 * batch without the others' rows gives the same sums. Adapters join and leave between passes; the plan stays.
 *
 *     tsr_adapter_trainer_new(runtime, model, options, &trainer);
 *     tsr_adapter_trainer_add(trainer, adapter_options, &adapter);            as many as there are slots
 *     tsr_adapter_trainer_forward_backward(trainer, adapter, &batch, "cross_entropy", NULL, &pass);
 *     tsr_adapter_trainer_update(trainer, adapter, step_options, &pass);      each adapter's passes are done in their order
 *     while (tsr_adapter_trainer_next(trainer, &text) == NULL && text of it) ...
 *     tsr_adapter_trainer_model(trainer, adapter, &tuned);                    to generate, to serve, to save
 *
 * Options: those of tsr_trainer_new without a dataset, of which batch and seq are the rows and tokens of a run, and
 *   adapters      i64   slots: adapters that may be there at once (default 8). The plan has the memory of all of them
 *   adapter_rank  i64   the largest rank (default 16); smaller ones are filled up with zeros
 *   adapter_weights  str  weights that may have adapters, as the option `on` of tsr_model_add_adapters (default: the same ones)
 *   adapter_dropout  i64  1: adapters may have dropout, each its own; for each weight the plan has memory of its operand more
 *                         (default 0)
 *   losses        str   as there (default cross_entropy)
 * optimizer is adamw, lion or sgd; precision f32 or tf32. A model's auxiliary loss, a mean over rows of several
 * adapters, is left out. tsr_plan_new takes the same options.
 * TSR_UNSUPPORTED for other optimizers.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_IO,
 * TSR_FAILED_PRECONDITION, TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_adapter_trainer_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                            tsr_adapter_trainer** out_trainer);

/* Adds an adapter. options: of tsr_model_add_adapters, and seed i64 of its first values and of dropout (default: the
 * trainer's). on defaults to the trainer's adapter_weights, rank to 16 or adapter_rank, if that is less. *out_adapter is its
 * number, which is not used again. Dropout, its own and the model's, is of passes with gradients: what is dropped follows from
 * seed, step, the number of the pass since the last update and the row in it, as in a tsr_trainer with that seed, in batches of
 * these rows. TSR_BUSY where all slots are taken; TSR_INVALID_ARGUMENT for a rank above adapter_rank, weights without slots,
 * and dropout without option adapter_dropout; TSR_UNSUPPORTED for dora, init pissa, also, and for alphas that make unlike
 * factors.
 * Codes: TSR_BUSY, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_NOT_FOUND, TSR_VALUES_LOST. */
TSR_API tsr_status* tsr_adapter_trainer_add(tsr_adapter_trainer* trainer, const tsr_options* options, int64_t* out_adapter);
/* The adapter leaves, with its passes that wait. Results that are finished stay.
 * Codes: TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_adapter_trainer_drop(tsr_adapter_trainer* trainer, int64_t adapter);

/* Each queues a pass of an adapter, whose number is *out_pass. Batches are those of tsr_trainer_forward and
 * tsr_trainer_forward_backward, are copied, and may have any number of rows. forward gives log probabilities; forward_backward
 * adds gradients of a loss (options: as there, without aux_scale); backward those of sum(gradients * p); update is the
 * adapter's optimizer step (options: of tsr_trainer_optimizer_step). What is wrong with a batch is refused here.
 * TSR_BUSY where more than 4,194,304 tokens would wait.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_BUSY, TSR_VALUES_LOST. */
TSR_API tsr_status* tsr_adapter_trainer_forward(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_batch* batch,
                                                int64_t* out_pass);
TSR_API tsr_status* tsr_adapter_trainer_forward_backward(tsr_adapter_trainer* trainer, int64_t adapter,
                                                         const tsr_batch* batch, const char* loss,
                                                         const tsr_options* options, int64_t* out_pass);
TSR_API tsr_status* tsr_adapter_trainer_backward(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_batch* batch,
                                                 const float* gradients, size_t count, int64_t* out_pass);
TSR_API tsr_status* tsr_adapter_trainer_update(tsr_adapter_trainer* trainer, int64_t adapter, const tsr_options* options,
                                               int64_t* out_pass);
/* Drops a pass that is not finished. Gradients of its rows that were computed stay until the adapter's next update.
 * Codes: TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_adapter_trainer_cancel_pass(tsr_adapter_trainer* trainer, int64_t pass);

/* Computes until a pass is finished, and gives its result as JSON: {"pass", "adapter", "kind": "forward", "forward_backward",
 * "backward" or "update", "loss": of a pass with gradients, the sum over its rows times the option scale; of an update that of
 * all rows since the last one, and of an update "step", "grad_norm" and "lr"; "error": {"code": TSR_*, "message"} where it
 * failed, which leaves other adapters alone}. Numbers that are not finite are null. An empty text: no pass waits.
 * Adapters take turns (deficit round robin by rows), and a batch is filled up with rows of all that wait for the same loss.
 * A failed pass's codes: those of tsr_trainer_forward_backward and tsr_trainer_optimizer_step. After TSR_CANCELLED, and any
 * other failure of a run, all adapters' values are lost.
 * Codes: none. */
TSR_API tsr_status* tsr_adapter_trainer_next(tsr_adapter_trainer* trainer, tsr_text** out_text);
/* Log probabilities of the labels of the pass whose result was the last, f32 [rows, seq] of its batch; none of an update.
 * Codes: none. */
TSR_API tsr_status* tsr_adapter_trainer_logprobs(const tsr_adapter_trainer* trainer, float* items, size_t capacity,
                                                 size_t* out_count);

/* A checkpoint of one adapter, as tsr_trainer_save writes that of a trainer of the model with this adapter alone: either
 * goes on from the other's, whatever its option batch. load adds the adapter. Options: optimizer (i64, default 1): with 1 it has
 * the checkpoint's optimizer state and step, and TSR_INVALID_ARGUMENT where that holds parameters alone; with 0 its values
 * alone, of any optimizer: the optimizer's state is 0, and so is the step. The seed of dropout is the checkpoint's.
 * Codes: TSR_NOT_FOUND, TSR_FAILED_PRECONDITION, TSR_EXISTS, TSR_BUSY, TSR_VALUES_LOST, TSR_CORRUPT, TSR_IO,
 * TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_adapter_trainer_save(tsr_adapter_trainer* trainer, int64_t adapter, const char* folder);
TSR_API tsr_status* tsr_adapter_trainer_load(tsr_adapter_trainer* trainer, const char* folder, const tsr_options* options,
                                             int64_t* out_adapter);

/* The model with the adapter's present values, as of tsr_model_add_adapters. It shares the values of the trainer's model.
 * Codes: TSR_NOT_FOUND, TSR_VALUES_LOST. */
TSR_API tsr_status* tsr_adapter_trainer_model(tsr_adapter_trainer* trainer, int64_t adapter, tsr_model** out_model);

/* {"slots", "rank", "weights", "slot_bytes": of one slot's values, gradients and optimizer state, "adapters": [{"adapter",
 *  "slot", "rank", "factor", "dropout", "step", "passes": that wait, "forward_tokens", "trained_tokens"}], "runs", "rows": computed for
 *  adapters, "batch", "queued_tokens", "trainer": as tsr_trainer_report}
 * Codes: none. */
TSR_API tsr_status* tsr_adapter_trainer_report(const tsr_adapter_trainer* trainer, tsr_text** out_text);
/* Any thread: the run in progress ends; see tsr_adapter_trainer_next. */
TSR_API void tsr_adapter_trainer_cancel(tsr_adapter_trainer* trainer);
TSR_API void tsr_adapter_trainer_free(tsr_adapter_trainer* trainer);
#endif

/* ================================================================ run log */

/* A run log: the course of a training run, in files for people and programs. It keeps its trainer, whose handle may be freed
 * first. One thread at a time uses a run log; while tsr_run_log_new, _step and _evaluation run, no other thread uses the
 * trainer.
 *
 *     tsr_run_log_new(trainer, options, &log);          after tsr_trainer_resume, where there is one
 *     for (...) tsr_trainer_step(trainer, &step), tsr_run_log_step(log);
 *     tsr_run_log_finish(log, NULL);
 *
 * Options
 *   metrics         str   file of JSON lines, each written at once and whole, "kind" first: "header" ("format":
 *                         "tessera-run", model, data, devices, plan, settings, limit), "step" (step, loss, lr, grad_norm,
 *                         seconds, tokens, tokens_per_second), "evaluation" (step, eval_loss, perplexity, accuracy where
 *                         it is known), "value" (step, name, value), "sample" (step, prompt, text), "checkpoint" (step,
 *                         path), "resume" (step), "end" (step, outcome). Numbers that are not finite are null. After a
 *                         resume at a step the lines up to it are kept, and new ones follow; a new trainer empties the
 *                         file first. TSR_EXISTS where the file has anything else
 *   tensorboard     str   folder for TensorBoard's event file: scalars train/loss, train/lr, train/grad_norm, train/seconds,
 *                         train/tokens_per_second, eval/loss, eval/perplexity, eval/accuracy and values by their names;
 *                         texts run (plan and settings) and sample
 *   report          str   self-contained HTML file: curves, memory predicted and measured, plan, physical limit,
 *                         settings, checkpoints, samples; replaced at once or not at all
 *   report_seconds  f64   least seconds from one replacement to the next (default 10; 0: every call)
 *   steps           i64   of the whole run, for the time that is left (default: the trainer's option steps)
 *   model           str   name of the model, to show (default "")
 *   data            str   name of the data, to show (default "")
 *   settings        str   JSON object shown with the trainer's own settings (default "": none)
 * Without the first three there are no files, and only tsr_run_log_summary is of use. TSR_INVALID_ARGUMENT, TSR_IO.
 * Codes: TSR_EXISTS, TSR_INVALID_ARGUMENT, TSR_IO. */
TSR_API tsr_status* tsr_run_log_new(tsr_trainer* trainer, const tsr_options* options, tsr_run_log** out_log);

/* Logs the trainer's last step (or tsr_trainer_optimizer_step): once after each. Later entries get that step's number.
 * TSR_FAILED_PRECONDITION where the trainer has made no step that is not in the log yet. Here and below TSR_IO where a file
 * cannot be written, on a full disk for example: the call is in the log, a later one writes what is missing, and the
 * training may go on.
 * Codes: TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_run_log_step(tsr_run_log* log);
/* Logs a held-out loss, nats a token; accuracy: share of tokens, from 0 to 1, or NaN where it is not known; else
 * TSR_INVALID_ARGUMENT.
 * Codes: TSR_INVALID_ARGUMENT, TSR_IO. */
TSR_API tsr_status* tsr_run_log_evaluation(tsr_run_log* log, double loss, double accuracy);
/* Logs any other number by its name: "rewards/margin". TSR_INVALID_ARGUMENT: an empty name.
 * Codes: TSR_INVALID_ARGUMENT, TSR_IO. */
TSR_API tsr_status* tsr_run_log_value(tsr_run_log* log, const char* name, double value);
/* Logs a prompt, and the model's continuation of `size` bytes; the first 64 KiB of each. Codes: TSR_IO. */
TSR_API tsr_status* tsr_run_log_sample(tsr_run_log* log, const char* prompt, const char* text, size_t size);
/* Logs a checkpoint that was written to `path`. Codes: TSR_IO. */
TSR_API tsr_status* tsr_run_log_checkpoint(tsr_run_log* log, const char* path);

/* The run so far: {"step", "steps", "loss", "smooth_loss", "eval_loss", "first_eval_loss", "best_eval_loss", "best_eval_step",
 *  "step_seconds" (the median of the last twenty), "fastest_step_seconds", "tokens_per_second", "seconds", "seconds_left",
 *  "memory_bytes" (predicted, of the fullest device), "unlabelled_steps", "limit": {"seconds", "share": of step_seconds, "terms": [{"phase",
 *  "flops", "bytes", "seconds", "bound": "products" or "memory"}], "flops_per_s", "bytes_per_s", "rates": "measured" (a
 *  device profile's) or "stated" (the backend's)}}; values not known yet are null. The limit is the least time of a step
 * on these devices: forward, backward and update each take their operations at the rate of large products, or parameters,
 * gradients and optimizer state once at the rate of memory, whichever is longer. Communication and activations count
 * nothing.
 * Codes: none. */
TSR_API tsr_status* tsr_run_log_summary(const tsr_run_log* log, tsr_text** out_text);

/* Completes the files. outcome: how the run ended, to show; NULL: "finished". Once; then TSR_FAILED_PRECONDITION.
 * Codes: TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_run_log_finish(tsr_run_log* log, const char* outcome);
/* Frees the log. The report of a run that was not finished says that the run stopped. */
TSR_API void tsr_run_log_free(tsr_run_log* log);

/* ================================================================ training run */

#ifdef TSR_UNSTABLE_API
/* A training run: a training from its first step to its result, as `tessera train` makes it. It steps its trainer, evaluates
 * held-out data, writes samples, keeps the newest checkpoints and the best, stops after a plateau, logs
 * (metrics, TensorBoard's events, a page), and at the end writes the model or its adapters. It advances by events:
 *
 *     tsr_run_new(trainer, options, &run);
 *     tsr_run_event event = {.struct_size = sizeof event, .kind = TSR_RUN_STEP};
 *     while (event.kind != TSR_RUN_END) tsr_run_next(run, &event);
 *     tsr_run_report(run, &text);
 *
 * A run keeps its trainer, whose handle may be freed first. One thread at a time uses a run; only tsr_run_stop may come from any
 * other. Between two calls the trainer may be used (tsr_trainer_set_lr, tsr_trainer_evaluate); tsr_trainer_step is the run's.
 * Checkpoints are written by a thread of the library from a copy, while the training goes on. A full disk, or an error of input
 * or output there, is an event TSR_RUN_WARNING, and the next checkpoint is tried; the third in a row is an error, and so are those
 * after it.
 *
 * A run that was killed resumes from its folder alone: make runtime, model, dataset and trainer as before, and give option
 * resume. Loss, data order, best step, patience and log go on as if nothing had happened.
 *
 * Options
 *   steps             i64   of the whole run, those of a resumed checkpoint included (default: the trainer's option steps)
 *   out               str   file or folder of the result, written at the end: .tsr, or GGUF where the name ends in .gguf; of a
 *                           model with adapters another name is a folder of adapters, as PEFT has it (default "": none)
 *   merge             i64   1: out is a model's file, with the adapters merged into its weights (default 0)
 *   checkpoint        str   folder of the newest checkpoint (default: OUT.checkpoint; without out that of resume)
 *   checkpoint_every  i64   steps between checkpoints; 0: none (default: a tenth of steps, rounded up)
 *   keep              i64   number of newest checkpoints to keep, above 1 also as CHECKPOINT.step-N, sharing files (default 1)
 *   resume            str   goes on from the checkpoint in this folder, or from that next to this model or these adapters,
 *                           which is kept where out or checkpoint differ; "auto": from the run's own checkpoint, where there is one,
 *                           else from the beginning
 *   overwrite         i64   1: an earlier run's result and checkpoint may be replaced (default 0: TSR_EXISTS)
 *   eval_every        i64   steps between evaluations of held-out data (default 0: one at the end)
 *   keep_best         i64   1: CHECKPOINT.best is the checkpoint with the least held-out loss, and out has its values (default 0)
 *   patience          i64   evaluations in a row without an improvement that end the run, with keep_best (default 0: never)
 *   min_delta         f64   minimum decrease of the held-out loss that is an improvement (default 0)
 *   samples           str   a text to continue at each evaluation and at the end, greedily; several, and one that
 *                           begins with [, as a JSON array
 *   sample_messages   str   a user's message to answer, likewise
 *   sample_tokens     i64   maximum tokens of each (default 48)
 *   metrics, tensorboard, report, report_seconds, model, data, settings   as of tsr_run_log_new */

/* Whether a run with these options could begin: their values, earlier runs' files, folders that cannot be written. model: also
 * whether it could be written to out; dataset: also whether it holds out what eval_every wants; each may be NULL. For a check
 * before long work. Errors are those of tsr_run_new.
 * Codes: TSR_INVALID_ARGUMENT, TSR_EXISTS, TSR_NOT_FOUND, TSR_IO. */
TSR_API tsr_status* tsr_run_check(const tsr_options* options, const tsr_model* model,
                                  const tsr_dataset* dataset);

/* Whether a new run may write its result to `out` and its checkpoints to the folder `checkpoint`: TSR_EXISTS where
 * an earlier run's are there, which would be lost; the message names the checkpoint's step. resumed: the checkpoint that the run
 * goes on from, which it may replace. Each may be NULL or "".
 * Codes: TSR_EXISTS. */
TSR_API tsr_status* tsr_run_check_paths(const char* out, const char* checkpoint, const char* resumed);

/* "Short text": the folder of the checkpoint that option resume means by `name`: the folder itself, or that next to a model or
 * adapters. TSR_NOT_FOUND.
 * Codes: TSR_NOT_FOUND. */
TSR_API tsr_status* tsr_run_resumed_folder(const char* name, char* buffer, size_t capacity, size_t* out_size);

/* Resumes the trainer where option resume says so, locks the checkpoint's folder (CHECKPOINT.lock) until the run is freed, and
 * opens files. TSR_INVALID_ARGUMENT for options, alone or against each other and the model; TSR_EXISTS where an
 * earlier run's files would be lost, TSR_BUSY where another process writes to the folder; TSR_NOT_FOUND, TSR_IO; of resume those of
 * tsr_trainer_resume; of samples those of tsr_engine_new_for_trainer and tsr_engine_submit.
 * Codes: TSR_INVALID_ARGUMENT, TSR_EXISTS, TSR_BUSY, TSR_NOT_FOUND, TSR_CORRUPT, TSR_IO, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY,
 * TSR_VALUES_LOST, TSR_CANCELLED. */
TSR_API tsr_status* tsr_run_new(tsr_trainer* trainer, const tsr_options* options, tsr_run** out_run);

enum {
  TSR_RUN_END = 0,        /* all is done: {"outcome": "finished", "stopped early at step 60" by patience, or "stopped at step 60" by
                             tsr_run_stop} */
  TSR_RUN_STEP = 1,       /* {"step", "loss", "grad_norm", "lr", "seconds", of a preference loss "chosen_reward", "rejected_reward",
                             "reward_margin", "reward_accuracy", as in tsr_step; "steps", "eval_loss", "tokens_per_second",
                             "seconds_left", "memory_bytes" as of tsr_run_log_summary} */
  TSR_RUN_EVALUATION = 2, /* as of tsr_trainer_evaluate_all, and "is_best": of those so far */
  TSR_RUN_SAMPLE = 3,     /* {"prompt", "text"} */
  TSR_RUN_CHECKPOINT = 4, /* a checkpoint is whole, and the newest: {"path", "step"} */
  TSR_RUN_PROGRESS = 5,   /* of the result that is being written: {"work": "writing tuned.tsr", "done": share} */
  TSR_RUN_NOTE = 6,       /* {"message"}: the reason for an early end, or for no further step; parts that a file cannot hold */
  TSR_RUN_WARNING = 7     /* {"message"}: a checkpoint or the log was not written, and is tried again */
};

typedef struct tsr_run_event {
  size_t struct_size;
  int32_t kind;        /* TSR_RUN_* */
  int64_t step;        /* steps that the trainer has made then */
  double loss;         /* of TSR_RUN_STEP and TSR_RUN_EVALUATION; else 0 */
  const char* details; /* JSON object, NUL-terminated; valid until the next call with this run */
  size_t details_size; /* bytes without the NUL */
} tsr_run_event;

/* Goes on until the next event, at most one step, evaluation, set of samples or slice of the result. After TSR_RUN_END it gives
 * TSR_RUN_END again. An error names the last good checkpoint. A step, evaluation or checkpoint that failed is tried again by the
 * next call (a step that was not finite with the next batch); at the end of a run each part is tried once, the result too where
 * another part failed, and the first error is given before TSR_RUN_END. Errors are those of tsr_trainer_step,
 * tsr_trainer_evaluate, tsr_trainer_save, tsr_engine_next and tsr_model_save; TSR_CANCELLED where tsr_run_stop was called while
 * the result was written.
 * Codes: TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_FAILED_PRECONDITION, TSR_BUSY, TSR_EXISTS, TSR_CANCELLED, TSR_ABORTED,
 * TSR_TIMEOUT, TSR_IO, TSR_OUT_OF_MEMORY, TSR_CORRUPT. */
TSR_API tsr_status* tsr_run_next(tsr_run* run, tsr_run_event* out_event);
/* Goes on to the end. Errors are those of tsr_run_next.
 * Codes: TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_FAILED_PRECONDITION, TSR_BUSY, TSR_EXISTS, TSR_CANCELLED, TSR_ABORTED,
 * TSR_TIMEOUT, TSR_IO, TSR_OUT_OF_MEMORY, TSR_CORRUPT. */
TSR_API tsr_status* tsr_run_finish(tsr_run* run);
/* Any thread, and signal handlers: after the step in progress the run saves a checkpoint and ends, without a result. */
TSR_API void tsr_run_stop(tsr_run* run);

/* An evaluation now, which counts as that of this step; where there was one, its numbers. Before the first step it is never the
 * best; after TSR_RUN_END it is of the values that the trainer has. As of tsr_trainer_evaluate_all.
 * Codes: TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_BUSY, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT, TSR_IO. */
TSR_API tsr_status* tsr_run_evaluate(tsr_run* run, tsr_text** out_text);
/* A checkpoint now, whole when this returns. TSR_FAILED_PRECONDITION where the run writes none; errors of tsr_trainer_save.
 * Codes: TSR_FAILED_PRECONDITION, TSR_EXISTS, TSR_BUSY, TSR_VALUES_LOST, TSR_IO, TSR_CANCELLED. */
TSR_API tsr_status* tsr_run_save(tsr_run* run);
/* After TSR_RUN_END: loads the values of the best step into the trainer, from its checkpoint. TSR_FAILED_PRECONDITION before;
 * TSR_NOT_FOUND where there is none.
 * Codes: TSR_FAILED_PRECONDITION, TSR_NOT_FOUND, TSR_CORRUPT, TSR_IO, TSR_BUSY. */
TSR_API tsr_status* tsr_run_load_best(tsr_run* run);

/* The state of the run: {"step", "steps", "outcome": null while it goes on, "losses": of this process's steps, "rewards": of a
 * preference loss, likewise, "evaluation": the last, as of tsr_trainer_evaluate_all; of what was written at the end, "eval_loss",
 * "evaluations": [{"step", ...}] of this process, "best_step", "best_loss", "stopped_early", "step_seconds",
 * "tokens_per_second", "best_eval_loss", "seconds", "limit" as of tsr_run_log_summary, "plan", "devices", "comm",
 * "allocations_after_first_step", "unlabelled_steps", "saving" as of tsr_trainer_report, "checkpoint", "checkpoint_every",
 * "saved_step": of the last whole checkpoint, "out", "out_kind": "model", "adapters" or "merged", "out_step": whose values the
 * result has, once it is written}; null where there is none.
 * Codes: none. */
TSR_API tsr_status* tsr_run_report(const tsr_run* run, tsr_text** out_text);
/* Waits for the checkpoint that is being written. NULL is allowed. */
TSR_API void tsr_run_free(tsr_run* run);
#endif  /* TSR_UNSTABLE_API */

/* ================================================================ generator */

/* Continues a text, token by token, on all given devices. A thread of its own computes; tsr_generator_next
 * collects. One second after the end of a text it releases its threads, as sessions and trainers do.
 * Generators over one model share its weights on CPU devices (tsr_session_report): a further one costs its caches
 * and scratch. A model's file that is mapped must not be written to meanwhile: a text then ends with
 * TSR_CHANGED.
 *
 * Options
 *   devices, parallel, measure, memory_limit   as for the trainer
 *   context      i64   tokens of the cache, prompt included (default: the model's context length, at
 *                      most 2048); -1: the model's context length as far as memory allows, at most 131072
 *   precision    str   f32 (default) | tf32 | bf16: the type of activations and caches; bf16 keeps
 *                      weights in bf16 at least. tf32: f32, but
 *                      products with f32 weights may round their operands to 10 bits of mantissa, as in
 *                      training
 *   weights      str   model (default: as the model has them) | bf16 | f16 | a block type: q4_0, q4_1, q5_0,
 *                      q5_1, q8_0, q2_k to q6_k, iq4_nl, iq4_xs, tq1_0, tq2_0, mxfp4, nvfp4, nf4, q1_0, q2_0. How
 *                      matrices and tables of embeddings that take more bits are kept on the devices:
 *                      generating costs little more than reading them once a token. They are converted when
 *                      the generator is made, as tsr_model_quantize with pure converts them, once for all
 *                      handles over the model; the model stays as it is. Rows that are no multiple of the
 *                      type's block take another, as there, or bf16; routers of experts, tables of positions
 *                      and adapters are bf16. TSR_INVALID_ARGUMENT names a value that the type does not hold
 *   activations  str   auto (default) | f32 | q8 | bf16: the type of the operands of weights. q8: for weights of block types
 *                      (not nf4) each row is rounded to 8 bits a number first, with a scale for every 32 (of types of
 *                      256 elements: 256), several times as fast. bf16: for weights in bf16 each number is rounded to
 *                      bf16 first, and sums stay f32; twice as fast for many rows on CPUs with AVX512_BF16. auto:
 *                      both, each where the devices have faster kernels for it. "activations" of the report says
 *                      which
 *   repack       str   auto (default) | off: on CPU devices, whether weights of block types that are multiplied by
 *                      q8 rows alone are copied once, for all handles over the model, into the order of the
 *                      kernels; off: they are read in place, for example from the model's file. Tokens
 *                      are the same
 *   trace        i64   1: record runs, for tsr_generator_take_trace (default 0)
 * and the settings of texts, unless tsr_generator_start_with replaces them:
 *   max_tokens   i64   tokens to generate (default 0: until the context is full)
 *   temperature  f64   default 0.8; 0: always the likeliest token
 *   top_k        i64   sample from this many of the likeliest tokens (default 0: all)
 *   top_p        f64   sample from the likeliest tokens whose probabilities sum to this (default 1)
 *   seed         i64   of the sampling: with it a prompt gives the same text each time. Where it is not given
 *                      every text draws a seed of its own, which the report names, so that it can be repeated
 *   echo         i64   1: the prompt is returned too, in front (default 0)
 *   special      i64   1: control tokens written out in the prompt, such as <s>, are these tokens; a beginning that the
 *                      tokenizer puts before texts is then not put there twice. 0 (default): they are read as letters,
 *                      and the first such prompt is logged
 *   stop         str   a text that ends the generation and is left out; several as a JSON array of strings. One
 *                      that a control token spells, or a part of it, ends the text before that token
 *   stop_ids     str   "2,13": further tokens that end it; the tokenizer's BOS and every one of
 *                      tsr_tokenizer_end_ids always do
 * The model needs the inputs "tokens" and "positions" and the output "logits".
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION, TSR_CANCELLED,
 * TSR_CHANGED. */
TSR_API tsr_status* tsr_generator_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                      tsr_generator** out_generator);
#ifdef TSR_UNSTABLE_API
/* A generator on the weights that a trainer trains, as tsr_engine_new_for_trainer is an engine on them: no copy, the
 * trainer's devices, plan and precision, and the same errors and ownership. Options: context, memory_limit, trace and those
 * of texts. A trainer's update in the middle of a text waits for the token that is being computed. The text so far is then
 * computed again, and its rest comes from the new weights.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_BUSY, TSR_VALUES_LOST, TSR_CANCELLED. */
TSR_API tsr_status* tsr_generator_new_for_trainer(tsr_trainer* trainer, const tsr_options* options,
                                                  tsr_generator** out_generator);
#endif  /* TSR_UNSTABLE_API */

/* Starts again; pending pieces of an earlier text are dropped. The text is encoded with BOS in front
 * where the model has one; an empty text starts from BOS alone. TSR_INVALID_ARGUMENT for a prompt longer than
 * the context. tsr_generator_start needs a tokenizer (TSR_FAILED_PRECONDITION); start_tokens takes ids as
 * they are, count >= 1.
 * A prompt that shares a prefix with an earlier one, as the turns of a conversation do, is computed from their first difference: the
 * caches still hold the prefix ("reused_tokens" of the report). The previous answer is computed again, in one
 * prefill with the tokens after it. On CPU devices tokens and logits equal those of computing all of it, bit for bit.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_generator_start(tsr_generator* generator, const char* prompt, size_t size);
TSR_API tsr_status* tsr_generator_start_tokens(tsr_generator* generator, const int32_t* ids, size_t count);

/* The same, with settings of this text alone: the options max_tokens to stop_ids of tsr_generator_new. Options
 * left out are the generator's own. So one generator draws any number of samples:
 *     tsr_options_set_i64(options, "seed", n);
 *     tsr_generator_start_with(generator, options, prompt, TSR_TEXT_END);
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_generator_start_with(tsr_generator* generator, const tsr_options* options,
                                             const char* prompt, size_t size);
TSR_API tsr_status* tsr_generator_start_tokens_with(tsr_generator* generator, const tsr_options* options,
                                                    const int32_t* ids, size_t count);

enum {
  TSR_PIECE = 0,   /* a token, and the text that it completes (possibly none) */
  TSR_PENDING = 1, /* no piece within the timeout */
  TSR_END = 2      /* the text is complete; `finish` says why */
};
enum { TSR_FINISH_NONE = 0, TSR_FINISH_LENGTH = 1, TSR_FINISH_STOP = 2, TSR_FINISH_CANCELLED = 3 };

typedef struct tsr_piece {
  size_t struct_size;
  int32_t kind;      /* TSR_PIECE, TSR_PENDING, TSR_END */
  int32_t finish;    /* TSR_FINISH_*, with TSR_END */
  int32_t token;     /* with TSR_PIECE; -1 for text alone */
  const char* text;  /* with TSR_PIECE: whole UTF-8 characters (invalid bytes are returned as they
                        are), NUL-terminated; valid until the next call on this handle */
  size_t text_size;  /* bytes without the NUL */
} tsr_piece;

/* The next piece. Waits at most timeout_s seconds (0: not at all; negative: as long as it takes). The texts
 * of all pieces, joined, are the generated text, without BOS or a leading dummy space.
 * Codes: TSR_FAILED_PRECONDITION, TSR_VALUES_LOST, TSR_ABORTED, TSR_TIMEOUT, TSR_CHANGED, TSR_NOT_FINITE. */
TSR_API tsr_status* tsr_generator_next(tsr_generator* generator, double timeout_s, tsr_piece* out_piece);

/* {"prompt_tokens", "reused_tokens": of those, in the caches from earlier texts, "tokens", "seed" (of this text), "prefill_seconds", "decode_seconds", "plan": {as
 * tsr_plan_info}, "devices": [as tsr_session_report], "token_reads": {"parameter_bytes", "full_cache_bytes"},
 * "launches_per_token"}; token_reads are the bytes that computing one token reads on all devices, with full
 * caches, and the last the kernels that it launches on one of them.
 * Codes: none. */
TSR_API tsr_status* tsr_generator_report(const tsr_generator* generator, tsr_text** out_text);

/* The trace since the last call, as tsr_session_take_trace. Once the text is complete; needs the option "trace".
 * Codes: TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_generator_take_trace(tsr_generator* generator, tsr_text** out_text);

/* Logits f32 [V] of the last token computed. Once the text is complete. Codes: TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_generator_logits(tsr_generator* generator, tsr_tensor** out_tensor);

/* Any thread: the text in progress ends, with TSR_FINISH_CANCELLED. */
TSR_API void tsr_generator_cancel(tsr_generator* generator);
TSR_API void tsr_generator_free(tsr_generator* generator);

/* ================================================================ engine */

/* Serves many requests at once over one model: every step computes tokens of all of them, new ones join between
 * steps, and the keys and values of common prefixes are computed once. A thread of its own computes while there are
 * requests; with parallel dp=K, K replicas compute, each on its share of the devices and with a thread of its own. On CPU devices the results of a request do not depend on other requests, bit for bit ("batch_invariant" of
 * the report). Weights are shared with other handles over the model, as for a generator.
 *
 * With several processes (tsr_runtime_world) an engine is over the devices of all: every process makes it with the same options, process 0 uses it, and
 * in the others tsr_engine_next waits until process 0 has freed its engine (TSR_EVENT_PENDING; an error where process 0 is lost), as tsr_engine_free does; other calls are
 * TSR_UNSUPPORTED there. Once a process is lost, requests end with that error, and new ones are refused with it.
 *
 *     tsr_engine_new(runtime, model, NULL, &engine);
 *     tsr_engine_submit(engine, options, "Once upon", TSR_TEXT_END, &request);
 *     while (tsr_engine_next(engine, -1, &event) == NULL && event.kind != TSR_EVENT_END)
 *       printf("%.*s", (int)event.text_size, event.text);
 *
 * Options
 *   devices, profile, parallel, plan_file, memory_limit, host_memory_limit, measure, tune   as for the trainer, except for dp:
 *                         with parallel "dp=K,..." the engine has K replicas of the model on equal shares of the devices, in
 *                         order ("dp=2,tp=2" of cpu:4: devices 0 and 1, 2 and 3), which the other words and plan_file plan
 *                         alike. Each has a cache of its own; CPU devices share one copy of the weights. Results are those
 *                         of one replica. A request is assigned to the replica with the least work before its prompt is computed, cached
 *                         tokens excluded; a waiting request moves to any replica with room. zero and
 *                         owt, which spread parameters over dp, are TSR_INVALID_ARGUMENT with it. Without dp: one replica
 *   precision, weights, activations, repack   as for a generator
 *   context         i64   tokens of a sequence at most, prompt included (default: the model's context, at most 2048)
 *   sequences       i64   computed at once by all replicas, each of which has an equal share, rounded up; further
 *                         ones wait (default 16)
 *   cache_tokens    i64   capacity of the cache in tokens, of all sequences and of ended ones, for
 *                         prompts with a common prefix; rounded up to pages of 64, then divided over replicas, rounded up: a
 *                         sequence has to fit one replica's share. Default: sequences * context, or what memory_limit (of
 *                         each device, as for the trainer) leaves room for, one context of each replica at least
 *                         (TSR_OUT_OF_MEMORY). Where they run out, the newest sequence of the lowest
 *                         priority is preempted, to be computed again
 *   window_cache_tokens   i64   of models with layers whose window is shorter than the context: capacity in tokens of the
 *                         separate pool of these layers, for all sequences; rounded and divided as
 *                         cache_tokens, which then counts for the other layers. A sequence holds there the window of its next
 *                         token; windows of ended texts are kept while there is room, else computed again. Default 0:
 *                         2 * sequences * (window + 64) + step_tokens, or one pool for all layers where that is not less
 *                         than cache_tokens; with memory_limit both pools shrink in that proportion. TSR_INVALID_ARGUMENT:
 *                         less than a window and step_tokens, and models without such layers
 *   cache_type      str   model (default: as they are computed) | f16 | bf16 | q8_0: element type of keys and values, also
 *                         of the draft model's. q8_0: 8 bits a number and a scale for each 32 of a head, 34 bytes;
 *                         TSR_INVALID_ARGUMENT where heads are not a multiple of 32 wide. Models with multi-head latent
 *                         attention (DeepSeek) have one latent vector and one rotated key of each token and layer in the
 *                         cache, whole on each device of tp; with `adapters` above 0 keys and values of every head
 *   prefix_cache    i64   0: no prefix of a prompt is read from the cache (default 1)
 *   state_snapshots i64   for models with recurrent layers: copies of their state, at which cached prefixes end; each takes as
 *                         much memory as a sequence's state. Default: as many as sequences, at least 4
 *   step_tokens     i64   maximum tokens of a replica's step; longer prompts take several (default 256)
 *   speculation     str   off (default) | ngram | draft | mtp: draft tokens are verified in the step of the next token,
 *                         as long as that pays. ngram: drafts are the continuation of an earlier occurrence in the text;
 *                         draft: drafts of a smaller model; mtp: of the model's own multi-token-prediction block, with keys
 *                         and values of one layer for `sequences` times `context` tokens, which count for memory_limit
 *                         (TSR_INVALID_ARGUMENT: the model has none). The generated tokens stay the same, sampled or not;
 *                         "speculated" and "accepted" of the report count them
 *   draft_model     str   with speculation=draft: path of that model, any that tsr_model_load takes. It has the same
 *                         vocabulary (TSR_INVALID_ARGUMENT), the engine's devices, precision and weights, a plan of its own,
 *                         and keys and values for `sequences` times `context` tokens, which count for memory_limit. Texts
 *                         longer than its own context continue without drafts
 *   draft_tokens    i64   draft tokens of a text in a step at most, 1 to 15 (default 4 for draft and mtp, 7 for ngram)
 *   embeddings      i64   1: requests may have the option embed (default 0). The last block is then computed of every token
 *                         of a step, also of prompts whose texts go on
 *   scored_tokens   i64   tokens of prompts in a step, at most, with log probabilities (default 64); their
 *                         logits take memory. More, such as step_tokens, is for engines that score much (score_from)
 *   adapters        i64   LoRA adapters that a step (of each replica) can mix, of those loaded with
 *                         tsr_engine_load_adapter (default 0)
 *   adapter_rank    i64   maximum rank of these adapters (default 16)
 *   adapter_on      str   blocks (default) | blocks,head | blocks,tables | blocks,head,tables: weights that these adapters may
 *                         change: the matrices of the blocks; the head too (lm_head, also where it is the token table); the
 *                         tables of which rows are looked up (embed_tokens, wpe). Head and token table cost the bytes of their
 *                         factors, adapters * adapter_rank * (width + vocabulary) numbers each; the head a product by token
 *                         with logits
 *   adapter_type    str   f32 (default) | bf16 | f16: element type of the adapters. Values of the second matrix times alpha/rank
 *                         and those of the first are rounded to the nearest when an adapter is loaded; sums are f32. A text is
 *                         the same alone and in a batch, and may differ from that of f32
 * and the defaults of requests: the sampling options of tsr_engine_submit. Settings that the model's
 * file recommends (a Hugging Face folder's generation_config.json, keys general.sampling.* of GGUF) are their defaults;
 * "recommended" of the report names those without effect here.
 * The model needs the inputs "tokens" and "positions" and the output "logits".
 *
 * Threads: submit, cancel, report and descriptor from any thread; next by one thread at a time.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION, TSR_IO,
 * TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_engine_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                   tsr_engine** out_engine);

#ifdef TSR_UNSTABLE_API
/* An engine on the weights that a trainer trains, for samples between its steps: it reads the trainer's memory
 * without a copy, on the trainer's devices, by its plan and in its precision, so that log probabilities are those of
 * tsr_trainer_forward to rounding. Adapters under training are part of the model. Data parallel ranks all compute the
 * same requests; parameters that zero=3 divides are gathered in each step.
 *
 * Each call that changes parameters (tsr_trainer_step, _optimizer_step, _write, _resume, _load_state) waits for the engine's
 * step in progress, not for its requests; the engine's next step waits for the call. The call drops all caches:
 * requests in progress are computed again from their tokens and go on with the new weights. Samples of one set of weights
 * are therefore collected before the next update.
 *
 * Options: context, sequences, cache_tokens, cache_type, prefix_cache, step_tokens, speculation off and ngram,
 * embeddings, scored_tokens, those of requests, and memory_limit, which counts the trainer's arena too (default: the
 * trainer's own). Options that the trainer has set (devices, parallel, precision, weights, ...) are TSR_INVALID_ARGUMENT.
 * TSR_UNSUPPORTED: draft models, speculation mtp, adapters of requests, tsr_engine_save_sequence and _restore_sequence, trainers of
 * precision fp8, and parameters that are offloaded. TSR_OUT_OF_MEMORY where the trainer leaves no room.
 * Where the trainer's values are lost (see tsr_trainer_step), requests end with TSR_FINISH_FAILED.
 * The trainer's handle may be freed first; the engine keeps what it needs of it. Threads: as for tsr_engine_new; the
 * trainer may be used by the same thread or another one.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_BUSY, TSR_VALUES_LOST, TSR_CANCELLED. */
TSR_API tsr_status* tsr_engine_new_for_trainer(tsr_trainer* trainer, const tsr_options* options,
                                               tsr_engine** out_engine);
#endif  /* TSR_UNSTABLE_API */

/* A request: a prompt that is continued. *out_request: its number, 0 for the first. An invalid request is an error here
 * (TSR_INVALID_ARGUMENT), without effect on others: an empty prompt, one that does not fit the context or cache_tokens, token
 * ids outside of the vocabulary, invalid grammars; TSR_NOT_FOUND for an adapter that is not loaded,
 * TSR_FAILED_PRECONDITION for texts without a tokenizer. Prompts as for tsr_generator_start and _start_tokens; messages
 * are a conversation (see tsr_chat_render), by the model's chat template with the beginning of the assistant's message.
 * Options of sampling
 *   max_tokens           i64   tokens to generate (default 0: until the context is full)
 *   min_tokens           i64   tokens before which no end token is drawn (default 0)
 *   temperature          f64   default 0.8; 0: always the likeliest token
 *   top_k, top_p         i64, f64   as for a generator
 *   min_p                f64   least probability of a token, as a share of the likeliest's (default 0)
 *   typical_p            f64   tokens whose surprise is nearest to the expected one, that sum to this (default 1)
 *   repetition_penalty   f64   divides logits of tokens in prompt or text, above 0 (default 1)
 *   presence_penalty, frequency_penalty   f64   subtracted from logits of tokens in the text, once, and for each
 *                              occurrence (default 0; -2 to 2)
 *   penalty_last         i64   tokens of the history that penalties see (default 0: all)
 *   logit_bias           str   JSON object {"token id": number}, added to logits
 *   seed                 i64   of the sampling; default: drawn, "seed" of the end's details
 *   ignore_eos           i64   1: the model's end tokens do not end a text (default 0)
 *   stop, stop_ids       str   as for a generator; at most 10,000 bytes of texts and 4,096 ids. Under a grammar
 *                              they end only a complete text; elsewhere they are text
 *   n                    i64   texts wanted, each an `index` of events (default 1; at most 128)
 *   best_of              i64   texts that are generated, of which the n likeliest are returned, by the mean log probability of
 *                              their tokens without the one that ends them (a text without tokens comes last), once
 *                              all have ended (default n)
 *   logprobs             i64   log probabilities of each token and of this many likeliest, at most 20, in its event's
 *                              details (default -1: none)
 *   prompt_logprobs      i64   the same of the prompt's tokens, in events TSR_EVENT_PROMPT before all others
 * and of the request
 *   priority             i64   the higher, the earlier (default 0)
 *   special              i64   as for a generator; for prompts that are text
 *   json_schema          str   JSON schema of the text (docs/guides/constraints.md: supported schemas)
 *   json                 i64   1: the text is JSON (default 0)
 *   regex                str   the whole text matches
 *   choices              str   JSON array: the text is one of them
 *   grammar              str   GBNF: the rule "root" matches the text
 *                              at most one of these five; needs a tokenizer. Reasoning before the answer to messages is
 *                              free (docs/guides/constraints.md)
 *   logits               i64   1: before each token an event TSR_EVENT_LOGITS is sent, and the text continues with
 *                              tsr_engine_answer (default 0)
 *   adapter              i64   of tsr_engine_load_adapter (default -1: none)
 *   keep                 i64   1: after its end tsr_engine_take_sequence returns its sequences (default 0)
 * and of requests without generation, which compute the prompt alone: they have one TSR_EVENT_END and, in addition, the
 * options priority, adapter and special (of scores); others are refused
 *   embed                i64   1: vectors, for tsr_engine_take_embedding (default 0); a prompt that is text is encoded with the
 *                              tokenizer's tokens around texts, as by tsr_embedder_embed, and is not cut
 *   pooling              str   auto (default; none where the model's file says so), mean, cls, last: as for
 *                              tsr_embedder_new | none: the hidden state of each token
 *   normalize            i64   likewise
 *   score_from           i64   the first token of the prompt with a log probability, for tsr_engine_take_scores
 *                              (default -1: none). Tokens before it are shared with other requests: to score completions
 *                              of a context, submit context and completion as a request each, with score_from the
 *                              context's count of tokens
 * and of messages: name, template, tools, documents, variables, now, continue_final_message as for tsr_chat_new and
 * tsr_chat_render, and
 *   tool_choice          str   auto (default): the model decides | none: it sees no tools, and no text of it is a call |
 *                              required: the answer is calls of tools, one or more | the name of a tool: one call of it.
 *                              Obliged calls are written in the template's own syntax, with arguments of the tools'
 *                              JSON schemas, behind reasoning, which is free (docs/guides/constraints.md); without
 *                              json_schema, json, regex, choices and grammar
 *   parse                i64   1: the answer is taken apart as by tsr_chat_parse (default 1); what a grammar limits is content:
 *                              the text of events is its content, reasoning is in details, and the whole message, with
 *                              calls of tools, in the details of the end
 * Where the cache has no room for it, or all `sequences` are in use, a request waits.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_engine_submit(tsr_engine* engine, const tsr_options* options, const char* prompt,
                                      size_t size, int64_t* out_request);
TSR_API tsr_status* tsr_engine_submit_tokens(tsr_engine* engine, const tsr_options* options, const int32_t* ids,
                                             size_t count, int64_t* out_request);
TSR_API tsr_status* tsr_engine_submit_messages(tsr_engine* engine, const tsr_options* options,
                                               const char* messages, size_t size, int64_t* out_request);

enum {
  TSR_EVENT_TOKEN = 0,   /* a token, and the text that it completes (possibly none) */
  TSR_EVENT_PENDING = 1, /* no event within the timeout, or no request in progress */
  TSR_EVENT_END = 2,     /* a text is complete; `finish` says why. A request has n of them */
  TSR_EVENT_PROMPT = 3,  /* log probabilities of a part of the prompt's tokens */
  TSR_EVENT_LOGITS = 4   /* logits of the next token, to be answered by tsr_engine_answer */
};
enum { TSR_FINISH_FAILED = 4 }; /* in addition to those of a generator: "error" of the details has the reason */

typedef struct tsr_event {
  size_t struct_size;
  int32_t kind;         /* TSR_EVENT_* */
  int32_t finish;       /* TSR_FINISH_*, with TSR_EVENT_END */
  int64_t request;      /* -1 with TSR_EVENT_PENDING */
  int32_t index;        /* of the request's texts */
  int32_t token;        /* with TSR_EVENT_TOKEN; -1 for text alone */
  const char* text;     /* with TSR_EVENT_TOKEN: whole UTF-8 characters (invalid bytes are U+FFFD),
                           NUL-terminated; valid until the next tsr_engine_next */
  size_t text_size;     /* bytes without the NUL */
  const char* details;  /* JSON object, or empty; likewise */
  size_t details_size;
} tsr_event;

/* The next event of any request. Waits at most timeout_s seconds; negative: as long as there are requests in progress.
 * Up to 4,096 events wait; then the engine waits for its caller.
 * Details of
 *   TSR_EVENT_TOKEN    with logprobs {"logprob", "top": [{"token", "logprob", "text"}]}, with parse {"reasoning": text} where
 *                      there is some
 *   TSR_EVENT_PROMPT   {"first": place in the prompt, "tokens": [{"token", "logprob" (null for the first token), "top"}]}
 *   TSR_EVENT_END      {"prompt_tokens", "cached_tokens": of these, read from the cache, "tokens", "seed", "waited_seconds":
 *                      before it was computed first, "reasoning_tokens": of "tokens", those of the reasoning and its marks,
 *                      0 without parse, "first_token_seconds": from the submission on, "seconds": in all,
 *                      "stop_token": the token that ended it, if any; it has no event and is not in "tokens". With logprobs
 *                      "stop_logprob" and "stop_top": of it, as "logprob" and "top" of a token's event, so that a loop
 *                      can teach when to stop. "logprob": sum over the text's tokens, which is that of their events,
 *                      where logprobs or best_of asked for it, "message": as of tsr_chat_parse, with parse; with "cut_call" where the
 *                      text ended within a call, "error": {"code": TSR_*, "message"}
 *                      where it failed}
 * null as a log probability: the token has probability 0.
 * Codes: TSR_VALUES_LOST, TSR_ABORTED, TSR_TIMEOUT, TSR_CHANGED. */
TSR_API tsr_status* tsr_engine_next(tsr_engine* engine, double timeout_s, tsr_event* out_event);

/* A file descriptor that can be read while events wait: for poll, select and event loops. The engine owns it: do not read
 * from it, and do not close it. TSR_IO where the system refuses one.
 * Codes: TSR_IO. */
TSR_API tsr_status* tsr_engine_descriptor(tsr_engine* engine, int32_t* out_descriptor);

/* After TSR_EVENT_LOGITS. logits: f32 [V] of the model, "Arrays out". answer: their replacements, from which the token is
 * drawn by the request's sampling settings; items NULL and count 0: unchanged. TSR_NOT_FOUND where that text does not
 * wait. -inf excludes a token; TSR_INVALID_ARGUMENT for NaN, +inf, or none left.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_engine_logits(const tsr_engine* engine, int64_t request, int32_t index, float* items,
                                      size_t capacity, size_t* out_count);
TSR_API tsr_status* tsr_engine_answer(tsr_engine* engine, int64_t request, int32_t index, const float* items,
                                      size_t count);

/* Sequences are values: the tokens of a prompt and of its text, whose keys and values stay in the cache while it has room,
 * and are computed again, on CPU devices to the same bits, where it has not. They hold their tokens alone: any
 * number of them may be kept, with or without their engine. tsr_engine_take_sequence: of a request with the option keep, once
 * that text has ended; TSR_NOT_FOUND else, and the second time. fork copies; rewind keeps the first `count` tokens,
 * 1 to all; tokens: "Arrays out". A sequence is used by one thread at a time.
 * Codes: TSR_NOT_FOUND, TSR_INVALID_ARGUMENT. */
TSR_API tsr_status* tsr_engine_take_sequence(tsr_engine* engine, int64_t request, int32_t index,
                                             tsr_sequence** out_sequence);
TSR_API tsr_status* tsr_sequence_fork(const tsr_sequence* sequence, tsr_sequence** out_sequence);
TSR_API tsr_status* tsr_sequence_rewind(tsr_sequence* sequence, size_t count);
TSR_API tsr_status* tsr_sequence_tokens(const tsr_sequence* sequence, int32_t* items, size_t capacity,
                                        size_t* out_count);
TSR_API void tsr_sequence_free(tsr_sequence* sequence);

/* Results of requests with the options embed and score_from, once they have ended with TSR_FINISH_STOP: "Arrays out". A call
 * with room for all takes them: TSR_NOT_FOUND from then on, as for other requests. Results that are not taken are kept
 * until the engine is freed. Those of embed are f32 [width] of the prompt, or with pooling none [tokens, width]; width:
 * tsr_engine_embedding_width (TSR_FAILED_PRECONDITION without the option embeddings). Scores are natural logarithms of the
 * tokens' probabilities, given all before them, f32 [tokens - score_from]; NaN for a text's first token; greedy [capacity],
 * or NULL: 1 where no token was likelier, 0 elsewhere.
 * Codes: TSR_NOT_FOUND, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_engine_take_embedding(tsr_engine* engine, int64_t request, float* items,
                                              size_t capacity, size_t* out_count);
TSR_API tsr_status* tsr_engine_embedding_width(const tsr_engine* engine, size_t* out_count);
TSR_API tsr_status* tsr_engine_take_scores(tsr_engine* engine, int64_t request, float* items, size_t capacity,
                                           uint8_t* greedy, size_t* out_count);

/* A request whose prompt is the sequence, then these tokens (count may be 0), as tsr_engine_submit_tokens. Without tokens, and
 * with the grammar of the text that the sequence was cut in, the grammar goes on within that text; else a new text begins.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_engine_submit_sequence(tsr_engine* engine, const tsr_options* options,
                                               const tsr_sequence* sequence, const int32_t* ids, size_t count,
                                               int64_t* out_request);

/* A sequence in a file, with the keys and values that are cached, and the state of recurrent layers after them; and back, into the cache as far as it has room. Among replicas,
 * the one that caches most of it is saved, and the one with most free cache restores it. Any thread; between two steps. TSR_CORRUPT for files that are damaged, TSR_INVALID_ARGUMENT for those of another model or other
 * settings; TSR_UNSUPPORTED to save one that was computed with an adapter.
 * Codes: TSR_NOT_FOUND, TSR_CORRUPT, TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_IO. */
TSR_API tsr_status* tsr_engine_save_sequence(tsr_engine* engine, const tsr_sequence* sequence, const char* path);
TSR_API tsr_status* tsr_engine_restore_sequence(tsr_engine* engine, const char* path,
                                                tsr_sequence** out_sequence);

/* A LoRA adapter for requests with the option `adapter`: a PEFT folder or a GGUF adapter, made for this model
 * (docs/guides/adapters.md). Any number may be loaded, as host memory holds them; `adapters` of them are mixed in a
 * step, and requests of others wait. The model's weights are neither changed nor copied. Any thread, while others are
 * served. TSR_INVALID_ARGUMENT for adapters of another model and ranks above adapter_rank, TSR_UNSUPPORTED for parts other
 * than low-rank products of the weights of adapter_on, TSR_FAILED_PRECONDITION for an
 * engine without the option adapters. drop: requests that use it go on, further ones are refused; TSR_NOT_FOUND the second
 * time.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_engine_load_adapter(tsr_engine* engine, const char* path, int64_t* out_adapter);
TSR_API tsr_status* tsr_engine_drop_adapter(tsr_engine* engine, int64_t adapter);

#ifdef TSR_UNSTABLE_API
/* The same of an adapter in memory, without a file: that of a model (tsr_model_add_adapters, tsr_model_load_adapters) as its
 * values are, or that which a trainer trains, as it is on the trainer's devices. The engine has a copy, in host memory, which
 * later steps do not change; model and trainer may be freed. Texts with it are, bit for bit, those with the same adapter saved
 * as a PEFT folder; their log probabilities are those of tsr_trainer_forward to rounding, where precision and weights of both
 * are the same. Dropout is left out.
 * The base has to be the engine's: the same names and shapes of parameters, none of which trains or has another value than
 * the engine's (TSR_INVALID_ARGUMENT names the first; one stored in another type may; of large ones that the two models do
 * not share three parts are compared).
 * Threads: the engine's side any, as above; the trainer is used, so one thread at a time, between its steps.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION. */
TSR_API tsr_status* tsr_engine_load_adapter_from_model(tsr_engine* engine, const tsr_model* model, int64_t* out_adapter);
/* TSR_BUSY while a run, or a checkpoint that is being written, has the trainer.
 * Codes: TSR_INVALID_ARGUMENT, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION, TSR_BUSY, TSR_VALUES_LOST, TSR_IO. */
TSR_API tsr_status* tsr_engine_load_adapter_from_trainer(tsr_engine* engine, tsr_trainer* trainer, int64_t* out_adapter);
#endif  /* TSR_UNSTABLE_API */

/* {"replicas", "requests", "running", "waiting": sequences, "steps", "tokens": computed, "cached_tokens": not computed again, "generated",
 * "preemptions", "speculated", "accepted": drafts verified, and drafts accepted, "draft_seconds": of "seconds", those of
 * the draft model or block, "adapters": loaded, "cache_tokens", "free_cache_tokens", "window_cache_tokens",
 * "free_window_cache_tokens": 0 where one pool has all layers, "window": the largest that is shorter than the context, or 0,
 * "context", "sequences", "batch_invariant", "recommended":
 * {"not_obeyed": [texts]}, "seconds": computing, "plan": {as tsr_plan_info}, "devices": [as tsr_session_report],
 * "draft_devices": [the same of the draft model or block, where there is one]}. Numbers are sums over the replicas, seconds too, which
 * they spend at the same time; "plan" is that of each, with the devices of all.
 * "devices" is as of the last time without requests.
 * Codes: none. */
TSR_API tsr_status* tsr_engine_report(const tsr_engine* engine, tsr_text** out_text);

/* Any thread: the request ends, with TSR_FINISH_CANCELLED for each text that has not ended. No effect on one that
 * has ended, or never existed. */
TSR_API void tsr_engine_cancel(tsr_engine* engine, int64_t request);
/* Requests in progress end without events. */
TSR_API void tsr_engine_free(tsr_engine* engine);

#ifdef TSR_UNSTABLE_API
/* ---- files of requests
 *
 * Many texts by an engine of their own: a file with a JSON object a line becomes one with a line of results for each, in the same
 * order. A line has "prompt" (a text), "messages" (a conversation) or "ids" (token ids), an "id" of any kind, which is copied,
 * and options of tsr_engine_submit except logits and keep; lists and objects (stop, stop_ids, logit_bias, json_schema, choices, tools,
 * ...) are JSON there, not text. "adapter" is the path of a LoRA adapter, from the file's folder, or a name. A line of results:
 * {"line": from 1, "id", "text", "finish": length, stop, cancelled or failed, "tokens", "seed", "prompt_tokens", and where they are
 * "ids", "logprobs", "prompt_logprobs", "stop_token", "message" (of an answer with more than its text, as of tsr_chat_parse), ...,
 * "error"}; of n texts "texts": [{"text", ...}].
 *
 *     tsr_request_file_open("requests.jsonl", "texts.jsonl", NULL, &file);
 *     tsr_request_file_start(file, runtime, model, NULL);
 *     while (done < 1) tsr_request_file_step(file, &done);
 *
 * Opens both files, and checks every line, before a model is there. path: "-" is standard input; pipes are copied to a file. out_path: ""
 * and "-" are standard output. Until all is done results are in OUT_PATH.part as they come, so that a process that is killed loses
 * none; devices, pipes and links get them in order instead. Memory does not grow with the files. Options
 *   adapters    str   JSON object {"name": "path"}: adapters that lines may name (default: none)
 *   ids         i64   1: results have the token ids of texts (default 0)
 *   json_schema, regex, grammar   str   of lines without one of them; one at most
 * TSR_INVALID_ARGUMENT with the line for what is no request; TSR_EXISTS where OUT_PATH.part is there.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_EXISTS, TSR_IO, TSR_CORRUPT. */
TSR_API tsr_status* tsr_request_file_open(const char* path, const char* out_path, const tsr_options* options,
                                          tsr_request_file** out_file);
/* Makes the engine, once, and loads the adapters that lines name. options: of tsr_engine_new; `adapters` is the number that lines name, at
 * most 8, and `adapter_rank` the largest, unless they are given. Errors are those of tsr_engine_new, and of
 * tsr_engine_load_adapter with the line. tsr_runtime_cancel ends it.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_CORRUPT, TSR_UNSUPPORTED, TSR_FAILED_PRECONDITION, TSR_IO, TSR_CANCELLED. */
TSR_API tsr_status* tsr_request_file_start(tsr_request_file* file, tsr_runtime* runtime, const tsr_model* model,
                                           const tsr_options* options);
/* Computes for a tenth of a second. *out_done: the share of the lines that is done; 1: the results are at OUT_PATH. A failed line has
 * its error in its result, and the others continue. To end early, free the file: what is done stays in OUT_PATH.part.
 * Codes: TSR_FAILED_PRECONDITION, TSR_IO, TSR_CANCELLED. */
TSR_API tsr_status* tsr_request_file_step(tsr_request_file* file, double* out_done);
/* {"requests": lines, "done", "failed", "first_failure": with its line, "" for none, "part": the file with what is done, "" where
 * there is none, "prompt_tokens", "cached_tokens", "tokens", "seconds", "tokens_per_second", "adapters": as lines name them, absent
 * without, "report": as tsr_engine_report, once all is done}; any time after open.
 * Codes: none. */
TSR_API tsr_status* tsr_request_file_report(const tsr_request_file* file, tsr_text** out_text);
TSR_API void tsr_request_file_free(tsr_request_file* file);
#endif  /* TSR_UNSTABLE_API */

/* ================================================================ scorer */

/* Computes the log probability of each token of given texts under a model, given all tokens before it in its text: the natural
 * logarithm. A sum over a text, divided by its tokens, negated, is the loss; exp of that the
 * perplexity. Plan and weights are made once, for any number of texts. The calling thread computes.
 *
 * A text is read in windows of `seq` tokens that begin at every multiple of `stride`. Each token is scored exactly
 * once, by the first window that it is in, with at least seq - stride tokens before it, or all of them. The
 * score of a token depends on the tokens before it alone: neither on those after it, nor on other texts.
 *
 * Options
 *   devices, parallel, measure, memory_limit   as for the trainer
 *   seq          i64   tokens of a window (default: the model's context length, at most 2048)
 *   stride       i64   from the begin of a window to that of the next, 1 to seq (default: half of seq). Smaller: more
 *                      tokens before each, and as much more work; seq: adjacent windows
 *   batch        i64   windows computed at once, over all devices (default: as many as devices). Memory for logits
 *                      grows with batch * seq
 *   bos          str   auto (default): every window begins with the beginning-of-sequence token, as one of its tokens,
 *                      where the model's tokenizer begins texts with it; a text's first token then has a score too |
 *                      always: also where it does not | none: tokens are taken as they are, and a text's first has no
 *                      score
 *   share_prefixes i64 1: what several texts begin with is computed and scored once, by an engine, which pads nothing; "cached_tokens"
 *                      of the report are those that were not computed again. Windows do it where stride, batch, parallel or plan_file is
 *                      given, where a text is longer than seq or begins with the BOS token that stands before it, and where no
 *                      engine serves the model. Plan and weights are made by tsr_scorer_start (default 0)
 *   precision, weights, activations, repack   as for a generator
 *   measure_memory i64 1: report the memory actually used (default 0)
 * Windows shorter than seq are computed in the shortest of seq, seq/4, seq/16, ... (at least 32) positions that holds
 * them. The model needs the inputs "tokens" and "positions", the output "logits", and causal attention.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION, TSR_CANCELLED,
 * TSR_CHANGED. */
TSR_API tsr_status* tsr_scorer_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                   tsr_scorer** out_scorer);

/* Scores texts, all at once: ids [count], one text after another, and lengths [text_count] of each, which add up to
 * count; lengths NULL: one text. out_logprobs [count]: NaN for a text's first token where no BOS is before it.
 * out_greedy [count], or NULL: 1 where no token was likelier, 0 elsewhere. Both are written on success only.
 * TSR_INVALID_ARGUMENT for ids outside the vocabulary, and for a text that begins with the BOS token where `bos` puts
 * one in front. TSR_NOT_FINITE where a probability is not a number.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT, TSR_CHANGED. */
TSR_API tsr_status* tsr_scorer_score(tsr_scorer* scorer, const int32_t* ids, size_t count, const size_t* lengths,
                                     size_t text_count, float* out_logprobs, uint8_t* out_greedy);

/* The same in steps, for progress. start copies ids and lengths, and drops an earlier start; step
 * computes the next `batch` windows (*out_done: the share that is done; 1 when all is), and after an error or
 * tsr_scorer_cancel the same again. The results are available at the end (else TSR_FAILED_PRECONDITION), until the
 * next start.
 *
 *     tsr_scorer_start(scorer, ids, count, lengths, text_count);
 *     while (done < 1) tsr_scorer_step(scorer, &done);
 *     tsr_scorer_logprobs(scorer, logprobs, count, NULL);
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_CANCELLED, TSR_ABORTED,
 * TSR_TIMEOUT, TSR_CHANGED. */
TSR_API tsr_status* tsr_scorer_start(tsr_scorer* scorer, const int32_t* ids, size_t count, const size_t* lengths,
                                     size_t text_count);
TSR_API tsr_status* tsr_scorer_step(tsr_scorer* scorer, double* out_done);
TSR_API tsr_status* tsr_scorer_logprobs(const tsr_scorer* scorer, float* items, size_t capacity,
                                        size_t* out_count);
TSR_API tsr_status* tsr_scorer_greedy(const tsr_scorer* scorer, uint8_t* items, size_t capacity,
                                      size_t* out_count);

/* {"sequences", "tokens", "scored_tokens", "windows", "positions": computed, padding included, "seconds", "seq",
 * "stride", "batch", "bos": the token that begins windows, -1: none, "plan": {as tsr_plan_info}, "devices": [as
 * tsr_session_report]}; of the texts started last.
 * Codes: none. */
TSR_API tsr_status* tsr_scorer_report(const tsr_scorer* scorer, tsr_text** out_text);

/* Any thread: the score or step in progress returns TSR_CANCELLED. */
TSR_API void tsr_scorer_cancel(tsr_scorer* scorer);
TSR_API void tsr_scorer_free(tsr_scorer* scorer);

/* tsr_scorer_new, tsr_scorer_score and tsr_scorer_free in one call.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION, TSR_NOT_FINITE,
 * TSR_VALUES_LOST, TSR_CANCELLED, TSR_ABORTED, TSR_TIMEOUT, TSR_CHANGED. */
TSR_API tsr_status* tsr_model_score(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                    const int32_t* ids, size_t count, const size_t* lengths, size_t text_count,
                                    float* out_logprobs, uint8_t* out_greedy);

/* ================================================================ embedder */

/* Computes a row of f32 numbers of each text: its vector (an embedding), or a classifier's logits. Plan and weights
 * are made once, for any number of texts. The calling thread computes. A text's row depends on that text alone: neither
 * on the other texts nor on padding, to the last bit.
 *
 * A text is encoded by the model's tokenizer with its tokens around texts ([CLS] and [SEP], <s> and </s>, BOS), and
 * cut at its end where it has more than seq tokens. The vectors of its tokens (output "hidden" [B, T, C]; of a decoder the
 * input of its head) are pooled to one. Classes are the logits [N] at its first token (output "logits"), of a
 * decoder at its last one that is not the padding token (output "class_logits").
 *
 * Options
 *   devices, parallel, measure, memory_limit   as for the trainer
 *   seq          i64   maximum tokens of a text (default: by the model's file, else its context length, at most
 *                      2048)
 *   batch        i64   texts computed at once, over all devices (default: 8 for each)
 *   output       str   embedding (default): [texts, C] | logits: [texts, N] of a classifier | probabilities: scores of the
 *                      same by the activation that a cross encoder's file names (none, sigmoid, softmax, tanh), else as
 *                      transformers' text-classification pipeline: the logits of a regression (problem_type), a sigmoid
 *                      of each of one class or of several labels at once (multi_label_classification), else softmax
 *   pooling      str   auto (default): as the model's file says (1_Pooling, pooling_type), else mean for attention in both
 *                      directions and last for causal one | mean: of all tokens | cls: the first | last.
 *                      TSR_FAILED_PRECONDITION for auto where a GGUF file says none or rank
 *   normalize    i64   1: vectors are scaled to length 1 (default: 1 where the model's file says so, else 0)
 *   pairs        i64   1: texts 2i and 2i + 1 make one row, as cross-encoders read them (default 0); too long ones lose
 *                      tokens of the longer text
 *   share_prefixes i64 1: as for a scorer: by an engine, without padding; batches of texts do it for pairs and classes, where batch,
 *                      parallel or plan_file is given, where a text is longer than seq, and where no engine serves the model (default 0)
 *   precision, weights, activations, repack   as for a generator
 *   measure_memory i64 1: report the memory actually used (default 0)
 * Texts are computed in the shortest of seq, seq/2, seq/4, ... (at least 32) positions that holds them.
 * TSR_FAILED_PRECONDITION for a model without such an output.
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION, TSR_CANCELLED,
 * TSR_CHANGED. */
TSR_API tsr_status* tsr_embedder_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                                     tsr_embedder** out_embedder);

/* Numbers of a row: C, of models with Dense modules the width of the last one, or N. Codes: none. */
TSR_API tsr_status* tsr_embedder_width(const tsr_embedder* embedder, size_t* out_count);

/* Rows of texts, all at once: text [size] holds them one after another, lengths [text_count] the bytes of each, which add
 * up to size. items [text_count, width] (with pairs [text_count / 2, width]): "Arrays out"; the texts are computed in each
 * call, so pass room for all at once.
 * TSR_FAILED_PRECONDITION without a tokenizer, TSR_NOT_FINITE where numbers are not finite.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_CANCELLED, TSR_ABORTED,
 * TSR_TIMEOUT, TSR_CHANGED. */
TSR_API tsr_status* tsr_embedder_embed(tsr_embedder* embedder, const char* text, size_t size,
                                       const size_t* lengths, size_t text_count, float* items, size_t capacity,
                                       size_t* out_count);

/* The same in steps, for progress. start copies texts, and drops an earlier start; start_ids takes token
 * ids as they are, one text after another, 1 to seq of each; step computes the next `batch` texts (*out_done: the share
 * that is done; 1 when all is), and after an error or tsr_embedder_cancel the same again. Rows [texts * width] are available
 * at the end (else TSR_FAILED_PRECONDITION), until the next start.
 * Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_NOT_FINITE, TSR_VALUES_LOST, TSR_CANCELLED, TSR_ABORTED,
 * TSR_TIMEOUT, TSR_CHANGED. */
TSR_API tsr_status* tsr_embedder_start(tsr_embedder* embedder, const char* text, size_t size,
                                       const size_t* lengths, size_t text_count);
TSR_API tsr_status* tsr_embedder_start_ids(tsr_embedder* embedder, const int32_t* ids, size_t count,
                                           const size_t* lengths, size_t text_count);
TSR_API tsr_status* tsr_embedder_step(tsr_embedder* embedder, double* out_done);
TSR_API tsr_status* tsr_embedder_rows(const tsr_embedder* embedder, float* items, size_t capacity,
                                      size_t* out_count);

/* {"texts", "tokens", "truncated": texts that were longer than seq, "positions": computed, padding included, "seconds",
 * "seq", "batch", "width", "output", "pooling", "normalize", "labels": of the classes, "activation": of probabilities, "plan":
 * {as tsr_plan_info}, "devices": [as tsr_session_report]}; of the texts started last.
 * Codes: none. */
TSR_API tsr_status* tsr_embedder_report(const tsr_embedder* embedder, tsr_text** out_text);

/* Any thread: the embed or step in progress returns TSR_CANCELLED. */
TSR_API void tsr_embedder_cancel(tsr_embedder* embedder);
TSR_API void tsr_embedder_free(tsr_embedder* embedder);

/* ---- importance matrices

 * For each input of a model's matrices the mean of its square over a text, by which an encoder (tsr_conversion_begin,
 * `imatrix`) weighs columns. A file of llama.cpp's form: GGUF, with general.type "imatrix". */

/* Long work: a step computes the next `batch` windows, finish writes the file. The text is cut into adjacent
 * windows; the rest after the last whole one is not read. ids are copied. Options
 *   seq      i64   tokens of a window (default: the model's context length, at most 512)
 *   batch    i64   windows at once, over all devices (default: as many as devices)
 *   bos      str   auto (default), always or none: as for tsr_scorer_new, in place of a window's first token
 *   name     str   of the text, noted in the file (default: none)
 *   devices, profile, parallel, plan_file, memory_limit, host_memory_limit, measure, tune: as for tsr_scorer_new
 * Sums of a window are of f32, those of windows of f64. begin fails as tsr_scorer_new does, with TSR_INVALID_ARGUMENT for
 * a text shorter than a window or ids that the model lacks, and as tsr_model_check_path does for out_path;
 * TSR_FAILED_PRECONDITION for a model that does not read "tokens" [B, T].
 * Codes: TSR_INVALID_ARGUMENT, TSR_NOT_FOUND, TSR_IO, TSR_UNSUPPORTED, TSR_OUT_OF_MEMORY, TSR_FAILED_PRECONDITION, TSR_CANCELLED, TSR_CHANGED. */
TSR_API tsr_status* tsr_imatrix_begin(tsr_runtime* runtime, const tsr_model* model, const int32_t* ids,
                                      size_t count, const char* out_path, const tsr_options* options,
                                      tsr_work** out_work);
/* Writes the file. out_report may be NULL: {"weights": count, "windows", "seq", "tokens": of the text that were read, "bos": the
 * token, -1: none}. Codes: TSR_INVALID_ARGUMENT, TSR_FAILED_PRECONDITION, TSR_IO. */
TSR_API tsr_status* tsr_imatrix_finish(tsr_work* work, tsr_text** out_report);

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_TESSERA_H_ */
