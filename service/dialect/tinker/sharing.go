package tinker

import (
	"net/url"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/tinker"
)

// linkPath is where the links of checkpoints begin.
const linkPath = "/links/"

// copy copies a checkpoint into a project or a session.
func (s *service) copy(call *dialect.Call) (any, error) {
	given, err := body(call, "copy_weights")
	if err != nil {
		return nil, err
	}
	order := tinker.CopyOrder{Source: given.NeedText("source_path"), Key: repeatKey(call), Digest: numbered(call, 0).Digest}
	order.Session, _ = given.Text("session_id")
	order.Project, _ = given.Text("destination_project_id")
	order.Life, _ = given.Integer("ttl_seconds", 1, mostNumber)
	given.Refuse("weights_access_token", notToken)
	if call.Header.Get("X-Tinker-Weights-Access-Token") != "" {
		given.Fail("weights_access_token", fields.NotServed, "is not supported: %s", notToken)
	}
	switch {
	case order.Session != "":
		order.Number = number(given, "model_seq_id", 0)
		if order.Project != "" {
			given.Fail("destination_project_id", fields.InvalidValue, "is given with session_id; the copy is in the session's project")
		}
	case order.Project == "":
		given.Fail("destination_project_id", fields.Missing, "is missing; wanted it, or session_id with model_seq_id")
	}
	if err := given.Done(); err != nil {
		return nil, err
	}
	made, err := s.work.Copy(call.Context, call.Tenant, order)
	if err != nil {
		return nil, err
	}
	return map[string]string{"tinker_path": made.Path()}, nil
}

const notToken = "checkpoints of others are read where they are public"

// archive gives a link to all files of a checkpoint, which needs no key.
func (s *service) archive(call *dialect.Call) (any, error) {
	made, err := s.work.ArchiveLink(call.Context, call.Tenant, path(call))
	if err != nil {
		return nil, err
	}
	return map[string]string{"url": linkURL(call, made, call.Names["name"]+".tar"), "expires": moment(made.Ends)}, nil
}

// fileLinks gives a link to each file of a checkpoint for others' programs.
func (s *service) fileLinks(call *dialect.Call) (any, error) {
	made, err := s.work.FileLinks(call.Context, call.Tenant, path(call))
	if err != nil {
		return nil, err
	}
	links, ends := map[string]string{}, time.Now().Add(tinker.LinkLife)
	for _, one := range made {
		links[one.File] = linkURL(call, one, one.File)
		ends = one.Ends
	}
	return map[string]any{"urls": links, "expires": moment(ends)}, nil
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func linkURL(call *dialect.Call, made tinker.Link, name string) string {
	return call.Origin + (&url.URL{Path: prefix + linkPath + made.ID + "/" + name}).EscapedPath()
}

// openLink opens what a link leads to. The name behind its id is for the client's disk alone.
func (s *service) openLink(call *dialect.Call) (dialect.Content, error) {
	content, name, err := s.work.OpenLink(call.Context, call.Names["id"])
	return dialect.Content{Reader: content, Name: name}, err
}
