package fields

import (
	"math"
	"strconv"
	"strings"
)

// Kind is the type of a value.
type Kind int

// The types of JSON.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Members // an object
)

func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a text", "a list", "an object"}[k]
}

// Value is a part of a body. Reads of a wrong type leave an error with the body and give a zero.
type Value struct {
	raw   []byte
	up    *Value
	name  string // of a member
	index int    // of an element, from 0; -1 elsewhere
	fault *fault
}

// Raw is its text.
func (v Value) Raw() []byte { return v.raw }

// Kind says the type.
func (v Value) Kind() Kind {
	if len(v.raw) == 0 {
		return Null
	}
	switch v.raw[0] {
	case 'n':
		return Null
	case 't', 'f':
		return Bool
	case '"':
		return Text
	case '[':
		return List
	case '{':
		return Members
	}
	return Number
}

// Path names the value from the body on, as "messages[2].role"; "" for the body.
func (v Value) Path() string {
	switch {
	case v.up == nil:
		return ""
	case v.index >= 0:
		return v.up.Path() + "[" + strconv.Itoa(v.index) + "]"
	}
	return join(v.up.Path(), v.name)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Fail leaves an error of the value: "'PATH' " and the words.
func (v Value) Fail(code, format string, arguments ...any) {
	if v.fault.err == nil {
		v.fault.err = Invalid(v.Path(), code, format, arguments...)
	}
}

// Err is the first error of the body.
func (v Value) Err() error {
	if v.fault.err == nil {
		return nil
	}
	return v.fault.err
}

func (v Value) is(wanted Kind) bool {
	if v.Kind() == wanted {
		return true
	}
	v.Fail(InvalidType, "is %s; %s is wanted", v.Kind(), wanted)
	return false
}

// Text gives that of a literal.
func (v Value) Text() string {
	if !v.is(Text) {
		return ""
	}
	return unquote(v.raw)
}

// Flag is a boolean.
func (v Value) Flag() bool { return v.is(Bool) && v.raw[0] == 't' }

// Number is finite and within the range, its ends included.
func (v Value) Number(least, most float64) float64 {
	if !v.is(Number) {
		return 0
	}
	found, err := strconv.ParseFloat(string(v.raw), 64)
	switch {
	case found > most || err != nil && found > 0:
		v.Fail(NumberAbove, "is %s; at most %s is wanted", v.shown(), number(most))
	case found < least || err != nil:
		v.Fail(NumberBelow, "is %s; at least %s is wanted", v.shown(), number(least))
	default:
		return found
	}
	return 0
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// shown is a literal for messages.
func (v Value) shown() string {
	if len(v.raw) > 40 {
		return string(v.raw[:37]) + "..."
	}
	return string(v.raw)
}

// Integer is within the range, its ends included. 3.0 and 3e0 are integers.
func (v Value) Integer(least, most int64) int64 {
	if !v.is(Number) {
		return 0
	}
	found, place := integer(string(v.raw))
	switch {
	case place == fraction:
		v.Fail(InvalidType, "is %s; an integer is wanted", v.shown())
	case found > most || place == above:
		v.Fail(AboveMaximum, "is %s; at most %d is wanted", v.shown(), most)
	case found < least || place == below:
		v.Fail(BelowMinimum, "is %s; at least %d is wanted", v.shown(), least)
	default:
		return found
	}
	return 0
}

// place is where a number is among the integers of 64 bits.
type place int

const (
	exact place = iota
	fraction
	above
	below
)

func integer(literal string) (found int64, where place) {
	mantissa, power, _ := strings.Cut(strings.ToLower(literal), "e")
	outside := above
	if strings.HasPrefix(mantissa, "-") {
		outside = below
	}
	left, right, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	digits := strings.TrimLeft(left+right, "0")
	if digits == "" {
		return 0, exact
	}
	zeros := int64(0)
	if power != "" {
		parsed, err := strconv.ParseInt(power, 10, 32)
		switch {
		case err != nil && power[0] == '-':
			return 0, fraction
		case err != nil:
			return 0, outside
		}
		zeros = parsed
	}
	short := strings.TrimRight(digits, "0")
	zeros += int64(len(digits) - len(short) - len(right))
	switch {
	case zeros < 0:
		return 0, fraction
	case zeros > 18:
		return 0, outside
	case outside == below:
		short = "-" + short
	}
	found, err := strconv.ParseInt(short+strings.Repeat("0", int(zeros)), 10, 64)
	if err != nil {
		return 0, outside
	}
	return found, exact
}

// Object gives the members. Of another type it has none.
func (v Value) Object() *Object {
	object := &Object{value: v, members: map[string]*member{}}
	if v.is(Members) {
		s := scanner{data: v.raw}
		_ = s.object(func(name string, raw []byte) {
			object.members[name] = &member{raw: raw}
			object.order = append(object.order, name)
		})
	}
	return object
}

// List gives the elements, least to most of them.
func (v Value) List(least, most int) []Value {
	if !v.is(List) {
		return nil
	}
	var elements []Value
	s := scanner{data: v.raw}
	_ = s.list(func(raw []byte) bool {
		elements = append(elements, Value{raw: raw, up: &v, index: len(elements), fault: v.fault})
		return len(elements) <= most
	})
	if v.count(len(elements), least, most); len(elements) < least || len(elements) > most {
		return nil
	}
	return elements
}

// Texts is a list of texts.
func (v Value) Texts(least, most int) []string {
	elements := v.List(least, most)
	texts := make([]string, 0, len(elements))
	for _, element := range elements {
		texts = append(texts, element.Text())
	}
	return texts
}

// First is the first element of a list that has one.
func (v Value) First() (first Value, ok bool) {
	if v.Kind() == List {
		s := scanner{data: v.raw}
		_ = s.list(func(raw []byte) bool {
			first, ok = Value{raw: raw, up: &v, fault: v.fault}, true
			return false
		})
	}
	return first, ok
}

// Tokens is a list of token ids. Long ones take no more memory than their ids.
func (v Value) Tokens(least, most int) []int32 {
	if !v.is(List) {
		return nil
	}
	ids := []int32{}
	s := scanner{data: v.raw}
	_ = s.list(func(raw []byte) bool {
		id, ok := plainID(raw)
		if !ok { // 3.0, or what is none and is named
			element := Value{raw: raw, up: &v, index: len(ids), fault: v.fault}
			id = int32(element.Integer(0, math.MaxInt32))
		}
		ids = append(ids, id)
		return len(ids) <= most && v.fault.err == nil
	})
	v.count(len(ids), least, most)
	if v.fault.err != nil {
		return nil
	}
	return ids
}

// plainID is one of at most nine digits alone.
func plainID(raw []byte) (id int32, ok bool) {
	if len(raw) > 9 {
		return 0, false
	}
	for _, digit := range raw {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		id = 10*id + int32(digit-'0')
	}
	return id, true
}

// count checks the count of elements.
func (v Value) count(found, least, most int) {
	switch {
	case found > most:
		v.Fail(TooLong, "has more than %d elements", most)
	case found < least:
		v.Fail(TooShort, "has %d elements; at least %d is wanted", found, least)
	}
}
