package openai

import (
	"context"
	"fmt"

	"tessera.dev/service/inference"
)

// Context ends when done is closed, or by cancel.
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

// Open opens a model. Without a name it is the only one, where that is so.
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
