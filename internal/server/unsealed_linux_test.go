package server_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/judge"
	"github.com/f4ee788f/quota/pkg/client"
)

// A gateway whose journal is under a secret is killed, and somebody who has not the secret raises its cells within what it was
// granted. What was sealed is billed, no unit more; the rest is in quarantine, and an operator who accepts it bills it.
func TestAKilledGatewaysCellsBillNobody(t *testing.T) {
	inBothWorlds(t, time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC), overdrawnPolicy, func(t *testing.T, w *world) {
		secret, dir, killed := client.WithJournalSecret([]byte("0123456789abcdef")), t.TempDir(), t.TempDir()
		c := w.gateway("gw-1", client.WithJournal(dir), secret, client.WithReportInterval(time.Minute))
		defer func() { _ = c.Close(context.Background()) }() // its epoch has ended
		allow(1, acme(), c)                                  // it has a policy
		time.Sleep(2 * time.Second)
		sealed := 1 + allow(30, acme(), c)
		time.Sleep(2500 * time.Millisecond) // between two seals
		last := allow(7, acme(), c)
		if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		raise(t, killed, 5)
		dial := client.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.connect(ctx) })
		r, err := client.Recover(t.Context(), "passthrough:bubble", killed, dial, secret)
		if err != nil || len(r.Lives) != 1 || r.Lives[0].Unsealed != 2*(last+5) || r.Lives[0].Aside != 0 {
			t.Fatalf("recovered: %+v, %v", r, err)
		}
		billed := func(want int64) {
			t.Helper()
			for left := true; left; {
				var err error
				if _, left, err = w.ledger.Fold(t.Context(), time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			for _, limit := range []string{"requests", "daily"} {
				if n := w.settled(ledger.Query{})[limit].Admitted; n != want {
					t.Errorf("%s: %d units are billed, want %d", limit, n, want)
				}
			}
		}
		billed(sealed)
		var ids []int64
		for _, k := range w.kept() {
			rows, err := ledger.DecodeRows(k.Body)
			if err == nil {
				err = w.judge.Learn(t.Context(), "ann", judge.Operators, rows)
			}
			if ids = append(ids, k.ID); err != nil || !strings.HasPrefix(k.Reason, ledger.UnsealedPrefix) {
				t.Errorf("kept: %q, %v", k.Reason, err)
			}
		}
		if done, err := w.ledger.Books().Retry(t.Context(), "ann", "its gateway was killed", ids); err != nil || len(done.Released) != len(ids) {
			t.Errorf("retry of %v: %+v, %v", ids, done, err)
		}
		billed(sealed + last + 5)
	})
}

// raise adds units to each cell that was in use.
func raise(t *testing.T, dir string, units uint64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.cells.0"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := journal.CellSize; at < len(b); at += journal.CellSize { // the first is no bucket's
		for _, put := range []int{at + 4*8, at + 5*8} {
			if n := binary.LittleEndian.Uint64(b[put:]); n > 0 {
				binary.LittleEndian.PutUint64(b[put:], n+units)
			}
		}
	}
	if err := os.WriteFile(names[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}
