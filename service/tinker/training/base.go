package training

import (
	"encoding/json"
	"sort"
	"strings"

	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// base is a model that was read: trainers share its values.
type base struct {
	tinker.Base
	path       string
	model      *tessera.Model
	vocabulary int64
	// Weights that get adapters, by their part.
	attention, mlp, head []string

	shared *shared          // the trainer of runs side by side; nil while there is none
	apart  bool             // the library, or its plan, is not for such a trainer
	plans  map[string]int64 // bytes of such trainers, by the weights with slots
}

// describe finds the weights that get adapters, as the library chooses them, and the head's.
func (b *base) describe(mostContext int64) error {
	text, err := b.model.Info()
	if err != nil {
		return err
	}
	var info struct {
		Architecture string
		Outputs      []struct {
			Name  string
			Shape []any
		}
		Symbols []struct {
			Name     string
			Capacity int64
		}
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return err
	}
	b.Architecture, b.Context = info.Architecture, mostContext
	for _, symbol := range info.Symbols {
		if symbol.Name == "T" && symbol.Capacity > 0 && symbol.Capacity < mostContext {
			b.Context = symbol.Capacity
		}
	}
	for _, output := range info.Outputs {
		if count := len(output.Shape); output.Name == "logits" && count == 3 {
			size, _ := output.Shape[count-1].(float64)
			b.vocabulary = int64(size)
		}
	}
	if b.vocabulary == 0 {
		return &tessera.Error{Code: tessera.Unsupported, Message: "the model has no logits of a vocabulary: it cannot be trained by tokens"}
	}
	targets, err := targetsOf(b.model, tessera.Options{"rank": 1})
	if err != nil {
		return err
	}
	for _, name := range targets {
		if isAttention(name) {
			b.attention = append(b.attention, name)
		} else {
			b.mlp = append(b.mlp, name)
		}
	}
	// A head that is the token table has none of its own; the library names what it cannot take.
	if b.head, err = targetsOf(b.model, tessera.Options{"rank": 1, "on": "lm_head"}); err != nil {
		b.head = nil
	}
	b.Head = len(b.head) > 0
	return nil
}

// targetsOf are the weights that get adapters with some options.
func targetsOf(model *tessera.Model, options tessera.Options) (names []string, err error) {
	adapted, err := model.WithAdapters(options)
	if err != nil {
		return nil, err
	}
	defer adapted.Close()
	all, err := adapted.Parameters()
	for _, name := range all {
		if target := strings.TrimSuffix(name, ".lora_a"); target != name {
			names = append(names, target)
		}
	}
	sort.Strings(names)
	return names, err
}

// attentionWords are those that name weights of attention in the families that the library knows.
var attentionWords = map[string]bool{"q": true, "k": true, "v": true, "o": true, "qkv": true, "kv": true, "attention": true, "attn": true,
	"q_a": true, "q_b": true, "kv_a": true, "kv_b": true}

func isAttention(name string) bool {
	for _, word := range strings.Split(name, ".") {
		if attentionWords[word] {
			return true
		}
	}
	return false
}

// on are the weights that a run's adapters are on.
func (b *base) on(adapters tinker.Adapters) string {
	var names []string
	if adapters.Attention {
		names = append(names, b.attention...)
	}
	if adapters.MLP {
		names = append(names, b.mlp...)
	}
	if adapters.Head {
		names = append(names, b.head...)
	}
	return strings.Join(names, ",")
}
