package tinker

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"sort"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"tessera.dev/service/dialect"
	"tessera.dev/service/tinker"
)

// recordType is what the SDK calls the outputs of a loss.
const recordType = "ArrayRecord"

// shown is a result for the client.
func shown(result any, protobuf bool) (any, error) {
	switch one := result.(type) {
	case *tinker.Computed:
		if protobuf {
			return dialect.Bytes{Type: Protobuf, Body: computed(one)}, nil
		}
		return jsonComputed(one), nil
	case *tinker.Samples:
		if protobuf {
			return dialect.Bytes{Type: Protobuf, Body: samples(one)}, nil
		}
		return jsonSamples(one), nil
	case *tinker.Stepped:
		return map[string]any{"type": "optim_step", "metrics": finite(one.Metrics)}, nil
	case *tinker.Created:
		return map[string]any{"type": "create_model", "model_id": one.Run}, nil
	case *tinker.Saved:
		return map[string]any{"type": "save_weights", "path": one.Path}, nil
	case *tinker.Loaded:
		return map[string]any{"type": "load_weights", "path": one.Path, "model_id": one.Run}, nil
	case *tinker.SavedSampler:
		made := map[string]any{"type": "save_weights_for_sampler"}
		if one.Path != "" {
			made["path"] = one.Path
		} else {
			made["sampling_session_id"] = one.Sampler
		}
		return made, nil
	case *tinker.SavedExternal:
		return map[string]any{"type": "save_weights_external", "path": one.Path}, nil
	case *tinker.Ended:
		return map[string]any{"type": "unload_model", "model_id": one.Run}, nil
	}
	return nil, malformed("a result without a form")
}

// finite leaves out numbers that JSON does not have.
func finite(given map[string]float64) map[string]float64 {
	made := map[string]float64{}
	for key, value := range given {
		if !math.IsNaN(value) && !math.IsInf(value, 0) {
			made[key] = value
		}
	}
	return made
}

func names[T any](of map[string]T) []string {
	all := make([]string, 0, len(of))
	for name := range of {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

func appendMessage(to []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), message)
}

func appendNumber(to []byte, number protowire.Number, value uint64) []byte {
	if value == 0 {
		return to
	}
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), value)
}

func floatBytes(values []float32) []byte {
	made := make([]byte, 4*len(values))
	for i, value := range values {
		binary.LittleEndian.PutUint32(made[4*i:], math.Float32bits(value))
	}
	return made
}

func tokenBytes(values []int32) []byte {
	made := make([]byte, 4*len(values))
	for i, value := range values {
		binary.LittleEndian.PutUint32(made[4*i:], uint32(value))
	}
	return made
}

// computed is a ForwardBackwardOutput. Sequences with as many labels a token are a record together.
func computed(given *tinker.Computed) (message []byte) {
	message = appendMessage(message, 1, []byte(recordType))
	for first := 0; first < len(given.Fields); {
		last := first + 1
		for last < len(given.Fields) && trailing(given.Fields[last]["logprobs"]) == trailing(given.Fields[first]["logprobs"]) {
			last++
		}
		message = appendMessage(message, 2, record(given.Fields[first:last]))
		first = last
	}
	for _, name := range names(given.Metrics) {
		var one []byte
		one = appendMessage(one, 1, []byte(name))
		one = protowire.AppendFixed64(protowire.AppendTag(one, 2, protowire.Fixed64Type), math.Float64bits(given.Metrics[name]))
		message = appendMessage(message, 3, one)
	}
	return message
}

// trailing is the second dimension; 0 for none.
func trailing(tensor tinker.Tensor) int64 {
	if len(tensor.Shape) < 2 {
		return 0
	}
	return tensor.Shape[1]
}

func record(data []map[string]tinker.Tensor) (message []byte) {
	message = appendMessage(message, 1, []byte(recordType))
	for _, name := range names(data[0]) {
		var values, offsets []byte
		offsets = binary.LittleEndian.AppendUint64(offsets, 0)
		for _, one := range data {
			values = append(values, floatBytes(one[name].Floats)...)
			offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(values)))
		}
		var tensor, one []byte
		tensor = appendMessage(tensor, 1, values)
		tensor = appendMessage(tensor, 2, offsets)
		tensor = appendNumber(tensor, 3, typeFloat32)
		if columns := trailing(data[0][name]); columns > 0 {
			tensor = appendMessage(tensor, 4, protowire.AppendVarint(nil, uint64(columns)))
		}
		one = appendMessage(one, 1, []byte(name))
		one = appendMessage(one, 2, tensor)
		message = appendMessage(message, 2, one)
	}
	return appendNumber(message, 3, uint64(len(data)))
}

// samples is a SampleResponse.
func samples(given *tinker.Samples) (message []byte) {
	for i := range given.Sequences {
		text := &given.Sequences[i]
		var one []byte
		if !text.Stopped {
			one = appendNumber(one, 1, 1)
		}
		one = appendMessage(one, 2, tokenBytes(text.Tokens))
		one = appendMessage(one, 3, floatBytes(text.Logprobs))
		if text.Top != nil {
			one = appendMessage(one, 4, likely(text.Top))
		}
		message = appendMessage(message, 1, one)
	}
	if given.Prompt != nil {
		message = appendMessage(message, 2, floatBytes(given.Prompt))
	}
	if given.TopPrompt != nil {
		message = appendMessage(message, 3, likely(given.TopPrompt))
	}
	return appendNumber(message, 4, uint64(given.Cached))
}

// likely is a TopkLogprobs: places without tokens, and places with fewer, have the token -1 with a NaN.
func likely(places [][]tinker.Likely) (message []byte) {
	width := 0
	for _, one := range places {
		if len(one) > width {
			width = len(one)
		}
	}
	var tokens []int32
	var values []float32
	for _, one := range places {
		for i := 0; i < width; i++ {
			token, value := int32(-1), float32(math.NaN())
			if i < len(one) {
				token, value = one[i].Token, one[i].Logprob
			}
			tokens, values = append(tokens, token), append(values, value)
		}
	}
	message = appendMessage(message, 1, tokenBytes(tokens))
	message = appendMessage(message, 2, floatBytes(values))
	message = appendNumber(message, 3, uint64(width))
	return appendNumber(message, 4, uint64(len(places)))
}

// float is a number in JSON: null for NaN, and as small as there is for a probability of 0.
type float float32

func (f float) MarshalJSON() ([]byte, error) {
	value := float64(f)
	switch {
	case math.IsNaN(value):
		return []byte("null"), nil
	case math.IsInf(value, -1):
		value = -math.MaxFloat32
	case math.IsInf(value, 1):
		value = math.MaxFloat32
	}
	return strconv.AppendFloat(nil, value, 'g', -1, 32), nil
}

func floats(values []float32) []float {
	made := make([]float, len(values))
	for i, value := range values {
		made[i] = float(value)
	}
	return made
}

func jsonComputed(given *tinker.Computed) any {
	type tensor struct {
		Data  []float `json:"data"`
		Type  string  `json:"dtype"`
		Shape []int64 `json:"shape"`
	}
	outputs := make([]map[string]tensor, 0, len(given.Fields))
	for _, each := range given.Fields {
		one := map[string]tensor{}
		for name, values := range each {
			one[name] = tensor{floats(values.Floats), "float32", values.Shape}
		}
		outputs = append(outputs, one)
	}
	return map[string]any{"loss_fn_output_type": recordType, "loss_fn_outputs": outputs, "metrics": finite(given.Metrics)}
}

func jsonSamples(given *tinker.Samples) any {
	type sequence struct {
		Stop     string             `json:"stop_reason"`
		Tokens   []int32            `json:"tokens"`
		Logprobs []float            `json:"logprobs"`
		Top      []*json.RawMessage `json:"topk_logprobs,omitempty"`
	}
	made := make([]sequence, 0, len(given.Sequences))
	for i := range given.Sequences {
		text := &given.Sequences[i]
		one := sequence{Stop: "length", Tokens: append([]int32{}, text.Tokens...), Logprobs: floats(text.Logprobs)}
		if text.Stopped {
			one.Stop = "stop"
		}
		if text.Top != nil {
			one.Top = jsonLikely(text.Top)
		}
		made = append(made, one)
	}
	reply := map[string]any{"type": "sample", "sequences": made, "prompt_cache_hit_tokens": given.Cached}
	if given.Prompt != nil {
		reply["prompt_logprobs"] = floats(given.Prompt)
	}
	if given.TopPrompt != nil {
		reply["topk_prompt_logprobs"] = jsonLikely(given.TopPrompt)
	}
	return reply
}

// jsonLikely are pairs of token and log probability at each place, null at one without.
func jsonLikely(places [][]tinker.Likely) []*json.RawMessage {
	made := make([]*json.RawMessage, len(places))
	for i, place := range places {
		if len(place) == 0 {
			continue
		}
		pairs := make([][2]any, 0, len(place))
		for _, one := range place {
			pairs = append(pairs, [2]any{one.Token, float(one.Logprob)})
		}
		text, _ := json.Marshal(pairs)
		raw := json.RawMessage(text)
		made[i] = &raw
	}
	return made
}
