package texts

import (
	"context"
	"unicode/utf8"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// tokenization is vLLM's reply. llama.cpp's has only the tokens, which may have their pieces.
type tokenization struct {
	Count   int      `json:"count"`
	Context *int64   `json:"max_model_len"`
	Tokens  any      `json:"tokens"`
	Texts   []string `json:"token_strs"`
}

// tokenPiece is a token in llama.cpp's reply. Piece is a text, or the list of its bytes where they are not UTF-8.
type tokenPiece struct {
	ID    int32 `json:"id"`
	Piece any   `json:"piece"`
}

// readTokenize tells three forms apart: 'content' is llama.cpp's, 'prompt' and 'messages' are vLLM's.
func readTokenize(call *dialect.Call, body *fields.Object) (string, task) {
	name := optionalModel(body)
	switch {
	case body.Has("content"):
		return name, readContent(body)
	case body.Has("messages"):
		return name, readChat(body)
	}
	text, ok := body.Text("prompt")
	if !ok {
		body.Fail("prompt", fields.Missing, "is missing; it, 'messages' or 'content' is wanted")
	}
	around, ok := body.Flag("add_special_tokens")
	around = around || !ok
	texts, _ := body.Flag("return_token_strs")
	return name, func(_ context.Context, model inference.Model) (any, error) {
		ids, err := model.Tokenize(text, true, around)
		if err != nil {
			return nil, err
		}
		return tellTokens(model, ids, texts), nil
	}
}

func tellTokens(model inference.Model, ids []int32, texts bool) tokenization {
	made := tokenization{Count: len(ids), Tokens: append([]int32{}, ids...)}
	if context := model.Info().Context; context > 0 {
		made.Context = &context
	}
	if texts {
		made.Texts = []string{}
		for _, id := range ids {
			made.Texts = append(made.Texts, openai.TokenText(model.Piece(id)))
		}
	}
	return made
}

func readContent(body *fields.Object) task {
	text, _ := body.Text("content")
	around, _ := body.Flag("add_special")
	special, ok := body.Flag("parse_special")
	special = special || !ok
	pieces, _ := body.Flag("with_pieces")
	return func(_ context.Context, model inference.Model) (any, error) {
		ids, err := model.Tokenize(text, special, around)
		if err != nil {
			return nil, err
		}
		if !pieces {
			return map[string]any{"tokens": append([]int32{}, ids...)}, nil
		}
		made := make([]tokenPiece, len(ids))
		for i, id := range ids {
			made[i] = tokenPiece{id, piece(model.Piece(id))}
		}
		return map[string]any{"tokens": made}, nil
	}
}

func piece(bytes []byte) any {
	if utf8.Valid(bytes) {
		return string(bytes)
	}
	numbers := make([]int, len(bytes))
	for i, each := range bytes {
		numbers[i] = int(each)
	}
	return numbers
}

func readDetokenize(_ *dialect.Call, body *fields.Object) (string, task) {
	name := optionalModel(body)
	var ids []int32
	if value, ok := body.Value("tokens"); ok {
		ids = value.Tokens(0, 1<<24)
	} else {
		body.Fail("tokens", fields.Missing, "is missing; a list of token ids is wanted")
	}
	return name, func(_ context.Context, model inference.Model) (any, error) {
		text, err := model.Detokenize(ids)
		if err != nil {
			return nil, err
		}
		return map[string]string{"prompt": text, "content": text}, nil // vLLM's name, and llama.cpp's
	}
}
