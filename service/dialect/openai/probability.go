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

// Logarithm returns a log probability as a JSON number: LeastLogarithm if it is NaN or less than that.
func Logarithm(value float64) float64 {
	if math.IsNaN(value) || value < LeastLogarithm {
		return LeastLogarithm
	}
	return value
}

// TokenText returns a token's text; for bytes that are not whole characters, "bytes:" and their hexadecimal escapes.
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

// Probability is a token with its log probability, in the form of chat and responses.
type Probability struct {
	Token     string  `json:"token"`
	Logarithm float64 `json:"logprob"`
	Bytes     []int   `json:"bytes"`
}

// PlaceProbability is the log probability of the token at a place of a text, with the likeliest tokens there.
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

// Probabilities returns log probabilities in the form of chat and responses. The slice is never nil.
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
