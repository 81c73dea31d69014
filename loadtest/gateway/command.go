package gateway

import (
	"context"
	"errors"
	"flag"
	"io"
)

// Command is one gateway process of a test.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c Config
	var demand string
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.Target, "server", "127.0.0.1:7600", "quota servers, with commas between")
	f.StringVar(&c.Key, "key", "", "agent key")
	f.StringVar(&c.Agent, "agent", "gateway", "agent id")
	f.StringVar(&demand, "demand", "", "TENANT=REQUESTS_A_SECOND, several with commas between")
	f.StringVar(&c.Record, "record", "", "file to write the record to at the end")
	f.StringVar(&c.Trail, "trail", "", "file to write every request to, at once")
	f.StringVar(&c.Check, "check", "", "URL of a quota-agent's checks, asked in place of --server")
	f.StringVar(&c.Journal, "journal", "", "directory of the client's journal; without it a kill loses usage")
	f.DurationVar(&c.Report, "report", 0, "how often usage is reported; 0 for the client's default")
	if err := f.Parse(args); err != nil {
		return err
	}
	var err error
	if c.Demands, err = ParseDemands(demand); err != nil {
		return err
	}
	if c.Record == "" && c.Trail == "" {
		return errors.New("gateway: --record or --trail is required")
	}
	return Run(ctx, c, stdout)
}
