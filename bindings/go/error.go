// Package tessera trains and runs models on every device of a machine.
//
// It is a thin layer over the C library, whose header tessera.h is the manual. Handles free themselves when they are
// garbage, but the collector does not see the memory and threads behind them and may wait long: Close trainers,
// generators and models that are done with. Close may be called any number of times, from any goroutine and in any
// order; it frees at once, or as soon as the calls in progress end. What is closed, or nil, is refused with an Error of
// code InvalidArgument. Different handles may be used from different goroutines; one handle by one goroutine at a time,
// except where the header says more.
package tessera

import (
	"fmt"
	"tessera/raw"
)

// Code says what kind of error occurred; the values are those of tsr_code.
type Code int32

const (
	InvalidArgument    Code = 1
	NotFound           Code = 2
	Corrupt            Code = 3
	Unsupported        Code = 4
	OutOfMemory        Code = 5
	IO                 Code = 6
	Cancelled          Code = 7
	Aborted            Code = 8
	FailedPrecondition Code = 9
	Timeout            Code = 10
	Internal           Code = 11
)

// Error is what every fallible function of this package returns: use errors.As to see the code.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("tessera: %s: %s", raw.Tsr_code_name(int(e.Code)), e.Message)
}

// failure turns a status into an error and frees it.
func failure(status uintptr) error {
	if status == 0 {
		return nil
	}
	defer raw.Tsr_status_free(status)
	return &Error{Code(raw.Tsr_status_code(status)), raw.Tsr_status_message(status)}
}

// text takes over the text that a C function makes.
func text(ask func(out *uintptr) uintptr) (string, error) {
	var made uintptr
	if err := failure(ask(&made)); err != nil {
		return "", err
	}
	defer raw.Tsr_text_free(made)
	return raw.Tsr_text_data(made), nil
}
