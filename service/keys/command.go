package keys

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tessera.dev/service/store"
)

const usage = `usage: tessera-serve keys new [--name TEXT] [--tenant TEXT] [--scopes infer,train,files,admin]
                              [--requests N] [--tokens N] [--memory BYTES] [--state FOLDER]
       tessera-serve keys list [--state FOLDER]
       tessera-serve keys revoke ID [--state FOLDER]

new prints a key, once: the service keeps its hash alone. --requests and --tokens bound what it may use a minute, --memory the
bytes of the trainings that it makes (8GiB). Keys made or revoked while the service runs count within a second.
`

// Command is `tessera-serve keys`; arguments are those behind it, folder is the default of --state.
func Command(arguments []string, folder string, out, diagnostics io.Writer) int {
	if len(arguments) == 0 || arguments[0] == "-h" || arguments[0] == "--help" || arguments[0] == "help" {
		fmt.Fprint(out, usage)
		return 0
	}
	commands := map[string]func(*command) error{"new": newKey, "list": listKeys, "revoke": revokeKey}
	run, known := commands[arguments[0]]
	if !known {
		fmt.Fprintf(diagnostics, "tessera-serve keys: %q, wanted new, list or revoke\n%s", arguments[0], usage)
		return 2
	}
	c := &command{out: out, flags: flag.NewFlagSet("tessera-serve keys "+arguments[0], flag.ContinueOnError)}
	c.flags.SetOutput(diagnostics)
	c.flags.Usage = func() { fmt.Fprint(diagnostics, usage) }
	c.flags.StringVar(&c.folder, "state", folder, "")
	c.arguments = arguments[1:]
	if err := run(c); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		fmt.Fprintf(diagnostics, "tessera-serve keys %s: %v\n", arguments[0], err)
		return 2
	}
	return 0
}

type command struct {
	out       io.Writer
	flags     *flag.FlagSet
	folder    string
	arguments []string
	left      []string // arguments that are no flags
}

// parse takes flags before and behind other arguments.
func (c *command) parse(wanted int) error {
	for rest := c.arguments; ; {
		if err := c.flags.Parse(rest); err != nil {
			return err
		}
		rest = c.flags.Args()
		if len(rest) == 0 {
			break
		}
		c.left, rest = append(c.left, rest[0]), rest[1:]
	}
	if len(c.left) != wanted {
		return fmt.Errorf("%d arguments %q, wanted %d", len(c.left), c.left, wanted)
	}
	return nil
}

// with opens the folder, also while a service runs.
func (c *command) with(do func(s *store.Store) error) error {
	s, err := store.Open(c.folder, store.Options{Shared: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

func newKey(c *command) error {
	key := store.Key{ID: random(idLetters), Created: time.Now().Unix()}
	scopes, memory := "", ""
	c.flags.StringVar(&key.Name, "name", "", "")
	c.flags.StringVar(&key.Tenant, "tenant", "", "")
	c.flags.StringVar(&scopes, "scopes", "infer,train,files", "")
	c.flags.Int64Var(&key.Requests, "requests", 0, "")
	c.flags.Int64Var(&key.Tokens, "tokens", 0, "")
	c.flags.StringVar(&memory, "memory", "0", "")
	if err := c.parse(0); err != nil {
		return err
	}
	var err error
	if key.Scopes, err = parseScopes(scopes); err != nil {
		return err
	}
	if key.Memory, err = parseBytes(memory); err != nil {
		return err
	}
	if key.Requests < 0 || key.Tokens < 0 {
		return fmt.Errorf("--requests %d --tokens %d, wanted 0 (any number) or more", key.Requests, key.Tokens)
	}
	secret := random(secretLength)
	hash := hashOf(secret)
	key.Hash = hash[:]
	if err := c.with(func(s *store.Store) error { return s.InsertKey(context.Background(), key) }); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s%s%s\n", prefix, key.ID, secret)
	return nil
}

// parseScopes reads a list with commas.
func parseScopes(text string) ([]string, error) {
	scopes := strings.Split(text, ",")
	for _, each := range scopes {
		switch Scope(each) {
		case Infer, Train, Files, Admin:
		default:
			return nil, fmt.Errorf("--scopes has %q, wanted some of infer, train, files and admin, with commas", each)
		}
	}
	return scopes, nil
}

// parseBytes reads a number with a unit, as 8GiB; "0" is any.
func parseBytes(text string) (int64, error) {
	number, unit := text, int64(1)
	for i, each := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if strings.HasSuffix(text, each) {
			number, unit = strings.TrimSuffix(text, each), 1<<(10*(i+1))
		}
	}
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil || count < 0 || count > (1<<62)/unit {
		return 0, fmt.Errorf("--memory %q, wanted bytes, with KiB, MiB, GiB or TiB behind them", text)
	}
	return count * unit, nil
}

func listKeys(c *command) error {
	if err := c.parse(0); err != nil {
		return err
	}
	return c.with(func(s *store.Store) error {
		all, err := s.Keys(context.Background())
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "id\tname\ttenant\tscopes\trequests\ttokens\tmemory\tcreated\tstate")
		for _, key := range all {
			state := "valid"
			if key.Revoked != 0 {
				state = "revoked " + day(key.Revoked)
			}
			fmt.Fprintf(table, "%s\t%q\t%q\t%s\t%d\t%d\t%d\t%s\t%s\n", key.ID, key.Name, key.Tenant, strings.Join(key.Scopes, ","),
				key.Requests, key.Tokens, key.Memory, day(key.Created), state)
		}
		return table.Flush()
	})
}

func day(seconds int64) string { return time.Unix(seconds, 0).UTC().Format("2006-01-02") }

func revokeKey(c *command) error {
	if err := c.parse(1); err != nil {
		return err
	}
	id := c.left[0]
	if parsed, _, ok := parse(id); ok { // a whole key
		id = parsed
	}
	return c.with(func(s *store.Store) error { return s.RevokeKey(context.Background(), id) })
}
