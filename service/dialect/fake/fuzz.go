package fake

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"tessera.dev/service/dialect"
)

// Fuzz changes the requests of testdata/*.http that have a body: whatever is posted, the reply is no failure of the service, and
// an error is JSON.
func Fuzz(f *testing.F, made dialect.Dialect) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		head, body, _ := bytes.Cut(text, []byte("\n\n"))
		if method, target, _ := bytes.Cut(head, []byte(" ")); string(method) == "POST" {
			f.Add(string(target), body)
		}
	}
	f.Fuzz(func(t *testing.T, target string, body []byte) {
		known := false
		for _, endpoint := range made.Endpoints {
			known = known || endpoint.Path == target
		}
		for _, plain := range made.Plains {
			known = known || plain.Path == target
		}
		if !known {
			return
		}
		if status, reply := Post(made, target, string(body)); status >= 500 || status >= 400 && !json.Valid(reply) {
			t.Errorf("%d %s", status, reply)
		}
	})
}
