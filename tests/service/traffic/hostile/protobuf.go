package main

import (
	"encoding/binary"
	"math"
)

// The wire types of protobuf.
const (
	varint  = 0
	fixed64 = 1
	bytesOf = 2
)

func (m *maker) tag(number, kind int) []byte {
	return binary.AppendUvarint(nil, uint64(number)<<3|uint64(kind))
}

// bytesField is a field of bytes; sometimes its length lies.
func (m *maker) bytesField(number int, content []byte) []byte {
	length := uint64(len(content))
	if m.chance(0.01) {
		length = []uint64{0, length + 1, length - 1, 1 << 31, 1 << 32, 1 << 62, math.MaxUint64}[m.Intn(7)]
	}
	return append(binary.AppendUvarint(m.tag(number, bytesOf), length), content...)
}

func (m *maker) varintField(number int, value uint64) []byte {
	if m.chance(0.03) {
		value = []uint64{0, math.MaxUint64, 1 << 31, 1<<31 - 1, 1 << 32, 1 << 63, uint64(m.Int63())}[m.Intn(7)]
	}
	return binary.AppendUvarint(m.tag(number, varint), value)
}

// tensor is one of loss_fn_inputs.
func (m *maker) tensor(count int) []byte {
	kind := uint64(1 + m.Intn(3))
	size := 4
	if kind == 2 {
		size = 8
	}
	content := make([]byte, count*size+m.rarely(1))
	if m.chance(0.3) {
		_, _ = m.Read(content)
	}
	var made []byte
	if m.chance(0.2) { // sparse: values, pointers of rows, places
		integers := func(count int) (values []byte) {
			for i := 0; i < count; i++ {
				value := uint64(m.Intn(4))
				if m.chance(0.1) {
					value = []uint64{math.MaxUint64, 1 << 40, 1 << 62, 1 << 63}[m.Intn(4)]
				}
				values = binary.LittleEndian.AppendUint64(values, value)
			}
			return values
		}
		sparse := append(m.bytesField(1, content), append(m.bytesField(2, integers(m.Intn(5))), m.bytesField(3, integers(m.Intn(5)))...)...)
		made = m.bytesField(2, sparse)
	} else {
		made = m.bytesField(1, content)
	}
	made = append(made, m.varintField(3, kind)...)
	for i := m.Intn(3); i > 0; i-- {
		made = append(made, m.varintField(4, uint64(count))...)
	}
	return made
}

// rarely is a small number, mostly 0.
func (m *maker) rarely(most int) int {
	if m.chance(0.95) {
		return 0
	}
	return 1 + m.Intn(most)
}

func (m *maker) datum() []byte {
	count := m.Intn(20)
	tokens := make([]byte, 0, 4*count)
	for i := 0; i < count; i++ {
		token := uint32(m.Intn(256))
		if m.chance(0.02) {
			token = m.Uint32()
		}
		tokens = binary.LittleEndian.AppendUint32(tokens, token)
	}
	made := m.bytesField(1, m.bytesField(1, m.bytesField(1, tokens[:len(tokens)-m.rarely(3)%(len(tokens)+1)])))
	for _, name := range []string{"target_tokens", "weights"} {
		entry := append(m.bytesField(1, []byte(name)), m.bytesField(2, m.tensor(count+m.rarely(2)))...)
		made = append(made, m.bytesField(2, entry)...)
	}
	return made
}

// protobuf is a pass of Tinker's in protobuf: a message that is sound apart from its values, or changed bytes of one, or none at all.
func (m *maker) protobuf() attack {
	model := m.oneOf(m.corpus.run, m.corpus.run, m.corpus.run, "none", "", "a:train:-1", "\xff")
	message := append(m.bytesField(1, []byte(model)), m.varintField(2, uint64(1+m.Intn(1000)))...)
	for i := m.Intn(4); i > 0; i-- {
		message = append(message, m.bytesField(3, m.datum())...)
	}
	message = append(message, m.bytesField(4, []byte(m.oneOf("cross_entropy", "cross_entropy", "ppo", "cispo", "dro", "", "x\x00")))...)
	if m.chance(0.2) {
		value := append(m.tag(2, fixed64), binary.LittleEndian.AppendUint64(nil, math.Float64bits([]float64{0, math.NaN(), math.Inf(1), -1,
			1e308}[m.Intn(5)]))...)
		message = append(message, m.bytesField(5, append(m.bytesField(1, []byte(m.oneOf("beta", "clip_low_threshold", ""))), value...))...)
	}
	switch m.Intn(10) {
	case 0, 1, 2:
		message = m.changeBytes(message)
	case 3:
		message = make([]byte, m.Intn(3000))
		_, _ = m.Read(message)
	}
	path := m.oneOf("/api/v1/forward_backward", "/api/v1/forward_backward", "/api/v1/forward")
	return attack{bytes: post(path, m.oneOf("application/x-protobuf", "application/x-protobuf", "application/x-protobuf; a=b",
		"application/protobuf", "application/json"), message,
		"Accept: "+m.oneOf("application/x-protobuf", "application/json", "*/*"), lastRequest), whole: true}
}
