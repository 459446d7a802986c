package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

var update = flag.Bool("update", false, "write the golden transcripts")

// fixed has one job in several states, and notes what it was asked.
type fixed struct {
	job   tuning.Job
	order tuning.Order
	once  tuning.Once
	query tuning.JobQuery
	page  tuning.Page
}

func (f *fixed) Create(_ context.Context, order tuning.Order, once tuning.Once) (tuning.Job, error) {
	f.order, f.once = order, once
	job := f.job
	job.Order, job.Plan, job.Status = order, nil, tuning.Validating
	job.Started, job.Finished, job.Result, job.ResultFile, job.TrainedTokens = 0, 0, "", "", 0
	if job.Seed < 0 {
		job.Seed = 42
	}
	return job, nil
}

func (f *fixed) Jobs(_ context.Context, _ string, query tuning.JobQuery) ([]tuning.Job, bool, error) {
	f.query = query
	return []tuning.Job{f.job}, true, nil
}

func (f *fixed) Job(_ context.Context, _, id string) (tuning.Job, error) {
	if id != f.job.ID {
		return tuning.Job{}, &inference.Error{Kind: inference.NotFound, Code: "not_found", Param: "id", Message: "no fine-tuning job with id \"" + id + "\""}
	}
	return f.job, nil
}

func (f *fixed) Events(_ context.Context, _, _ string, page tuning.Page) ([]tuning.Event, bool, error) {
	f.page = page
	return []tuning.Event{{ID: "ftevent-2", Created: 1700000001, Level: "info", Kind: "metrics", Message: "Step 1/30: training loss=4.1",
		Data: []byte(`{"step":1,"total_steps":30,"train_loss":4.1}`), Step: 1},
		{ID: "ftevent-1", Created: 1700000000, Level: "info", Kind: "message", Message: "The job started"}}, false, nil
}

func (f *fixed) Checkpoints(_ context.Context, _, _ string, page tuning.Page) ([]tuning.Checkpoint, bool, error) {
	f.page = page
	return []tuning.Checkpoint{{ID: "ftckpt_1", Job: f.job.ID, Created: 1700000002, Model: "ft:m:local::1:ckpt-step-10",
		Measures: tuning.Measures{Step: 10, Loss: 2.5, Accuracy: nan, ValidLoss: 2.25, ValidAccuracy: 0.5}}}, false, nil
}

func (f *fixed) Cancel(_ context.Context, _, _ string) (tuning.Job, error) {
	return f.moved(tuning.Cancelled), nil
}
func (f *fixed) Pause(_ context.Context, _, _ string) (tuning.Job, error) {
	return f.moved(tuning.Paused), nil
}
func (f *fixed) Resume(_ context.Context, _, _ string) (tuning.Job, error) {
	return f.moved(tuning.Queued), nil
}

func (f *fixed) moved(to tuning.Status) tuning.Job {
	job := f.job
	job.Status, job.Result, job.ResultFile, job.TrainedTokens = to, "", "", 0
	if !to.Ended() {
		job.Finished = 0
	}
	return job
}

var nan = tuning.Measures{}.Loss / tuning.Measures{}.Loss

func newFixed() *fixed {
	return &fixed{job: tuning.Job{ID: "ftjob-abcdefgh", Status: tuning.Succeeded, Created: 1700000000, Started: 1700000001, Finished: 1700000009,
		Result: "ft:m:local:dogs:abcdefgh", ResultFile: "file-9", TrainedTokens: 1470,
		Order: tuning.Order{Model: "m", TrainingFile: "file-1", Suffix: "dogs", Seed: 7, Method: tuning.Supervised},
		Plan: &tuning.Plan{Epochs: 3, Batch: 2, Steps: 30, StepsPerEpoch: 10, Context: 32, Rate: 2e-4, Multiplier: 1, Rank: 16, Alpha: 32,
			Examples: 20, Tokens: 490}}}
}

// call sends a request as the server does.
func call(d dialect.Dialect, method, target, body string, header http.Header) (int, string) {
	path, rest, _ := strings.Cut(target, "?")
	request, _ := http.NewRequest(method, "http://localhost/?"+rest, nil)
	segments := strings.Split(path, "/")
	for _, plain := range d.Plains {
		pattern := strings.Split(plain.Path, "/")
		if plain.Method != method || len(pattern) != len(segments) {
			continue
		}
		names, matches := map[string]string{}, true
		for i, each := range pattern {
			if strings.HasPrefix(each, "{") {
				names[strings.Trim(each, "{}")] = segments[i]
			} else if each != segments[i] {
				matches = false
			}
		}
		if !matches {
			continue
		}
		reply, err := plain.Reply(&dialect.Call{Header: header, Path: path, Query: request.URL.Query(), Body: []byte(body), Names: names,
			Context: context.Background(), Tenant: "ada"}, nil, nil)
		if err != nil {
			status, text := plain.Errors(err.(*inference.Error), "req_1")
			return status, string(text)
		}
		return 200, string(wire.JSON(reply))
	}
	return 404, ""
}

// transcripts are files of requests, a line each: method, path, body. Their golden files have a status and a body each.
func TestTranscripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.requests")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	sort.Strings(names)
	for _, name := range names {
		requests, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, line := range strings.Split(strings.TrimSpace(string(requests)), "\n") {
			words := strings.SplitN(line, " ", 3)
			status, body := call(New(newFixed()), words[0], words[1], strings.Join(words[2:], ""), http.Header{})
			out.WriteString(line + "\n" + http.StatusText(status) + "\n" + body + "\n\n")
		}
		golden := strings.TrimSuffix(name, ".requests") + ".golden"
		if *update {
			if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		wanted, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), wanted) {
			t.Errorf("%s differs: %s", golden, out.String())
		}
	}
}

func TestAnOrderIsReadWhole(t *testing.T) {
	f := newFixed()
	body := `{"model":"m","training_file":"file-1","validation_file":"file-2","suffix":"s","seed":5,"metadata":{"a":"b"},
		"method":{"type":"dpo","dpo":{"hyperparameters":{"n_epochs":2,"batch_size":"auto","learning_rate_multiplier":0.5,"beta":0.3}}},
		"integrations":[],"tessera":{"rank":8,"alpha":4,"context":64,"learning_rate":0.001}}`
	header := http.Header{}
	header.Set("X-Idempotency-Key", "k")
	if status, reply := call(New(f), "POST", "/v1/fine_tuning/jobs", body, header); status != 200 {
		t.Fatal(status, reply)
	}
	found, _ := json.Marshal(f.order)
	wanted := `{"tenant":"ada","model":"m","training_file":"file-1","validation_file":"file-2","suffix":"s","seed":5,"method":"dpo",` +
		`"hyperparameters":{"epochs":2,"multiplier":0.5,"beta":0.3},"settings":{"rank":8,"alpha":4,"context":64,"rate":0.001},"metadata":{"a":"b"}}`
	if string(found) != wanted {
		t.Fatal(string(found))
	}
	if f.once.Key != "k" || f.once.Tenant != "ada" || f.once.Digest == [32]byte{} {
		t.Fatal(f.once)
	}
	call(New(f), "GET", "/v1/fine_tuning/jobs?limit=3&after=ftjob-1&metadata[a]=b&metadata[c]=", "", nil)
	if f.query.Limit != 3 || f.query.After != "ftjob-1" || len(f.query.Metadata) != 2 || f.query.Metadata["a"] != "b" {
		t.Fatal(f.query)
	}
	call(New(f), "GET", "/v1/fine_tuning/jobs?metadata=null", "", nil)
	if !f.query.NullMetadata || f.query.Limit != 20 {
		t.Fatal(f.query)
	}
}

func TestWrongOrdersAreRefusedByName(t *testing.T) {
	long := strings.Repeat("x", 65)
	for body, param := range map[string]string{
		``: "", `[]`: "", `{"model":"m"}`: "training_file", `{"training_file":"f"}`: "model", `{"model":"m","training_file":"f","model":"n"}`: "",
		`{"model":1,"training_file":"f"}`: "model", `{"model":"","training_file":"f"}`: "model",
		`{"model":"m","training_file":"f","epochs":1}`:                                                                              "epochs",
		`{"model":"m","training_file":"f","seed":1.5}`:                                                                              "seed",
		`{"model":"m","training_file":"f","seed":-1}`:                                                                               "seed",
		`{"model":"m","training_file":"f","seed":1e300}`:                                                                            "seed",
		`{"model":"m","training_file":"f","suffix":"` + long + `"}`:                                                                 "suffix",
		`{"model":"m","training_file":"f","suffix":"../x"}`:                                                                         "suffix",
		`{"model":"m","training_file":"f","metadata":{"a":1}}`:                                                                      "metadata.a",
		`{"model":"m","training_file":"f","metadata":{"` + long + `":"b"}}`:                                                         "metadata",
		`{"model":"m","training_file":"f","hyperparameters":{"n_epochs":0}}`:                                                        "hyperparameters.n_epochs",
		`{"model":"m","training_file":"f","hyperparameters":{"n_epochs":51}}`:                                                       "hyperparameters.n_epochs",
		`{"model":"m","training_file":"f","hyperparameters":{"batch_size":257}}`:                                                    "hyperparameters.batch_size",
		`{"model":"m","training_file":"f","hyperparameters":{"learning_rate_multiplier":0}}`:                                        "hyperparameters.learning_rate_multiplier",
		`{"model":"m","training_file":"f","hyperparameters":{"n_epochs":"many"}}`:                                                   "hyperparameters.n_epochs",
		`{"model":"m","training_file":"f","hyperparameters":{"beta":0.1}}`:                                                          "hyperparameters.beta",
		`{"model":"m","training_file":"f","method":{"type":"reinforcement","reinforcement":{"grader":{}}}}`:                         "method.type",
		`{"model":"m","training_file":"f","method":{"type":"grpo"}}`:                                                                "method.type",
		`{"model":"m","training_file":"f","method":{}}`:                                                                             "method.type",
		`{"model":"m","training_file":"f","method":{"type":"dpo","dpo":{"hyperparameters":{"beta":2.5}}}}`:                          "method.dpo.hyperparameters.beta",
		`{"model":"m","training_file":"f","method":{"type":"supervised","dpo":{}}}`:                                                 "method.dpo",
		`{"model":"m","training_file":"f","hyperparameters":{},"method":{"type":"supervised","supervised":{"hyperparameters":{}}}}`: "hyperparameters",
		`{"model":"m","training_file":"f","integrations":[{"type":"wandb","wandb":{"project":"p"}}]}`:                               "integrations",
		`{"model":"m","training_file":"f","tessera":{"full":true,"rank":3}}`:                                                        "tessera.full",
		`{"model":"m","training_file":"f","tessera":{"rank":0}}`:                                                                    "tessera.rank",
		`{"model":"m","training_file":"f","tessera":{"dora":true}}`:                                                                 "tessera.dora",
		strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100):                                                               "",
	} {
		_, err := readOrder([]byte(body))
		known, ok := err.(*inference.Error)
		if !ok || known.Kind != inference.Invalid || known.Param != param {
			t.Errorf("%s: %v, wanted an error of %q", body, err, param)
		}
	}
}

func TestTheDocumentDescribesAllPaths(t *testing.T) {
	d := New(newFixed())
	var parsed struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(d.Document, &parsed); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, methods := range parsed.Paths {
		count += len(methods)
	}
	for _, plain := range d.Plains {
		if parsed.Paths[plain.Path][strings.ToLower(plain.Method)] == nil {
			t.Errorf("%s %s is not described", plain.Method, plain.Path)
		}
	}
	if count != len(d.Plains) {
		t.Errorf("%d operations are described, wanted %d", count, len(d.Plains))
	}
}
