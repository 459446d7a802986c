package tessera

// #include <stdlib.h>
import "C"

// Exit ends the program as the C function exit does. A program that runs with other processes (mpirun, srun) ends so rather than by os.Exit or the
// return of main, which end it without leaving the others: the launcher takes that for a crash.
func Exit(code int) { C.exit(C.int(code)) }
