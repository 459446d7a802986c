package texts

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// mostInputs is the limit of texts of a request; mostWidth is the limit of `dimensions`.
const (
	mostInputs = 2048
	mostWidth  = 1 << 20
)

type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	Vector any    `json:"embedding"` // numbers, or the base64 of their little-endian f32
}

type embeddings struct {
	Object string      `json:"object"`
	Data   []embedding `json:"data"`
	Model  string      `json:"model"`
	Usage  usage       `json:"usage"`
}

func readEmbeddings(_ *dialect.Call, body *fields.Object) (string, task) {
	name := body.NeedText("model")
	texts := openai.Prompts(body, "input", mostInputs)
	for i, text := range texts {
		if text.Tokens == nil && text.Words == "" {
			body.Fail("input", fields.Empty, "has an empty text at %d", i)
		}
	}
	format, _ := body.Choice("encoding_format", "float", "base64")
	width, _ := body.Integer("dimensions", 1, mostWidth)
	options := inference.Options{}
	if pooling, ok := body.Choice("pooling", "mean", "cls", "last"); ok {
		options["pooling"] = pooling
	}
	if normalized, ok := body.Flag("normalize"); ok {
		options["normalize"] = flag(normalized)
	}
	body.Only("add_special_tokens", "true")
	openai.Pass(body)
	return name, func(ctx context.Context, model inference.Model) (any, error) {
		vectors, tokens, err := model.Embed(ctx, texts, options)
		if err != nil {
			return nil, err
		}
		return tellEmbeddings(name, vectors, tokens, format, int(width))
	}
}

func flag(value bool) int64 {
	if value {
		return 1
	}
	return 0
}

func tellEmbeddings(name string, vectors [][]float32, tokens int64, format string, width int) (any, error) {
	made := embeddings{"list", make([]embedding, len(vectors)), name, usage{tokens, tokens}}
	for i, vector := range vectors {
		if width > len(vector) {
			return nil, fields.Invalid("dimensions", fields.AboveMaximum, "is %d; at most %d is wanted, which the model has", width, len(vector))
		}
		if width > 0 && width < len(vector) {
			vector = shorten(vector, width)
		}
		made.Data[i] = embedding{"embedding", i, vector}
		if format == "base64" {
			made.Data[i].Vector = base64.StdEncoding.EncodeToString(littleEndian(vector))
		} else if at := notFinite(vector); at >= 0 {
			return nil, &inference.Error{Kind: inference.Internal,
				Message: fmt.Sprintf("the vector of text %d has %v at %d, which JSON cannot say", i, vector[at], at)}
		}
	}
	return made, nil
}

// shorten keeps the first numbers, of length 1 again: vectors of models that are trained so (Matryoshka) stay vectors of the text.
func shorten(vector []float32, width int) []float32 {
	sum := 0.0
	for _, value := range vector[:width] {
		sum += float64(value) * float64(value)
	}
	short := append([]float32(nil), vector[:width]...)
	if length := math.Sqrt(sum); length > 0 {
		for i := range short {
			short[i] = float32(float64(short[i]) / length)
		}
	}
	return short
}

func littleEndian(vector []float32) []byte {
	bytes := make([]byte, 4*len(vector))
	for i, value := range vector {
		binary.LittleEndian.PutUint32(bytes[4*i:], math.Float32bits(value))
	}
	return bytes
}

// notFinite returns the first index of an infinity or NaN; -1 for none.
func notFinite(vector []float32) int {
	for i, value := range vector {
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return i
		}
	}
	return -1
}
