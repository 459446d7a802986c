package tessera

import (
	"fmt"
	"sync"

	"tessera.dev/tessera/raw"
)

// LibraryVersion is the version of the library that the program runs with: "0.3.0".
func LibraryVersion() string {
	version := raw.Tsr_version()
	return fmt.Sprintf("%d.%d.%d", version/10000, version/100%100, version%100)
}

var version struct {
	once sync.Once
	err  error
}

// ready is the first use's check that the library fits the header that this module was generated from. Nothing else of the
// library is called where it does not.
func ready() error {
	version.once.Do(func() { version.err = checkVersion(uint(raw.TSR_VERSION)) })
	return version.err
}

func checkVersion(header uint) error { return failure(raw.Tsr_version_check(header)) }

// call is a C function without a handle.
func call(function func() uintptr) error {
	if err := ready(); err != nil {
		return err
	}
	return failure(function())
}
