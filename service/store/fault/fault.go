// Package fault names the points of writing at which tests end the process, or let it fail. Outside of tests a point is nothing.
package fault

import "sync/atomic"

var hook atomic.Value // of func(point string) error

// Point is a place between two writes that a crash may separate.
func Point(name string) error {
	if at, ok := hook.Load().(func(string) error); ok {
		return at(name)
	}
	return nil
}

// Set is only for tests: at is called at every point, and its error becomes the error of the write.
func Set(at func(point string) error) { hook.Store(at) }
