package tinker

import (
	"encoding/binary"
	"fmt"
	"math"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

func isProtobuf(kind string) bool {
	parsed, _, err := mime.ParseMediaType(kind)
	return err == nil && parsed == Protobuf
}

func malformed(what string) error {
	return &inference.Error{Kind: inference.Invalid, Code: "invalid_protobuf", Message: "the body is no sound protobuf: " + what}
}

// field is one of a message: bytes, or a number.
type field struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	value  uint64
}

func (f *field) double() float64 { return math.Float64frombits(f.value) }

// each goes through the fields of a message. Fields that are not known are passed over by the callers, as protobuf has it; those with
// another type than is wanted are an error.
func each(message []byte, what string, see func(f field) error) error {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return malformed("a tag of " + what)
		}
		message = message[size:]
		f := field{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			f.value, size = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			f.value, size = protowire.ConsumeFixed64(message)
		case protowire.Fixed32Type:
			var value uint32
			value, size = protowire.ConsumeFixed32(message)
			f.value = uint64(value)
		case protowire.BytesType:
			f.bytes, size = protowire.ConsumeBytes(message)
		default:
			size = -1
		}
		if size < 0 {
			return malformed(fmt.Sprintf("field %d of %s", number, what))
		}
		message = message[size:]
		if err := see(f); err != nil {
			return err
		}
	}
	return nil
}

func (f *field) want(kind protowire.Type, what string) error {
	if f.kind == kind {
		return nil
	}
	return malformed(fmt.Sprintf("field %d of %s has the wire type %d, wanted %d", f.number, what, f.kind, kind))
}

// entry is an entry of a map.
func entry(message []byte, what string) (key string, value field, err error) {
	err = each(message, what, func(f field) error {
		switch f.number {
		case 1:
			if err := f.want(protowire.BytesType, what); err != nil {
				return err
			}
			key = string(f.bytes)
		case 2:
			value = f
		}
		return nil
	})
	return key, value, err
}

// readBatch reads a ForwardBackwardRequest. Once model and number are known, what is wrong is a failure of the request.
func readBatch(message []byte) (made batch, failure, err error) {
	made.backward = true
	made.loss.Config = map[string]float64{}
	var data [][]byte
	err = each(message, "the request", func(f field) error {
		kinds := map[protowire.Number]protowire.Type{1: protowire.BytesType, 2: protowire.VarintType, 3: protowire.BytesType, 4: protowire.BytesType,
			5: protowire.BytesType, 6: protowire.VarintType, 7: protowire.BytesType}
		if wanted, known := kinds[f.number]; known {
			if err := f.want(wanted, "the request"); err != nil {
				return err
			}
		}
		switch f.number {
		case 1:
			made.model = string(f.bytes)
		case 2:
			made.number = int64(int32(f.value))
		case 3:
			data = append(data, f.bytes)
		case 4:
			made.loss.Name = string(f.bytes)
		case 5, 7:
			if err := made.configure(f); err != nil && failure == nil {
				failure = err
			}
		case 6:
			made.backward = f.value == 0
		}
		return nil
	})
	if err != nil {
		return made, nil, err
	}
	if made.model == "" || made.number < 1 {
		return made, nil, &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: "seq_id",
			Message: fmt.Sprintf("found model_id %q and seq_id %d, wanted a model and a number from 1 on", made.model, made.number)}
	}
	if len(data) > mostData && failure == nil {
		failure = &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: "data", Message: fmt.Sprintf("found %d sequences, wanted at most %d", len(data), mostData)}
	}
	for i := 0; i < len(data) && failure == nil; i++ {
		var one tinker.Datum
		if one, failure = readDatum(data[i], fmt.Sprintf("data[%d]", i)); failure == nil {
			made.data = append(made.data, one)
		}
	}
	return made, failure, nil
}

// configure reads a setting of the loss: a number, or in the newer map a number or a text.
func (b *batch) configure(f field) error {
	key, value, err := entry(f.bytes, "loss_fn_config")
	if err != nil {
		return err
	}
	if f.number == 5 {
		if err := value.want(protowire.Fixed64Type, "loss_fn_config"); err != nil {
			return err
		}
		b.loss.Config[key] = value.double()
		return nil
	}
	return each(value.bytes, "loss_fn_config", func(f field) error {
		if f.number == 2 {
			return &inference.Error{Kind: inference.Invalid, Code: "unsupported_value", Param: "loss_fn_config." + key,
				Message: fmt.Sprintf("loss_fn_config.%s is a text; no loss here has such a setting", key)}
		}
		b.loss.Config[key] = f.double()
		return nil
	})
}

func readDatum(message []byte, where string) (made tinker.Datum, err error) {
	made.Inputs = map[string]tinker.Tensor{}
	err = each(message, where, func(f field) error {
		switch f.number {
		case 1:
			tokens, err := readChunk(f.bytes, where)
			made.Tokens = append(made.Tokens, tokens...)
			return err
		case 2:
			key, value, err := entry(f.bytes, where)
			if err != nil {
				return err
			}
			made.Inputs[key], err = readTensor(value.bytes, where+".loss_fn_inputs."+key)
			return err
		}
		return nil // spans say where tokens came from
	})
	return made, err
}

func readChunk(message []byte, where string) (tokens []int32, err error) {
	err = each(message, where, func(f field) error {
		if f.number != 1 {
			return &inference.Error{Kind: inference.Invalid, Code: "unsupported_value", Param: where + ".model_input",
				Message: where + ".model_input has an image or a sound; models here read texts"}
		}
		return each(f.bytes, where, func(f field) error {
			if f.number != 1 {
				return nil
			}
			if len(f.bytes)%4 != 0 {
				return malformed(fmt.Sprintf("the tokens of %s are %d bytes, wanted 4 each", where, len(f.bytes)))
			}
			for i := 0; i < len(f.bytes); i += 4 {
				tokens = append(tokens, int32(binary.LittleEndian.Uint32(f.bytes[i:])))
			}
			return nil
		})
	})
	return tokens, err
}

// Types of elements.
const (
	typeFloat32 = 1
	typeInt64   = 2
	typeInt32   = 3
)

func readTensor(message []byte, where string) (made tinker.Tensor, err error) {
	var bytes, rows, columns []byte
	var kind uint64
	sparse := false
	err = each(message, where, func(f field) error {
		switch f.number {
		case 1:
			bytes = f.bytes
		case 2:
			sparse = true
			return each(f.bytes, where, func(f field) error {
				switch f.number {
				case 1:
					bytes = f.bytes
				case 2:
					rows = f.bytes
				case 3:
					columns = f.bytes
				}
				return nil
			})
		case 3:
			kind = f.value
		case 4:
			return readShape(&made, f, where)
		}
		return nil
	})
	if err != nil {
		return made, err
	}
	if err := fill(&made, kind, bytes, where); err != nil || !sparse {
		return made, err
	}
	pointers, err := integers(rows, where)
	if err != nil {
		return made, err
	}
	places, err := integers(columns, where)
	if err != nil {
		return made, err
	}
	full, err := dense(made, pointers, places)
	if err != nil {
		return made, &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: where, Message: where + " " + err.Error()}
	}
	return full, nil
}

func integers(bytes []byte, where string) ([]int64, error) {
	if len(bytes)%8 != 0 {
		return nil, malformed(fmt.Sprintf("%s has integers of %d bytes, wanted 8 each", where, len(bytes)))
	}
	values := make([]int64, len(bytes)/8)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(bytes[8*i:]))
	}
	return values, nil
}

// readShape reads dimensions, packed or one by one.
func readShape(made *tinker.Tensor, f field, where string) error {
	if f.kind == protowire.VarintType {
		made.Shape = append(made.Shape, int64(f.value))
		return nil
	}
	for rest := f.bytes; len(rest) > 0; {
		value, size := protowire.ConsumeVarint(rest)
		if size < 0 || len(made.Shape) > 8 {
			return malformed("the shape of " + where)
		}
		made.Shape = append(made.Shape, int64(value))
		rest = rest[size:]
	}
	return nil
}

// fill reads the elements.
func fill(made *tinker.Tensor, kind uint64, bytes []byte, where string) (err error) {
	switch kind {
	case typeFloat32, typeInt32:
		if len(bytes)%4 != 0 {
			return malformed(fmt.Sprintf("%s has %d bytes, wanted 4 for each element", where, len(bytes)))
		}
		made.Floats = make([]float32, len(bytes)/4)
		whole := make([]int64, len(bytes)/4)
		for i := range whole {
			bits := binary.LittleEndian.Uint32(bytes[4*i:])
			made.Floats[i], whole[i] = math.Float32frombits(bits), int64(int32(bits))
		}
		if kind == typeInt32 {
			made.Floats, made.Integers = nil, whole
		}
	case typeInt64:
		made.Integers, err = integers(bytes, where)
	default:
		return malformed(fmt.Sprintf("%s has elements of type %d, wanted float32 (1), int64 (2) or int32 (3)", where, kind))
	}
	return err
}
