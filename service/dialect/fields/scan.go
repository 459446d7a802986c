package fields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"tessera.dev/service/inference"
)

// scanner walks over JSON text. With distinct it checks repeated members, which sound text is not checked for again.
type scanner struct {
	data     []byte
	at       int
	depth    int
	distinct bool
	names    [][]byte // of the members so far of all objects that are open
}

func check(data []byte) ([]byte, error) {
	s := scanner{data: data, distinct: true}
	s.space()
	if s.at == len(data) {
		return nil, malformed("the body is empty; a JSON object is wanted")
	}
	if !utf8.Valid(data) {
		return nil, malformed("the body is not UTF-8")
	}
	from := s.at
	if err := s.value(); err != nil {
		return nil, err
	}
	first := data[from:s.at]
	if s.space(); s.at < len(data) {
		return nil, s.wrong("text behind the JSON")
	}
	return first, nil
}

func malformed(format string, arguments ...any) *inference.Error {
	return &inference.Error{Kind: inference.Invalid, Code: Malformed, Message: fmt.Sprintf(format, arguments...)}
}

// wrong names the place by line and column, counted in bytes from 1.
func (s *scanner) wrong(what string) error {
	before := s.data[:s.at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := s.at - bytes.LastIndexByte(before, '\n')
	return malformed("the body is not valid JSON: %s at line %d, column %d", what, line, column)
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// peek is 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

func (s *scanner) value() error {
	switch c := s.peek(); {
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.list(nil)
	case c == '"':
		return s.text()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case s.at == len(s.data):
		return s.wrong("the text ends early")
	}
	return s.wrong("a value is wanted")
}

func (s *scanner) word(word string) error {
	if !bytes.HasPrefix(s.data[s.at:], []byte(word)) {
		return s.wrong("a value is wanted")
	}
	s.at += len(word)
	return nil
}

func (s *scanner) digits() bool {
	from := s.at
	for s.peek() >= '0' && s.peek() <= '9' {
		s.at++
	}
	return s.at > from
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return s.wrong("a digit is wanted")
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return s.wrong("a digit is wanted")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return s.wrong("a digit is wanted")
		}
	}
	return nil
}

func (s *scanner) text() error {
	for s.at++; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c < 0x20:
			return s.wrong("a control character in a text")
		case c == '\\':
			s.at++
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return s.wrong("the text ends early")
}

// escape ends at the last of its characters.
func (s *scanner) escape() error {
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for i := 0; i < 4; i++ {
			s.at++
			if c := s.peek(); !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
				return s.wrong("four hexadecimal digits are wanted")
			}
		}
		return nil
	}
	return s.wrong("an unknown escape")
}

// enter is before an array or object, whose end is close.
func (s *scanner) enter() error {
	if s.depth++; s.depth > MaximumDepth {
		return malformed("the body is nested deeper than %d levels", MaximumDepth)
	}
	s.at++
	s.space()
	return nil
}

// next says whether another element follows.
func (s *scanner) next(close byte) (more bool, err error) {
	s.space()
	switch s.peek() {
	case close:
		s.at++
		s.depth--
		return false, nil
	case ',':
		s.at++
		s.space()
		return true, nil
	}
	if s.at == len(s.data) {
		return false, s.wrong("the text ends early")
	}
	return false, s.wrong(fmt.Sprintf("',' or '%c' is wanted", close))
}

// list tells each element, where each is given; false ends the walk.
func (s *scanner) list(each func(raw []byte) bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.at++
		s.depth--
		return nil
	}
	for more := true; more; {
		from := s.at
		err := s.value()
		if err != nil {
			return err
		}
		if each != nil && !each(s.data[from:s.at]) {
			return nil
		}
		if more, err = s.next(']'); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) object(each func(name string, raw []byte)) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.at++
		s.depth--
		return nil
	}
	first := len(s.names)
	var many map[string]struct{}
	for more := true; more; {
		name, err := s.name()
		if err != nil {
			return err
		}
		if s.distinct {
			if many, err = s.distinguish(name, first, many); err != nil {
				return err
			}
		}
		from := s.at
		if err = s.value(); err != nil {
			return err
		}
		if each != nil {
			each(string(name), s.data[from:s.at])
		}
		if more, err = s.next('}'); err != nil {
			return err
		}
	}
	s.names = s.names[:first]
	return nil
}

// fewMembers are compared one by one.
const fewMembers = 16

// distinguish adds the name of a member to those of its object, which are s.names from first on, or all in many where they are many.
func (s *scanner) distinguish(name []byte, first int, many map[string]struct{}) (map[string]struct{}, error) {
	if many == nil && len(s.names)-first == fewMembers {
		many = make(map[string]struct{}, 2*fewMembers)
		for _, each := range s.names[first:] {
			many[string(each)] = struct{}{}
		}
		s.names = s.names[:first]
	}
	if many == nil {
		for _, each := range s.names[first:] {
			if bytes.Equal(each, name) {
				return nil, malformed("the member %q appears twice in one object", name)
			}
		}
		s.names = append(s.names, name)
		return nil, nil
	}
	if _, repeated := many[string(name)]; repeated {
		return nil, malformed("the member %q appears twice in one object", name)
	}
	if many[string(name)] = struct{}{}; len(many) > MaximumMembers {
		return nil, malformed("an object has more than %d members", MaximumMembers)
	}
	return many, nil
}

func (s *scanner) name() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.wrong("a name in quotes is wanted")
	}
	from := s.at
	if err := s.text(); err != nil {
		return nil, err
	}
	name := s.data[from+1 : s.at-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(unquote(s.data[from:s.at]))
	}
	if s.space(); s.peek() != ':' {
		return nil, s.wrong("':' is wanted")
	}
	s.at++
	s.space()
	return name, nil
}

// unquote takes a sound literal.
func unquote(raw []byte) (text string) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		panic("fields: " + err.Error()) // the scanner found it sound
	}
	return text
}
