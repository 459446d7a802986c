package tinker

import (
	"encoding/json"
	"fmt"
	"math"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/tinker"
)

// Bounds of a batch's parts.
const (
	mostData    = 1 << 16
	mostTokens  = 1 << 24
	mostChunks  = 1 << 12
	mostEntries = 1 << 25 // of a tensor that is sparse on the wire
)

// batch is a request for a pass.
type batch struct {
	model    string
	number   int64
	data     []tinker.Datum
	loss     tinker.Loss
	backward bool
}

func (s *service) compute(call *dialect.Call, member string) (any, error) {
	var given batch
	var failure, err error
	if kind := call.Header.Get("Content-Type"); isProtobuf(kind) {
		if given, failure, err = readBatch(call.Body); member == "forward_input" {
			given.backward = false
		}
	} else {
		given, failure, err = jsonBatch(call.Body, member)
	}
	if err != nil {
		return nil, err
	}
	return future(s.work.Compute(call.Context, call.Tenant, given.model, numbered(call, given.number), given.data, given.loss, given.backward, failure))
}

// jsonBatch reads one in JSON.
func jsonBatch(text []byte, member string) (made batch, failure, err error) {
	given, err := fields.Body(text)
	if err != nil {
		return made, nil, err
	}
	made = batch{model: given.NeedText("model_id"), number: sequence(given), backward: member == "forward_backward_input"}
	given.Only("type", `"forward"`, `"forward_backward"`)
	input := given.NeedObject(member)
	made.loss.Name = input.NeedText("loss_fn")
	if config, ok := input.Object("loss_fn_config"); ok {
		made.loss.Config = map[string]float64{}
		for _, name := range config.Names() {
			if value, ok := config.Number(name, -math.MaxFloat64, math.MaxFloat64); ok {
				made.loss.Config[name] = value
			}
		}
		_ = config.Done()
	}
	for _, each := range input.NeedList("data", 1, mostData) {
		if given.Err() != nil {
			break
		}
		made.data = append(made.data, jsonDatum(each.Object()))
	}
	_ = input.Done()
	failure, err = content(given, made.model)
	return made, failure, err
}

func jsonDatum(given *fields.Object) (made tinker.Datum) {
	made.Tokens = jsonTokens(given.NeedObject("model_input"))
	made.Inputs = map[string]tinker.Tensor{}
	if inputs, ok := given.Object("loss_fn_inputs"); ok {
		for _, name := range inputs.Names() {
			if value, ok := inputs.Object(name); ok {
				made.Inputs[name] = jsonTensor(value)
			}
		}
		_ = inputs.Done()
	}
	given.Pass("model_input_spans", "loss_fn_input_spans") // where tokens came from
	_ = given.Done()
	return made
}

// jsonTokens are those of all chunks.
func jsonTokens(given *fields.Object) (tokens []int32) {
	for _, chunk := range given.NeedList("chunks", 0, mostChunks) {
		one := chunk.Object()
		kind, there := one.Text("type")
		if there && kind != "encoded_text" {
			one.Fail("type", fields.ValueRefused, "is %q; supported: \"encoded_text\": models here read texts", kind)
			return nil
		}
		if value, ok := one.Value("tokens"); ok {
			tokens = append(tokens, value.Tokens(0, mostTokens)...)
		}
		_ = one.Done()
	}
	_ = given.Done()
	return tokens
}

func jsonTensor(given *fields.Object) (made tinker.Tensor) {
	kind, _ := given.Choice("dtype", "float32", "int64")
	list := func(name string) (values []int64) {
		if value, ok := given.Value(name); ok {
			if err := json.Unmarshal(value.Raw(), &values); err != nil {
				value.Fail(fields.InvalidType, "is no list of integers")
			}
		}
		return values
	}
	made.Shape = list("shape")
	if kind == "int64" {
		made.Integers = append([]int64{}, list("data")...)
	} else if value, ok := given.Value("data"); ok {
		made.Floats = []float32{}
		if err := json.Unmarshal(value.Raw(), &made.Floats); err != nil {
			value.Fail(fields.InvalidType, "is no list of numbers within float32")
		}
	}
	rows, columns := list("sparse_crow_indices"), list("sparse_col_indices")
	if rows != nil || columns != nil {
		dense, err := dense(made, rows, columns)
		if err != nil && given.Err() == nil {
			given.Fail("sparse_crow_indices", fields.InvalidValue, "%s", err)
		}
		made = dense
	}
	_ = given.Done()
	return made
}

// shapeError is a shape that contradicts its data.
func shapeError(format string, arguments ...any) error { return fmt.Errorf(format, arguments...) }
