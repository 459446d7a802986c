// Package listing is GET /v1/models and /v1/models/{id}: OpenAI's form with context lengths, and a second list for Codex; or Anthropic's form.
package listing

import (
	_ "embed" // the document
	"encoding/json"
	"fmt"
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

const prefix = "/v1/models/"

// New is the dialect.
func New() dialect.Dialect {
	return dialect.Dialect{
		Plains: []dialect.Plain{
			{Method: "GET", Path: "/v1/models", Reply: list, Errors: openai.Errors},
			{Method: "GET", Path: prefix + "{id}", Reply: one, Errors: openai.Errors},
		},
		Document: openai.Document(document),
	}
}

// entry is a model. OpenAI's clients read the first four; those of vLLM max_model_len, root and parent; others context_length.
type entry struct {
	ID           string   `json:"id"`
	Object       string   `json:"object"`
	Created      int64    `json:"created"`
	Owner        string   `json:"owned_by"`
	Root         string   `json:"root"`
	Parent       *string  `json:"parent"`
	Context      *int64   `json:"max_model_len"`
	SameContext  *int64   `json:"context_length"`
	Loaded       bool     `json:"loaded"`
	Capabilities []string `json:"capabilities"`
	Meta         meta     `json:"meta"`
}

// meta is what llama.cpp's server tells.
type meta struct {
	Context    int64  `json:"n_ctx_train"`
	Parameters int64  `json:"n_params"`
	Bytes      int64  `json:"size"`
	Type       string `json:"ftype"`
	Family     string `json:"architecture"`
}

type models struct {
	Object string       `json:"object"`
	Data   []entry      `json:"data"`
	Codex  []codexModel `json:"models"`
}

func newEntry(info inference.Info) entry {
	made := entry{
		ID: info.Name, Object: "model", Created: info.Created, Owner: "tessera", Root: info.Name, Loaded: info.Loaded,
		Capabilities: append([]string{}, info.Does...), Meta: meta{info.Context, info.Parameters, info.Bytes, info.Type, info.Architecture},
	}
	if info.Base != "" {
		made.Root, made.Parent = info.Base, &info.Base
	}
	if info.Context > 0 {
		made.Context, made.SameContext = &info.Context, &info.Context
	}
	return made
}

func list(call *dialect.Call, known inference.Models, _ <-chan struct{}) (any, error) {
	if isAnthropic(call) {
		return listAnthropic(call, known.List())
	}
	made := models{"list", []entry{}, []codexModel{}}
	for _, info := range known.List() {
		made.Data = append(made.Data, newEntry(info))
		if does(info, "chat") {
			made.Codex = append(made.Codex, newCodexModel(info, len(made.Codex)))
		}
	}
	return json.RawMessage(wire.JSON(made)), nil
}

func does(info inference.Info, what string) bool {
	for _, each := range info.Does {
		if each == what {
			return true
		}
	}
	return false
}

func one(call *dialect.Call, known inference.Models, _ <-chan struct{}) (any, error) {
	name := strings.TrimPrefix(call.Path, prefix)
	for _, info := range known.List() {
		if info.Name == name && isAnthropic(call) {
			return json.RawMessage(wire.JSON(newAnthropicModel(info))), nil
		}
		if info.Name == name {
			return json.RawMessage(wire.JSON(newEntry(info))), nil
		}
	}
	return nil, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("there is no model %q; GET /v1/models lists them", name)}
}
