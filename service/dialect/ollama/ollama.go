// Package ollama is the part of Ollama's API that asks models for texts and lists them. What pulls, makes or removes models is
// refused by name.
package ollama

import (
	_ "embed" // the document

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

// Version is that of Ollama whose API this is: editors ask for a least one.
const Version = "0.13.5"

// New is the dialect.
func New() dialect.Dialect {
	made := dialect.Dialect{
		Endpoints: []dialect.Endpoint{
			{Method: "POST", Path: "/api/chat", Decode: decodeChat, Errors: Errors},
			{Method: "POST", Path: "/api/generate", Decode: decodeGenerate, Errors: Errors},
		},
		Plains: []dialect.Plain{
			{Method: "GET", Path: "/api/tags", Reply: listModels, Errors: Errors},
			{Method: "GET", Path: "/api/ps", Reply: listLoaded, Errors: Errors},
			{Method: "POST", Path: "/api/show", Reply: show, Errors: Errors},
			{Method: "GET", Path: "/api/version", Reply: version, Errors: Errors},
			{Method: "POST", Path: "/api/embed", Reply: embed, Errors: Errors},
			{Method: "POST", Path: "/api/embeddings", Reply: embedOne, Errors: Errors},
		},
		Document: document,
	}
	for _, each := range []struct{ method, path, why string }{
		{"POST", "/api/pull", "models come from files of this machine: start the service with their paths, or put them into its folder"},
		{"POST", "/api/push", "models are not sent anywhere"},
		{"POST", "/api/create", "models are made with the command tessera"},
		{"POST", "/api/copy", "models are files of this machine: copy those"},
		{"DELETE", "/api/delete", "models are files of this machine: remove those"},
		{"POST", "/api/blobs/{digest}", "models are files of this machine: copy them to its folder"},
		{"HEAD", "/api/blobs/{digest}", "models are files of this machine"},
	} {
		made.Plains = append(made.Plains, refused(each.method, each.path, each.why))
	}
	return made
}

func refused(method, path, why string) dialect.Plain {
	return dialect.Plain{Method: method, Path: path, Errors: Errors,
		Reply: func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
			return nil, &inference.Error{Kind: inference.Unsupported, Message: call.Path + " is not served here: " + why}
		}}
}

func version(*dialect.Call, inference.Models, <-chan struct{}) (any, error) {
	return struct {
		Version string `json:"version"`
	}{Version}, nil
}

type errorBody struct {
	Error string `json:"error"`
}

// Errors is the form {"error": text}.
func Errors(failure *inference.Error, _ string) (status int, body []byte) {
	return failure.Kind.Status(), wire.JSON(errorBody{failure.Message})
}
