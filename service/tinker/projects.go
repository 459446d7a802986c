package tinker

import (
	"context"
	"encoding/json"
	"sort"
	"strings"
)

// DefaultProject is that of sessions whose client names none.
const DefaultProject = "default"

// InProject is the session's project, which groups sessions with their runs and checkpoints. It is a name, and there as soon as a session
// has it.
func (s *Session) InProject() string {
	if s.Project == "" {
		return DefaultProject
	}
	return s.Project
}

// checkProject checks the name of a project; "" is the default one.
func checkProject(name string) error {
	return checkLetters("project_id", name)
}

// MoveSession moves a session into another project.
func (s *Service) MoveSession(ctx context.Context, tenant, id, project string) error {
	if project == "" {
		return invalid("project_id", "is empty, wanted a name")
	}
	if err := checkProject(project); err != nil {
		return err
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	var known Session
	if err := s.get(ctx, sessionRow, id, tenant, &known); err != nil {
		return err
	}
	s.mutex.Lock()
	if live := s.sessions[id]; live != nil {
		live.Project = project
		known = *live
	}
	s.mutex.Unlock()
	known.Project = project
	return s.put(ctx, sessionRow, id, tenant, "", known)
}

// projects are those of a tenant's sessions, by the sessions' ids.
func (s *Service) projects(ctx context.Context, tenant string) (map[string]string, error) {
	all, err := s.AllSessions(ctx, tenant)
	found := map[string]string{}
	for i := range all {
		found[all[i].ID] = all[i].InProject()
	}
	return found, err
}

// AllSessions are a tenant's, the newest first.
func (s *Service) AllSessions(ctx context.Context, tenant string) (all []Session, err error) {
	rows, _, err := s.config.Store.Rows(ctx, RowQuery{Kind: sessionRow, Tenant: tenant})
	for _, row := range rows {
		var one Session
		if err := json.Unmarshal(row.Data, &one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, err
}

// sessionOf is the session of a run, which is in the run's id.
func sessionOf(run string) string {
	session, _, _ := strings.Cut(run, ":train:")
	return session
}

// Storage is what the checkpoints of a project need.
type Storage struct {
	Project     string
	Checkpoints int
	Bytes       int64
}

// Storage sums the checkpoints of a tenant by projects; project "": all that have some.
func (s *Service) Storage(ctx context.Context, tenant, project string) ([]Storage, error) {
	projects, err := s.projects(ctx, tenant)
	if err != nil {
		return nil, err
	}
	found, _, err := s.Checkpoints(ctx, tenant, "", 0, 0)
	if err != nil {
		return nil, err
	}
	sums := map[string]*Storage{}
	for i := range found {
		name := projects[sessionOf(found[i].Run)]
		if project != "" && name != project {
			continue
		}
		if sums[name] == nil {
			sums[name] = &Storage{Project: name}
		}
		sums[name].Checkpoints++
		sums[name].Bytes += found[i].Bytes
	}
	all := []Storage{}
	for _, one := range sums {
		all = append(all, *one)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Project < all[j].Project })
	return all, nil
}
