package openai

import (
	"testing"

	"tessera.dev/service/inference"
)

func TestErrorsHaveTheirTypeAndAllFour(t *testing.T) {
	for _, each := range []struct {
		failure inference.Error
		status  int
		wanted  string
	}{
		{inference.Error{Kind: inference.Invalid, Code: "c", Param: "a[0]", Message: "<m>"}, 400,
			`{"error":{"message":"<m>","type":"invalid_request_error","param":"a[0]","code":"c"}}`},
		{inference.Error{Kind: inference.Unauthenticated}, 401, `{"error":{"message":"","type":"authentication_error","param":null,"code":"invalid_api_key"}}`},
		{inference.Error{Kind: inference.Forbidden}, 403, `{"error":{"message":"","type":"permission_error","param":null,"code":null}}`},
		{inference.Error{Kind: inference.NotFound, Code: "model_not_found"}, 404, `{"error":{"message":"","type":"not_found_error","param":null,"code":"model_not_found"}}`},
		{inference.Error{Kind: inference.TooLarge}, 413, `{"error":{"message":"","type":"invalid_request_error","param":null,"code":"request_too_large"}}`},
		{inference.Error{Kind: inference.Limited}, 429, `{"error":{"message":"","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`},
		{inference.Error{Kind: inference.Internal}, 500, `{"error":{"message":"","type":"server_error","param":null,"code":null}}`},
		{inference.Error{Kind: inference.Overloaded}, 503, `{"error":{"message":"","type":"server_error","param":null,"code":"overloaded"}}`},
		{inference.Error{Kind: 426}, 426, `{"error":{"message":"","type":"invalid_request_error","param":null,"code":null}}`},
		{inference.Error{Kind: 599}, 599, `{"error":{"message":"","type":"server_error","param":null,"code":null}}`},
	} {
		status, body := Errors(&each.failure, "req_1")
		if status != each.status || string(body) != each.wanted {
			t.Errorf("found %d %s\nwanted %d %s", status, body, each.status, each.wanted)
		}
	}
}
