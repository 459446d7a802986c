package tinker

import (
	"archive/tar"
	"bytes"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files are of sizes around a block's, and one lies deeper with a name that needs a longer head.
func archiveOf(t *testing.T) (*archive, map[string][]byte) {
	t.Helper()
	folder, wanted := t.TempDir(), map[string][]byte{completeName: {}}
	random := rand.New(rand.NewSource(1))
	for name, size := range map[string]int{"empty": 0, "one": 1, "almost": tarBlock - 1, "block": tarBlock, "more": 3*tarBlock + 7, "in/" + strings.Repeat("long", 60): 5} {
		text := make([]byte, size)
		random.Read(text)
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		wanted[name] = text
	}
	made, err := newArchive(folder, 1700000000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return made, wanted
}

func TestAnArchiveIsATar(t *testing.T) {
	made, wanted := archiveOf(t)
	whole, err := io.ReadAll(made)
	if err != nil || int64(len(whole)) != made.size || len(whole)%tarBlock != 0 {
		t.Fatal(err, len(whole), made.size)
	}
	last := ""
	for reader := tar.NewReader(bytes.NewReader(whole)); ; {
		head, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil || !bytes.Equal(text, wanted[head.Name]) {
			t.Errorf("%s: found %d bytes, %v", head.Name, len(text), err)
		}
		delete(wanted, head.Name)
		last = head.Name
	}
	if len(wanted) != 0 || last != completeName {
		t.Errorf("left %d, the last is %s", len(wanted), last)
	}
}

func TestAnArchiveIsReadFromAnyPlace(t *testing.T) {
	made, _ := archiveOf(t)
	whole, err := io.ReadAll(made)
	if err != nil {
		t.Fatal(err)
	}
	if end, err := made.Seek(0, io.SeekEnd); err != nil || end != int64(len(whole)) {
		t.Fatal(end, err)
	}
	random := rand.New(rand.NewSource(2))
	for i := 0; i < 200; i++ {
		at := random.Intn(len(whole) + 1)
		if _, err := made.Seek(int64(at), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		found := make([]byte, random.Intn(len(whole)-at+1))
		if _, err := io.ReadFull(made, found); err != nil || !bytes.Equal(found, whole[at:at+len(found)]) {
			t.Fatalf("from %d on, %d bytes differ: %v", at, len(found), err)
		}
	}
	if _, err := made.Seek(-1, io.SeekStart); err == nil {
		t.Error("a place before the begin is one")
	}
}

// A file that shrinks while it is read is an error: the client must not take the archive for whole.
func TestAFileThatShrinksBreaksItsArchive(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := newArchive(folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	if err := os.Truncate(path, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(made); err != io.ErrUnexpectedEOF {
		t.Errorf("found %v", err)
	}
}
