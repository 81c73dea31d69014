package quotactl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	"github.com/f4ee788f/quota/internal/version"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the server refused, could not be reached, or found faults
	exitUsage  = 2 // the command line is wrong
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// cli is one run of quotactl.
type cli struct {
	In io.Reader
	render.Printer
	now    func() time.Time
	conn   connection
	opened *grpc.ClientConn
}

// Main runs the command line and returns the exit code. It is 0, 1 when the server refused or could not be reached, or
// 2 when the command line is wrong. A command's answer goes to Out, remarks about it to Err.
func Main(ctx context.Context, args []string, s Streams) int {
	return run(ctx, args, s, time.Now)
}

func run(ctx context.Context, args []string, s Streams, now func() time.Time) int {
	return (&cli{In: s.In, Printer: render.Printer{Out: s.Out, Err: s.Err}, now: now}).run(ctx, args)
}

func (c *cli) run(ctx context.Context, args []string) int {
	out, errs := render.NewScreen(c.Out), render.NewScreen(c.Err)
	c.Out, c.Err = out, errs
	root := c.root()
	root.SetArgs(args)
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.Err)
	err := root.ExecuteContext(ctx)
	if c.opened != nil {
		_ = c.opened.Close() // all answers are in
	}
	// If the answer could not be written, the command failed.
	if lost := out.Close(); lost != nil && !errors.Is(err, lost) {
		err = errors.Join(err, fmt.Errorf("the answer could not be written: %w", lost))
	}
	code := c.exit(err)
	_ = errs.Close() // there is nowhere left to say so
	return code
}

// usageError is a wrong command line.
type usageError struct{ error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exit prints what went wrong, and returns the exit code.
func (c *cli) exit(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errDiffers) || errors.Is(err, errUnsound) {
		return exitFailed
	}
	var wrong usageError
	if errors.As(err, &wrong) {
		c.Note("quotactl: %v\nTry --help.\n", err)
		return exitUsage
	}
	st, ok := status.FromError(err)
	if !ok {
		c.Note("quotactl: %v\n", err)
		return exitFailed
	}
	faults := 0
	for _, d := range st.Details() {
		if f, ok := d.(*quotav1.Fault); ok {
			c.Note("%s:%d: %s\n", f.File, f.Line, f.Message)
			faults++
		}
	}
	switch {
	case faults > 0:
		c.Note("quotactl: nothing was changed\n")
	case st.Code() == codes.Unavailable && unreached(st.Message()) != "":
		c.Note("quotactl: no server answers at %s: %s\n", c.conn.server, unreached(st.Message()))
	case st.Code() == codes.DeadlineExceeded:
		c.Note("quotactl: no answer from %s within %s\n", c.conn.server, c.conn.timeout)
	default:
		c.Note("quotactl: %s (%s)\n", text(st.Message()), st.Code())
	}
	return exitFailed
}

// unreached says in plain words, by gRPC's message, why the server was not reached. It is empty if one was.
func unreached(message string) string {
	_, why, ok := strings.Cut(message, "connection error: desc = ")
	switch {
	case strings.HasPrefix(message, "name resolver error"):
		return "the name has no address"
	case !ok:
		return ""
	}
	if plain, err := strconv.Unquote(why); err == nil {
		why = plain
	}
	why = strings.TrimPrefix(strings.TrimPrefix(why, "transport: "), "Error while dialing: ")
	switch {
	case strings.Contains(why, "looked like an HTTP/1.1 header"):
		return "what listens there speaks HTTP/1.1; give the server's --grpc-addr"
	case strings.Contains(why, "first record does not look like a TLS handshake"):
		return "it does not use TLS (leave out --tls, --tls-ca and --tls-cert)"
	case strings.Contains(why, "error reading server preface"):
		return why + " (a server with TLS is asked with --tls or --tls-ca)"
	}
	return why
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "quotactl",
		Short: "Administer a quota server: policies, tenants, keys, switches, usage and statements",
		Long: `quotactl administers a quota server: it applies policies, changes tenants,
makes keys, turns switches and prints usage from the ledger.

The server is named by --server or QUOTA_SERVER, the key by --key or QUOTA_KEY.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.String(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmd.Help()
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("unknown command %q", args[0])
			}
			return nil
		},
	}
	root.SetVersionTemplate(version.Line("quotactl") + "\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	c.conn.flags(root.PersistentFlags(), os.LookupEnv)
	root.AddCommand(
		c.applyCommand(), c.diffCommand(), c.rollbackCommand(), c.shadowCommand(), c.getCommand(),
		c.tenantCommand(), c.usageCommand(), c.statementCommand(), c.creditCommand(), c.alertCommand(), c.ledgerCommand(), c.agentsCommand(), c.keyCommand(), c.switchCommand(), c.auditCommand(), c.versionCommand(),
	)
	c.outcomes(root)
	c.complete(root)
	return root
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	g.AddCommand(commands...)
	return g
}

// atLeastOne requires arguments of one kind.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return misuse("%s takes one %s or more", cmd.CommandPath(), name)
		}
		return nil
	}
}

// exactly requires n arguments, named in the message.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return misuse("%s takes no arguments, got %q", cmd.CommandPath(), args)
		}
		return misuse("%s takes %s; got %d arguments", cmd.CommandPath(), strings.Join(names, " "), len(args))
	}
}

// outcomes gives --output text or json to every command without an --output of its own.
func (c *cli) outcomes(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.outcomes(sub)
	}
	if !cmd.HasSubCommands() && cmd.Flags().Lookup("output") == nil {
		c.Output.Text(cmd)
	}
}
