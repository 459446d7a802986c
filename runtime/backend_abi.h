/* The plugin ABI: one C table of functions per backend. The built-in CPU backend goes through the same table as a
 * dlopened plugin, so every CPU test exercises it.
 *
 * Rules. Tables start with their size and grow only at the end; the host checks the size before calling a function
 * that a plugin may lack (a null pointer is absence too). A plugin exports one symbol, `tsr_backend_v1`, links
 * nothing of libtessera, is loaded with RTLD_NOW | RTLD_LOCAL, and calls back only through tsr_host_api. No function
 * throws, aborts or exits. Functions return NULL for success or an error made by tsr_host_api::make_error.
 *
 * Threads. One thread issues work for a device at a time (except with TSR_BACKEND_BLOCKING); different devices may be
 * driven from different threads. Query functions (device_count, device_info, kernel_query) may be called from any thread at any time.
 */
#ifndef TESSERA_RUNTIME_BACKEND_ABI_H_
#define TESSERA_RUNTIME_BACKEND_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ABI_MAX_RANK 8
#define TSR_ABI_VARIANT_SIZE 48

typedef struct tsr_abi_error tsr_abi_error;   /* owned by the host */
typedef struct tsr_abi_device tsr_abi_device; /* owned by the plugin, as are the next three */
typedef struct tsr_abi_stream tsr_abi_stream;
typedef struct tsr_abi_event tsr_abi_event;
typedef struct tsr_abi_kernel tsr_abi_kernel;
typedef struct tsr_abi_comm tsr_abi_comm;

typedef struct tsr_abi_tensor {
  int32_t dtype; /* tessera DType */
  int32_t rank;
  int64_t dims[TSR_ABI_MAX_RANK]; /* local extents; row-major, contiguous */
} tsr_abi_tensor;

typedef struct tsr_abi_attr {
  const char* name;
  int32_t type; /* tessera AttrType: 0 i64, 1 f64, 2 string, 3 i64 list */
  int32_t count; /* of ints */
  int64_t i64;
  double f64;
  const char* string;
  const int64_t* ints;
} tsr_abi_attr;

typedef struct tsr_abi_factor {
  int32_t name; /* a character */
  int32_t range_count;
  int64_t global_extent, unit;
  int64_t begin[2], end[2];
} tsr_abi_factor;

typedef struct tsr_abi_kernel_desc {
  size_t struct_size;
  const char* op;
  int32_t op_version;
  int32_t attr_count, input_count, output_count, factor_count;
  const tsr_abi_attr* attrs;
  const tsr_abi_tensor* inputs;
  const tsr_abi_tensor* outputs;
  const tsr_abi_factor* factors;
  const char* variant; /* NULL: the best; else exactly this one, with the name that kernel_tune added, or an error */
} tsr_abi_kernel_desc;

/* A launch as kernel_launch takes it. */
typedef struct tsr_abi_launch {
  tsr_abi_kernel* kernel;
  const void* const* inputs;
  void* const* outputs;
  void* workspace;
} tsr_abi_launch;

typedef struct tsr_abi_kernel_info {
  size_t struct_size; /* set by the caller */
  char variant[TSR_ABI_VARIANT_SIZE];
  int64_t workspace_bytes;
  double seconds; /* predicted, with the device to itself */
} tsr_abi_kernel_info;

typedef struct tsr_abi_memory_info {
  size_t struct_size;   /* set by the caller */
  int64_t total_bytes;  /* of the device */
  int64_t used_bytes;   /* now, by all users: this process' arenas, context, libraries and code; other processes */
} tsr_abi_memory_info;

typedef struct tsr_abi_device_info {
  size_t struct_size; /* set by the caller */
  char name[128];
  int64_t memory_bytes;
  double matmul_flops_per_s, memory_bytes_per_s, launch_s;
  double link_bytes_per_s, link_latency_s; /* between two devices of this backend */
  int32_t shared_cores; /* > 0: devices are virtual and share this many cores */
  /* Between a device and memory of tier 1, each direction; 0: that is the device's own memory. */
  double host_link_bytes_per_s, host_link_latency_s;
} tsr_abi_device_info;

/* Matches tessera CollectiveKind, ReduceKind and the layout of CollectiveInst (graph/program.h). */
typedef struct tsr_abi_collective {
  size_t struct_size;
  int32_t kind, reduce, dtype, in_split_first, root, member_count;
  int64_t outer, middle, inner, elements;
  const int64_t* extents;  /* member_count entries, NULL when unused */
  const int64_t* extents2;
} tsr_abi_collective;

typedef struct tsr_abi_comm_counters {
  size_t struct_size; /* set by the caller */
  int64_t calls[8];   /* by CollectiveKind; 5 is send, 6 is recv; 7: calls of any kind that a capture may hold */
  int64_t bytes[8];   /* this member's share in ring-equivalent bytes, from the buffers really passed */
} tsr_abi_comm_counters;

/* The calls that a communicator is made for. */
typedef struct tsr_abi_comm_use {
  size_t struct_size;                    /* set by the caller */
  const tsr_abi_collective* collectives; /* each different one once */
  int32_t collective_count;
  int32_t messages;      /* largest number that one run sends from the first member to the second */
  int64_t message_bytes; /* the largest of them */
} tsr_abi_comm_use;

typedef struct tsr_host_api {
  size_t struct_size;
  void* host;
  /* code is a tessera StatusCode; the text is copied. Never NULL. */
  tsr_abi_error* (*make_error)(void* host, int32_t code, const char* message);
  void (*log)(void* host, int32_t level, const char* message); /* 0 debug .. 3 error */
  /* Runs body(context, 0..tasks-1) on the shared pool, the caller taking part; returns when all are done. A body
   * never waits on a communicator. Work partitions must depend on shapes, never on thread_count. */
  void (*parallel_for)(void* host, int64_t tasks, void (*body)(void* context, int64_t task), void* context);
  int32_t (*thread_count)(void* host);
  /* Memory for one task, at least `bytes`, aligned to 64: what is too large for the stack of a thread. NULL without
   * memory. Given back when the task ends, and kept for the next. */
  void* (*take_scratch)(void* host, size_t bytes);
  void (*give_scratch)(void* host, void* memory);
  /* The program's own memory for arenas that are host memory, aligned to `alignment`, of any content; NULL where it has
   * none to give. arena_allocate is NULL where the program brings none. */
  void* (*arena_allocate)(void* host, size_t bytes, size_t alignment);
  void (*arena_free)(void* host, void* memory, size_t bytes);
  /* Tells the program that this thread works for it from here on. */
  void (*thread_started)(void* host, const char* role, int32_t number);
} tsr_host_api;

/* Memory tiers as tessera Tier: 0 device, 1 host (pinned where that matters). */
enum { TSR_ALLOC_GUARDED = 1 /* place the end of the allocation against an inaccessible page where the backend can */ };

enum {
  /* Issued work is done when the function returns, and device memory is host memory. The host gives each stream of a
   * device a thread of its own (so several threads may issue for one device, each to its stream), and needs no
   * events. Without this flag one thread issues to all streams of a device, and events order them. */
  TSR_BACKEND_BLOCKING = 1,
  /* Fused kernels (matmul_add, layer_norm_grad) save much of the time of their parts: programs are lowered to them
   * where kernel_query says so. */
  TSR_BACKEND_FUSES = 2,
  /* The same of fused kernels whose results have the bits of their parts': an addition in f32 to a product. */
  TSR_BACKEND_FUSES_EXACTLY = 4
};

typedef struct tsr_backend_api {
  size_t struct_size;
  const char* name; /* "cpu" */
  int32_t abi_version; /* 1 */

  /* NULL when the backend can be used; else why not, in one line ("driver too old for CUDA 13"). */
  const char* (*unavailable_reason)(void);
  int32_t (*device_count)(void); /* INT32_MAX when devices are virtual */
  tsr_abi_error* (*device_info)(int32_t ordinal, tsr_abi_device_info* out);
  /* `host` carries this runtime's thread pool and log, and outlives the device. */
  tsr_abi_error* (*device_open)(const tsr_host_api* host, int32_t ordinal, tsr_abi_device** out);
  void (*device_close)(tsr_abi_device*);

  tsr_abi_error* (*memory_alloc)(tsr_abi_device*, int32_t tier, int64_t bytes, uint32_t flags, void** out);
  void (*memory_free)(tsr_abi_device*, int32_t tier, void* memory, int64_t bytes);

  tsr_abi_error* (*stream_create)(tsr_abi_device*, tsr_abi_stream** out);
  void (*stream_destroy)(tsr_abi_stream*);
  tsr_abi_error* (*stream_synchronize)(tsr_abi_stream*);
  tsr_abi_error* (*event_create)(tsr_abi_device*, tsr_abi_event** out);
  void (*event_destroy)(tsr_abi_event*);
  tsr_abi_error* (*event_record)(tsr_abi_event*, tsr_abi_stream*);
  tsr_abi_error* (*stream_wait)(tsr_abi_stream*, tsr_abi_event*);

  /* Any pair of tiers, and ordinary host memory on either side. in NULL fills with zero bytes. */
  tsr_abi_error* (*copy)(tsr_abi_stream*, const void* in, void* out, int64_t rows, int64_t row_bytes,
                         int64_t in_stride_bytes, int64_t out_stride_bytes);
  tsr_abi_error* (*fill)(tsr_abi_stream*, void* out, int32_t byte, int64_t bytes);

  /* query answers from shapes alone; prepare decides everything; launch only launches: no allocation, no look-up by
   * name, no host synchronisation. */
  tsr_abi_error* (*kernel_query)(int32_t ordinal, const tsr_abi_kernel_desc*, tsr_abi_kernel_info* out);
  tsr_abi_error* (*kernel_prepare)(tsr_abi_device*, const tsr_abi_kernel_desc*, tsr_abi_kernel** out);
  void (*kernel_destroy)(tsr_abi_kernel*);
  tsr_abi_error* (*kernel_launch)(tsr_abi_kernel*, tsr_abi_stream*, const void* const* inputs, void* const* outputs,
                                  void* workspace);
  uint64_t (*kernel_fingerprint)(int32_t ordinal); /* changes when an answer of kernel_query could */

  /* One communicator over `count` devices of this process; out gets one object per member. */
  tsr_abi_error* (*comm_create)(tsr_abi_device* const* devices, int32_t count, tsr_abi_comm** out);
  void (*comm_destroy)(tsr_abi_comm*);
  tsr_abi_error* (*comm_collective)(tsr_abi_comm*, tsr_abi_stream*, const tsr_abi_collective*, const void* in, void* out);
  tsr_abi_error* (*comm_send)(tsr_abi_comm*, tsr_abi_stream*, int32_t peer, const void* in, int64_t bytes);
  tsr_abi_error* (*comm_recv)(tsr_abi_comm*, tsr_abi_stream*, int32_t peer, void* out, int64_t bytes);
  void (*comm_abort)(tsr_abi_comm*); /* every waiter of the group returns kAborted; from any thread */
  void (*comm_counters)(tsr_abi_comm*, tsr_abi_comm_counters* out);

  /* Optional (may be NULL): whole entry points as one launch. */
  tsr_abi_error* (*capture_begin)(tsr_abi_stream*);
  tsr_abi_error* (*capture_end)(tsr_abi_stream*, void** out_graph);
  tsr_abi_error* (*replay)(tsr_abi_stream*, void* graph);
  void (*graph_destroy)(void* graph);

  /* Sends and receives between begin and end are one exchange: all are posted before any is waited for, so that a ring
   * of ranks may send and receive at once. Issued by the owner of the member. Required of backends with comm_send. */
  tsr_abi_error* (*comm_group_begin)(tsr_abi_comm*);
  tsr_abi_error* (*comm_group_end)(tsr_abi_comm*, tsr_abi_stream*);

  uint32_t flags; /* TSR_BACKEND_*; 0 when absent */
  /* Optional, for tests: this member makes short random waits, drawn from `seed`, where others could overtake it.
   * 0: none. */
  void (*comm_perturb)(tsr_abi_comm*, uint64_t seed);

  /* Optional: fuses consecutive launches of one stream into one (updates of many small tensors). Takes the first of
   * `count` and any number after it: *taken, 0 for none. Launching *out, without operands and workspace, gives the
   * same bits at the same addresses as the launches one after another; it writes nothing else except memory of its
   * own. kernel_destroy ends it, before the kernels that it was made of. The launches' lists of operands outlive it;
   * of a backend that blocks their addresses may change between launches, to memory that nothing else uses. */
  tsr_abi_error* (*kernel_fuse)(tsr_abi_device*, const tsr_abi_launch* launches, int32_t count, int32_t* taken,
                                tsr_abi_kernel** out);

  /* Optional: like kernel_query, but where the variant has several algorithms, runs them on memory of its own, waits
   * for them, and names the fastest after a colon: "cublaslt:31a2". kernel_query and kernel_prepare accept that name
   * in later processes too, as long as kernel_fingerprint is the same, and deliver exactly that algorithm or an error.
   * Different algorithms may give different bits. Never called while something runs. */
  tsr_abi_error* (*kernel_tune)(tsr_abi_device*, const tsr_abi_kernel_desc*, tsr_abi_kernel_info* out);

  /* Optional: events with the time at which the device passed them, for traces. event_record (also into a capture,
   * whose replays then record them) and event_destroy accept them. elapsed_ns: the time between two recorded and
   * passed events of a device. */
  tsr_abi_error* (*timed_event_create)(tsr_abi_device*, tsr_abi_event** out);
  tsr_abi_error* (*event_elapsed)(tsr_abi_event* begin, tsr_abi_event* end, int64_t* out_ns);

  /* Optional: the driver's figures of the device's memory. Null where device memory is host memory. */
  tsr_abi_error* (*memory_info)(tsr_abi_device*, tsr_abi_memory_info* out);

  /* Optional: comm_create for the calls in `use` only. All their resources are made here, so that no step allocates or
   * connects anything while other members run: a device that stops for it may be one that they wait for. Nothing is
   * made for calls that `use` leaves out. */
  tsr_abi_error* (*comm_create_for)(tsr_abi_device* const* devices, int32_t count, const tsr_abi_comm_use* use,
                                    tsr_abi_comm** out);

  /* Optional, where device memory is host memory: kernels whose variant's name goes on with ":interleaved" read an
   * operand that never changes in an order of their own, of the same bytes. They are asked for by name alone. Writes `in`, operand `operand` of the described kernel as
   * all others read it, to `out` in that order. Any thread. */
  tsr_abi_error* (*weight_arrange)(const tsr_abi_kernel_desc*, int32_t operand, const void* in, void* out);
} tsr_backend_api;

/* `host` serves make_error and log for calls without a device; it outlives the plugin. */
typedef const tsr_backend_api* (*tsr_backend_entry)(const tsr_host_api* host);
#define TSR_BACKEND_ENTRY_SYMBOL "tsr_backend_v1"

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_RUNTIME_BACKEND_ABI_H_ */
