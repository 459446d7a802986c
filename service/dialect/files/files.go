// Package files is OpenAI's /v1/files: data that trainings read, and the results that they write.
package files

import (
	_ "embed" // the document
	"fmt"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

//go:embed openapi.json
var document []byte

const (
	prefix = "/v1/files"
	scope  = "files"
)

// MostBytes of a file.
const MostBytes = 512 << 20

// service answers with the files of a store.
type service struct {
	files tuning.Files
	now   func() time.Time
	most  int64 // bytes of a file
}

// New is the dialect over a store of files.
func New(files tuning.Files) dialect.Dialect {
	return (&service{files: files, now: time.Now, most: MostBytes}).dialect()
}

func (s *service) dialect() dialect.Dialect {
	return dialect.Dialect{
		Uploads: []dialect.Upload{{Method: "POST", Path: prefix, Scope: scope, Most: s.most + 1<<20, Reply: s.upload, Errors: openai.Errors}},
		Plains: []dialect.Plain{
			{Method: "GET", Path: prefix, Scope: scope, Reply: s.list, Errors: openai.Errors},
			{Method: "GET", Path: prefix + "/{id}", Scope: scope, Reply: s.one, Errors: openai.Errors},
			{Method: "DELETE", Path: prefix + "/{id}", Scope: scope, Reply: s.remove, Errors: openai.Errors},
		},
		Downloads: []dialect.Download{{Method: "GET", Path: prefix + "/{id}/content", Scope: scope, Open: s.content, Errors: openai.Errors}},
		Document:  document,
	}
}

// object is a file on the wire.
type object struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"`
	Bytes         int64   `json:"bytes"`
	Created       int64   `json:"created_at"`
	Expires       *int64  `json:"expires_at"`
	Name          string  `json:"filename"`
	Purpose       string  `json:"purpose"`
	Status        string  `json:"status"`
	StatusDetails *string `json:"status_details"`
}

func newObject(file tuning.File) object {
	made := object{ID: file.ID, Object: "file", Bytes: file.Bytes, Created: file.Created, Name: file.Name, Purpose: file.Purpose,
		Status: "processed"}
	if file.Expires != 0 {
		made.Expires = &file.Expires
	}
	return made
}

type list struct {
	Object string   `json:"object"`
	Data   []object `json:"data"`
	First  *string  `json:"first_id"`
	Last   *string  `json:"last_id"`
	More   bool     `json:"has_more"`
}

func (s *service) list(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
	query := openai.NewQuery(call.Query)
	asked := tuning.FileQuery{Purpose: query.Text("purpose")}
	asked.After, asked.Limit = query.Text("after"), query.Integer("limit", 10_000, 1, 10_000)
	asked.Ascending = query.Choice("order", "desc", "asc") == "asc"
	if err := query.Done(); err != nil {
		return nil, err
	}
	files, more, err := s.files.Files(call.Context, call.Tenant, asked)
	if err != nil {
		return nil, err
	}
	made := list{Object: "list", Data: []object{}, More: more}
	for _, file := range files {
		made.Data = append(made.Data, newObject(file))
	}
	if count := len(made.Data); count > 0 {
		made.First, made.Last = &made.Data[0].ID, &made.Data[count-1].ID
	}
	return made, nil
}

func (s *service) one(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
	file, err := s.files.File(call.Context, call.Tenant, call.Names["id"])
	if err != nil {
		return nil, err
	}
	return newObject(file), nil
}

type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

func (s *service) remove(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
	id := call.Names["id"]
	if err := s.files.DeleteFile(call.Context, call.Tenant, id); err != nil {
		return nil, err
	}
	return deleted{id, "file", true}, nil
}

func (s *service) content(call *dialect.Call) (dialect.Content, error) {
	file, reader, err := s.files.OpenFile(call.Context, call.Tenant, call.Names["id"])
	if err != nil {
		return dialect.Content{}, err
	}
	kind := map[string]string{tuning.FineTune: "application/jsonl", tuning.FineTuneResults: "text/csv; charset=utf-8"}[file.Purpose]
	return dialect.Content{Reader: reader, Type: kind, Name: file.Name}, nil
}

func invalid(param, code, format string, arguments ...any) *inference.Error {
	return &inference.Error{Kind: inference.Invalid, Param: param, Code: code, Message: fmt.Sprintf(format, arguments...)}
}
