/* The transport ABI: one C table of functions that moves bytes between the processes of a world. A transport computes
 * nothing: what is added up is added by the library, in the order of the ranks, so that the bits are those of one process.
 *
 * Rules are those of backend_abi.h: the table starts with its size and grows at the end only; a plugin exports one symbol,
 * `tsr_transport_v1`, links nothing of libtessera, and calls back only through tsr_host_api; no function throws, aborts or
 * exits; functions return NULL or an error made by tsr_host_api::make_error.
 *
 * Collective functions are called by every process of the world, or of the group, in the same order; each returns when its own part is
 * done. Waits end with kAborted (a tessera StatusCode) once the channel is aborted, by any process, or a process is lost.
 */
#ifndef TESSERA_RUNTIME_TRANSPORT_ABI_H_
#define TESSERA_RUNTIME_TRANSPORT_ABI_H_

#include <stddef.h>
#include <stdint.h>

#include "runtime/backend_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_TRANSPORT_HOST_NAME_SIZE 64

typedef struct tsr_transport tsr_transport;                 /* this process' end; owned by the plugin, as the next two */
typedef struct tsr_transport_channel tsr_transport_channel; /* a world's traffic of one session, apart from all other's */
typedef struct tsr_transport_group tsr_transport_group;     /* some processes of a channel */

typedef struct tsr_transport_options {
  size_t struct_size; /* set by the caller, as in the structs below */
  int64_t comm;       /* the program's own communicator (MPI_Comm_c2f); -1: the transport's world */
  double timeout_s;   /* a process that is not heard of for this time, or has not started within it, is lost; 0: never */
} tsr_transport_options;

typedef struct tsr_transport_info {
  size_t struct_size;
  int32_t process, processes; /* this one's number, and how many the world has */
  int32_t host, hosts;        /* likewise of the machines; processes of one host have consecutive numbers or not */
  char host_name[TSR_TRANSPORT_HOST_NAME_SIZE];
} tsr_transport_info;

/* Contiguous bytes to or from a process. The parts from one process to another match in their order. */
typedef struct tsr_transport_part {
  int32_t process; /* position in the group */
  void* data;      /* of a part that is sent it is only read */
  int64_t bytes;
} tsr_transport_part;

typedef struct tsr_transport_api {
  size_t struct_size;
  const char* name; /* "mpi" */
  int32_t abi_version; /* 1 */

  /* NULL when the transport can be used; else why not, in one line. */
  const char* (*unavailable_reason)(void);

  /* Collective over the world; `host` outlives the transport. */
  tsr_abi_error* (*open)(const tsr_host_api* host, const tsr_transport_options* options, tsr_transport** out);
  void (*close)(tsr_transport*);
  void (*describe)(tsr_transport*, tsr_transport_info* out);

  /* Collective over the world. */
  tsr_abi_error* (*open_channel)(tsr_transport*, tsr_transport_channel** out);
  void (*close_channel)(tsr_transport_channel*);
  /* `bytes` of process `root` to all; of every process to all, in their order. One thread at a time for a channel. */
  tsr_abi_error* (*broadcast)(tsr_transport_channel*, int32_t root, void* data, int64_t bytes);
  tsr_abi_error* (*gather)(tsr_transport_channel*, const void* in, int64_t bytes, void* out);
  /* Every wait of the channel ends, in all processes. Only the first call counts. From any thread; does not wait. */
  void (*abort)(tsr_transport_channel*, int32_t code, const char* message);
  /* The error of the abort, or of a lost process; NULL: none. From any thread. */
  tsr_abi_error* (*failure)(tsr_transport_channel*);

  /* Collective over `processes`, which are ascending and have this one. Groups are joined in the same order wherever two have processes in common. */
  tsr_abi_error* (*join)(tsr_transport_channel*, const int32_t* processes, int32_t count, tsr_transport_group** out);
  void (*leave)(tsr_transport_group*);
  /* Posts all parts, and waits for all: what is received is there, and what is sent may be overwritten. One thread at a time for a
   * group; groups are independent. */
  tsr_abi_error* (*exchange)(tsr_transport_group*, const tsr_transport_part* sends, int32_t send_count,
                             const tsr_transport_part* receives, int32_t receive_count);

  /* This process has computed or finished something; and the seconds since any process of the world has, as far as this one has heard
   * (some seconds late). From any thread; neither waits. */
  void (*note_activity)(tsr_transport*);
  double (*idle_seconds)(tsr_transport*);
} tsr_transport_api;

/* NULL where it speaks no ABI of this host; `host` serves make_error and log without a transport, and outlives the plugin. */
typedef const tsr_transport_api* (*tsr_transport_entry)(const tsr_host_api* host);
#define TSR_TRANSPORT_ENTRY_SYMBOL "tsr_transport_v1"

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_RUNTIME_TRANSPORT_ABI_H_ */
