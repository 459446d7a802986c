// Package jobs is OpenAI's /v1/fine_tuning/jobs.
package jobs

import (
	"crypto/sha256"
	_ "embed" // the document

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

//go:embed openapi.json
var document []byte

const (
	prefix = "/v1/fine_tuning/jobs"
	scope  = "train"
)

// service answers with the jobs that there are.
type service struct{ jobs tuning.Jobs }

// New is the dialect over jobs.
func New(jobs tuning.Jobs) dialect.Dialect {
	s := &service{jobs}
	plain := func(method, path string, reply func(call *dialect.Call) (any, error)) dialect.Plain {
		return dialect.Plain{Method: method, Path: prefix + path, Scope: scope, Errors: openai.Errors,
			Reply: func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) { return reply(call) }}
	}
	return dialect.Dialect{
		Plains: []dialect.Plain{
			plain("POST", "", s.create), plain("GET", "", s.list), plain("GET", "/{id}", s.one),
			plain("GET", "/{id}/events", s.events), plain("GET", "/{id}/checkpoints", s.checkpoints),
			plain("POST", "/{id}/cancel", s.cancel), plain("POST", "/{id}/pause", s.pause), plain("POST", "/{id}/resume", s.resume),
		},
		Document: document,
	}
}

func (s *service) create(call *dialect.Call) (any, error) {
	once, err := tuning.NewOnce(call.Header, call.Tenant, "POST "+prefix)
	if err != nil {
		return nil, err
	}
	order, err := readOrder(call.Body)
	if err != nil {
		return nil, err
	}
	once.Digest = sha256.Sum256(call.Body)
	order.Tenant, order.Memory = call.Tenant, call.Memory
	job, err := s.jobs.Create(call.Context, order, once)
	return reply(job, err)
}

func reply(job tuning.Job, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return newObject(job), nil
}

func (s *service) one(call *dialect.Call) (any, error) {
	return reply(s.jobs.Job(call.Context, call.Tenant, call.Names["id"]))
}

func (s *service) cancel(call *dialect.Call) (any, error) {
	return reply(s.jobs.Cancel(call.Context, call.Tenant, call.Names["id"]))
}

func (s *service) pause(call *dialect.Call) (any, error) {
	return reply(s.jobs.Pause(call.Context, call.Tenant, call.Names["id"]))
}

func (s *service) resume(call *dialect.Call) (any, error) {
	return reply(s.jobs.Resume(call.Context, call.Tenant, call.Names["id"]))
}

// page reads the part of a list that is asked for.
func page(query *openai.Query, otherwise int) tuning.Page {
	return tuning.Page{After: query.Text("after"), Limit: query.Integer("limit", otherwise, 1, 1000)}
}

type list[T any] struct {
	Object string `json:"object"`
	Data   []T    `json:"data"`
	More   bool   `json:"has_more"`
}

func (s *service) list(call *dialect.Call) (any, error) {
	query := openai.NewQuery(call.Query)
	asked := tuning.JobQuery{Page: page(query, 20), Metadata: query.Map("metadata")}
	if query.Choice("metadata", "", "null") == "null" {
		asked.NullMetadata = true
		if len(asked.Metadata) > 0 {
			query.Fail("metadata", "invalid_value", "is null and has keys; one of them is wanted")
		}
	}
	if err := query.Done(); err != nil {
		return nil, err
	}
	jobs, more, err := s.jobs.Jobs(call.Context, call.Tenant, asked)
	if err != nil {
		return nil, err
	}
	made := list[object]{Object: "list", Data: []object{}, More: more}
	for _, job := range jobs {
		made.Data = append(made.Data, newObject(job))
	}
	return made, nil
}

func (s *service) events(call *dialect.Call) (any, error) {
	query := openai.NewQuery(call.Query)
	asked := page(query, 20)
	if err := query.Done(); err != nil {
		return nil, err
	}
	events, more, err := s.jobs.Events(call.Context, call.Tenant, call.Names["id"], asked)
	if err != nil {
		return nil, err
	}
	made := list[event]{Object: "list", Data: []event{}, More: more}
	for _, each := range events {
		made.Data = append(made.Data, newEvent(each))
	}
	return made, nil
}

type checkpointList struct {
	list[checkpoint]
	First *string `json:"first_id"`
	Last  *string `json:"last_id"`
}

func (s *service) checkpoints(call *dialect.Call) (any, error) {
	query := openai.NewQuery(call.Query)
	asked := page(query, 10)
	if err := query.Done(); err != nil {
		return nil, err
	}
	found, more, err := s.jobs.Checkpoints(call.Context, call.Tenant, call.Names["id"], asked)
	if err != nil {
		return nil, err
	}
	made := checkpointList{list: list[checkpoint]{Object: "list", Data: []checkpoint{}, More: more}}
	for _, each := range found {
		made.Data = append(made.Data, newCheckpoint(each))
	}
	if count := len(made.Data); count > 0 {
		made.First, made.Last = &made.Data[0].ID, &made.Data[count-1].ID
	}
	return made, nil
}
