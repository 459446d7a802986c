package ollama

import (
	"math"
	"time"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// loading are options of how a model is loaded and where it computes. The service's plan decides that for all requests.
var loading = []string{"numa", "num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "kv_cache_type", "logits_all",
	"vocab_only", "use_mmap", "use_mlock", "embedding_only", "num_thread", "num_keep", "flash_attn"}

// readOptions reads the settings of sampling.
func readOptions(body *fields.Object, options inference.Options) {
	given, ok := body.Object("options")
	if !ok {
		return
	}
	for _, each := range []struct {
		name, option string
		least, most  float64
	}{
		{"temperature", "temperature", 0, 100},
		{"top_p", "top_p", 0, 1},
		{"min_p", "min_p", 0, 1},
		{"typical_p", "typical_p", 0, 1},
		{"repeat_penalty", "repetition_penalty", 0.01, 100},
		{"presence_penalty", "presence_penalty", -2, 2},
		{"frequency_penalty", "frequency_penalty", -2, 2},
	} {
		if value, ok := given.Number(each.name, each.least, each.most); ok {
			options[each.option] = value
		}
	}
	if value, ok := given.Integer("top_k", 0, math.MaxInt32); ok {
		options["top_k"] = value
	}
	if value, ok := given.Integer("seed", math.MinInt64, math.MaxInt64); ok && value >= 0 { // below 0: drawn
		options["seed"] = value
	}
	if value, ok := given.Integer("num_predict", -2, openai.MostTokens); ok && value > 0 { // else until the context is full
		options["max_tokens"] = value
	}
	readPenalized(given, options)
	openai.ReadStops(given, options)
	given.Only("tfs_z", "1")
	given.Only("mirostat", "0")
	given.Pass("mirostat_tau", "mirostat_eta") // of mirostat
	given.Only("penalize_newline", "true")
	given.Pass(loading...)
	given.Done()
}

// readPenalized reads how many tokens penalties see: all with -1, none with 0.
func readPenalized(given *fields.Object, options inference.Options) {
	switch last, ok := given.Integer("repeat_last_n", -1, 1<<24); {
	case !ok || last < 0:
	case last == 0:
		for _, each := range []string{"repetition_penalty", "presence_penalty", "frequency_penalty"} {
			delete(options, each)
		}
		options["repetition_penalty"] = 1.0
	default:
		options["penalty_last"] = last
	}
}

// readFormat is "json", or a schema.
func readFormat(body *fields.Object, options inference.Options) {
	switch value, ok := body.Value("format"); {
	case !ok:
	case value.Kind() == fields.Members:
		options["json_schema"] = string(wire.Compact(value.Raw()))
	case value.Kind() != fields.Text:
		value.Fail(fields.InvalidType, "is %s; \"json\" or a JSON schema is wanted", value.Kind())
	case value.Text() == "json":
		options["json_schema"] = openai.AnyObject
	case value.Text() != "":
		value.Fail(fields.InvalidValue, "is %q; \"json\" or a JSON schema is wanted", value.Text())
	}
}

// readKeep reads keep_alive, a number of seconds or a duration as "5m". When a model leaves is the service's to decide; 0 is told
// apart, since it asks for that at once where there is no prompt.
func readKeep(body *fields.Object) (unload bool) {
	value, ok := body.Value("keep_alive")
	if !ok {
		return false
	}
	if value.Kind() == fields.Number {
		return value.Number(-math.MaxFloat64, math.MaxFloat64) == 0
	}
	duration, err := time.ParseDuration(value.Text())
	if err != nil {
		value.Fail(fields.InvalidValue, "is no duration; a number of seconds, or a text as \"5m\" is wanted")
	}
	return err == nil && duration == 0
}
