package tinker

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// Kinds of checkpoints, as paths have them.
const (
	Weights         = "weights"
	SamplerWeights  = "sampler_weights"
	ExternalWeights = "external_weights" // for others' programs, as PEFT reads them
)

// Bounds of the time that a checkpoint stays: an hour to ten years.
const (
	leastLife = 3600
	mostLife  = 10 * 366 * 24 * 3600
	mostName  = 128
)

// Checkpoint is a state of a run, which does not change.
type Checkpoint struct {
	Run      string            `json:"run"`
	Kind     string            `json:"kind"`
	Name     string            `json:"name"`
	Base     string            `json:"base"`
	Adapters Adapters          `json:"adapters"`
	Folder   string            `json:"folder"`
	Bytes    int64             `json:"bytes"`
	Created  int64             `json:"created"`
	Expires  int64             `json:"expires,omitempty"` // 0: never
	Public   bool              `json:"public,omitempty"`  // others of this service may load it
	Metadata map[string]string `json:"metadata,omitempty"`

	Tenant string `json:"-"`
}

// Path names a checkpoint.
func (c *Checkpoint) Path() string { return "tinker://" + c.Run + "/" + c.Kind + "/" + c.Name }

// ID is its name within its run.
func (c *Checkpoint) ID() string { return c.Kind + "/" + c.Name }

func (c *Checkpoint) expired(now time.Time) bool { return c.Expires > 0 && c.Expires <= now.Unix() }

// SaveOrder is what a checkpoint is made from.
type SaveOrder struct {
	Name      string // "": one that the service makes
	Life      int64  // seconds; 0: for ever
	Overwrite bool
	Metadata  map[string]string
	Sampler   int64 // of an ephemeral sampler: its number in the session; -1: a checkpoint
}

func (o *SaveOrder) check() error {
	if o.Life != 0 && (o.Life < leastLife || o.Life > mostLife) {
		return invalid("ttl_seconds", "found %d, wanted %d to %d", o.Life, leastLife, mostLife)
	}
	return checkLetters("path", o.Name)
}

// checkLetters checks a name, which may be part of a path.
func checkLetters(param, name string) error {
	if len(name) > mostName {
		return invalid(param, "found a name of %d letters, wanted at most %d", len(name), mostName)
	}
	for _, letter := range name {
		plain := letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter >= '0' && letter <= '9'
		if !plain && !strings.ContainsRune("._-", letter) {
			return invalid(param, "found %q, wanted a name of letters, digits, '.', '_' and '-'", short(name))
		}
	}
	if name == "." || name == ".." {
		return invalid(param, "found %q, wanted a name", name)
	}
	return nil
}

// Save writes the state of a run as a checkpoint.
func (s *Service) Save(ctx context.Context, tenant, id string, given Numbered, order SaveOrder, failure error) (*Future, error) {
	if failure == nil {
		failure = order.check()
	}
	return s.submit(ctx, tenant, id, given, failure, func(ctx context.Context, one *run) (any, error) {
		made, err := s.save(ctx, one, Weights, order, func(trainer Trainer, folder string) error { return trainer.SaveState(ctx, folder) })
		if err != nil {
			return nil, err
		}
		return &Saved{made.Path()}, nil
	})
}

// SaveForSampler writes the adapters of a run, as a checkpoint or as an ephemeral sampler.
func (s *Service) SaveForSampler(ctx context.Context, tenant, id string, given Numbered, order SaveOrder, failure error) (*Future, error) {
	if failure == nil {
		failure = order.check()
	}
	return s.submit(ctx, tenant, id, given, failure, func(ctx context.Context, one *run) (any, error) {
		if order.Sampler >= 0 {
			return s.saveEphemeral(ctx, one, order)
		}
		made, err := s.save(ctx, one, SamplerWeights, order, func(trainer Trainer, folder string) error { return trainer.SaveAdapters(ctx, folder) })
		if err != nil {
			return nil, err
		}
		return &SavedSampler{Path: made.Path()}, nil
	})
}

// SaveExternal writes the adapters of a run for others' programs.
func (s *Service) SaveExternal(ctx context.Context, tenant, id string, given Numbered, order SaveOrder, failure error) (*Future, error) {
	if failure == nil {
		failure = order.check()
	}
	return s.submit(ctx, tenant, id, given, failure, func(ctx context.Context, one *run) (any, error) {
		made, err := s.save(ctx, one, ExternalWeights, order, func(trainer Trainer, folder string) error { return trainer.SaveAdapters(ctx, folder) })
		if err != nil {
			return nil, err
		}
		return &SavedExternal{made.Path()}, nil
	})
}

// save writes a folder and then its row.
func (s *Service) save(ctx context.Context, one *run, kind string, order SaveOrder, write func(trainer Trainer, folder string) error) (*Checkpoint, error) {
	made := &Checkpoint{Run: one.ID, Kind: kind, Name: order.Name, Base: one.Base, Adapters: one.Adapters, Folder: tuning.NewID("checkpoint-"),
		Created: time.Now().Unix(), Metadata: order.Metadata, Tenant: one.Tenant}
	if made.Name == "" {
		made.Name = fmt.Sprintf("%06d", one.order.position()-1)
	}
	if order.Life > 0 {
		made.Expires = made.Created + order.Life
	}
	var earlier Checkpoint
	err := s.get(ctx, checkpointRow, made.Path(), one.Tenant, &earlier)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	replaces := err == nil
	if replaces && !order.Overwrite && !earlier.expired(time.Now()) {
		return nil, &inference.Error{Kind: inference.Conflict, Code: "checkpoint_exists", Param: "path",
			Message: fmt.Sprintf("%s exists: checkpoints do not change; give another name", made.Path())}
	}
	if made.Bytes, err = s.writeFolder(ctx, one, made.Folder, write); err != nil {
		return nil, err
	}
	if err := s.put(ctx, checkpointRow, made.Path(), one.Tenant, one.ID, made); err != nil {
		s.removeFolder(made.Folder)
		return nil, err
	}
	if replaces {
		s.config.Models.RetractSnapshot(made.Path())
		s.removeFolder(earlier.Folder)
	}
	s.count(one.Tenant, one.Session, one.Base, CheckpointCount, 1)
	if err := s.publishCheckpoint(made); err != nil {
		return nil, err
	}
	return made, nil
}

// publishCheckpoint makes one that is for sampling a model.
func (s *Service) publishCheckpoint(one *Checkpoint) error {
	if one.Kind != SamplerWeights {
		return nil
	}
	return s.config.Models.PublishSnapshot(one.Path(), one.Base, s.folder(one.Folder))
}

// writeFolder writes a folder that lasts when this returns.
func (s *Service) writeFolder(ctx context.Context, one *run, id string, write func(trainer Trainer, folder string) error) (bytes int64, err error) {
	folder := s.folder(id)
	err = s.residence.enter(ctx, one, func(trainer Trainer) error { return write(trainer, folder) })
	if err == nil {
		err = s.config.Sync(folder)
	}
	if err != nil {
		s.removeFolder(id)
		return 0, err
	}
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// SplitPath takes the path of a checkpoint apart.
func SplitPath(path string) (run, kind, name string, err error) {
	parts := strings.Split(strings.TrimPrefix(path, "tinker://"), "/")
	if !strings.HasPrefix(path, "tinker://") || len(parts) != 3 || parts[1] != Weights && parts[1] != SamplerWeights && parts[1] != ExternalWeights {
		return "", "", "", invalid("path", "found %q, wanted tinker://RUN/weights/NAME, with sampler_weights or external_weights in its middle for others", short(path))
	}
	return parts[0], parts[1], parts[2], nil
}

// checkpointAt finds one of a kind that a tenant may load; kind "": any.
func (s *Service) checkpointAt(ctx context.Context, tenant, path, kind string) (found Checkpoint, err error) {
	_, has, _, err := SplitPath(path)
	if err != nil {
		return found, err
	}
	if kind != "" && has != kind {
		return found, invalid("path", "found a checkpoint of kind %s, wanted %s", has, kind)
	}
	row, there, err := s.config.Store.Row(ctx, checkpointRow, path)
	if err != nil {
		return found, err
	}
	if there {
		if err := json.Unmarshal(row.Data, &found); err != nil {
			return found, err
		}
		found.Tenant = row.Tenant
	}
	if !there || row.Tenant != tenant && !found.Public || found.expired(time.Now()) {
		return found, missing(checkpointRow, path)
	}
	return found, nil
}

// Checkpoint describes one.
func (s *Service) Checkpoint(ctx context.Context, tenant, path string) (Checkpoint, error) {
	return s.checkpointAt(ctx, tenant, path, "")
}

// Checkpoints lists those of a run, or all of a tenant where run is "", the newest first. Limit 0: all.
func (s *Service) Checkpoints(ctx context.Context, tenant, run string, limit, offset int) (found []Checkpoint, all int, err error) {
	rows, all, err := s.config.Store.Rows(ctx, RowQuery{Kind: checkpointRow, Tenant: tenant, Parent: run, Limit: limit, Offset: offset})
	for _, row := range rows {
		var one Checkpoint
		if err := json.Unmarshal(row.Data, &one); err != nil {
			return nil, 0, err
		}
		if !one.expired(time.Now()) {
			found = append(found, one)
		}
	}
	return found, all, err
}

// Change changes what may change of a checkpoint: whether others may load it, and how long it stays.
func (s *Service) Change(ctx context.Context, tenant, path string, change func(one *Checkpoint) error) error {
	found, err := s.checkpointAt(ctx, tenant, path, "")
	if err != nil {
		return err
	}
	if found.Tenant != tenant {
		return missing(checkpointRow, path)
	}
	if err := change(&found); err != nil {
		return err
	}
	return s.put(ctx, checkpointRow, path, tenant, found.Run, found)
}

// SetLife is when a checkpoint expires, from now on; 0: never.
func SetLife(one *Checkpoint, seconds int64) error {
	order := SaveOrder{Life: seconds}
	if err := order.check(); err != nil {
		return err
	}
	one.Expires = 0
	if seconds > 0 {
		one.Expires = time.Now().Unix() + seconds
	}
	return nil
}

// Delete deletes a checkpoint: its row, and then its folder.
func (s *Service) Delete(ctx context.Context, tenant, path string) error {
	found, err := s.checkpointAt(ctx, tenant, path, "")
	if err != nil {
		return err
	}
	if found.Tenant != tenant {
		return missing(checkpointRow, path)
	}
	return s.drop(ctx, &found)
}

func (s *Service) drop(ctx context.Context, one *Checkpoint) error {
	if err := s.config.Store.DropRow(ctx, checkpointRow, one.Path()); err != nil {
		return err
	}
	if one.Kind == SamplerWeights {
		s.config.Models.RetractSnapshot(one.Path())
	}
	s.removeFolder(one.Folder)
	return nil
}

// dropExpired deletes checkpoints whose time is over.
func (s *Service) dropExpired(ctx context.Context, now time.Time) error {
	rows, _, err := s.config.Store.Rows(ctx, RowQuery{Kind: checkpointRow, AnyTenant: true})
	if err != nil {
		return err
	}
	for _, row := range rows {
		var one Checkpoint
		if err := json.Unmarshal(row.Data, &one); err != nil {
			return err
		}
		if one.expired(now) {
			if err := s.drop(ctx, &one); err != nil {
				return err
			}
		}
	}
	return nil
}
