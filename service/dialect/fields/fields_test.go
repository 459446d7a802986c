package fields_test

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
)

// told is the code, the member and the message of an error.
func told(err error) string {
	var wrong *inference.Error
	if !errors.As(err, &wrong) {
		return ""
	}
	if wrong.Kind != inference.Invalid {
		return "not invalid: " + wrong.Message
	}
	return wrong.Code + "|" + wrong.Param + "|" + wrong.Message
}

func TestParseRefusesWhatIsNoJSON(t *testing.T) {
	for body, wanted := range map[string]string{
		"":                         "the body is empty; a JSON object is wanted",
		" \n":                      "the body is empty; a JSON object is wanted",
		"{\xff}":                   "the body is not UTF-8",
		`{"a":1}x`:                 "the body is not valid JSON: text behind the JSON at line 1, column 8",
		"{\n\"a\":}":               "the body is not valid JSON: a value is wanted at line 2, column 5",
		`{"a":1,}`:                 "the body is not valid JSON: a name in quotes is wanted at line 1, column 8",
		`[1,]`:                     "the body is not valid JSON: a value is wanted at line 1, column 4",
		`[1 2]`:                    "the body is not valid JSON: ',' or ']' is wanted at line 1, column 4",
		`{"a"`:                     "the body is not valid JSON: ':' is wanted at line 1, column 5",
		`{"a":"`:                   "the body is not valid JSON: the text ends early at line 1, column 7",
		`{"a":[1`:                  "the body is not valid JSON: the text ends early at line 1, column 8",
		`01`:                       "the body is not valid JSON: text behind the JSON at line 1, column 2",
		`-`:                        "the body is not valid JSON: a digit is wanted at line 1, column 2",
		`1.`:                       "the body is not valid JSON: a digit is wanted at line 1, column 3",
		`1e+`:                      "the body is not valid JSON: a digit is wanted at line 1, column 4",
		`NaN`:                      "the body is not valid JSON: a value is wanted at line 1, column 1",
		`nul`:                      "the body is not valid JSON: a value is wanted at line 1, column 1",
		`"\x"`:                     "the body is not valid JSON: an unknown escape at line 1, column 3",
		`"\u12g4"`:                 "the body is not valid JSON: four hexadecimal digits are wanted at line 1, column 6",
		"\"a\tb\"":                 "the body is not valid JSON: a control character in a text at line 1, column 3",
		`{"a":{"b":1,"\u0062":2}}`: `the member "b" appears twice in one object`,
		strings.Repeat("[", 65) + strings.Repeat("]", 65): "the body is nested deeper than 64 levels",
		strings.Repeat("[", 1<<20):                        "the body is nested deeper than 64 levels",
	} {
		_, err := fields.Parse([]byte(body))
		if found := told(err); found != fields.Malformed+"||"+wanted {
			t.Errorf("%.40q: %s", body, found)
		}
	}
	for _, body := range []string{"{}", " [1 , -0.5e+3,\"\\ud83d\\ude00\\n\"] \n", strings.Repeat("[", 64) + strings.Repeat("]", 64)} {
		if _, err := fields.Parse([]byte(body)); err != nil {
			t.Errorf("%.40q: %v", body, err)
		}
	}
	if _, err := fields.Body([]byte("[]")); told(err) != "invalid_type||the body is a list; a JSON object is wanted" {
		t.Error(told(err))
	}
}

// members are an object of many, of which the last two are given.
func members(count int, last, another string) string {
	text := "{"
	for i := 0; i < count-2; i++ {
		text += `"m` + strconv.Itoa(i) + `":{"m0":1,"m1":2},`
	}
	return text + `"` + last + `":1,"` + another + `":2}`
}

func TestRepeatedMembersAreFoundAmongFewAndMany(t *testing.T) {
	for _, count := range []int{2, 3, 15, 16, 17, 18, 40} {
		for last, repeated := range map[string]bool{"x": false, "m": true, "\\u006d": true} {
			_, err := fields.Parse([]byte(`[` + members(count, last, "m") + `,{"m":1}]`))
			if repeated != strings.Contains(told(err), `the member "m" appears twice`) || !repeated && err != nil {
				t.Error(count, last, err)
			}
		}
		if count > 2 {
			if _, err := fields.Parse([]byte(members(count, "x", "m0"))); !strings.Contains(told(err), `"m0" appears twice`) {
				t.Error(count, err)
			}
		}
	}
	var text strings.Builder
	for i := 0; i <= fields.MaximumMembers; i++ {
		text.WriteString(`,"` + strconv.Itoa(i) + `":0`)
	}
	if _, err := fields.Parse([]byte("{" + text.String()[1:] + "}")); !strings.Contains(told(err), "more than 65536 members") {
		t.Error(err)
	}
}

func TestErrorsNameMembers(t *testing.T) {
	for _, each := range []struct {
		body   string
		read   func(*fields.Object)
		wanted string
	}{
		{`{"a":1}`, func(o *fields.Object) { o.Text("a") }, "invalid_type|a|'a' is a number; a text is wanted"},
		{`{}`, func(o *fields.Object) { o.NeedText("a") }, "missing_required_parameter|a|'a' is missing; a text is wanted"},
		{`{"a":null}`, func(o *fields.Object) { o.NeedText("a") }, "invalid_type|a|'a' is null; a text is wanted"},
		{`{"a":""}`, func(o *fields.Object) { o.NeedText("a") }, "empty_string|a|'a' is empty"},
		{`{"a":"c"}`, func(o *fields.Object) { o.Choice("a", "x", "y") }, `invalid_value|a|'a' is "c"; one of x, y is wanted`},
		{`{"a":2.5}`, func(o *fields.Object) { o.Number("a", 0, 2) }, "decimal_above_max_value|a|'a' is 2.5; at most 2 is wanted"},
		{`{"a":-1e999}`, func(o *fields.Object) { o.Number("a", math.Inf(-1), 2) }, "decimal_below_min_value|a|'a' is -1e999; at least -Inf is wanted"},
		{`{"a":1e999}`, func(o *fields.Object) { o.Number("a", 0, 2) }, "decimal_above_max_value|a|'a' is 1e999; at most 2 is wanted"},
		{`{"a":0}`, func(o *fields.Object) { o.Integer("a", 1, 2) }, "integer_below_min_value|a|'a' is 0; at least 1 is wanted"},
		{`{"a":99999999999999999999}`, func(o *fields.Object) { o.Integer("a", 1, 2) }, "integer_above_max_value|a|'a' is 99999999999999999999; at most 2 is wanted"},
		{`{"a":1.5}`, func(o *fields.Object) { o.Integer("a", 1, 2) }, "invalid_type|a|'a' is 1.5; an integer is wanted"},
		{`{"a":true}`, func(o *fields.Object) { o.Integer("a", 1, 2) }, "invalid_type|a|'a' is a boolean; a number is wanted"},
		{`{"a":[1,2,3]}`, func(o *fields.Object) { o.List("a", 0, 2) }, "array_above_max_length|a|'a' has more than 2 elements"},
		{`{"a":[]}`, func(o *fields.Object) { o.NeedList("a", 1, 2) }, "array_below_min_length|a|'a' has 0 elements; at least 1 is wanted"},
		{`{"a":[{"b":[0,"x"]}]}`, func(o *fields.Object) {
			list, _ := o.List("a", 0, 2)
			value, _ := list[0].Object().Value("b")
			value.Tokens(0, 9)
		}, "invalid_type|a[0].b[1]|'a[0].b[1]' is a text; a number is wanted"},
		{`{"a":{"c":1}}`, func(o *fields.Object) { o.NeedObject("a").Done() }, "unknown_parameter|a.c|'a.c' is no member that is known here"},
		{`{}`, func(o *fields.Object) { o.NeedObject("a").NeedText("b") }, "missing_required_parameter|a|'a' is missing; an object is wanted"},
		{`{"a":1}`, func(o *fields.Object) { o.Refuse("a", "no sound") }, "unsupported_parameter|a|'a' is not supported: no sound"},
		{`{"a":["x"]}`, func(o *fields.Object) { o.Only("a", `["y"]`) }, `unsupported_value|a|'a' is ["x"]; supported: ["y"]`},
		{`{"a":[ "y" ],"b":null,"c":{}}`, func(o *fields.Object) { o.Only("a", `["y"]`); o.Refuse("b", ""); o.Pass("c", "d") }, ""},
		{`{"A":1}`, func(o *fields.Object) { o.Integer("a", 0, 9) }, "unknown_parameter|A|'A' is no member that is known here"},
		{`{"a":null}`, func(o *fields.Object) {}, ""},
		{`{"a":1,"b":2}`, func(o *fields.Object) { o.Text("b"); o.Text("a") }, "invalid_type|b|'b' is a number; a text is wanted"},
	} {
		body, err := fields.Body([]byte(each.body))
		if err != nil {
			t.Fatal(err)
		}
		each.read(body)
		if found := told(body.Done()); found != each.wanted {
			t.Errorf("%s:\n found %s\nwanted %s", each.body, found, each.wanted)
		}
	}
}

func TestIntegersAreExact(t *testing.T) {
	for literal, wanted := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "0e99": "0", "3.0": "3", "3e0": "3", "30e-1": "3", "0.3E+1": "3", "1200": "1200", "12e2": "1200",
		"9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808",
		"9007199254740993.0": "9007199254740993", "1.00000000000000000001": "fraction", "1e-1": "fraction", "0.5": "fraction",
		"9223372036854775808": "above", "1e400": "above", "1e99999999999999999999": "above", "-1e30": "below", "1e-99999999999999999999": "fraction",
	} {
		value, err := fields.Parse([]byte(literal))
		if err != nil {
			t.Fatal(literal, err)
		}
		found := value.Integer(math.MinInt64, math.MaxInt64)
		switch wanted {
		case "fraction":
			if !strings.Contains(told(value.Err()), "an integer is wanted") {
				t.Error(literal, found, value.Err())
			}
		case "above", "below":
			code := map[string]string{"above": fields.AboveMaximum, "below": fields.BelowMinimum}[wanted]
			if !strings.HasPrefix(told(value.Err()), code) {
				t.Error(literal, found, value.Err())
			}
		default:
			if value.Err() != nil || wanted != strconv.FormatInt(found, 10) {
				t.Error(literal, found, value.Err())
			}
		}
	}
}

func TestLongListsOfTokensTakeTheMemoryOfTheirIDs(t *testing.T) {
	body, err := fields.Body([]byte(`{"a":[` + strings.Repeat("7,", 1<<16) + `7]}`))
	if err != nil {
		t.Fatal(err)
	}
	value, _ := body.Value("a")
	allocations := testing.AllocsPerRun(1, func() {
		if ids := value.Tokens(1, 1<<24); len(ids) != 1<<16+1 || ids[1<<16] != 7 {
			t.Error(len(ids), body.Err())
		}
	})
	if allocations > 1000 { // those of a growing list
		t.Errorf("%v allocations", allocations)
	}
	if value.Tokens(1, 1<<16); !strings.Contains(told(body.Done()), "has more than 65536 elements") {
		t.Error(body.Err())
	}
}

func TestTextsAreDecoded(t *testing.T) {
	body, err := fields.Body([]byte(`{"a":"x\u00e9\n\ud83d\ude00\ud800","b":["y"],"c":[1,2.0],"d":true}`))
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := body.Text("a"); !ok || text != "xé\n😀\ufffd" {
		t.Errorf("%q", text)
	}
	list, _ := body.Value("b")
	ids, _ := body.Value("c")
	flag, ok := body.Flag("d")
	if !reflect.DeepEqual(list.Texts(0, 1), []string{"y"}) || !reflect.DeepEqual(ids.Tokens(0, 2), []int32{1, 2}) || !flag || !ok {
		t.Error(body.Err())
	}
	if err := body.Done(); err != nil {
		t.Error(err)
	}
}
