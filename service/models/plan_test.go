package models

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"tessera.dev/service/inference"
)

func TestPlansAreMadeOnceForEachStateOfAFile(t *testing.T) {
	folder := t.TempDir()
	path := writeModel(t, folder, "a")
	registry := open(t, Config{Paths: []string{folder}})
	first, err := registry.Plan(context.Background(), "a")
	if err != nil || !bytes.Contains(first, []byte(`"cache_tokens"`)) {
		t.Fatal(string(first), err)
	}
	again, err := registry.Plan(context.Background(), "a")
	if err != nil || &again[0] != &first[0] {
		t.Error("the plan was made twice", err)
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	changed, err := registry.Plan(context.Background(), "a")
	if err != nil || &changed[0] == &first[0] {
		t.Error("the plan of a changed file was not made again", err)
	}
	if _, err := registry.Plan(context.Background(), "b"); kindOf(err) != inference.NotFound {
		t.Error(err)
	}
	ctx, end := context.WithCancel(context.Background())
	end()
	if _, err := registry.Plan(ctx, "a"); err != context.Canceled {
		t.Error(err)
	}
}
