package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/pkg/client"
)

// recoverJournal settles the usage in a journal, within --close-wait, and prints it.
func recoverJournal(ctx context.Context, c config, log *slog.Logger, out io.Writer) error {
	security, err := c.tls()
	if err != nil {
		return err
	}
	secret, err := c.secret()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.closeWait)
	defer cancel()
	r, err := client.Recover(ctx, c.server, c.journal, reach(c, security, secret, log)...)
	return errors.Join(err, printRecovered(out, r))
}

func printRecovered(out io.Writer, r client.Recovered) error {
	if len(r.Lives) == 0 {
		if _, err := fmt.Fprintln(out, "nothing is left to settle"); err != nil {
			return err
		}
	} else if err := printLives(out, r); err != nil {
		return err
	}
	if r.ResentReports > 0 {
		if _, err := fmt.Fprintf(out, "sent again what the ledger had forgotten: %d units in %d reports\n", r.ResentUnits, r.ResentReports); err != nil {
			return err
		}
	}
	if r.Refused > 0 {
		if _, err := fmt.Fprintf(out, "not believed, for it does not verify under the secret, and kept aside: %d bytes\n", r.Refused); err != nil {
			return err
		}
	}
	if r.ForgottenUnits > 0 {
		if _, err := fmt.Fprintf(out, "forgotten by the ledger, and no more in the journal: %d units\n", r.ForgottenUnits); err != nil {
			return err
		}
	}
	return nil
}

// printLives prints tables of a journal's contents. Anybody who could write on that disk may have written its text.
func printLives(out io.Writer, r client.Recovered) error {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	lives := [][]string{{"AGENT", "HOST", "EPOCH", "UNITS", "SETTLED", "UNSEALED", "ASIDE", "REPORTS"}}
	for _, l := range r.Lives {
		lives = append(lives, []string{l.Agent, l.Host, n(l.Epoch), n(l.Units), n(l.Settled), n(l.Unsealed), n(l.Aside), n(l.Reports)})
	}
	if err := display.Table(out, lives, map[int]bool{2: true, 3: true, 4: true, 5: true, 6: true, 7: true}); err != nil || len(r.Usage) == 0 {
		return err
	}
	usage := [][]string{{"TENANT", "METER", "ADMITTED", "DENIED"}}
	for _, u := range r.Usage {
		usage = append(usage, []string{u.Tenant, u.Meter, n(u.Admitted), n(u.Denied)})
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return display.Table(out, usage, map[int]bool{2: true, 3: true})
}
