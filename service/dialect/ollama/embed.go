package ollama

import (
	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

const mostTexts = 2048

// embedded reads a body with texts in a member, and gives their vectors.
func embedded(call *dialect.Call, models inference.Models, done <-chan struct{}, read func(*fields.Object) []inference.Text) (
	name string, vectors [][]float32, tokens int64, err error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return "", nil, 0, err
	}
	name = modelName(body)
	texts := read(body)
	readOptions(body, inference.Options{})
	readKeep(body)
	body.Pass("truncate") // a text that is too long is refused
	body.Refuse("dimensions", "vectors are whole")
	if err := body.Done(); err != nil {
		return "", nil, 0, err
	}
	ctx, end := openai.Context(done)
	defer end()
	model, err := models.Open(ctx, name)
	if err != nil {
		return "", nil, 0, err
	}
	defer model.Release()
	vectors, tokens, err = model.Embed(ctx, texts, inference.Options{})
	return name, vectors, tokens, err
}

// embed is /api/embed: of a text or of a list.
func embed(call *dialect.Call, models inference.Models, done <-chan struct{}) (any, error) {
	name, vectors, tokens, err := embedded(call, models, done, func(body *fields.Object) (texts []inference.Text) {
		value, ok := body.Value("input")
		switch {
		case !ok:
			body.Fail("input", fields.Missing, "is missing; a text or a list of texts is wanted")
		case value.Kind() == fields.Text:
			texts = append(texts, inference.Text{Words: value.Text()})
		default:
			for _, text := range value.Texts(1, mostTexts) {
				texts = append(texts, inference.Text{Words: text})
			}
		}
		return texts
	})
	if err != nil {
		return nil, err
	}
	return struct {
		Model      string      `json:"model"`
		Embeddings [][]float32 `json:"embeddings"`
		Count      int64       `json:"prompt_eval_count"`
	}{name, vectors, tokens}, nil
}

// embedOne is /api/embeddings, which Ollama has for older clients.
func embedOne(call *dialect.Call, models inference.Models, done <-chan struct{}) (any, error) {
	_, vectors, _, err := embedded(call, models, done, func(body *fields.Object) []inference.Text {
		return []inference.Text{{Words: body.NeedText("prompt")}}
	})
	if err != nil {
		return nil, err
	}
	return struct {
		Embedding []float32 `json:"embedding"`
	}{vectors[0]}, nil
}
