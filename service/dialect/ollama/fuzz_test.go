package ollama

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"tessera.dev/service/dialect/fake"
)

// FuzzReply: whatever the body, there is a reply below 500, which is JSON where it is an error.
func FuzzReply(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.http")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := bytes.Cut(text, []byte("\n\n"))
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if bytes.Contains(body, []byte("break")) {
			return // the script's own failure
		}
		status, reply := fake.Ask(New(), fake.Scripted(), "POST", "/api/chat", body)
		if status >= 500 || status >= 400 && !json.Valid(reply) {
			t.Errorf("%d %s", status, reply)
		}
	})
}
