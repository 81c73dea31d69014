package quotactl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/display"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxDocument is the size of a policy document, as the protocol bounds it.
const maxDocument = 1 << 20

// errDiffers ends diff --exit-code.
var errDiffers = errors.New("the policy differs")

func (c *cli) applyCommand() *cobra.Command {
	var file string
	var dry, shadow bool
	var base int64
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Validate a policy and make it the next version",
		Long: `apply validates the whole document, prints what changes, and makes it the next
version, in force on every reachable agent within a second. An invalid document
changes nothing: every fault is printed as file:line: sentence.

A warning names plans and overrides of tenants that were set by hand and that the document
takes back. Another names a policy file that rules on the server and differs.

With --shadow the document is tried beside the version in force instead. Every agent
evaluates it and counts its denials (quotactl usage --shadow), but denies nothing by it.`,
		Example: "  quotactl apply -f quota.yaml\n  quotactl apply -f quota.yaml --dry-run\n  quotactl apply -f quota.yaml --shadow",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shadow && base != 0 {
				return misuse("--base is of the version in force, which a shadow does not replace")
			}
			resp, err := c.apply(cmd.Context(), file, &quotav1.ApplyPolicyRequest{DryRun: dry, BaseVersion: base, Shadow: shadow})
			if err != nil {
				return err
			}
			var said string
			switch {
			case shadow && len(resp.Changes) == 0:
				said = "nothing to try: the version in force says the same"
			case shadow && !resp.Changed:
				said = fmt.Sprintf("nothing to change: version %d is tried already", resp.Version)
			case shadow && dry:
				said = "dry run: nothing else is tried"
			case shadow:
				said = fmt.Sprintf("version %d is tried beside the one in force", resp.Version)
			case !resp.Changed:
				said = fmt.Sprintf("nothing to change: version %d is in force", resp.Version)
			case dry:
				said = fmt.Sprintf("dry run: version %d stays in force", resp.Version)
			default:
				said = fmt.Sprintf("version %d is in force", resp.Version)
			}
			return c.Tell(resp, "%s%s\n", changes(resp), said)
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "validate and compare; store nothing")
	cmd.Flags().BoolVar(&shadow, "shadow", false, "try the document beside the version in force")
	cmd.Flags().Int64Var(&base, "base", 0, "refuse when another than this `VERSION` is in force; 0 applies over whatever is")
	return cmd
}

func (c *cli) diffCommand() *cobra.Command {
	var file string
	var code bool
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Say how a policy differs from the one in force",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, err := c.apply(cmd.Context(), file, &quotav1.ApplyPolicyRequest{DryRun: true})
			if err != nil {
				return err
			}
			said := ""
			if !resp.Changed {
				said = fmt.Sprintf("no difference from version %d\n", resp.Version)
			}
			if err := c.Tell(resp, "%s%s", changes(resp), text(said)); err != nil || !code || !resp.Changed {
				return err
			}
			return errDiffers
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().BoolVar(&code, "exit-code", false, "exit with 1 when there is a difference")
	return cmd
}

func (c *cli) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Make an earlier policy version the next one",
		Args:  exactly("VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := parseVersion(args[0])
			if err != nil {
				return err
			}
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.RollbackPolicy(ctx, &quotav1.RollbackPolicyRequest{Version: version})
				if err != nil {
					return err
				}
				c.warn(resp.GetChange())
				if resp.Change.Changed {
					return c.Tell(resp.GetChange(), "%sversion %d is in force; it says what version %d said\n", changes(resp.GetChange()), resp.Change.Version, version)
				}
				return c.Tell(resp.GetChange(), "nothing to change: version %d says the same\n", resp.Change.Version)
			})
		},
	}
}

func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "", "the policy document, a `FILE`; - reads standard input; needed")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
}

func parseVersion(s string) (int64, error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 1 {
		return 0, misuse("%q is not a version; write a number from 1", s)
	}
	return v, nil
}

func (c *cli) apply(ctx context.Context, file string, req *quotav1.ApplyPolicyRequest) (*quotav1.PolicyChange, error) {
	name := file
	if name == "-" {
		name = "standard input"
	}
	document, err := c.read(file)
	if err != nil {
		return nil, err
	}
	var resp *quotav1.PolicyChange
	err = c.admin(ctx, func(ctx context.Context, admin quotav1.AdminServiceClient) error {
		req.Document, req.File = document, name
		applied, err := admin.ApplyPolicy(ctx, req)
		resp = applied.GetChange()
		return err
	})
	c.warn(resp)
	return resp, err
}

// warn prints an answer's warnings.
func (c *cli) warn(resp *quotav1.PolicyChange) {
	for _, w := range resp.GetWarnings() {
		c.Note("%s:%d: warning: %s\n", w.File, w.Line, w.Message)
	}
	if file := resp.GetPolicyFile(); file != "" {
		c.Note("quotactl: warning: the policy file %s rules on this server, and says otherwise: it is applied again when it changes and at the next start "+
			"(servers that share a ledger do not start with it); write the change into it, or start without --policy\n", file)
	}
}

func (c *cli) read(file string) (string, error) {
	var in io.Reader
	switch file {
	case "":
		return "", misuse("which document? Give -f FILE")
	case "-":
		in = c.In
	default:
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if len(data) > maxDocument {
		return "", fmt.Errorf("%s: a policy has at most %d bytes", file, maxDocument)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "", fmt.Errorf("%s: this is empty, and a policy is not", file)
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s: this is not UTF-8 text, as a policy has to be", file)
	}
	return string(data), nil
}

// text is more than one line of a command's own words, so its line feeds stay.
type text string

// changes are the changes of an answer, a line each.
func changes(resp *quotav1.PolicyChange) text { return lines(resp.Changes) }

// lines are a server's sentences, a line each.
func lines(all []string) text {
	var b strings.Builder
	for _, change := range all {
		b.WriteString(display.Escape(change, "") + "\n")
	}
	return text(b.String())
}
