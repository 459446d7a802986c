package tinker

import (
	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
)

// refusal is a path of Tinker's that this service leaves out, and what to do instead.
type refusal struct{ method, path, what, remedy string }

var refusals = []refusal{
	{"POST", "/create_custom_loss", "losses are not run by the service", "forward_backward_custom of the SDK computes them on your side"},
	{"GET", "/sessions/{id}/trace_export", "no traces of sessions are kept", "see /metrics and the service's log, which has a line for each request"},
	{"GET", "/audit", "no audit is kept", "see the service's log, which has a line with the tenant for each request"},
	{"GET", "/auth/apikey/me", "keys have no public description", "give the key as TINKER_API_KEY; `tessera serve keys list` shows all on the service's machine"},
	{"DELETE", "/auth/apikey/me", "keys are not revoked over HTTP", "use `tessera serve keys revoke` on the service's machine"},
}

func (r refusal) refuse(*dialect.Call) (any, error) {
	return nil, &inference.Error{Kind: inference.Unsupported, Code: "unsupported", Message: prefix + r.path + " is not served: " + r.what + "; " + r.remedy}
}
