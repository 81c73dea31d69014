package quotactl

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/pkg/client"
)

// newUser is who follows docs/billing.md, in a bubble where a month passes while nothing runs.
type newUser struct {
	t      *testing.T
	policy string
	dir    string
	agent  *client.Client

	dialing bubbled.Dialing
	lis     *bufconn.Listener
}

// day has a server and an agent run while it is lived, over the files of the day before.
func (u *newUser) day(live func()) {
	u.t.Helper()
	u.serve(u.dir, 0, func() {
		var err error
		u.agent, err = client.Dial(u.t.Context(), "passthrough:bubble", client.WithAgent("edge-1"), client.WithDialer(u.dial))
		if err != nil {
			u.t.Fatal(err)
		}
		live()
		if err := u.agent.Close(context.Background()); err != nil {
			u.t.Errorf("the agent ended with %v", err)
		}
		time.Sleep(30 * time.Second) // what it settled last is folded
	})
}

// serve has a server run over a directory's files meanwhile.
func (u *newUser) serve(dir string, ahead time.Duration, meanwhile func()) {
	u.t.Helper()
	u.lis = bufconn.Listen(1 << 20)
	c := boot.Embedded(dir, u.policy)
	c.ClockAhead = ahead
	c.GRPC, c.HTTP, c.Log = u.lis, bufconn.Listen(1<<20), slog.New(slog.DiscardHandler)
	s, err := boot.New(u.t.Context(), c)
	if err != nil {
		u.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	meanwhile()
	cancel()
	if err := <-ended; err != nil {
		u.t.Errorf("the server ended with %v", err)
	}
}

func (u *newUser) dial(ctx context.Context, _ string) (net.Conn, error) {
	return u.dialing.Dial(ctx, u.lis)
}

// do does a line: quotactl runs; curl asks the agent.
func (u *newUser) do(line string) (out, errs string, code int) {
	u.t.Helper()
	words := shellWords(line)
	if words[0] == "curl" {
		tenant, ok := strings.CutPrefix(words[2], "X-Tenant: ")
		if d := u.agent.Allow(u.t.Context(), client.Attribute{Name: "tenant", Value: tenant}); !ok || !d.Allowed {
			u.t.Errorf("%s: %+v", line, d)
		}
		return "", "", 0
	}
	var o, e bytes.Buffer
	c := &cli{In: strings.NewReader(""), Printer: render.Printer{Out: &o, Err: &e}, now: time.Now}
	c.conn.dialer = u.dial
	code = c.run(u.t.Context(), words[1:])
	return o.String(), e.String(), code
}

// prints does a line that succeeds and prints these words among others.
func (u *newUser) prints(line string, want ...string) string {
	u.t.Helper()
	out, errs, code := u.do(line)
	if code != 0 {
		u.t.Errorf("%s: exit %d, %s", line, code, errs)
	}
	got := strings.Join(strings.Fields(out), " ")
	for _, w := range want {
		if !strings.Contains(got, w) {
			u.t.Errorf("%s printed\n%s\nwant %q in it", line, out, w)
		}
	}
	return got
}

// Who does what docs/billing.md says creates tenants, changes a plan in the middle of the month, reads the report, and
// looks at the statement that is closed when the month has ended: by these commands and no others.
func TestNewUser(t *testing.T) {
	text, err := os.ReadFile("../../docs/billing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Plans and bills, in ten minutes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	// What the page says of plans is what the report shows below.
	if said := strings.Join(strings.Fields(section), " "); !strings.Contains(said, "hooli's first is billed under free and its second under paid") {
		t.Error("docs/billing.md does not say under which plans hooli's requests are billed")
	}
	lines := regexp.MustCompile(`(?m)^(quotactl|curl) .*$`).FindAllString(section, -1)
	changes, reports := -1, -1
	for i, line := range lines {
		switch {
		case strings.Contains(line, "set-plan"):
			changes = i
		case strings.Contains(line, "usage report"):
			reports = i
		}
	}
	file := regexp.MustCompile(`quota-server --policy (\S+)\n`).FindStringSubmatch(section)
	ahead := regexp.MustCompile(`cp -r quota-data (\S+)\nquota-server --policy \S+ --data-dir (\S+) --clock-ahead (\S+)\n`).FindStringSubmatch(section)
	if changes < 0 || reports < changes || len(lines) != reports+5 || file == nil || ahead == nil || ahead[1] != ahead[2] {
		t.Fatalf("steps: %q", lines)
	}
	// The machine's settings must not reach the test.
	for _, name := range []string{"QUOTA_SERVER", "QUOTA_KEY", "QUOTA_CLIENT_CA", "QUOTA_CLIENT_CERT", "QUOTA_CLIENT_KEY"} {
		t.Setenv(name, "") // so that it is put back
		os.Unsetenv(name)
	}
	synctest.Test(t, func(t *testing.T) {
		u := &newUser{t: t, policy: filepath.Join("../..", file[1]), dir: t.TempDir(), dialing: bubbled.NewDialing()}
		wait := func(at time.Time) { time.Sleep(time.Until(at)) }
		wait(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC))
		u.day(func() {
			for _, line := range lines[:changes] {
				u.prints(line)
			}
		})
		wait(time.Date(2026, 10, 16, 12, 0, 0, 0, time.UTC))
		u.day(func() {
			u.prints(lines[changes])
			for _, line := range lines[changes+1 : reports] {
				u.prints(line)
			}
			time.Sleep(20 * time.Second)
			u.prints(lines[reports], "hooli free 1 0 0 hooli paid 1 0 0 initech enterprise 2 0 0 wayne paid 1 0 0 at block ")
			u.prints(lines[reports+1], "hooli, 2026-10: ", " fee paid - - - 2026-10 24.50 EUR usage paid requests 1 1 2026-10 0.00 EUR total - - - - - 24.50 EUR ")
			if _, errs, code := u.do(lines[reports+2]); code != exitFailed || !strings.Contains(errs, "has not ended; it will at 2026-11-01T00:00:00Z") {
				t.Errorf("closed in the middle of the month: exit %d, %s", code, errs)
			}
		})
		month, err := time.ParseDuration(ahead[3])
		if err != nil {
			t.Fatal(err)
		}
		next := t.TempDir()
		if err := os.CopyFS(next, os.DirFS(u.dir)); err != nil {
			t.Fatal(err)
		}
		u.serve(next, month, func() {
			u.prints(lines[reports+3], "hooli, 2026-10: ", " total - - - - - 24.50 EUR ", " statement 1, closed 2026-11-16T12:")
			u.prints(lines[reports+4], "1 2026-10 ", " open - ")
		})
		wait(time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC))
		u.day(func() {
			u.prints(lines[reports], "hooli free 1 0 0 hooli paid 1 0 0 ")
			u.prints(lines[reports+1], "hooli, 2026-11: ", " total - - - - - 49.00 EUR ")
			digests := regexp.MustCompile(`digest (\w{64}) `)
			previewed := digests.FindStringSubmatch(u.prints("quotactl statement preview --tenant hooli --period 2026-10"))
			closed := u.prints(lines[reports+3], "hooli, 2026-10: ", " total - - - - - 24.50 EUR ", " statement 1, closed 2026-11-01T09:00:00Z by open")
			digest := digests.FindStringSubmatch(closed)
			if digest == nil || previewed == nil || previewed[1] != digest[1] {
				t.Fatalf("previewed %v at the same block, closed %s", previewed, closed)
			}
			u.prints(lines[reports+4], "1 2026-10 ", " open - "+digest[1])
			if again := u.prints("quotactl statement close --tenant hooli --period 2026-10"); again != closed {
				t.Errorf("closed again: %s\nwant %s", again, closed)
			}
			u.prints("quotactl statement show hooli 2026-10", digest[1])
		})
	})
}
