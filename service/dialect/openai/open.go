package openai

import (
	"context"
	"encoding/json"
	"fmt"

	"tessera.dev/service/inference"
)

// Context returns a context that ends when done is closed, or by cancel.
func Context(done <-chan struct{}) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// CountTokens returns the number of tokens of a conversation that its model's template renders.
func CountTokens(models inference.Models, name string, messages json.RawMessage, rendering inference.Options, done <-chan struct{}) (int, error) {
	ctx, end := Context(done)
	defer end()
	model, err := models.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer model.Release()
	_, tokens, err := model.Render(messages, rendering)
	return len(tokens), err
}

// Open opens a model. Without a name it opens the only model of the service; if there is not exactly one, that is an error.
func Open(ctx context.Context, models inference.Models, name string) (inference.Model, error) {
	if name == "" {
		list := models.List()
		if len(list) != 1 {
			return nil, &inference.Error{Kind: inference.Invalid, Code: "missing_required_parameter", Param: "model",
				Message: fmt.Sprintf("'model' is missing; there are %d models", len(list))}
		}
		name = list[0].Name
	}
	return models.Open(ctx, name)
}
