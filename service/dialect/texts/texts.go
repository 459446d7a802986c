// Package texts is what models do with texts besides writing them: embeddings in OpenAI's form, rerank in Cohere's and Jina's,
// score in vLLM's, tokenize, detokenize and apply-template in vLLM's and llama.cpp's.
package texts

import (
	"context"
	_ "embed" // the document
	"encoding/json"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

// task computes a request's reply with its model.
type task func(ctx context.Context, model inference.Model) (reply any, err error)

// paths are the dialect's paths. Each reader returns the name of a model, perhaps "", and the task for it.
var paths = []struct {
	path string
	read func(call *dialect.Call, body *fields.Object) (model string, ask task)
}{
	{"/v1/embeddings", readEmbeddings},
	{"/v1/rerank", readRerank},
	{"/v2/rerank", readRerank},
	{"/rerank", readRerank},
	{"/v1/score", readScore},
	{"/score", readScore},
	{"/tokenize", readTokenize},
	{"/detokenize", readDetokenize},
	{"/apply-template", readTemplate},
}

// New returns the dialect.
func New() dialect.Dialect {
	made := dialect.Dialect{Document: openai.Document(document)}
	for _, each := range paths {
		read := each.read
		reply := func(call *dialect.Call, models inference.Models, done <-chan struct{}) (any, error) {
			body, err := fields.Body(call.Body)
			if err != nil {
				return nil, err
			}
			name, ask := read(call, body)
			if err := body.Done(); err != nil {
				return nil, err
			}
			return run(name, ask, models, done)
		}
		made.Plains = append(made.Plains, dialect.Plain{Method: "POST", Path: each.path, Reply: reply, Errors: openai.Errors})
	}
	return made
}

func run(name string, ask task, models inference.Models, done <-chan struct{}) (any, error) {
	ctx, cancel := openai.Context(done)
	defer cancel()
	model, err := openai.Open(ctx, models, name)
	if err != nil {
		return nil, err
	}
	defer model.Release()
	reply, err := ask(ctx, model)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(wire.JSON(reply)), nil
}

// optionalModel returns the model's name; "" in requests of llama.cpp's clients, whose server has one model.
func optionalModel(body *fields.Object) string {
	name, _ := body.Text("model")
	return name
}

// usage counts the tokens of a request that generates nothing.
type usage struct {
	Prompt int64 `json:"prompt_tokens"`
	Total  int64 `json:"total_tokens"`
}
