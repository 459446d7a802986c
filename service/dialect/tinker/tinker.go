// Package tinker is the wire of Tinker's SDK: /api/v1/*, in JSON, and in protobuf where the SDK sends or wants that.
package tinker

import (
	"crypto/sha256"
	_ "embed" // the document
	"encoding/json"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

//go:embed openapi.json
var document []byte

const (
	prefix = "/api/v1"
	// Protobuf is the type of bodies in it.
	Protobuf  = "application/x-protobuf"
	mostBytes = 64 << 20 // of a batch: the SDK sends 5 MB of protobuf, which JSON spells with more
	training  = "train"  // scopes
	files     = "files"
)

// Passes make short-lived tokens that stand for the token of a key, with claims for the client.
type Passes interface {
	Issue(token string, claims map[string]any) string
}

// service answers with the trainings that there are.
type service struct {
	work   *tinker.Service
	passes Passes
}

// New is the dialect over trainings.
func New(work *tinker.Service, passes Passes) dialect.Dialect {
	s := &service{work, passes}
	d := dialect.Dialect{Document: document}
	add := func(method, scope string, most int64, path string, reply func(call *dialect.Call, models inference.Models) (any, error)) {
		plain := dialect.Plain{Method: method, Path: prefix + path, Scope: scope, Most: most, Errors: errorBody,
			Reply: func(call *dialect.Call, models inference.Models, _ <-chan struct{}) (any, error) {
				return reply(call, models)
			}}
		if most > 0 {
			plain.Types = []string{Protobuf}
		}
		d.Plains = append(d.Plains, plain)
	}
	plain := func(method, scope, path string, reply func(call *dialect.Call) (any, error)) {
		add(method, scope, 0, path, func(call *dialect.Call, _ inference.Models) (any, error) { return reply(call) })
	}
	add("GET", "", 0, "/get_server_capabilities", s.capabilities)
	add("POST", training, mostBytes, "/forward", func(call *dialect.Call, _ inference.Models) (any, error) { return s.compute(call, "forward_input") })
	add("POST", training, mostBytes, "/forward_backward", func(call *dialect.Call, _ inference.Models) (any, error) {
		return s.compute(call, "forward_backward_input")
	})
	for _, one := range []struct {
		method, scope, path string
		reply               func(call *dialect.Call) (any, error)
	}{
		{"GET", "", "/healthz", s.health}, {"POST", "", "/client/config", s.config}, {"POST", "", "/client/dynamic_config", s.dynamicConfig},
		{"POST", "", "/telemetry", s.telemetry}, {"POST", "", "/create_session", s.createSession}, {"POST", "", "/session_heartbeat", s.heartbeat},
		{"POST", "", "/auth/token", s.exchange},
		{"GET", "", "/sessions", s.sessions}, {"GET", "", "/sessions/{id}", s.session}, {"POST", "", "/sessions/{id}/finish", s.finishSession},
		{"POST", "", "/sessions/search", s.search}, {"PUT", "", "/sessions/{id}/project", s.moveSession},
		{"POST", training, "/create_model", s.createModel}, {"POST", training, "/unload_model", s.unloadModel}, {"POST", training, "/get_info", s.info},
		{"POST", training, "/optim_step", s.step}, {"POST", training, "/save_weights", s.save},
		{"POST", training, "/save_weights_for_sampler", s.saveForSampler}, {"POST", training, "/load_weights", s.load},
		{"POST", training, "/save_weights_external", s.saveExternal}, {"POST", training, "/copy_weights", s.copy},
		{"POST", "", "/retrieve_future", s.retrieve}, {"POST", "", "/retrieve_futures", s.completions}, {"POST", "", "/cancel_future", s.cancel},
		{"POST", "", "/create_sampling_session", s.createSampler}, {"POST", "", "/join_sampling_session", s.joinSampler},
		{"GET", "", "/samplers/{id}", s.sampler}, {"POST", "", "/asample", s.sample},
		{"POST", "", "/weights_info", s.weightsInfo}, {"GET", "", "/training_runs", s.runs}, {"GET", "", "/training_runs/{run}", s.run},
		{"GET", "", "/training_runs/{run}/checkpoints", s.runCheckpoints}, {"GET", "", "/checkpoints", s.checkpoints},
		{"DELETE", training, "/training_runs/{run}/checkpoints/{kind}/{name}", s.deleteCheckpoint},
		{"POST", training, "/training_runs/{run}/checkpoints/{kind}/{name}/publish", s.publish},
		{"DELETE", training, "/training_runs/{run}/checkpoints/{kind}/{name}/publish", s.unpublish},
		{"PUT", training, "/training_runs/{run}/checkpoints/{kind}/{name}/ttl", s.setLife},
		{"GET", "", "/training_runs/{run}/checkpoints/{kind}/{name}/archive", s.archive},
		{"GET", "", "/training_runs/{run}/checkpoints/{kind}/{name}/external_weights_urls", s.fileLinks},
		{"GET", "", "/billing/usage/events", s.usage}, {"GET", "", "/billing/usage/checkpoints/current", s.storage},
	} {
		plain(one.method, one.scope, one.path, one.reply)
	}
	for _, one := range refusals {
		plain(one.method, "", one.path, one.refuse)
	}
	d.Downloads = append(d.Downloads, dialect.Download{Method: "GET", Path: prefix + linkPath + "{id}/{name}", Unkeyed: true, Open: s.openLink, Errors: errorBody})
	return d
}

// Alias serves the paths of other dialects a second time, below Tinker's prefix of them.
func Alias(given ...dialect.Dialect) (made dialect.Dialect) {
	paths := map[string]json.RawMessage{}
	for _, d := range given {
		for _, e := range d.Endpoints {
			e.Path = aliasPrefix + e.Path
			made.Endpoints = append(made.Endpoints, e)
		}
		for _, p := range d.Plains {
			p.Path = aliasPrefix + p.Path
			made.Plains = append(made.Plains, p)
		}
		var document struct{ Paths map[string]json.RawMessage }
		if err := json.Unmarshal(d.Document, &document); err != nil {
			panic(err) // embedded at build time
		}
		for path, item := range document.Paths {
			paths[aliasPrefix+path] = item
		}
	}
	made.Document, _ = json.Marshal(map[string]any{"paths": paths}) // the schemas are there under their own paths
	return made
}

const aliasPrefix = "/oai/api"

// errorBody is the form of errors that the SDK shows.
func errorBody(failure *inference.Error, _ string) (int, []byte) {
	body, _ := json.Marshal(map[string]any{"detail": failure.Message, "code": failure.Code, "param": failure.Param, "category": category(failure)})
	return failure.Kind.Status(), body
}

// category says whose mistake an error is.
func category(failure *inference.Error) string {
	if failure.Kind.Status() < 500 {
		return "user"
	}
	return "server"
}

// numbered is a request of a run or a sampler.
func numbered(call *dialect.Call, number int64) tinker.Numbered {
	sum := sha256.New()
	sum.Write([]byte(call.Path + "\x00"))
	sum.Write(call.Body)
	made := tinker.Numbered{Number: number, Bytes: int64(len(call.Body))}
	sum.Sum(made.Digest[:0])
	return made
}
