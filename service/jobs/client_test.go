package jobs_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/files"
	dialectjobs "tessera.dev/service/dialect/jobs"
	"tessera.dev/service/inference"
	"tessera.dev/service/server"
)

// noModels is for a service of files and jobs alone.
type noModels struct{}

func (noModels) List() []inference.Info { return nil }
func (noModels) Open(context.Context, string) (inference.Model, error) {
	return nil, &inference.Error{Kind: inference.NotFound}
}

// TestTheOfficialClientUploadsTrainsPausesAndCancels runs testdata/openai_client.py with OPENAI_PYTHON, a Python that has openai.
func TestTheOfficialClientUploadsTrainsPausesAndCancels(t *testing.T) {
	python := os.Getenv("OPENAI_PYTHON")
	if python == "" {
		t.Skip("OPENAI_PYTHON is not set: a Python with the package openai")
	}
	s := start(t, t.TempDir())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := server.New(server.Config{Models: noModels{}, Dialects: []dialect.Dialect{files.New(s.store), dialectjobs.New(s.jobs)},
		Log: func(level, message string, fields map[string]any) {
			if level == "error" {
				t.Log(message, fields)
			}
		}})
	go served.Serve(listener, "", "")
	defer func() {
		ctx, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		served.Shutdown(ctx)
	}()
	client := exec.Command(python, "testdata/openai_client.py", fmt.Sprintf("http://%s/v1", listener.Addr()), "stories")
	out, err := client.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
