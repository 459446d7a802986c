package fake

import (
	"strings"
	"sync"
)

// vocabulary numbers words as they are seen, each with the space before it. Token 0 is the beginning, which has no text.
type vocabulary struct {
	mutex  sync.Mutex
	ids    map[string]int32
	pieces []string
}

// split cuts before spaces and line breaks.
func split(text string) (pieces []string) {
	for len(text) > 0 {
		end := strings.IndexAny(text[1:], " \n")
		if end < 0 {
			return append(pieces, text)
		}
		pieces, text = append(pieces, text[:end+1]), text[end+1:]
	}
	return pieces
}

func (v *vocabulary) encode(text string) (ids []int32) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.ids == nil {
		v.ids, v.pieces = map[string]int32{}, []string{""}
	}
	for _, piece := range split(text) {
		id, ok := v.ids[piece]
		if !ok {
			id = int32(len(v.pieces))
			v.ids[piece] = id
			v.pieces = append(v.pieces, piece)
		}
		ids = append(ids, id)
	}
	return ids
}

func (v *vocabulary) piece(id int32) ([]byte, bool) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if id < 0 || int(id) >= len(v.pieces) {
		return nil, id == 0
	}
	return []byte(v.pieces[id]), true
}
