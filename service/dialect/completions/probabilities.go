package completions

import (
	"math"
	"unicode/utf8"

	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// probabilities is OpenAI's form of log probabilities of completions: a list of each kind. The first token of a prompt has none.
type probabilities struct {
	Offsets    []int                `json:"text_offset"`
	Logarithms []*float64           `json:"token_logprobs"`
	Tokens     []string             `json:"tokens"`
	Likeliest  []map[string]float64 `json:"top_logprobs"`
}

func newProbabilities() *probabilities {
	return &probabilities{[]int{}, []*float64{}, []string{}, []map[string]float64{}}
}

// offsets counts the characters of a text by the bytes of its tokens. A token within a character begins where that does.
type offsets struct {
	characters int
	begun      []byte // of a character that is not complete
}

func (o *offsets) add(token []byte) (begin int) {
	begin = o.characters
	o.begun = append(o.begun, token...)
	for len(o.begun) > 0 && utf8.FullRune(o.begun) {
		_, size := utf8.DecodeRune(o.begun)
		o.begun = o.begun[size:]
		o.characters++
	}
	return begin
}

func (p *probabilities) add(places *offsets, tokens []inference.TokenProbability) {
	for _, token := range tokens {
		text := openai.TokenText(token.Bytes)
		p.Offsets = append(p.Offsets, places.add(token.Bytes))
		p.Tokens = append(p.Tokens, text)
		if math.IsNaN(token.Probability) {
			p.Logarithms = append(p.Logarithms, nil)
			p.Likeliest = append(p.Likeliest, nil)
			continue
		}
		logarithm := openai.Logarithm(token.Probability)
		likeliest := map[string]float64{}
		for _, likely := range token.Likeliest {
			name := openai.TokenText(likely.Bytes)
			if _, there := likeliest[name]; !there { // of tokens with one text the likeliest
				likeliest[name] = openai.Logarithm(likely.Probability)
			}
		}
		if _, there := likeliest[text]; !there {
			likeliest[text] = logarithm
		}
		p.Logarithms = append(p.Logarithms, &logarithm)
		p.Likeliest = append(p.Likeliest, likeliest)
	}
}

func (p *probabilities) append(more *probabilities) {
	p.Offsets = append(p.Offsets, more.Offsets...)
	p.Logarithms = append(p.Logarithms, more.Logarithms...)
	p.Tokens = append(p.Tokens, more.Tokens...)
	p.Likeliest = append(p.Likeliest, more.Likeliest...)
}
