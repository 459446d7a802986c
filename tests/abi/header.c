/* Compiled as C11 and as C++17 with -Wall -Wextra -pedantic -Werror: the header needs nothing before it, may be
 * included twice, and drags in no name that collides with these. */
#include "tessera/tessera.h"
#include "tessera/tessera.h"

static int runtime, model, status;

int uses_the_header(void);
int uses_the_header(void) {
  tsr_step step = {sizeof(tsr_step), 0, 0, 0, 0, 0, 0, 0, 0, 0};
  tsr_status* error = tsr_version_check(TSR_VERSION);
  const int result = error != NULL || step.step != 0 || tsr_status_code(NULL) != TSR_OK;
  tsr_status_free(error);
  return result + runtime + model + status;
}
