package texts_test

import (
	"testing"

	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/dialect/texts"
)

func TestRefusals(t *testing.T) {
	for target, bodies := range map[string]map[string]string{
		"/v1/embeddings": {
			`{}`:                             "missing_required_parameter|model",
			`{"model":"embed"}`:              "missing_required_parameter|input",
			`{"model":"embed","input":""}`:   "empty_string|input",
			`{"model":"embed","input":[]}`:   "array_below_min_length|input",
			`{"model":"embed","input":[""]}`: "empty_string|input",
			`{"model":"embed","input":"a","encoding_format":"hex"}`: "invalid_value|encoding_format",
			`{"model":"embed","input":"a","dimensions":0}`:          "integer_below_min_value|dimensions",
			`{"model":"embed","input":"a","dimensions":9}`:          "integer_above_max_value|dimensions",
			`{"model":"embed","input":"a","truncate":true}`:         "unknown_parameter|truncate",
		},
		"/v1/rerank": {
			`{"model":"rank","documents":["a"]}`:                                  "missing_required_parameter|query",
			`{"model":"rank","query":"","documents":["a"]}`:                       "empty_string|query",
			`{"model":"rank","query":"a"}`:                                        "missing_required_parameter|documents",
			`{"model":"rank","query":"a","documents":[]}`:                         "array_below_min_length|documents",
			`{"model":"rank","query":"a","documents":[""]}`:                       "empty_string|documents[0]",
			`{"model":"rank","query":"a","documents":[1]}`:                        "invalid_type|documents[0]",
			`{"model":"rank","query":"a","documents":[{"title":"x","text":"a"}]}`: "unknown_parameter|documents[0].title",
			`{"model":"rank","query":"a","documents":["a"],"top_n":0}`:            "integer_below_min_value|top_n",
			`{"model":"rank","query":"a","documents":["a"],"top_n":99}`:           "",
		},
		"/v1/score": {
			`{"model":"rank"}`:                                        "missing_required_parameter|text_1",
			`{"model":"rank","queries":"a"}`:                          "missing_required_parameter|documents",
			`{"model":"rank","data_1":"a","data_2":["b"]}`:            "",
			`{"model":"rank","text_1":"a","text_2":"b","queries":""}`: "unknown_parameter|queries",
			`{"model":"rank","text_1":["a","b"],"text_2":"b"}`:        "invalid_value|text_2",
			`{"model":"rank","text_1":[],"text_2":"b"}`:               "array_below_min_length|text_1",
		},
		"/tokenize": {
			`{"model":"chat"}`:                                       "missing_required_parameter|prompt",
			`{"model":"chat","prompt":1}`:                            "invalid_type|prompt",
			`{"model":"chat","content":"a","prompt":"b"}`:            "unknown_parameter|prompt",
			`{"model":"chat","messages":[]}`:                         "array_below_min_length|messages",
			`{"model":1,"content":"a"}`:                              "invalid_type|model",
			`{"content":"a"}`:                                        "missing_required_parameter|model",
			`{"model":"chat","content":"a","parse_special":"x"}`:     "invalid_type|parse_special",
			`{"model":"chat","prompt":"","return_token_strs":false}`: "",
		},
		"/detokenize": {
			`{"model":"chat"}`:                  "missing_required_parameter|tokens",
			`{"model":"chat","tokens":["a"]}`:   "invalid_type|tokens[0]",
			`{"model":"chat","tokens":[1e400]}`: "integer_above_max_value|tokens[0]",
			`{"model":"chat","tokens":[]}`:      "",
		},
		"/apply-template": {
			`{"model":"chat"}`: "missing_required_parameter|messages",
			`{"model":"chat","messages":[{"role":"user","content":"a"}],"prompt":"x"}`:                                               "unknown_parameter|prompt",
			`{"model":"chat","messages":[{"role":"user","content":"a"}],"continue_final_message":true,"add_generation_prompt":true}`: "unsupported_value|add_generation_prompt",
		},
	} {
		fake.Refusals(t, texts.New(), target, bodies)
	}
}

func TestMembersOfTheDocumentAreKnown(t *testing.T) {
	for schema, request := range map[string][2]string{
		"EmbeddingRequest":  {"/v1/embeddings", `{"model":"embed","input":"a"}`},
		"RerankRequest":     {"/v1/rerank", `{"model":"rank","query":"a","documents":["a"]}`},
		"DetokenizeRequest": {"/detokenize", `{"model":"chat","tokens":[]}`},
		"TemplateRequest":   {"/apply-template", `{"model":"chat","messages":[{"role":"user","content":"a"}]}`},
	} {
		fake.KnownMembers(t, texts.New(), request[0], schema, request[1])
	}
}
