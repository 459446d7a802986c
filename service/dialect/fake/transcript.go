package fake

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/wire"
)

var update = flag.Bool("update", false, "write the replies of transcripts again")

// Transcripts plays each testdata/NAME.http: a line with method and path, headers, an empty line, a body. What the engine is asked for,
// the status and the exact bytes of the reply are in NAME.golden.
func Transcripts(t *testing.T, made dialect.Dialect, models func() *Models) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		file := file
		t.Run(strings.TrimSuffix(filepath.Base(file), ".http"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := play(made, models(), text)
			golden := strings.TrimSuffix(file, ".http") + ".golden"
			if *update {
				if err := os.WriteFile(golden, found, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if wanted, err := os.ReadFile(golden); err != nil || !bytes.Equal(found, wanted) {
				t.Errorf("%v\nfound:\n%s\nwanted:\n%s", err, found, wanted)
			}
		})
	}
}

// play is what a transcript keeps.
func play(made dialect.Dialect, models *Models, text []byte) []byte {
	head, body, _ := bytes.Cut(text, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	method, target, _ := strings.Cut(lines[0], " ")
	header := http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	status, reply := ask(made, models, method, target, header, bytes.TrimSuffix(body, []byte("\n")))
	var told bytes.Buffer
	for _, asked := range models.Asked() {
		if asked.Messages != nil {
			fmt.Fprintf(&told, "messages %s\n", asked.Messages)
		} else {
			fmt.Fprintf(&told, "prompt %q %v\n", asked.Prompt.Words, asked.Prompt.Tokens)
		}
		fmt.Fprintf(&told, "options %s\n", wire.JSON(asked.Options))
		if asked.ToolChoice != "" {
			fmt.Fprintf(&told, "choice %s %s\n", asked.ToolChoice, asked.ToolName)
		}
	}
	fmt.Fprintf(&told, "status %d\n%s\n", status, reply)
	return told.Bytes()
}

func ask(made dialect.Dialect, models *Models, method, target string, header http.Header, body []byte) (status int, reply []byte) {
	server := &Server{Models: models, Dialects: []dialect.Dialect{made}}
	request := httptest.NewRequest(method, target, bytes.NewReader(body))
	request.Header = header
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.Bytes()
}

// Ask gives the status and the body of a reply.
func Ask(made dialect.Dialect, models *Models, method, target string, body []byte) (status int, reply []byte) {
	return ask(made, models, method, target, http.Header{}, body)
}

// Post is Ask for requests of models that echo, with a body.
func Post(made dialect.Dialect, target, body string) (status int, reply []byte) {
	return Ask(made, Echo(), http.MethodPost, target, []byte(body))
}
