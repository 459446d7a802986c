package tinker

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tessera.dev/service/tuning"
)

// LinkLife is how long a link to a checkpoint's files is good for.
const LinkLife = 15 * time.Minute

// link lets who has its id read a file of a checkpoint, or all of them in an archive, without a key. Links end with the process.
type link struct {
	tenant, checkpoint string
	file               string // within the checkpoint's folder; "": the archive
	ends               time.Time
}

// Link is what a client is told of one.
type Link struct {
	ID, File string
	Ends     time.Time
}

func (s *Service) newLink(tenant, checkpoint, file string) Link {
	made := Link{tuning.NewID("link-"), file, time.Now().Add(LinkLife)}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.links[made.ID] = link{tenant, checkpoint, file, made.Ends}
	return made
}

// ArchiveLink makes a link to all files of a checkpoint.
func (s *Service) ArchiveLink(ctx context.Context, tenant, path string) (Link, error) {
	if _, err := s.checkpointAt(ctx, tenant, path, ""); err != nil {
		return Link{}, err
	}
	return s.newLink(tenant, path, ""), nil
}

// FileLinks makes a link to each file of a checkpoint for others.
func (s *Service) FileLinks(ctx context.Context, tenant, path string) (links []Link, err error) {
	found, err := s.checkpointAt(ctx, tenant, path, ExternalWeights)
	if err != nil {
		return nil, err
	}
	files, err := filesOf(s.folder(found.Folder))
	for _, file := range files {
		links = append(links, s.newLink(tenant, path, file))
	}
	return links, err
}

// OpenLink opens what a link leads to.
func (s *Service) OpenLink(ctx context.Context, id string) (content io.ReadSeekCloser, name string, err error) {
	s.mutex.Lock()
	found, known := s.links[id]
	s.mutex.Unlock()
	if !known || time.Now().After(found.ends) {
		return nil, "", missing("link", "of that name")
	}
	checkpoint, err := s.checkpointAt(ctx, found.tenant, found.checkpoint, "")
	if err != nil {
		return nil, "", err
	}
	folder := s.folder(checkpoint.Folder)
	if found.file != "" {
		content, err := os.Open(filepath.Join(folder, filepath.FromSlash(found.file)))
		return content, found.file[strings.LastIndexByte(found.file, '/')+1:], err
	}
	content, err = newArchive(folder, checkpoint.Created)
	return content, checkpoint.Name + ".tar", err
}

func (s *Service) dropLinks(now time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for id, one := range s.links {
		if now.After(one.ends) {
			delete(s.links, id)
		}
	}
}
