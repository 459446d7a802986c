//go:build !tessera_static

// Package raw is tessera.h as SWIG wraps it; use package tessera.
package raw

// #cgo pkg-config: tessera
import "C"
