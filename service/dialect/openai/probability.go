package openai

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"tessera.dev/service/inference"
)

// LeastLogarithm stands for log probabilities that JSON has no number for: those of probability 0.
const LeastLogarithm = -9999.0

// Logarithm is a log probability as JSON has it.
func Logarithm(value float64) float64 {
	if math.IsNaN(value) || value < LeastLogarithm {
		return LeastLogarithm
	}
	return value
}

// TokenText is a token's text; of bytes that are no whole characters "bytes:" and their hexadecimal escapes.
func TokenText(token []byte) string {
	if utf8.Valid(token) {
		return string(token)
	}
	var text strings.Builder
	text.WriteString("bytes:")
	for _, each := range token {
		fmt.Fprintf(&text, "\\x%02x", each)
	}
	return text.String()
}

// Probability is that of a token in a chat.
type Probability struct {
	Token     string  `json:"token"`
	Logarithm float64 `json:"logprob"`
	Bytes     []int   `json:"bytes"`
}

// PlaceProbability is that of the token at a place, with the likeliest there.
type PlaceProbability struct {
	Probability
	Likeliest []Probability `json:"top_logprobs"`
}

func probability(token inference.TokenProbability) Probability {
	made := Probability{TokenText(token.Bytes), Logarithm(token.Probability), make([]int, len(token.Bytes))}
	for i, each := range token.Bytes {
		made.Bytes[i] = int(each)
	}
	return made
}

// Probabilities is the form of chat and responses. It is never nil.
func Probabilities(tokens []inference.TokenProbability) []PlaceProbability {
	places := make([]PlaceProbability, 0, len(tokens))
	for _, token := range tokens {
		place := PlaceProbability{probability(token), make([]Probability, 0, len(token.Likeliest))}
		for _, likely := range token.Likeliest {
			place.Likeliest = append(place.Likeliest, probability(likely))
		}
		places = append(places, place)
	}
	return places
}
