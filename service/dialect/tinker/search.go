package tinker

import (
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/tinker"
)

// moveSession moves a session into a project.
func (s *service) moveSession(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	project := given.NeedText("project_id")
	if err := given.Done(); err != nil {
		return nil, err
	}
	return map[string]any{}, s.work.MoveSession(call.Context, call.Tenant, call.Names["id"], project)
}

// search looks for sessions of the caller.
func (s *service) search(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	by := tinker.Search{Limit: 50, Metadata: metadata(given, "user_metadata")}
	by.ID, _ = given.Text("session_id")
	by.Name, _ = given.Text("display_name")
	if projects, ok := given.Value("project_ids"); ok {
		by.Projects = append([]string{}, projects.Texts(0, 1000)...)
	}
	if limit, ok := given.Integer("limit", 1, 200); ok {
		by.Limit = int(limit)
	}
	statuses, _ := given.List("statuses", 1, 100)
	for _, each := range statuses {
		by.Statuses = append(by.Statuses, readStatus(each.Object()))
	}
	if at, ok := given.Object("cursor"); ok {
		by.After = readPlace(at)
	}
	mine := readOwner(given, call.Tenant)
	if err := given.Done(); err != nil {
		return nil, err
	}
	made := []any{}
	if !mine {
		return map[string]any{"sessions": made}, nil
	}
	found, more, err := s.work.SearchSessions(call.Context, call.Tenant, by)
	if err != nil {
		return nil, err
	}
	for i := range found {
		made = append(made, summary(&found[i]))
	}
	reply := map[string]any{"sessions": made}
	if more {
		last := &found[len(found)-1]
		reply["next_cursor"] = map[string]string{"last_created_at": stamp(last.Created), "last_session_id": last.ID}
	}
	return reply, nil
}

func readStatus(given *fields.Object) (made tinker.SearchStatus) {
	given.NeedText("type")
	made.Status, _ = given.Choice("type", tinker.ActiveSession, tinker.FinishedSession, "cancelled", "failed")
	if reasons, ok := given.List("reasons", 1, 100); ok && made.Status != tinker.FinishedSession {
		given.Fail("reasons", fields.InvalidValue, "is given for sessions that are %s; only client_finished has reasons", made.Status)
	} else if ok {
		for _, one := range reasons {
			if reason := one.Text(); reason != "success" && reason != "errored" && reason != "interrupted" {
				one.Fail(fields.InvalidValue, "is %q; one of success, errored, interrupted is wanted", reason)
			} else {
				made.Reasons = append(made.Reasons, reason)
			}
		}
	}
	_ = given.Done()
	return made
}

func readPlace(given *fields.Object) (made tinker.Place) {
	text := given.NeedText("last_created_at")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		given.Fail("last_created_at", fields.InvalidValue, "is %q; the next_cursor of the page before is wanted, unchanged", text)
	}
	made = tinker.Place{Created: at.Unix(), ID: given.NeedText("last_session_id")}
	_ = given.Done()
	return made
}

// readOwner says whether the caller's own sessions are looked for: those of others are found by nobody.
func readOwner(given *fields.Object, tenant string) bool {
	who, ok := given.Object("owner")
	if !ok {
		return true
	}
	who.NeedText("type")
	kind, _ := who.Choice("type", "own", "accessible", "user")
	mine := kind != "user"
	if kind == "user" {
		for _, one := range who.NeedList("owner_urns", 1, 10) {
			mine = mine || one.Text() == owner(tenant)
		}
	}
	_ = who.Done()
	return mine
}

func summary(one *tinker.Found) map[string]any {
	made := map[string]any{"session_id": one.ID, "created_at": stamp(one.Created), "owner": owner(one.Tenant), "project_id": one.Project,
		"checkpoints_count": one.Checkpoints, "checkpoint_storage_bytes": one.Bytes, "user_metadata": one.Metadata}
	if one.Name != "" {
		made["display_name"] = one.Name
	}
	switch one.Status {
	case tinker.ActiveSession:
		made["status"] = map[string]any{"type": tinker.ActiveSession}
	case tinker.FinishedSession:
		status := map[string]any{"type": tinker.FinishedSession, "reason": map[string]string{"type": one.Finish.Reason}}
		if one.Finish.Detail != "" {
			status["detail"] = one.Finish.Detail
		}
		made["status"] = status
	}
	return made
}
