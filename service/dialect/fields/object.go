package fields

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Object is an object of a body whose members are read by name.
type Object struct {
	value   Value
	members map[string]*member
	order   []string
}

type member struct {
	raw  []byte
	read bool
}

// Raw is its text.
func (o *Object) Raw() []byte { return o.value.raw }

// Path names it; "" for the body.
func (o *Object) Path() string { return o.value.Path() }

// Names are those of all members, in order.
func (o *Object) Names() []string { return o.order }

// Value is a member that is present and not null. It counts as read.
func (o *Object) Value(name string) (Value, bool) {
	found := o.members[name]
	if found == nil {
		return Value{}, false
	}
	found.read = true
	value := Value{raw: found.raw, up: &o.value, name: name, index: -1, fault: o.value.fault}
	return value, value.Kind() != Null
}

// Has says whether a member is present and not null, without reading it.
func (o *Object) Has(name string) bool {
	found := o.members[name]
	return found != nil && found.raw[0] != 'n'
}

// Fail leaves an error of a member, present or not.
func (o *Object) Fail(name, code, format string, arguments ...any) {
	Value{up: &o.value, name: name, index: -1, fault: o.value.fault}.Fail(code, format, arguments...)
}

// Err is the first error of the body.
func (o *Object) Err() error { return o.value.Err() }

// Done refuses members that have not been read, except null ones, and gives the first error of the body.
func (o *Object) Done() error {
	for _, name := range o.order {
		if !o.members[name].read && o.Has(name) {
			o.Fail(name, Unknown, "is no member that is known here")
		}
	}
	return o.Err()
}

// Pass reads members that change nothing.
func (o *Object) Pass(names ...string) {
	for _, name := range names {
		if found := o.members[name]; found != nil {
			found.read = true
		}
	}
}

// Rest reads all members that have not been read, and names them.
func (o *Object) Rest() (names []string) {
	for _, name := range o.order {
		if !o.members[name].read {
			names = append(names, name)
		}
	}
	o.Pass(names...)
	return names
}

// Refuse is for a member that is not served, and why.
func (o *Object) Refuse(name, why string) {
	if _, ok := o.Value(name); ok {
		o.Fail(name, NotServed, "is not supported: %s", why)
	}
}

// Only is for a member that is served only with these values, which are JSON.
func (o *Object) Only(name string, values ...string) {
	found, ok := o.Value(name)
	if !ok {
		return
	}
	for _, value := range values {
		if equal(found.raw, []byte(value)) {
			return
		}
	}
	o.Fail(name, ValueRefused, "is %s; supported: %s", found.shown(), strings.Join(values, ", "))
}

func equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var left, right any
	return json.Unmarshal(a, &left) == nil && json.Unmarshal(b, &right) == nil && reflect.DeepEqual(left, right)
}

// need leaves an error where a member is absent or null.
func (o *Object) need(name string, wanted Kind) {
	switch found := o.members[name]; {
	case found == nil:
		o.Fail(name, Missing, "is missing; %s is wanted", wanted)
	case found.raw[0] == 'n':
		o.Fail(name, InvalidType, "is null; %s is wanted", wanted)
	}
}

// Text is a member; ok where it is present, and not null. So for all below.
func (o *Object) Text(name string) (text string, ok bool) {
	if value, ok := o.Value(name); ok {
		return value.Text(), value.Kind() == Text
	}
	return "", false
}

// NeedText is a text that must be there, and not be empty.
func (o *Object) NeedText(name string) string {
	o.need(name, Text)
	text, ok := o.Text(name)
	if ok && text == "" {
		o.Fail(name, Empty, "is empty")
	}
	return text
}

// Choice is one of some texts.
func (o *Object) Choice(name string, texts ...string) (text string, ok bool) {
	if text, ok = o.Text(name); !ok {
		return "", false
	}
	for _, each := range texts {
		if text == each {
			return text, true
		}
	}
	o.Fail(name, InvalidValue, "is %q; one of %s is wanted", short(text), strings.Join(texts, ", "))
	return "", false
}

func short(text string) string {
	if len(text) > 40 {
		return strings.ToValidUTF8(text[:37], "") + "..."
	}
	return text
}

// Flag is a boolean.
func (o *Object) Flag(name string) (flag, ok bool) {
	if value, ok := o.Value(name); ok {
		return value.Flag(), value.Kind() == Bool
	}
	return false, false
}

// Number is within the range, its ends included.
func (o *Object) Number(name string, least, most float64) (number float64, ok bool) {
	if value, ok := o.Value(name); ok {
		number = value.Number(least, most)
		return number, o.Err() == nil
	}
	return 0, false
}

// Integer is within the range, its ends included.
func (o *Object) Integer(name string, least, most int64) (number int64, ok bool) {
	if value, ok := o.Value(name); ok {
		number = value.Integer(least, most)
		return number, o.Err() == nil
	}
	return 0, false
}

// Object is a member of members.
func (o *Object) Object(name string) (object *Object, ok bool) {
	if value, ok := o.Value(name); ok && value.is(Members) {
		return value.Object(), true
	}
	return nil, false
}

// NeedObject is one that must be there; it is empty where it is not.
func (o *Object) NeedObject(name string) *Object {
	o.need(name, Members)
	if object, ok := o.Object(name); ok {
		return object
	}
	return &Object{value: Value{up: &o.value, name: name, index: -1, fault: o.value.fault}, members: map[string]*member{}}
}

// List has least to most elements.
func (o *Object) List(name string, least, most int) (elements []Value, ok bool) {
	if value, ok := o.Value(name); ok {
		elements = value.List(least, most)
		return elements, o.Err() == nil
	}
	return nil, false
}

// NeedList is one that must be there.
func (o *Object) NeedList(name string, least, most int) []Value {
	o.need(name, List)
	elements, _ := o.List(name, least, most)
	return elements
}
