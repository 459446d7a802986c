package texts

import (
	"context"
	"fmt"
	"math"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

type score struct {
	Index  int     `json:"index"`
	Object string  `json:"object"`
	Score  float64 `json:"score"`
}

type scores struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	Model   string  `json:"model"`
	Data    []score `json:"data"`
	Usage   usage   `json:"usage"`
}

// scoreNames are the names of the two sides in the versions of vLLM.
var scoreNames = [][2]string{{"text_1", "text_2"}, {"queries", "documents"}, {"data_1", "data_2"}}

// readScore scores pairs: of one text with each of the other side, or of two lists of one length.
func readScore(call *dialect.Call, body *fields.Object) (string, task) {
	name := body.NeedText("model")
	names := scoreNames[0]
	for _, each := range scoreNames[1:] {
		if body.Has(each[0]) && !body.Has(names[0]) {
			names = each
		}
	}
	queries, documents := readSide(body, names[0]), readSide(body, names[1])
	if len(queries) != 1 && len(queries) != len(documents) {
		body.Fail(names[1], fields.InvalidValue, "has %d texts; as many as '%s' are wanted, which has %d", len(documents), names[0], len(queries))
	}
	openai.Pass(body)
	return name, func(ctx context.Context, model inference.Model) (any, error) {
		found, count, err := scorePairs(ctx, model, queries, documents)
		if err != nil {
			return nil, err
		}
		made := scores{"score-" + call.ID, "list", call.Now.Unix(), name, make([]score, len(found)), usage{count, count}}
		for i, value := range found {
			made.Data[i] = score{i, "score", value}
		}
		return made, nil
	}
}

func readSide(body *fields.Object, name string) []string {
	value, ok := body.Value(name)
	if !ok {
		body.Fail(name, fields.Missing, "is missing; a text or a list of texts is wanted")
		return nil
	}
	if value.Kind() == fields.Text {
		return []string{value.Text()}
	}
	return value.Texts(1, mostDocuments)
}

// scorePairs asks a model that ranks; of one that embeds it is the cosine of the two vectors.
func scorePairs(ctx context.Context, model inference.Model, queries, documents []string) (found []float64, tokens int64, err error) {
	if !does(model, "score") && does(model, "embed") {
		return cosines(ctx, model, queries, documents)
	}
	if len(queries) == 1 {
		return model.Rank(ctx, queries[0], documents)
	}
	for i, query := range queries {
		each, count, err := model.Rank(ctx, query, documents[i:i+1])
		if err != nil {
			return nil, 0, err
		}
		found, tokens = append(found, each...), tokens+count
	}
	return found, tokens, nil
}

func does(model inference.Model, what string) bool {
	for _, each := range model.Info().Does {
		if each == what {
			return true
		}
	}
	return false
}

func cosines(ctx context.Context, model inference.Model, queries, documents []string) (found []float64, tokens int64, err error) {
	var texts []inference.Text
	for _, text := range append(append([]string(nil), queries...), documents...) {
		texts = append(texts, inference.Text{Words: text})
	}
	vectors, tokens, err := model.Embed(ctx, texts, inference.Options{})
	if err != nil {
		return nil, 0, err
	}
	if len(vectors) != len(texts) {
		return nil, 0, &inference.Error{Kind: inference.Internal, Message: fmt.Sprintf("%d vectors of %d texts", len(vectors), len(texts))}
	}
	for i := range documents {
		query := 0
		if len(queries) > 1 {
			query = i
		}
		found = append(found, cosine(vectors[query], vectors[len(queries)+i]))
	}
	return found, tokens, nil
}

// cosine returns the cosine of two vectors; 0 if one is all zeros.
func cosine(a, b []float32) float64 {
	var product, left, right float64
	for i := range a {
		product += float64(a[i]) * float64(b[i])
		left += float64(a[i]) * float64(a[i])
		right += float64(b[i]) * float64(b[i])
	}
	if left == 0 || right == 0 {
		return 0
	}
	return product / math.Sqrt(left*right)
}
