// Package api_test checks what a program sees of package tessera, over the installed library.
package api_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"tessera.dev/tessera"
)

const description = "llama:L=2,C=32,H=4,KV=2,F=64,V=256,T=64"

func must[T any](t *testing.T, value T, err error) T {
	t.Helper()
	check(t, err)
	return value
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wanted[T comparable](t *testing.T, what string, found, want T) {
	t.Helper()
	if found != want {
		t.Fatalf("%s: found %v, wanted %v", what, found, want)
	}
}

// refused wants an error of a code whose text has a part.
func refused(t *testing.T, err error, code tessera.Code, part string) {
	t.Helper()
	if !errors.Is(err, code) || !strings.Contains(err.Error(), part) {
		t.Fatalf("found %v, wanted %v with %q", err, code, part)
	}
}

func second[T any](_ T, err error) error { return err }

func newRuntime(t *testing.T) *tessera.Runtime {
	t.Helper()
	r, err := tessera.NewRuntime(nil)
	return must(t, r, err)
}

// newModel is a small language model whose tokens are bytes.
func newModel(t *testing.T) *tessera.Model {
	t.Helper()
	model, err := tessera.NewModel(description, tessera.Options{"seed": 1})
	check(t, err)
	tokenizer, err := tessera.NewByteTokenizer()
	check(t, err)
	check(t, model.SetTokenizer(tokenizer))
	return model
}

// settled waits until there are no more goroutines than before.
func settled(t *testing.T, before int) {
	t.Helper()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 500 {
			t.Fatalf("found %d goroutines, wanted at most %d", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// collected runs the collector and finalisers until a condition holds.
func collected(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for i := 0; !condition(); i++ {
		if i == 500 {
			t.Fatalf("%s: not after 5 seconds of collecting garbage", what)
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
}
