package tinker

import (
	"context"
	"fmt"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tree"
	"tessera.dev/service/tuning"
)

// CopyOrder is the request for a copy of a checkpoint: into a session, as the run with a number, or into a project, as the only run of a
// new session, which Key makes safe to repeat.
type CopyOrder struct {
	Source  string // a path
	Session string
	Number  int64
	Project string
	Key     string
	Life    int64 // seconds; 0: for ever
	Digest  [32]byte
}

// Copy copies a checkpoint into a run of its own, which cannot be trained: the copy has a life and an owner that are its own. Its files
// are the source's on disks that link files.
func (s *Service) Copy(ctx context.Context, tenant string, order CopyOrder) (*Checkpoint, error) {
	if err := (&SaveOrder{Life: order.Life}).check(); err != nil {
		return nil, err
	}
	source, err := s.checkpointAt(ctx, tenant, order.Source, "")
	if err != nil {
		return nil, err
	}
	session, err := s.copySession(ctx, tenant, order)
	if err != nil {
		return nil, err
	}
	made := source
	made.Run, made.Tenant = fmt.Sprintf("%s:train:%d", session, order.Number), tenant
	owner := Run{ID: made.Run, Tenant: tenant, Session: session, Base: made.Base, Adapters: made.Adapters, Created: time.Now().Unix(),
		Latest: time.Now().Unix(), Digest: fmt.Sprintf("%x", order.Digest), Next: 1, Ended: true, Copied: order.Source}
	s.copying.Lock()
	defer s.copying.Unlock()
	var known Run
	if err := s.get(ctx, runRow, owner.ID, tenant, &known); err == nil {
		if known.Digest != owner.Digest {
			return nil, &inference.Error{Kind: inference.Conflict, Code: "model_seq_id_reused", Param: "model_seq_id",
				Message: fmt.Sprintf("model_seq_id %d of this session was used with another request", order.Number)}
		}
		return &made, nil
	} else if !isMissing(err) {
		return nil, err
	}
	made.Folder, made.Created, made.Expires, made.Public = tuning.NewID("checkpoint-"), time.Now().Unix(), 0, false
	if order.Life > 0 {
		made.Expires = made.Created + order.Life
	}
	if err := s.copyFolder(ctx, &source, &made); err != nil {
		s.removeFolder(made.Folder)
		return nil, err
	}
	if err := s.put(ctx, checkpointRow, made.Path(), tenant, made.Run, made); err != nil {
		s.removeFolder(made.Folder)
		return nil, err
	}
	if err := s.put(ctx, runRow, owner.ID, tenant, session, owner); err != nil {
		return nil, err
	}
	s.count(tenant, session, made.Base, CheckpointCount, 1)
	return &made, s.publishCheckpoint(&made)
}

// copySession is the session that a copy belongs to.
func (s *Service) copySession(ctx context.Context, tenant string, order CopyOrder) (string, error) {
	if order.Session != "" {
		found, err := s.session(ctx, tenant, order.Session)
		if err != nil {
			return "", err
		}
		return found.ID, nil
	}
	if err := checkProject(order.Project); err != nil {
		return "", err
	}
	key := order.Key
	if key != "" {
		key = "copy " + key
	}
	id, err := s.NewSession(ctx, tenant, key, Session{Name: "copy of " + short(order.Source), Project: order.Project})
	if err != nil {
		return "", err
	}
	return id, s.FinishSession(ctx, tenant, id, Finish{Reason: "success"})
}

// copyFolder links the files of a checkpoint, or copies them where links are not to be had.
func (s *Service) copyFolder(ctx context.Context, source, made *Checkpoint) error {
	to := s.folder(made.Folder)
	if err := tree.Copy(ctx, s.folder(source.Folder), to, tree.LinkFile); err != nil {
		return err
	}
	return s.config.Sync(to)
}
