package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// corpus is the sound requests that attacks begin with: the transcripts of the dialects' own tests, for the model that is served.
type corpus struct {
	model    string
	session  string // of Tinker's
	run      string // a training of that session
	requests []sound
}

// sound is a request in JSON.
type sound struct {
	path string
	body node
}

// further are requests of paths that the transcripts lack.
var further = []struct{ path, body string }{
	{"/models/load", `{"model":"MODEL"}`}, {"/models/unload", `{"model":"none"}`},
	{"/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"none","base_model_name":"MODEL"}`},
	{"/v1/unload_lora_adapter", `{"lora_name":"MODEL:a"}`},
	{"/v1/fine_tuning/jobs",
		`{"model":"MODEL","training_file":"file-none","validation_file":"file-none","seed":1,"suffix":"a","metadata":{"a":"b"},"method":{"type":"supervised","supervised":{"hyperparameters":{"n_epochs":1,"batch_size":"auto","learning_rate_multiplier":1.5}}}}`},
	{"/v1/fine_tuning/jobs/ftjob-none/cancel", `{}`},
	{"/api/v1/create_model", `{"session_id":"none","model_seq_id":0,"base_model":"MODEL","lora_config":{"rank":8,"seed":1},"type":"create_model"}`},
	{"/api/v1/asample",
		`{"base_model":"MODEL","num_samples":2,"prompt":{"chunks":[{"type":"encoded_text","tokens":[1,2,3]}]},"sampling_params":{"max_tokens":4,"temperature":0.5,"top_p":0.9,"top_k":-1,"stop":[1]},"prompt_logprobs":true,"seq_id":0}`},
	{"/api/v1/retrieve_future", `{"request_id":"none","model_id":"none"}`},
}

// readCorpus reads testdata/*.http of the dialects below a folder, and the lines of Tinker's transcript.
func readCorpus(folder, model, session, run string) (*corpus, error) {
	made := &corpus{model: model, session: session, run: run}
	ids := strings.NewReplacer(`"S:train:0"`, fmt.Sprintf("%q", run), `"S"`, fmt.Sprintf("%q", session), `S:train:0`, run)
	add := func(path, body string) {
		if tree, err := parseJSON([]byte(body)); err == nil { // the others are malformed requests of their own
			tree.setModel(model)
			made.requests = append(made.requests, sound{path, tree})
		}
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*/testdata/*.http"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		head, body, _ := bytes.Cut(text, []byte("\n\n"))
		line, _, _ := strings.Cut(string(head), "\n")
		if path := strings.TrimPrefix(line, "POST "); path != line {
			add(path, strings.TrimSpace(string(body)))
		}
	}
	for _, one := range further {
		add(one.path, strings.ReplaceAll(one.body, "MODEL", model))
	}
	text, err := os.ReadFile(filepath.Join(folder, "tinker/testdata/transcript.txt"))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if path, body, cut := strings.Cut(line, " "); cut && strings.HasPrefix(path, "/") {
			add("/api/v1"+path, ids.Replace(body))
		}
	}
	if len(made.requests) < 20 {
		return nil, fmt.Errorf("--corpus %s: found %d requests, wanted the folder service/dialect with its testdata", folder, len(made.requests))
	}
	return made, nil
}
