/* A library whose constructor leaves a mark: the file that PLANTED_MARK names. What loads it ran foreign code. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void leave_mark(void) {
  const char* path = getenv("PLANTED_MARK");
  if (path) close(open(path, O_WRONLY | O_CREAT, 0666));
}
