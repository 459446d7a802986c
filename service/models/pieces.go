package models

import (
	"strings"
	"sync"

	"tessera.dev/tessera"
)

// pieces are the bytes of single tokens. Decoding drops a space at the beginning of a text, so that a token is decoded
// behind another one.
type pieces struct {
	tokenizer *tessera.Tokenizer
	before    []int32
	text      string

	mutex sync.Mutex
	known map[int32][]byte
}

func newPieces(tokenizer *tessera.Tokenizer) *pieces {
	p := &pieces{tokenizer: tokenizer, known: map[int32][]byte{}}
	if ids, err := tokenizer.Encode("a"); err == nil {
		p.before = ids
		p.text, _ = tokenizer.Decode(ids)
	}
	return p
}

// piece returns the bytes of a token; none for control tokens, and for ids that the vocabulary lacks.
func (p *pieces) piece(id int32) []byte {
	if id < 0 {
		return nil
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if bytes, found := p.known[id]; found {
		return bytes
	}
	text, err := p.tokenizer.Decode(append(append([]int32{}, p.before...), id))
	if err != nil {
		return nil
	}
	bytes := []byte(strings.TrimPrefix(text, p.text))
	p.known[id] = bytes
	return bytes
}
