package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"tessera.dev/tessera"
)

// damagedProfile makes openings of CPU devices by runtimes with the option profile "auto" write a warning to the log.
func damagedProfile(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	check(t, os.Mkdir(filepath.Join(folder, "tessera"), 0o755))
	check(t, os.WriteFile(filepath.Join(folder, "tessera", "profile-cpu.json"), []byte("no profile"), 0o644))
	t.Setenv("XDG_CACHE_HOME", folder)
}

func Test_a_function_hears_the_log(t *testing.T) {
	damagedProfile(t)
	r := must2(tessera.NewRuntime(tessera.Options{"profile": "auto"}))
	var heard []tessera.LogRecord
	check(t, r.SetLog(func(record tessera.LogRecord) { heard = append(heard, record) }))
	must2(tessera.OpenDevices(r, "cpu:1")).Close()
	wanted(t, "records", len(heard), 1)
	wanted(t, "level", heard[0].Level, tessera.LogWarning)
	queued := must2(r.Logs())
	wanted(t, "the queue", len(queued) == 1 && queued[0] == heard[0], true)

	check(t, r.SetLog(func(tessera.LogRecord) { panic("in a callback") }))
	must2(tessera.OpenDevices(r, "cpu:1")).Close()
	check(t, r.SetLog(nil))
	must2(tessera.OpenDevices(r, "cpu:1")).Close()
	wanted(t, "records of a function that is gone", len(heard), 1)
	r.Close()
	refused(t, r.SetLog(func(tessera.LogRecord) {}), tessera.ErrInvalidArgument, "runtime")
}

func Test_arenas_come_from_the_program_and_threads_are_announced(t *testing.T) {
	var mutex sync.Mutex
	held, most := map[unsafe.Pointer]func(){}, 0
	roles := map[string]bool{}
	hooks := tessera.Hooks{
		Allocate: func(bytes, alignment uintptr) unsafe.Pointer {
			memory, free, err := tessera.CMemory(int(bytes + alignment))
			if err != nil {
				return nil
			}
			past := uintptr(unsafe.Pointer(&memory[0])) % alignment
			aligned := unsafe.Pointer(&memory[(alignment-past)%alignment])
			mutex.Lock()
			defer mutex.Unlock()
			held[aligned] = free
			most = max(most, len(held))
			return aligned
		},
		Deallocate: func(memory unsafe.Pointer, _ uintptr) {
			mutex.Lock()
			defer mutex.Unlock()
			held[memory]()
			delete(held, memory)
		},
		ThreadStarted: func(role string, _ int32) {
			mutex.Lock()
			defer mutex.Unlock()
			roles[role] = true
		},
	}
	r := must2(tessera.NewRuntimeWithHooks(tessera.Options{"threads": 2}, hooks))
	model := newModel(t)
	data := must2(tessera.NewDataset(prose, must2(model.Tokenizer()), tessera.Options{"seq": 16}))
	trainer := must2(tessera.NewTrainer(r, model, data, tessera.Options{"devices": "cpu:2", "parallel": "dp=2", "batch": 4}))
	loss := must2(trainer.Step()).Loss
	plain := must2(tessera.NewTrainer(newRuntime(t), model, data, tessera.Options{"devices": "cpu:2", "parallel": "dp=2", "batch": 4}))
	wanted(t, "loss", must2(plain.Step()).Loss, loss)
	trainer.Close()
	r.Close()
	mutex.Lock()
	defer mutex.Unlock()
	wanted(t, "arenas", most >= 2, true)
	wanted(t, "arenas that are left", len(held), 0)
	wanted(t, "roles", roles["kernels"] && roles["rank"], true)

	none := tessera.Hooks{Allocate: func(uintptr, uintptr) unsafe.Pointer { panic("no memory") }, Deallocate: func(unsafe.Pointer, uintptr) {}}
	r = must2(tessera.NewRuntimeWithHooks(nil, none))
	refused(t, second(tessera.NewTrainer(r, model, data, tessera.Options{"devices": "cpu:1", "batch": 4})), tessera.ErrOutOfMemory, "")
	refused(t, second(tessera.NewRuntimeWithHooks(nil, tessera.Hooks{Allocate: none.Allocate})), tessera.ErrInvalidArgument, "deallocate")
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Test_errors_carry_their_numbers(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	_, err := tessera.NewPlan(r, model, tessera.Options{"devices": "cpu:2", "memory_limit": 1000})
	found, ok := err.(*tessera.Error)
	wanted(t, "an error", ok, true)
	smallest := found.Numbers["smallest_limit_bytes"]
	wanted(t, "numbers", found.Numbers["limit_bytes"] == 1000 && smallest > 1000, true)
	must2(tessera.NewPlan(r, model, tessera.Options{"devices": "cpu:2", "memory_limit": smallest}))
	wanted(t, "numbers of others", second(tessera.NewPlan(r, model, tessera.Options{"batchs": 1})).(*tessera.Error).Numbers == nil, true)
	wanted(t, "text", strings.Contains(err.Error(), "smallest"), true)
}
