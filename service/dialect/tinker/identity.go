package tinker

import (
	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
)

// Names of the caller in the form of Tinker's: a user of an organization, which is the service.
const (
	organization = "local"
	anyone       = "local" // without keys
)

// owner names a tenant.
func owner(tenant string) string {
	if tenant == "" {
		tenant = anyone
	}
	return "tml:organization_user:" + tenant
}

// exchange gives a token that stands for the key of the call for a while, and says whose it is.
func (s *service) exchange(call *dialect.Call) (any, error) {
	if err := checkObject(call); err != nil {
		return nil, err
	}
	if s.passes == nil {
		return nil, &inference.Error{Kind: inference.Unsupported, Code: "unsupported", Message: "keys are not exchanged here; send the key itself as X-API-Key"}
	}
	return map[string]string{"jwt": s.passes.Issue(dialect.Token(call.Header), map[string]any{"iss": "tessera", "sub": owner(call.Tenant), "org_id": organization})}, nil
}
