package completions_test

import (
	"math"
	"strings"
	"testing"

	"tessera.dev/service/dialect/completions"
	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/inference"
)

const path = "/v1/completions"

func with(members string) string { return `{"model":"chat","prompt":"a",` + members + `}` }

func TestRefusals(t *testing.T) {
	fake.Refusals(t, completions.New(), path, map[string]string{
		`{"model":"chat"}`:                             "missing_required_parameter|prompt",
		`{"model":"chat","prompt":null}`:               "missing_required_parameter|prompt",
		`{"model":"chat","prompt":{}}`:                 "invalid_type|prompt",
		`{"model":"chat","prompt":[]}`:                 "array_below_min_length|prompt",
		`{"model":"chat","prompt":[[]]}`:               "array_below_min_length|prompt[0]",
		`{"model":"chat","prompt":[null]}`:             "invalid_type|prompt[0]",
		`{"model":"chat","prompt":[-1]}`:               "integer_below_min_value|prompt[0]",
		`{"model":"chat","prompt":[[1],"a"]}`:          "invalid_type|prompt[1]",
		`{"model":"chat","prompt":[[1],[2147483648]]}`: "integer_above_max_value|prompt[1][0]",
		`{"model":"chat","prompt":["` + strings.Join(strings.Split(strings.Repeat("a", 2049), ""), `","`) + `"]}`: "array_above_max_length|prompt",
		with(`"max_tokens":-2`):             "integer_below_min_value|max_tokens",
		with(`"logprobs":21`):               "integer_above_max_value|logprobs",
		with(`"logprobs":true`):             "invalid_type|logprobs",
		with(`"echo":1`):                    "invalid_type|echo",
		with(`"suffix":""`):                 "unsupported_parameter|suffix",
		with(`"suffix":null`):               "",
		with(`"best_of":1,"n":2`):           "invalid_value|best_of",
		with(`"min_tokens":17`):             "invalid_value|min_tokens",
		with(`"messages":[]`):               "unknown_parameter|messages",
		with(`"add_special_tokens":false`):  "unsupported_value|add_special_tokens",
		with(`"grammar":"a","regex":"a"`):   "unknown_parameter|regex",
		with(`"guided_json":true,"n":null`): "",
	})
}

func TestMembersOfTheDocumentAreKnown(t *testing.T) {
	fake.KnownMembers(t, completions.New(), path, "CompletionRequest", with(`"n":1`))
}

// pieces are bytes of tokens.
func pieces(bytes ...string) (tokens []inference.TokenProbability) {
	for i, each := range bytes {
		tokens = append(tokens, inference.TokenProbability{Token: int32(i), Bytes: []byte(each), Probability: -1})
	}
	return tokens
}

func TestOffsetsCountCharactersThatTokensCut(t *testing.T) {
	models := fake.Echo()
	models.Script = func(inference.Request) ([]inference.Event, error) {
		first := pieces("é", "\xf0\x9f")
		first[0].Probability = math.NaN()
		more := pieces("x")
		more[0].Probability = math.Inf(-1)
		return []inference.Event{{Prompt: first}, {Prompt: pieces("\x98", "\x80z")}, {Text: "x", Tokens: []int32{1}, Probabilities: more},
			{Finish: inference.Stop}}, nil
	}
	wanted := `"choices":[{"text":"é😀zx","index":0,"logprobs":{"text_offset":[0,1,1,1,3],"token_logprobs":[null,-1,-1,-1,-9999],` +
		`"tokens":["é","bytes:\\xf0\\x9f","bytes:\\x98","bytes:\\x80\\x7a","x"],"top_logprobs":[null,{"bytes:\\xf0\\x9f":-1},{"bytes:\\x98":-1},` +
		`{"bytes:\\x80\\x7a":-1},{"x":-9999}]},"finish_reason":"stop"}]`
	body := `{"model":"chat","prompt":[1,2],"echo":true,"logprobs":0}`
	if _, reply := fake.Ask(completions.New(), models, "POST", path, []byte(body)); !strings.Contains(string(reply), wanted) {
		t.Errorf("found  %s\nwanted %s", reply, wanted)
	}
	streamed := strings.Replace(body, `"logprobs":0`, `"stream":true`, 1)
	_, reply := fake.Ask(completions.New(), models, "POST", path, []byte(streamed))
	for _, text := range []string{`"text":"é"`, `"text":"😀z"`, `"text":"x"`} {
		if !strings.Contains(string(reply), text) {
			t.Errorf("%s is not in %s", text, reply)
		}
	}
}

func TestStreamsEndWithErrors(t *testing.T) {
	models := fake.Echo()
	models.Script = func(inference.Request) ([]inference.Event, error) {
		return []inference.Event{{Text: "a"}, {Finish: inference.Failed, Failure: &inference.Error{Kind: inference.Internal, Message: "lost"}}}, nil
	}
	failure := `{"error":{"message":"lost","type":"server_error","param":null,"code":null}}`
	_, reply := fake.Ask(completions.New(), models, "POST", path, []byte(with(`"stream":true`)))
	if !strings.HasSuffix(string(reply), "data: "+failure+"\n\ndata: [DONE]\n\n") {
		t.Errorf("%s", reply)
	}
	if status, reply := fake.Ask(completions.New(), models, "POST", path, []byte(with(`"n":1`))); status != 500 || string(reply) != failure {
		t.Errorf("%d %s", status, reply)
	}
}
