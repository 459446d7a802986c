package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// node is a JSON value that can also be none: a leaf is its text, whatever that is. Members keep their order and may be there twice.
type node struct {
	leaf    string
	members []member // of an object
	items   []node   // of an array
	kind    byte     // '{', '[' or 0
}

type member struct {
	name  string // as it is written, with its quotation marks
	value node
}

func parseJSON(text []byte) (node, error) {
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.UseNumber()
	made, err := parseValue(reader)
	if err == nil && reader.More() {
		err = fmt.Errorf("found more after the value")
	}
	return made, err
}

func parseValue(reader *json.Decoder) (made node, err error) {
	token, err := reader.Token()
	if err != nil {
		return made, err
	}
	delimiter, compound := token.(json.Delim)
	if !compound {
		text, err := json.Marshal(token)
		return node{leaf: string(text)}, err
	}
	made.kind = byte(delimiter)
	for reader.More() {
		name := ""
		if made.kind == '{' {
			token, err := reader.Token()
			if err != nil {
				return made, err
			}
			text, _ := json.Marshal(token)
			name = string(text)
		}
		value, err := parseValue(reader)
		if err != nil {
			return made, err
		}
		if made.kind == '{' {
			made.members = append(made.members, member{name, value})
		} else {
			made.items = append(made.items, value)
		}
	}
	_, err = reader.Token()
	return made, err
}

func (n *node) write(out *bytes.Buffer) {
	switch n.kind {
	case '{':
		out.WriteByte('{')
		for i := range n.members {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString(n.members[i].name + ":")
			n.members[i].value.write(out)
		}
		out.WriteByte('}')
	case '[':
		out.WriteByte('[')
		for i := range n.items {
			if i > 0 {
				out.WriteByte(',')
			}
			n.items[i].write(out)
		}
		out.WriteByte(']')
	default:
		out.WriteString(n.leaf)
	}
}

func (n *node) text() []byte {
	var out bytes.Buffer
	n.write(&out)
	return out.Bytes()
}

// copy is deep, so that attacks do not change the corpus.
func (n *node) copy() node {
	made := *n
	made.members = append([]member{}, n.members...)
	made.items = append([]node{}, n.items...)
	for i := range made.members {
		made.members[i].value = made.members[i].value.copy()
	}
	for i := range made.items {
		made.items[i] = made.items[i].copy()
	}
	return made
}

// all are the node and those below it.
func (n *node) all() []*node {
	found := []*node{n}
	for i := range n.members {
		found = append(found, n.members[i].value.all()...)
	}
	for i := range n.items {
		found = append(found, n.items[i].all()...)
	}
	return found
}

// setModel names the model that is served.
func (n *node) setModel(model string) {
	for i := range n.members {
		if name := n.members[i].name; name == `"model"` || name == `"base_model"` {
			n.members[i].value = node{leaf: fmt.Sprintf("%q", model)}
		}
	}
}
