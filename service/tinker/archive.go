package tinker

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// completeName is an empty file at the end of an archive, by which a client knows that it has all.
const completeName = "checkpoint_complete"

// tarBlock is the unit of an archive's parts.
const tarBlock = 512

// archive is the tar of a folder, which is nowhere as a whole: parts are read as they are asked for.
type archive struct {
	parts []part
	size  int64
	at    int64
	open  *os.File // of the part that was read last; nil: none
	of    int
}

// part is some bytes of an archive: those of a file, or Bytes.
type part struct {
	begin, size int64
	path        string
	bytes       []byte
}

// filesOf are the files of a folder, by their names within it, in order.
func filesOf(folder string) (names []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	sort.Strings(names)
	return names, err
}

// newArchive lists the parts of one. Its bytes are the same each time, so that a download that was cut off can go on.
func newArchive(folder string, created int64) (*archive, error) {
	names, err := filesOf(folder)
	if err != nil {
		return nil, err
	}
	made := &archive{}
	for _, name := range names {
		path := filepath.Join(folder, filepath.FromSlash(name))
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if err := made.addHead(name, info.Size(), created); err != nil {
			return nil, err
		}
		made.add(part{size: info.Size(), path: path})
		made.add(part{bytes: make([]byte, (tarBlock-info.Size()%tarBlock)%tarBlock)})
	}
	if err := made.addHead(completeName, 0, created); err != nil {
		return nil, err
	}
	made.add(part{bytes: make([]byte, 2*tarBlock)})
	return made, nil
}

func (a *archive) addHead(name string, size, created int64) error {
	var head bytes.Buffer
	err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o644, Typeflag: tar.TypeReg, ModTime: time.Unix(created, 0)})
	a.add(part{bytes: head.Bytes()})
	return err
}

func (a *archive) add(one part) {
	if one.path == "" {
		one.size = int64(len(one.bytes))
	}
	if one.size > 0 {
		one.begin = a.size
		a.parts, a.size = append(a.parts, one), a.size+one.size
	}
}

// Read reads from one part.
func (a *archive) Read(into []byte) (int, error) {
	number := sort.Search(len(a.parts), func(i int) bool { return a.parts[i].begin+a.parts[i].size > a.at })
	if number == len(a.parts) {
		return 0, io.EOF
	}
	one := &a.parts[number]
	within := a.at - one.begin
	if left := one.size - within; int64(len(into)) > left {
		into = into[:left]
	}
	count := 0
	if one.path == "" {
		count = copy(into, one.bytes[within:])
	} else {
		if a.open == nil || a.of != number {
			a.Close()
			file, err := os.Open(one.path)
			if err != nil {
				return 0, err
			}
			a.open, a.of = file, number
		}
		var err error
		if count, err = a.open.ReadAt(into, within); count < len(into) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF // the file is shorter than its head says
			}
			return count, err
		}
	}
	a.at += int64(count)
	return count, nil
}

// Seek moves to a place.
func (a *archive) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += a.at
	case io.SeekEnd:
		offset += a.size
	}
	if offset < 0 {
		return 0, errors.New("a place before the archive's begin")
	}
	a.at = offset
	return offset, nil
}

// Close closes the file that is open.
func (a *archive) Close() error {
	if a.open == nil {
		return nil
	}
	err := a.open.Close()
	a.open = nil
	return err
}
