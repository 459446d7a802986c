package jobs_test

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"tessera.dev/service/jobs"
	"tessera.dev/service/store"
	"tessera.dev/service/store/fault"
	"tessera.dev/service/tuning"
)

// TestMain is a service of its own where a test starts it to be killed.
func TestMain(m *testing.M) {
	if folder := os.Getenv("JOBS_TEST_FOLDER"); folder != "" {
		serveUntilKilled(folder)
	}
	os.Exit(m.Run())
}

func serveUntilKilled(folder string) {
	point, visits := os.Getenv("JOBS_TEST_POINT"), 0
	var wanted int
	fmt.Sscan(os.Getenv("JOBS_TEST_VISIT"), &wanted)
	var mutex sync.Mutex
	fault.Set(func(name string) error {
		mutex.Lock()
		defer mutex.Unlock()
		if name == point {
			if visits++; visits == wanted {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		return nil
	})
	s, err := begin(folder, os.Getenv("TESSERA_TEST_MODEL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		time.Sleep(5 * time.Millisecond)
		if unfinished, err := s.store.CountJobs(ctx, ""); err == nil && unfinished == 0 {
			s.end()
			os.Exit(0)
		}
	}
}

// child runs jobs until there are none, or until it is killed.
func child(t *testing.T, folder, point string, visit int, after time.Duration) (killed bool) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "JOBS_TEST_FOLDER="+folder, "JOBS_TEST_POINT="+point, fmt.Sprint("JOBS_TEST_VISIT=", visit))
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if after > 0 {
		time.AfterFunc(after, func() { command.Process.Kill() })
	}
	err := command.Wait()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	t.Fatal(err)
	return false
}

// queueJob makes a job in a folder that nobody uses.
func queueJob(t *testing.T, folder, model string) string {
	t.Helper()
	queue, err := store.Open(folder, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	file, err := upload(queue, rows("chat", 20))
	if err != nil {
		t.Fatal(err)
	}
	made := jobs.New(jobs.Config{Store: queue, Registry: newRegistry(model)})
	job, err := made.Create(ctx, order(file, tuning.Supervised), tuning.Once{})
	if err != nil {
		t.Fatal(err)
	}
	return job.ID
}

func TestAJobThatIsKilledEndsInTheSameBits(t *testing.T) {
	model := modelPath(t)
	s := start(t, t.TempDir())
	whole := await(t, s, create(t, s, order(mustUpload(t, s, rows("chat", 20)), tuning.Supervised)).ID, succeeded)
	wanted := bits(t, s, whole)
	// Without a point, kills come at random moments of the time that a whole job takes here.
	check := func(t *testing.T, point string, visit, wantedKills int) {
		folder := t.TempDir()
		ids := []string{queueJob(t, folder, model)}
		kills := 0
		if point != "" && child(t, folder, point, visit, 0) {
			kills++
		}
		// From the checkpoint of step 15 on there are 15 steps: one that began again would be killed at its twentieth.
		if point == "job step" && child(t, folder, point, 20, 0) {
			t.Fatal("the job began again in place of going on from its checkpoint")
		}
		if point == "" {
			begun := time.Now()
			child(t, folder, "", 0, 0)
			took := time.Since(begun)
			random := rand.New(rand.NewSource(1))
			ids = append(ids, queueJob(t, folder, model))
			for tries := 0; kills < wantedKills && tries < 20*wantedKills; tries++ {
				if child(t, folder, "", 0, time.Millisecond+time.Duration(random.Int63n(int64(took)))) {
					kills++
				} else { // the job has ended: another one
					ids = append(ids, queueJob(t, folder, model))
				}
			}
		}
		if kills < wantedKills {
			t.Fatalf("%d kills, wanted %d: the test shows nothing", kills, wantedKills)
		}
		child(t, folder, "", 0, 0)
		s := start(t, folder)
		if err := s.store.Check(ctx); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			job, err := s.jobs.Job(ctx, "", id)
			if err != nil || !succeeded(job) {
				t.Fatalf("%+v %+v %v", job, job.Failure, err)
			}
			if found := bits(t, s, job); found != wanted {
				t.Fatalf("the bits are %s after %d kills, wanted %s", found, kills, wanted)
			}
			checkSteps(t, s, job)
			if found, _, _ := s.jobs.Checkpoints(ctx, "", id, tuning.Page{Limit: 10}); len(found) != 2 {
				t.Fatal(found)
			}
		}
		t.Logf("%d kills, %d jobs", kills, len(ids))
	}
	for _, each := range []struct {
		point string
		visit int
	}{{"job step", 18}, {"before commit", 4}, {"after commit", 5}, {"before commit", 7}, {"job result", 1}, {"job published", 1}, {"content sync", 1}, {"content folder", 1}} {
		if testing.Short() && each.point != "job step" {
			continue
		}
		t.Run(fmt.Sprint(each.point, " ", each.visit), func(t *testing.T) { check(t, each.point, each.visit, 1) })
	}
	t.Run("any time", func(t *testing.T) {
		count := 4
		fmt.Sscan(os.Getenv("JOBS_TEST_KILLS"), &count)
		check(t, "", 0, count)
	})
}

func TestAJobOnAFullDiskGoesOnToTheSameBits(t *testing.T) {
	model, folder := modelPath(t), t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	defer syscall.Unmount(folder, syscall.MNT_DETACH)
	apart := start(t, t.TempDir())
	whole := await(t, apart, create(t, apart, order(mustUpload(t, apart, rows("chat", 20)), tuning.Supervised)).ID, succeeded)
	s, err := begin(filepath.Join(folder, "state"), model)
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	// The job waits at its second step until the disk is full, however fast it is.
	filled := make(chan struct{})
	visits := 0
	fault.Set(func(point string) error {
		if point == "job step" {
			if visits++; visits == 2 {
				<-filled
			}
		}
		return nil
	})
	defer fault.Set(func(string) error { return nil })
	job := create(t, s, order(mustUpload(t, s, rows("chat", 20)), tuning.Supervised))
	await(t, s, job.ID, func(job tuning.Job) bool { return job.Estimated != 0 })
	ballast := filepath.Join(folder, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for full, block := 0, make([]byte, 4096); full < 200; { // also what the job frees
		if _, err := file.Write(block); err != nil {
			if full++; full == 1 {
				close(filled)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	file.Close()
	job, err = s.jobs.Job(ctx, "", job.ID)
	if err != nil || job.Status != tuning.Running && job.Status != tuning.Paused {
		t.Fatalf("%+v %+v %v", job, job.Failure, err)
	}
	t.Log("on the full disk the job is ", job.Status)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if job.Status == tuning.Paused {
		if _, err := s.jobs.Resume(ctx, "", job.ID); err != nil {
			t.Fatal(err)
		}
	}
	job = await(t, s, job.ID, func(job tuning.Job) bool {
		if job.Status == tuning.Paused { // once more, where the ballast went just then
			s.jobs.Resume(ctx, "", job.ID)
		}
		return succeeded(job)
	})
	if bits(t, s, job) != bits(t, apart, whole) {
		t.Fatal("other bits")
	}
	checkSteps(t, s, job)
	if err := s.store.Check(ctx); err != nil {
		t.Fatal(err)
	}
}
