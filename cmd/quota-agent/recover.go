package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"

	"github.com/f4ee788f/quota/pkg/client"
)

// recoverJournal settles what a journal has, within the time that an end may take, and prints it.
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

func printLives(out io.Writer, r client.Recovered) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tHOST\tEPOCH\tUNITS\tSETTLED\tASIDE\tREPORTS")
	for _, l := range r.Lives {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", l.Agent, l.Host, l.Epoch, l.Units, l.Settled, l.Aside, l.Reports)
	}
	if len(r.Usage) > 0 {
		fmt.Fprintln(w, "\nTENANT\tMETER\tADMITTED\tDENIED")
		for _, u := range r.Usage {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", u.Tenant, u.Meter, u.Admitted, u.Denied)
		}
	}
	return w.Flush()
}
