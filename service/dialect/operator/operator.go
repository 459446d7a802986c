// Package operator is what operators do with models: loading and unloading them and their adapters, on the paths of vLLM
// (/v1/load_lora_adapter) and of llama.cpp's router (/models/load).
package operator

import (
	"context"
	"fmt"
	"strings"

	_ "embed" // the document

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

// Registry loads and unloads by name. Errors are of inference.
type Registry interface {
	Load(ctx context.Context, name string) error
	Unload(name string) error
	LoadAdapter(ctx context.Context, name, path string) error
	UnloadAdapter(name string) error
}

// done is the reply of all paths.
type done struct {
	Success bool   `json:"success"`
	Model   string `json:"model"`
}

// New is the dialect over a registry.
func New(registry Registry) dialect.Dialect {
	path := func(path string, act func(ctx context.Context, known inference.Models, body *fields.Object) (string, error)) dialect.Plain {
		return dialect.Plain{Method: "POST", Path: path, Scope: "admin", Errors: openai.Errors,
			Reply: func(call *dialect.Call, known inference.Models, _ <-chan struct{}) (any, error) {
				body, err := fields.Body(call.Body)
				if err != nil {
					return nil, err
				}
				name, err := act(call.Context, known, body)
				return done{err == nil, name}, err
			}}
	}
	return dialect.Dialect{Document: document, Plains: []dialect.Plain{
		path("/models/load", func(ctx context.Context, _ inference.Models, body *fields.Object) (string, error) {
			name := body.NeedText("model")
			if err := body.Done(); err != nil {
				return "", err
			}
			return name, registry.Load(ctx, name)
		}),
		path("/models/unload", func(_ context.Context, _ inference.Models, body *fields.Object) (string, error) {
			name := body.NeedText("model")
			if err := body.Done(); err != nil {
				return "", err
			}
			return name, registry.Unload(name)
		}),
		path("/v1/load_lora_adapter", func(ctx context.Context, known inference.Models, body *fields.Object) (string, error) {
			file := body.NeedText("lora_path")
			name, err := adapterName(known, body)
			if err != nil {
				return "", err
			}
			return name, registry.LoadAdapter(ctx, name, file)
		}),
		path("/v1/unload_lora_adapter", func(_ context.Context, known inference.Models, body *fields.Object) (string, error) {
			body.Pass("lora_int_id")
			name, err := adapterName(known, body)
			if err != nil {
				return "", err
			}
			return name, registry.UnloadAdapter(name)
		}),
	}}
}

// adapterName is BASE:NAME. The base may be a member of its own, or the only model.
func adapterName(known inference.Models, body *fields.Object) (string, error) {
	name := body.NeedText("lora_name")
	base, given := body.Text("base_model_name")
	if err := body.Done(); err != nil {
		return "", err
	}
	if given {
		return base + ":" + strings.TrimPrefix(name, base+":"), nil
	}
	if strings.Contains(name, ":") {
		return name, nil
	}
	var bases []string
	for _, info := range known.List() {
		if info.Base == "" {
			bases = append(bases, info.Name)
		}
	}
	if len(bases) == 1 {
		return bases[0] + ":" + name, nil
	}
	return "", &inference.Error{Kind: inference.Invalid, Param: "lora_name",
		Message: fmt.Sprintf("found %q without a base, and there are %d models; wanted BASE:NAME, or base_model_name", name, len(bases))}
}
