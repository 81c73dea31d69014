package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/flagenv"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/server/boot"
)

const retainUsage = `quota-server retain puts whole months of a ledger's reports and entries into files,
reads them back, and takes the months out of the ledger. What is billed, roll-ups and
what the ledger is verified by stay. Run it again where it was cut off.

  quota-server retain --archive DIR --keep 13          all but 13 months before this one
  quota-server retain --archive DIR --before 2025-11   all before that month
  quota-server retain --archive DIR --check            read the files again

Postgres is given by --ledger-owner-url; a SQLite ledger by --ledger or --data-dir, while
no server runs on it.

`

// maxKeep bounds --keep: Postgres ledgers go back five years at most.
const maxKeep = 600

// retaining is the command line of retain.
type retaining struct {
	config          boot.Config
	before, archive string
	keep            int
	check           bool
	timeout         time.Duration
	r               sqlbooks.Retention
}

func (c *retaining) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.config.LedgerOwnerURL, "ledger-owner-url", "", "a Postgres ledger, as its owner: a `URL` postgres://user:password@host:port/database; better given as the variable, out of the process list")
	fs.StringVar(&c.config.Ledger, "ledger", "", "a SQLite ledger, `sqlite:PATH`; a file in --data-dir if not given. Not together with --ledger-owner-url")
	fs.StringVar(&c.config.DataDir, "data-dir", boot.DefaultDataDir, "`DIRECTORY` of the embedded ledger")
	fs.StringVar(&c.archive, "archive", "", "`DIRECTORY` of the files, which must be there; keep it like a backup; needed")
	fs.StringVar(&c.before, "before", "", "the oldest `MONTH` that stays, such as 2025-11, in UTC; this or --keep is needed")
	fs.IntVar(&c.keep, "keep", 0, fmt.Sprintf("how many whole `MONTHS` before this one stay, %d to %d; instead of --before", ledger.LeastKept, maxKeep))
	fs.BoolVar(&c.r.Plan, "dry-run", false, "print what would be archived, and change nothing")
	fs.BoolVar(&c.check, "check", false, "read the files of earlier runs again, and check them against the ledger")
	fs.BoolVar(&c.r.Unbilled, "without-statements", false, "archive also months whose statements are not all closed. These statements, and all later ones of the same tenants, can never be made after that")
	fs.StringVar(&c.r.Actor, "by", login(), "who does it, for the audit log: a `NAME`")
	fs.DurationVar(&c.r.Wait, "wait", 2*time.Minute, "how long servers may take to fold reports that they took before, a `DURATION`")
	fs.DurationVar(&c.timeout, "timeout", 12*time.Hour, "how long all of it may take, a `DURATION`")
}

// login is the name of the user that runs this; empty if there is none.
func login() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// parse reads the command line; its faults are misuse.
func (c *retaining) parse(fs *flag.FlagSet, args []string, now time.Time) error {
	if err := flagenv.Parse(fs, args, "QUOTA"); err != nil {
		return parsed(err)
	}
	bad := func(format string, args ...any) error { return misuse{fmt.Errorf("retain: "+format, args...)} }
	url := c.config.LedgerOwnerURL
	switch {
	case fs.NArg() > 0:
		return bad("unexpected argument %q", fs.Arg(0))
	case url != "" && !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://"): // it is not repeated: it may hold a password
		return bad("--ledger-owner-url: write postgres://user:password@host:port/database")
	case c.archive == "":
		return bad("--archive is needed")
	case c.timeout <= 0:
		return bad("--timeout is %s; it must be above 0", c.timeout)
	case c.check && (c.before != "" || c.keep != 0 || c.r.Plan):
		return bad("--check goes with --archive alone")
	case c.check:
		return nil
	case (c.before == "") == (c.keep == 0):
		return bad("give --before or --keep, one of them")
	case c.before == "" && (c.keep < ledger.LeastKept || c.keep > maxKeep):
		return bad("--keep is %d; it must be %d to %d", c.keep, ledger.LeastKept, maxKeep)
	}
	c.r.Dir = c.archive
	c.r.Before = ledger.Month(now.Unix()).AddDate(0, -c.keep, 0)
	if c.before == "" {
		return nil
	}
	var err error
	if c.r.Before, err = time.Parse("2006-01", c.before); err != nil {
		return bad("--before %q: write a month, such as 2025-11", c.before)
	}
	return nil
}

// retain needs the owner's login, because servers may not drop anything.
func retain(ctx context.Context, args []string) (err error) {
	var c retaining
	fs := flags("quota-server retain", retainUsage)
	c.flags(fs)
	if err := c.parse(fs, args, time.Now()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	o, err := boot.OpenOwner(ctx, &c.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if c.check {
		return checkArchives(ctx, o, c.archive)
	}
	c.r.Fold = o.Fold
	begun := time.Now()
	c.r.Step = func(month time.Time, what string) error {
		if what == "retired" {
			fmt.Fprintf(os.Stderr, "usage before %s is not taken any more; waiting for what was taken to be folded\n", month.AddDate(0, 1, 0).Format("2006-01"))
		} else if time.Since(begun) > time.Second {
			fmt.Fprintf(os.Stderr, "%s: %s\n", month.Format("2006-01"), what)
		}
		return nil
	}
	done, err := o.Retain(ctx, c.r)
	word := "archived in " + c.archive
	if c.r.Plan {
		word = "to archive"
	}
	for _, a := range done {
		line := fmt.Sprintf("%s %s: %d rows", a.Month.Format("2006-01"), a.Fact, a.Rows)
		if !c.r.Plan {
			line += fmt.Sprintf(", %d bytes, %s, SHA-256 %s", a.Bytes, a.File, a.SHA256)
		}
		fmt.Println(line)
	}
	if err == nil {
		fmt.Printf("%d months %s\n", len(done)/2, word)
	}
	return err
}

// errFaults ends a check that found faults, which were printed.
var errFaults = errors.New("archives are not as they were made")

func checkArchives(ctx context.Context, o *boot.Owner, dir string) error {
	begun := time.Now()
	c, err := o.Check(ctx, dir, func(p ledger.Progress) {
		if time.Since(begun) > time.Second && (p.Stage == "archives" || p.Done%1000 == 0 || p.Done == p.Total) {
			fmt.Fprintf(os.Stderr, "%s: %d of %d\n", p.Stage, p.Done, p.Total)
		}
	})
	if err != nil {
		return err
	}
	for _, f := range c.Faults {
		fmt.Println(f)
	}
	fmt.Printf("checked %d files: %d reports, %d entries, %d blocks against their hashes\n", c.Files, c.Reports, c.Entries, c.Blocks)
	if c.Unchecked > 0 {
		fmt.Printf("%d blocks could not be checked\n", c.Unchecked)
	}
	if n := int64(len(c.Faults)) + c.More; n > 0 {
		return fmt.Errorf("%w: %d faults", errFaults, n)
	}
	return nil
}
