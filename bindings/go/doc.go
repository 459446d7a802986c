// Package tessera trains and runs models on every device of a machine.
//
// It is a layer over the C library, whose header tessera.h is the manual: options, reports and limits are described there.
//
// # Handles
//
// A handle frees itself when it is garbage, but the collector does not see the memory and threads behind it and may wait
// long: Close trainers, generators and models that are done with. Close may be called any number of times, from any
// goroutine and in any order; it frees at once, or as soon as the calls in progress end. A handle that is closed, nil or
// zero is refused with an Error of code InvalidArgument. Different handles may be used from different goroutines; one handle
// by one goroutine at a time, except where its type says more.
//
// # Errors
//
// Every error of the library is an *Error: errors.As finds its code and message, and errors.Is(err, tessera.ErrNotFound)
// asks for one code. A call that a context ended returns the context's error.
//
// # Memory
//
// The library reads memory of Go during calls alone. What it keeps it copies, except where a function says that it borrows
// (BorrowTensor, BorrowModel): such memory is C's or a mapping's, and is given back by a release function.
//
// # Building
//
// The module finds the installed library by pkg-config. With -tags tessera_static it becomes part of the program.
package tessera
