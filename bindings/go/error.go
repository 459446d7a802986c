package tessera

import (
	"fmt"

	"tessera.dev/tessera/raw"
)

// Code says what kind of error occurred; the values are those of tsr_code. A Code is itself an error, to be
// used as the target of errors.Is.
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
	NotFinite          Code = 12
	ValuesLost         Code = 13
	Busy               Code = 14
	Exists             Code = 15
	Changed            Code = 16
	Forked             Code = 17
)

// Aliases of the codes with Go's Err prefix, as in errors.Is(err, tessera.ErrNotFound).
const (
	ErrInvalidArgument    = InvalidArgument
	ErrNotFound           = NotFound
	ErrCorrupt            = Corrupt
	ErrUnsupported        = Unsupported
	ErrOutOfMemory        = OutOfMemory
	ErrIO                 = IO
	ErrCancelled          = Cancelled
	ErrAborted            = Aborted
	ErrFailedPrecondition = FailedPrecondition
	ErrTimeout            = Timeout
	ErrInternal           = Internal
	ErrNotFinite          = NotFinite
	ErrValuesLost         = ValuesLost
	ErrBusy               = Busy
	ErrExists             = Exists
	ErrChanged            = Changed
	ErrForked             = Forked
)

// String is the code's name: "not_found".
func (c Code) String() string { return raw.Tsr_code_name(int(c)) }

// Error implements error, so that a Code can be the target of errors.Is.
func (c Code) Error() string { return "tessera: " + c.String() }

// Error is the error of every call of this package that fails.
type Error struct {
	Code    Code
	Message string
	Numbers map[string]int64 // those of the message, by the keys of tsr_status_number: "smallest_limit_bytes"

	cause error // of a callback; nil for errors of the library alone
}

// Error is the code's name and the message.
func (e *Error) Error() string { return e.Code.Error() + ": " + e.Message }

// Is makes errors.Is(err, ErrNotFound) ask for the code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Unwrap is the error of a callback, such as an io.ReaderAt, that made the call fail.
func (e *Error) Unwrap() error { return e.cause }

// refuse is the error of a wrong argument.
func refuse(format string, values ...any) error {
	return &Error{Code: InvalidArgument, Message: fmt.Sprintf(format, values...)}
}

// failure turns a status into an error and frees it.
func failure(status uintptr) error {
	if status == 0 {
		return nil
	}
	defer raw.Tsr_status_free(status)
	return &Error{Code: Code(raw.Tsr_status_code(status)), Message: raw.Tsr_status_message(status), Numbers: numbers(status)}
}

func numbers(status uintptr) map[string]int64 {
	var all map[string]int64
	for i := int64(0); ; i++ {
		key := raw.Tsr_status_number_key(status, i)
		var value int64
		if key == "" || raw.Tsr_status_number(status, key, &value) == 0 {
			return all
		}
		if all == nil {
			all = map[string]int64{}
		}
		all[key] = value
	}
}
