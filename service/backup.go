package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"tessera.dev/service/store"
)

const backupUsage = `usage: tessera-serve backup [--state FOLDER] NEW_FOLDER

Copies keys, files, jobs and their results into a new folder, which --state takes, while the service runs or not. What jobs in
progress have written is left out: in the copy they begin again, and end the same.
`

// backup is `tessera-serve backup`; words are those behind it, folder is the default of --state.
func backup(words []string, folder string, out, diagnostics io.Writer) int {
	set := flag.NewFlagSet("tessera-serve backup", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&folder, "state", folder, "")
	err := set.Parse(words)
	if err == flag.ErrHelp {
		fmt.Fprint(out, backupUsage)
		return 0
	}
	if err != nil || set.NArg() != 1 {
		fmt.Fprint(diagnostics, backupUsage)
		return usage
	}
	if err := copyState(folder, set.Arg(0)); err != nil {
		fmt.Fprintln(diagnostics, "tessera-serve backup:", err)
		return failed
	}
	return 0
}

func copyState(folder, target string) error {
	state, err := store.Open(folder, store.Options{Shared: true})
	if err != nil {
		return err
	}
	defer state.Close()
	return state.Backup(context.Background(), target)
}
