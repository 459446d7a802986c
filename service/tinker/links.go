package tinker

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// LinkLife is how long a link to a checkpoint's files is good for.
const LinkLife = 15 * time.Minute

// mostLinks are there at once, at most.
const mostLinks = 10000

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

// newLinks makes a link to each of the files.
func (s *Service) newLinks(tenant, checkpoint string, files ...string) (made []Link, err error) {
	ends := time.Now().Add(LinkLife)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.links)+len(files) > mostLinks {
		return nil, &inference.Error{Kind: inference.Limited, Code: "too_many_links", RetryAfter: int(LinkLife.Seconds()), Message: fmt.Sprintf(
			"found %d links to files of checkpoints, wanted at most %d; each ends after %s: download what they lead to, and retry later", len(s.links), mostLinks, LinkLife)}
	}
	for _, file := range files {
		one := Link{tuning.NewID("link-"), file, ends}
		s.links[one.ID] = link{tenant, checkpoint, file, ends}
		made = append(made, one)
	}
	return made, nil
}

// ArchiveLink makes a link to all files of a checkpoint.
func (s *Service) ArchiveLink(ctx context.Context, tenant, path string) (Link, error) {
	if _, err := s.checkpointAt(ctx, tenant, path, ""); err != nil {
		return Link{}, err
	}
	made, err := s.newLinks(tenant, path, "")
	if err != nil {
		return Link{}, err
	}
	return made[0], nil
}

// FileLinks makes a link to each file of a checkpoint for others.
func (s *Service) FileLinks(ctx context.Context, tenant, path string) ([]Link, error) {
	found, err := s.checkpointAt(ctx, tenant, path, ExternalWeights)
	if err != nil {
		return nil, err
	}
	files, err := filesOf(s.folder(found.Folder))
	if err != nil {
		return nil, err
	}
	return s.newLinks(tenant, path, files...)
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
