package tessera

import (
	"encoding/json"

	"tessera.dev/tessera/raw"
)

// Tokenizer turns text into token ids and back. Immutable; any goroutine.
type Tokenizer handle

func newTokenizer(h *handle, err error) (*Tokenizer, error) { return (*Tokenizer)(h), err }

// NewByteTokenizer has 256 tokens, one a byte.
func NewByteTokenizer() (*Tokenizer, error) {
	return newTokenizer(hold(raw.Tsr_tokenizer_free, raw.Tsr_tokenizer_new_bytes))
}

// LoadTokenizer reads the tokenizer inside a .tsr or GGUF file, or of a Hugging Face folder or tokenizer.json.
func LoadTokenizer(path string) (*Tokenizer, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newTokenizer(hold(raw.Tsr_tokenizer_free, func(out *uintptr) uintptr { return raw.Tsr_tokenizer_load(path, out) }))
}

// Close frees it; see the package.
func (t *Tokenizer) Close() { (*handle)(t).close() }

// EncodeFlags say what is encoded besides the text itself; they add up.
type EncodeFlags uint32

const (
	EncodeSpecial EncodeFlags = 1 // control tokens written out in the text, such as <s>, are recognised
	EncodeBOS     EncodeFlags = 2 // the beginning-of-sequence token comes first, where there is one
	EncodeAround  EncodeFlags = 4 // what the tokenizer puts around texts: BOS and EOS, [CLS] and [SEP], ...
)

// Encode gives the ids of text, without what stands around texts.
func (t *Tokenizer) Encode(text string) ([]int32, error) { return t.EncodeWith(text, 0) }

// EncodeAround gives the ids of text with what the tokenizer puts around texts: BOS and EOS, [CLS] and [SEP], and so on.
func (t *Tokenizer) EncodeAround(text string) ([]int32, error) {
	return t.EncodeWith(text, EncodeAround)
}

// EncodeWith gives the ids of text as flags say.
func (t *Tokenizer) EncodeWith(text string, flags EncodeFlags) ([]int32, error) {
	c, done := (*handle)(t).use()
	defer done()
	return int32s(func(items []int32, count *uint64) uintptr {
		return raw.Tsr_tokenizer_encode(c, text, uint(flags), items, count)
	})
}

// EncodeBatch gives the ids of several texts, on threads of the library: 0 for one a core.
func (t *Tokenizer) EncodeBatch(texts []string, flags EncodeFlags, threads int) ([][]int32, error) {
	c, done := (*handle)(t).use()
	defer done()
	text, lengths := joined(texts)
	counts := make([]uint64, len(texts)+1)
	ids, err := int32s(func(items []int32, count *uint64) uintptr {
		return raw.Tsr_tokenizer_encode_batch(c, text, lengths, uint(flags), threads, items, &counts[0], count)
	})
	if err != nil {
		return nil, err
	}
	all := make([][]int32, len(texts))
	for i := range all {
		all[i], ids = ids[:counts[i]:counts[i]], ids[counts[i]:]
	}
	return all, nil
}

// A TextRange is a part of a text: its first byte, and the first byte after it.
type TextRange struct{ Begin, End int }

// EncodeRanges gives the ids of text with control tokens recognised, except in the literal parts, in order and
// disjoint; and the byte offset of each token.
func (t *Tokenizer) EncodeRanges(text string, literal []TextRange) (ids []int32, begins []uint64, err error) {
	c, done := (*handle)(t).use()
	defer done()
	bounds := make([]uint64, 0, 2*len(literal))
	for _, part := range literal {
		bounds = append(bounds, uint64(part.Begin), uint64(part.End))
	}
	begins = []uint64{0}
	ids, err = int32s(func(items []int32, count *uint64) uintptr {
		begins = make([]uint64, len(items)+1)
		return raw.Tsr_tokenizer_encode_ranges(c, text, uint(EncodeSpecial), bounds, items, &begins[0], count)
	})
	return ids, begins[:len(ids)], err
}

// EndIDs are the tokens that end generation: of a text, a turn or a message.
func (t *Tokenizer) EndIDs() ([]int32, error) {
	c, done := (*handle)(t).use()
	defer done()
	return int32s(func(items []int32, count *uint64) uintptr { return raw.Tsr_tokenizer_end_ids(c, items, count) })
}

// WrittenControl gives the control tokens that stand written out in text, as where a chat template rendered it before, with
// how often each does; without EncodeSpecial they are encoded as letters, as the note says.
func (t *Tokenizer) WrittenControl(text string) (tokens map[string]int64, note string, err error) {
	var found struct {
		Tokens map[string]int64
		Note   string
	}
	made, err := (*handle)(t).text(func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_tokenizer_written_control(c, text, out)
	})
	if err == nil {
		err = json.Unmarshal([]byte(made), &found)
	}
	return found.Tokens, found.Note, err
}

// Decode gives the text of ids, without BOS. It is not necessarily whole UTF-8 characters.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	return (*handle)(t).text(func(c uintptr, out *uintptr) uintptr { return raw.Tsr_tokenizer_decode(c, ids, out) })
}

// VocabularySize is the number of tokens; 0 for a tokenizer that is closed.
func (t *Tokenizer) VocabularySize() int {
	c, done := (*handle)(t).use()
	defer done()
	return raw.Tsr_tokenizer_vocabulary_size(c)
}

// BOS is the beginning-of-sequence token; -1: none.
func (t *Tokenizer) BOS() int32 {
	c, done := (*handle)(t).use()
	defer done()
	return int32(raw.Tsr_tokenizer_bos(c))
}

// EOS is the end-of-sequence token; -1: none.
func (t *Tokenizer) EOS() int32 {
	c, done := (*handle)(t).use()
	defer done()
	return int32(raw.Tsr_tokenizer_eos(c))
}
