/* own_mpi LEVEL: a program with MPI of its own makes a runtime on a communicator of the processes but the last.
 * LEVEL multiple: prints the worlds and reduces over the program's own communicator afterwards; single, finalized: prints the refusal. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include <tessera/tessera.h>

static int fail(tsr_status* status) {
  printf("refused: %s\n", tsr_status_message(status));
  tsr_status_free(status);
  return 3;
}

int main(int argc, char** argv) {
  const char* level = argc > 1 ? argv[1] : "";
  int given = 0, rank = 0, size = 1, sum = 0;
  MPI_Init_thread(&argc, &argv, strcmp(level, "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, rank == size - 1, rank, &part);
  tsr_options* options = NULL;
  tsr_status* status = tsr_options_new(&options);
  if (status == NULL) status = tsr_options_set_i64(options, "mpi_comm", MPI_Comm_c2f(part));
  if (status != NULL) return fail(status);
  if (strcmp(level, "finalized") == 0) MPI_Finalize();
  tsr_runtime* runtime = NULL;
  status = tsr_runtime_new(options, &runtime);
  tsr_options_free(options);
  const int refused = status != NULL ? fail(status) : 0;
  tsr_text* world = NULL;
  if (refused == 0 && tsr_runtime_world(runtime, &world) == NULL) printf("world of %d: %s\n", rank, tsr_text_data(world));
  tsr_text_free(world);
  tsr_runtime_free(runtime);
  if (strcmp(level, "finalized") == 0) return refused;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (refused == 0) printf("sum %d\n", sum);
  MPI_Finalize();
  return refused;
}
