//go:build linux

package client

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A ledger goes back while a client runs: its frontier is behind what it acknowledged. What is missing is sent again,
// under its numbers, before what waits; also where the ledger keeps its name. What comes then goes on in the same epoch.
func TestAForgottenReportIsSentAgain(t *testing.T) {
	for _, name := range []string{"one", "another"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, metered(), func(t *testing.T, s *fake) {
				c := dial(t, s, WithJournal(t.TempDir()))
				admitted := drive(c, 1, 10, tenant("a"))
				time.Sleep(11 * time.Second)
				restore := s.backup()
				for range 5 {
					admitted += drive(c, 1, 20, tenant("a"))
					time.Sleep(11 * time.Second)
				}
				wantBilled(t, s, admitted, "before it goes back")
				restore(name)
				wantBilled(t, s, 10, "having gone back")
				admitted += drive(c, 1, 7, tenant("a"))
				time.Sleep(15 * time.Second)
				wantBilled(t, s, admitted, "healed")
				if st := c.Stats(); st.UnitsResent != 100 || st.UnitsForgotten != 0 || st.Epoch != c.session.Epoch() {
					t.Errorf("%+v, want 100 units sent again, none forgotten, and the same epoch %d", st, c.session.Epoch())
				}
				shut(t, c)
				wantBilled(t, s, admitted, "at the end")
			})
		})
	}
}

// An idle client finds out as well: its next report says nothing but that it lives.
func TestAnIdleClientSendsAgain(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		c := dial(t, s, WithJournal(t.TempDir()))
		time.Sleep(11 * time.Second)
		restore := s.backup()
		admitted := drive(c, 1, 30, tenant("a"))
		time.Sleep(11 * time.Second)
		restore("")
		time.Sleep(15 * time.Second)
		wantBilled(t, s, admitted, "healed")
		shut(t, c)
	})
}

// Lives that ended, whole, are sent again by a client that has not settled anything itself when the
// ledger goes back: no report of its own shows that, but the ledger's name does. And at every start all is looked at.
func TestEarlierLivesAreSentAgain(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		dir, restore := t.TempDir(), s.backup()
		admitted := int64(0)
		for range 3 {
			c := dial(t, s, WithJournal(dir))
			admitted += drive(c, 1, 10, tenant("a"))
			time.Sleep(11 * time.Second)
			admitted += drive(c, 1, 10, tenant("a"))
			shut(t, c)
		}
		wantBilled(t, s, admitted, "before it goes back")
		restore("one") // while no client runs
		c := dial(t, s, WithJournal(dir))
		time.Sleep(15 * time.Second)
		wantBilled(t, s, admitted, "after a start")
		restore("another")
		time.Sleep(90 * time.Second)
		wantBilled(t, s, admitted, "after it went back again")
		asks := 0
		s.set(func(f *fake) { asks = f.asks })
		time.Sleep(10 * time.Minute)
		s.set(func(f *fake) { asks = f.asks - asks })
		if asks != 0 {
			t.Errorf("the ledger was asked %d more times, though its name is the same", asks)
		}
		shut(t, c)
		restore("another")
		if r := recoverAll(t, s, dir); r.ResentUnits != admitted || r.ForgottenUnits != 0 {
			t.Errorf("%+v, want %d units sent again", r, admitted)
		}
		wantBilled(t, s, admitted, "recovered")
		if r := recoverAll(t, s, dir); r.ResentUnits != 0 {
			t.Errorf("%+v, want nothing sent again", r)
		}
	})
}

// A killed process's life is settled after the ledger has gone back: what it had acknowledged comes first.
func TestALifeIsRecoveredOnALedgerThatWentBack(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		dir, restore := t.TempDir(), s.backup()
		c := dial(t, s, WithJournal(dir))
		admitted := drive(c, 1, 10, tenant("a"))
		time.Sleep(11 * time.Second)
		admitted += drive(c, 1, 20, tenant("a"))
		time.Sleep(11 * time.Second)
		s.set(func(f *fake) { f.ledgerOff = true })
		admitted += drive(c, 1, 30, tenant("a"))
		killed, dead := taken(t, dir), taken(t, dir)
		end(t, c)
		s.set(func(f *fake) { f.ledgerOff = false })
		restore("")

		next, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(killed))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		wantBilled(t, s, admitted, "by the next start")
		shut(t, next)

		restore("")
		r := recoverAll(t, s, dead)
		wantBilled(t, s, admitted, "by recover")
		if len(r.Lives) != 1 || r.Lives[0].Settled != 30 || r.ResentUnits != 30 {
			t.Errorf("%+v, want 30 units settled and 30 sent again", r)
		}
	})
}

// What the journal no longer has, what a client without one had settled, and what an older server cannot be asked for is
// counted as forgotten; what waits is settled under another epoch.
func TestWhatCannotBeSentAgainIsCounted(t *testing.T) {
	for _, how := range []string{"pruned", "without a journal", "older server"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, metered(), func(t *testing.T, s *fake) {
				dir := t.TempDir()
				opts := []Option{WithJournal(dir)}
				if how == "without a journal" {
					opts = nil
				}
				c := dial(t, s, opts...)
				kept := drive(c, 1, 10, tenant("a"))
				time.Sleep(11 * time.Second)
				restore := s.backup()
				drive(c, 1, 30, tenant("a"))
				time.Sleep(11 * time.Second)
				if how == "older server" {
					s.set(func(f *fake) { f.older = true })
				}
				if how == "pruned" {
					logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
					if err != nil || len(logs) != 1 {
						t.Fatal(logs, err)
					}
					if err := os.Remove(logs[0]); err != nil { // it goes on into the file that has no name
						t.Fatal(err)
					}
				}
				restore("")
				admitted := kept + drive(c, 1, 5, tenant("a"))
				time.Sleep(time.Minute)
				wantBilled(t, s, admitted, "healed")
				if st := c.Stats(); st.UnitsForgotten != 30 || st.UnitsResent != 0 || st.Epoch == c.session.Epoch() {
					t.Errorf("%+v, want 30 units forgotten, and another epoch", st)
				}
				s.set(func(f *fake) { f.name = "another" }) // it is looked at once more
				time.Sleep(2 * time.Minute)
				if st := c.Stats(); st.UnitsForgotten != 30 {
					t.Errorf("after another look %d units are forgotten, want 30 still", st.UnitsForgotten)
				}
				if how == "pruned" { // its files are gone: it cannot end as one with a journal
					_ = c.Close(t.Context())
					return
				}
				shut(t, c)
			})
		})
	}
}

// A server that is older and cannot be asked settles what a dead host left all the same.
func TestRecoverByAnOlderServer(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		dir, restore := t.TempDir(), s.backup()
		c := dial(t, s, WithJournal(dir))
		drive(c, 1, 10, tenant("a"))
		time.Sleep(11 * time.Second)
		s.set(func(f *fake) { f.ledgerOff = true })
		left := drive(c, 1, 30, tenant("a"))
		end(t, c)
		s.set(func(f *fake) { f.ledgerOff, f.older = false, true })
		restore("")
		r := recoverAll(t, s, dir)
		wantBilled(t, s, left, "recovered")
		if len(r.Lives) != 1 || r.Lives[0].Settled != left || r.ResentUnits != 0 || r.ForgottenUnits != 10 {
			t.Errorf("%+v, want %d units settled, none sent again, and 10 forgotten", r, left)
		}
	})
}

// Two copies of what a killed process left, the host's disk and its backup, meet a ledger that went back further than can
// be sent again: both go on under the same epoch with the same bytes. So does neither of their own next lives.
func TestCopiesGoOnUnderTheSameEpoch(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		dir, restore := t.TempDir(), s.backup()
		c := dial(t, s, WithJournal(dir))
		drive(c, 1, 10, tenant("a"))
		time.Sleep(11 * time.Second) // acknowledged, and forgotten
		s.set(func(f *fake) { f.ledgerOff = true })
		want := drive(c, 1, 30, tenant("a"))
		time.Sleep(11 * time.Second)
		one, two := taken(t, dir), taken(t, dir)
		end(t, c)
		s.set(func(f *fake) { f.ledgerOff, f.older = false, true })
		restore("")
		for _, d := range []string{one, two} {
			next := dial(t, s, WithJournal(d))
			time.Sleep(15 * time.Second)
			want += drive(next, 1, 5, tenant("a"))
			shut(t, next)
		}
		wantBilled(t, s, want, "with both copies settled")
	})
}

// A ledger that takes reports, and cannot be asked how far it is, does not keep usage from being settled for ever. One that is
// away for as long is waited for, and sent again what it has forgotten.
func TestALedgerThatCannotBeAsked(t *testing.T) {
	for _, how := range []string{"mute", "away"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, metered(), func(t *testing.T, s *fake) {
				c := dial(t, s, WithJournal(t.TempDir()))
				restore := s.backup()
				before := drive(c, 1, 30, tenant("a"))
				time.Sleep(2 * time.Minute)
				restore("")
				s.set(func(f *fake) { f.mute = true })
				after := drive(c, 1, 5, tenant("a"))
				time.Sleep(time.Minute)
				wantBilled(t, s, 0, "while it is asked")
				s.set(func(f *fake) { f.ledgerOff = how == "away" })
				time.Sleep(5 * time.Minute)
				if how == "away" {
					s.set(func(f *fake) { f.ledgerOff, f.mute = false, false })
					time.Sleep(time.Minute)
					wantBilled(t, s, before+after, "back again")
				} else {
					wantBilled(t, s, after, "after some minutes")
				}
				if st := c.Stats(); how == "away" && st.UnitsForgotten != 0 || how == "mute" && st.UnitsForgotten != before {
					t.Errorf("%d units are forgotten, %d were acknowledged", st.UnitsForgotten, before)
				}
				shut(t, c)
			})
		})
	}
}

// However often a ledger goes back, the journal is gone through once a minute at most, and in the end all is there.
func TestLooksAreApart(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		c := dial(t, s, WithJournal(t.TempDir()))
		restore, asks, admitted := s.backup(), 0, int64(0)
		const minutes = 10
		for range minutes * 4 {
			restore("")
			admitted += drive(c, 1, 5, tenant("a"))
			time.Sleep(15 * time.Second)
		}
		if s.set(func(f *fake) { asks = f.asks }); asks < 2 || asks > minutes+2 {
			t.Errorf("the journal was gone through %d times in %d minutes", asks, minutes)
		}
		time.Sleep(2 * time.Minute)
		wantBilled(t, s, admitted, "in the end")
		shut(t, c)
	})
}

// The logs of another agent in the directory, for which the key does not speak, keep nothing back.
func TestRecoverBesideAnotherAgentsLogs(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		dir, restore := t.TempDir(), s.backup()
		c := dial(t, s, WithJournal(dir))
		drive(c, 1, 10, tenant("a"))
		shut(t, c)
		c = dial(t, s, WithJournal(dir), WithAgent("gw-2"))
		own := drive(c, 1, 20, tenant("a"))
		time.Sleep(11 * time.Second)
		s.set(func(f *fake) { f.ledgerOff = true })
		own += drive(c, 1, 30, tenant("a"))
		end(t, c)
		s.set(func(f *fake) { f.ledgerOff, f.foreign = false, "gw-1" })
		restore("")
		recoverAll(t, s, dir)
		wantBilled(t, s, own, "recovered")
	})
}
