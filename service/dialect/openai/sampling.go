package openai

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// MostTexts is the limit of n and best_of, MostLikeliest that of top_logprobs and of completions' logprobs.
const (
	MostTexts     = 128
	MostLikeliest = 20
)

// MostTokens bounds counts of tokens.
const MostTokens = math.MaxInt32

// realSettings are members that are options of the engine, with their ranges.
var realSettings = []struct {
	member, option string
	least, most    float64
}{
	{"temperature", "temperature", 0, 2},
	{"top_p", "top_p", 0, 1},
	{"min_p", "min_p", 0, 1},
	{"typical_p", "typical_p", 0, 1},
	{"repetition_penalty", "repetition_penalty", 0.01, 100},
	{"repeat_penalty", "repetition_penalty", 0.01, 100},
	{"presence_penalty", "presence_penalty", -2, 2},
	{"frequency_penalty", "frequency_penalty", -2, 2},
}

// Sampling reads the settings that chat and completions share: OpenAI's, and those of vLLM and llama.cpp that the engine has.
func Sampling(body *fields.Object, options inference.Options) {
	for _, each := range realSettings {
		if value, ok := body.Number(each.member, each.least, each.most); ok {
			options[each.option] = value
		}
	}
	if value, ok := body.Integer("top_k", -1, math.MaxInt32); ok { // vLLM writes -1, others 0
		options["top_k"] = larger(value, 0)
	}
	if value, ok := body.Integer("repeat_last_n", -1, 1<<24); ok { // -1: the whole context, as the engine's 0
		options["penalty_last"] = larger(value, 0)
	}
	if value, ok := body.Integer("seed", math.MinInt64, math.MaxInt64); ok {
		options["seed"] = value
	}
	if value, ok := body.Integer("min_tokens", 0, MostTokens); ok {
		options["min_tokens"] = value
	}
	if flag, ok := body.Flag("ignore_eos"); ok && flag {
		options["ignore_eos"] = int64(1)
	}
	ReadStops(body, options)
	readBias(body, options)
	body.Only("skip_special_tokens", "true")
	body.Only("include_stop_str_in_output", "false")
	body.Only("use_beam_search", "false")
}

func larger(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// ReadStops reads stop: one text or a list.
func ReadStops(body *fields.Object, options inference.Options) {
	if value, ok := body.Value("stop"); ok {
		var texts []string
		if value.Kind() == fields.Text {
			texts = []string{value.Text()}
		} else {
			texts = value.Texts(0, 1000)
		}
		for _, text := range texts {
			if text == "" {
				value.Fail(fields.Empty, "has an empty text")
			}
		}
		if len(texts) > 0 {
			options["stop"] = string(wire.JSON(texts))
		}
	}
	if value, ok := body.Value("stop_token_ids"); ok {
		var ids []string
		for _, id := range value.Tokens(0, 4096) {
			ids = append(ids, strconv.Itoa(int(id)))
		}
		if len(ids) > 0 {
			options["stop_ids"] = strings.Join(ids, ",")
		}
	}
}

// tokenID matches a token id written as a JSON key, of at most nine digits.
var tokenID = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)

func readBias(body *fields.Object, options inference.Options) {
	object, ok := body.Object("logit_bias")
	if !ok {
		return
	}
	biases := map[string]float64{}
	for _, name := range object.Names() {
		if !tokenID.MatchString(name) {
			object.Fail(name, fields.InvalidValue, "is no id of a token")
		}
		if value, ok := object.Number(name, -100, 100); ok {
			biases[name] = value
		}
	}
	object.Done()
	if len(biases) > 0 {
		options["logit_bias"] = string(wire.JSON(biases))
	}
}

// Texts reads n and best_of, and gives n.
func Texts(body *fields.Object, options inference.Options) int {
	n := int64(1)
	if value, ok := body.Integer("n", 1, MostTexts); ok {
		options["n"], n = value, value
	}
	if value, ok := body.Integer("best_of", 1, MostTexts); ok {
		if value < n {
			body.Fail("best_of", fields.InvalidValue, "is %d; at least 'n' is wanted, which is %d", value, n)
		}
		options["best_of"] = value
	}
	return int(n)
}

// Limit checks that min_tokens is not above max_tokens.
func Limit(body *fields.Object, options inference.Options) {
	least, _ := options["min_tokens"].(int64)
	if limit, ok := options["max_tokens"].(int64); ok && least > limit {
		body.Fail("min_tokens", fields.InvalidValue, "is %d; at most the limit of tokens is wanted, which is %d", least, limit)
	}
}

// harmless are members that change no text: names of users, storage, routing, caching and tiers of other services.
var harmless = []string{
	"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	"prompt_cache_options", "prediction", "request_id", "spaces_between_special_tokens", "guided_decoding_backend", "cache_prompt",
	"id_slot",
}

// Pass passes over the harmless members.
func Pass(body *fields.Object) { body.Pass(harmless...) }
