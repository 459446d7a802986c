package models

import (
	"context"
	"fmt"
	"math"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// embedderOptions are the names of the engine options that an embedder has too.
var embedderOptions = []string{"devices", "precision", "weights", "activations", "repack", "measure"}

// embedder returns the embedder with these options, made at its first use. The caller holds the mutex embedding.
func (m *loaded) embedder(ctx context.Context, output string, pairs bool, options inference.Options) (*tessera.Embedder, error) {
	made := tessera.Options{"output": output}
	if pairs {
		made["pairs"] = 1
	}
	for _, key := range embedderOptions {
		if value, given := m.options[key]; given {
			made[key] = value
		}
	}
	for _, key := range []string{"pooling", "normalize"} {
		if value, given := options[key]; given {
			made[key] = value
		}
	}
	key := fmt.Sprint(output, pairs, made["pooling"], made["normalize"])
	if known := m.embedders[key]; known != nil {
		return known, nil
	}
	embedder, err := tessera.NewEmbedderContext(ctx, m.runtime, m.model, made)
	if err != nil {
		return nil, err
	}
	m.embedders[key] = embedder
	return embedder, nil
}

// lock holds the mutex embedding unless the context ends before.
func (m *loaded) lock(ctx context.Context) error {
	for !m.embedding.TryLock() {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (o *opened) Embed(ctx context.Context, texts []inference.Text, options inference.Options) ([][]float32, int64, error) {
	m := o.loaded
	if !does(m.info, "embed") {
		return nil, 0, invalid("model", fmt.Sprintf("the model %q gives no embeddings; it does: %v", m.info.Name, m.info.Does))
	}
	if o.adapter != nil {
		return nil, 0, &inference.Error{Kind: inference.Invalid, Param: "model", Message: "embeddings with an adapter are not supported; name its base"}
	}
	ids, tokens, err := o.encodeTexts(texts)
	if err != nil {
		return nil, 0, err
	}
	if err := m.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer m.embedding.Unlock()
	embedder, err := m.embedder(ctx, "embedding", false, options)
	if err != nil {
		return nil, 0, serviceError(err)
	}
	rows, err := embedder.EmbedTokens(ids, nil)
	return rows, tokens, serviceError(err)
}

// encodeTexts returns the token ids of texts, with the tokens that the tokenizer puts around them, and their number.
func (o *opened) encodeTexts(texts []inference.Text) (all [][]int32, tokens int64, err error) {
	for i, text := range texts {
		ids := text.Tokens
		if ids == nil {
			if ids, err = o.loaded.tokenizer.EncodeAround(text.Words); err != nil {
				return nil, 0, serviceError(err)
			}
		}
		if len(ids) == 0 {
			return nil, 0, invalid(fmt.Sprintf("input[%d]", i), "found no tokens, wanted at least one")
		}
		if most := o.loaded.info.Context; most > 0 && int64(len(ids)) > most {
			return nil, 0, &inference.Error{Kind: inference.Invalid, Code: "context_length_exceeded", Param: fmt.Sprintf("input[%d]", i),
				Message: fmt.Sprintf("found %d tokens, and the model reads at most %d; shorten the text", len(ids), most)}
		}
		all = append(all, ids)
		tokens += int64(len(ids))
	}
	return all, tokens, nil
}

// Score gives the log probabilities of the texts' tokens.
func (o *opened) Score(ctx context.Context, texts []inference.Text, from []int) ([][]inference.TokenProbability, error) {
	if o.loaded.engine == nil {
		return nil, invalid("model", fmt.Sprintf("the model %q gives no probabilities of tokens; it does: %v", o.loaded.info.Name, o.loaded.info.Does))
	}
	requests := make([]*tessera.Request, 0, len(texts))
	all := make([][]int32, len(texts))
	defer func() {
		for _, request := range requests {
			request.Cancel() // nothing happens to those that have ended
		}
	}()
	for i, text := range texts {
		ids, err := text.Tokens, error(nil)
		if ids == nil {
			if ids, err = o.loaded.tokenizer.EncodeWith(text.Words, tessera.EncodeBOS); err != nil {
				return nil, serviceError(err)
			}
		}
		options := tessera.Options{"score_from": from[i]}
		if o.number >= 0 {
			options["adapter"] = o.number
		}
		request, err := o.loaded.engine.SubmitTokens(ids, options)
		if err != nil {
			return nil, serviceError(err)
		}
		requests, all[i] = append(requests, request), ids
	}
	scored := make([][]inference.TokenProbability, len(texts))
	for i, request := range requests {
		scores, err := request.Scores(ctx)
		if err != nil {
			return nil, serviceError(err)
		}
		for at, logprob := range scores.LogProbs {
			token := all[i][from[i]+at]
			scored[i] = append(scored[i], inference.TokenProbability{Token: token, Bytes: o.loaded.pieces.piece(token), Probability: float64(logprob)})
		}
	}
	return scored, nil
}

// Rank scores documents: by the model's head for pairs, else by the cosine of embeddings.
func (o *opened) Rank(ctx context.Context, query string, documents []string) ([]float64, int64, error) {
	m := o.loaded
	if !does(m.info, "score") {
		return o.rankByCosine(ctx, query, documents)
	}
	if err := m.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer m.embedding.Unlock()
	embedder, err := m.embedder(ctx, "probabilities", true, nil)
	if err != nil {
		return nil, 0, serviceError(err)
	}
	pairs := make([]string, 0, 2*len(documents))
	for _, document := range documents {
		pairs = append(pairs, query, document)
	}
	rows, err := embedder.EmbedContext(ctx, pairs, nil)
	if err != nil {
		return nil, 0, serviceError(err)
	}
	tokens, err := o.countTokens(pairs)
	scores := make([]float64, len(rows))
	for i, row := range rows {
		if len(row) != 1 {
			return nil, 0, invalid("model", fmt.Sprintf("the model %q has %d classes, wanted one score of a pair", m.info.Name, len(row)))
		}
		scores[i] = float64(row[0])
	}
	return scores, tokens, err
}

func (o *opened) countTokens(texts []string) (tokens int64, err error) {
	all, err := o.loaded.tokenizer.EncodeBatch(texts, 0, 1)
	for _, ids := range all {
		tokens += int64(len(ids))
	}
	return tokens, serviceError(err)
}

func (o *opened) rankByCosine(ctx context.Context, query string, documents []string) ([]float64, int64, error) {
	if does(o.loaded.info, "generate") {
		return nil, 0, &inference.Error{Kind: inference.Invalid, Param: "model", Message: fmt.Sprintf(
			"the model %q has no head that ranks documents; wanted a cross encoder, or a model of embeddings", o.loaded.info.Name)}
	}
	texts := []inference.Text{{Words: query}}
	for _, document := range documents {
		texts = append(texts, inference.Text{Words: document})
	}
	rows, tokens, err := o.Embed(ctx, texts, inference.Options{"normalize": 1})
	if err != nil {
		return nil, 0, err
	}
	scores := make([]float64, len(documents))
	for i, row := range rows[1:] {
		for at, value := range row {
			scores[i] += float64(value) * float64(rows[0][at])
		}
		scores[i] = math.Max(-1, math.Min(1, scores[i]))
	}
	return scores, tokens, nil
}

// pause waits a moment for another request.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Millisecond):
		return nil
	}
}
