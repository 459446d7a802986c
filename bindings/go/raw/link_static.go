//go:build tessera_static

package raw

// The archive comes first and has all symbols, so that the shared library of the same name is not needed.

// #cgo pkg-config: --static tessera
// #cgo LDFLAGS: -l:libtessera.a -Wl,--as-needed
import "C"
