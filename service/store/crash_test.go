package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tessera.dev/service/store/fault"
	"tessera.dev/service/tuning"
)

// TestMain is a program of its own where a test starts it to be killed: it writes files and jobs, and says what was acknowledged.
func TestMain(m *testing.M) {
	if folder := os.Getenv("STORE_TEST_FOLDER"); folder != "" {
		writeUntilKilled(folder, os.Getenv("STORE_TEST_POINT"))
	}
	os.Exit(m.Run())
}

func writeUntilKilled(folder, point string) {
	s, err := Open(folder, Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	visits := 0
	fault.Set(func(name string) error {
		if name == point {
			if visits++; visits == 4 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		return nil
	})
	for i := 0; i < 100; i++ {
		file, err := upload(s, "a", "n", fmt.Sprint("content ", i), tuning.Once{})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("file", file.ID, file.Hash)
		job := newJob(file.ID)
		if _, err := s.InsertJob(ctx, job, tuning.Once{}, event()); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("job", job.ID)
	}
	os.Exit(0)
}

func TestAKillAtEachPointOfWritingLosesNothing(t *testing.T) {
	for _, point := range []string{"content write", "content sync", "content rename", "content folder", "before commit", "after commit"} {
		t.Run(point, func(t *testing.T) {
			folder := t.TempDir()
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), "STORE_TEST_FOLDER="+folder, "STORE_TEST_POINT="+point)
			out, err := child.Output()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child was not killed: %v %s", err, out)
			}
			s := open(t, folder)
			if err := s.Check(ctx); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(strings.NewReader(string(out)))
			count := 0
			for lines.Scan() {
				words := strings.Fields(lines.Text())
				switch words[0] {
				case "file":
					if file, err := s.File(ctx, "a", words[1]); err != nil || file.Hash != words[2] {
						t.Fatal(file, err)
					}
				case "job":
					if _, err := s.Job(ctx, "a", words[1]); err != nil {
						t.Fatal(err)
					}
				default:
					t.Fatal(lines.Text())
				}
				count++
			}
			if count == 0 {
				t.Fatal("nothing was acknowledged before the kill: the test shows nothing")
			}
			rows, _ := s.ids("files")
			entries, _ := os.ReadDir(s.filesFolder())
			if len(entries) != len(rows) {
				t.Fatalf("%d contents, wanted %d", len(entries), len(rows))
			}
		})
	}
}

func TestAnErrorOfWritingLeavesNothing(t *testing.T) {
	defer fault.Set(func(string) error { return nil })
	for _, point := range []string{"content write", "content sync", "content rename", "content folder", "before commit"} {
		s := open(t, t.TempDir())
		fault.Set(func(name string) error {
			if name == point {
				return syscall.ENOSPC
			}
			return nil
		})
		if _, err := upload(s, "a", "n", "x", tuning.Once{}); !IsFull(err) {
			t.Fatalf("%s: %v", point, err)
		}
		fault.Set(func(string) error { return nil })
		if entries, _ := os.ReadDir(s.filesFolder()); len(entries) != 0 {
			t.Fatalf("%s left %v", point, entries)
		}
		mustUpload(t, s, "a", "x")
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	defer syscall.Unmount(folder, syscall.MNT_DETACH)
	s, err := Open(filepath.Join(folder, "state"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var kept []tuning.File
	full := 0
	for i := 0; full < 20 && i < 2000; i++ {
		file, err := upload(s, "a", "n", strings.Repeat(fmt.Sprint(i, " "), 10_000), tuning.Once{})
		switch {
		case err == nil:
			kept = append(kept, file)
		case IsFull(err):
			full++
		default:
			t.Fatal(err)
		}
	}
	if full == 0 || len(kept) == 0 {
		t.Fatal("the disk was never full", len(kept))
	}
	for _, each := range kept {
		_, content, err := s.OpenFile(ctx, "a", each.ID)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(content)
		content.Close()
		if int64(len(text)) != each.Bytes {
			t.Fatal(len(text), each)
		}
	}
	if err := s.Check(ctx); err != nil {
		t.Fatal(err)
	}
	for _, each := range kept[:len(kept)/2] { // on the reserve, where not even the database's log had room
		if err := s.DeleteFile(ctx, "a", each.ID); err != nil {
			t.Fatal(err)
		}
	}
	mustUpload(t, s, "a", "there is room again")
}
