package ledger

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever an epoch was granted, spent, gave back and let expire, and whenever it last gave account and settled: what
// it admitted and never settled is no more than its loss says. And no more is said than what it held at its last
// account and was granted by answers that this does not know, besides what it had not settled by then.
func TestLossesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Recorded
		var agent Said // as it is now
		var account *Said
		var settled int64
		upTo := func(n int64, what string) int64 { return rapid.Int64Range(0, n).Draw(t, what) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0: // a renewal: it gives back what it holds, tells what it spent, and is granted more
				back, n := upTo(agent.Held, "back"), upTo(100, "granted")
				told := agent.Spent - agent.Told
				r.Add(Recorded{Granted: n, Returned: back, Spent: told})
				agent.Granted, agent.Returned, agent.Told, agent.Held = agent.Granted+n, agent.Returned+back, agent.Told+told, agent.Held-back+n
			case 1: // one of which the reply is lost
				r.Add(Recorded{Granted: upTo(100, "granted in vain")})
			case 2:
				n := upTo(agent.Held, "spent")
				agent.Spent, agent.Held = agent.Spent+n, agent.Held-n
			case 3:
				agent.Held -= upTo(agent.Held, "expired")
			case 4: // without a lease: that is known once it is told, by an account or a renewal
				n := upTo(20, "beyond")
				agent.Spent, agent.Beyond = agent.Spent+n, agent.Beyond+n
				said := agent
				account = &said
			case 5:
				agent.Number++
				said := agent
				said.Booked = said.Spent
				account = &said
			case 6:
				settled = max(settled, upTo(agent.Spent, "settled"))
			}
			if account != nil {
				account.Number, account.Booked = max(account.Number, 1), account.Spent
			}
		}
		f := Frontier{Epoch: Epoch{Agent: "a", Epoch: 1}, Seq: 1, State: StateLost}
		id := AccountID{Epoch: f.Epoch, Limit: "requests"}
		l := NewLoss(&f, []Reconciled{{ID: id, Recorded: r, Said: account}, {ID: id, Settled: settled}}, time.Now())
		if known := r.Granted > 0; l.Known != known {
			t.Errorf("what is missing is known: %v, want %v", l.Known, known)
		}
		if !l.Known {
			return
		}
		if missing := agent.Spent - settled; l.Most < missing {
			t.Errorf("%d units are missing, and at most %d may be: recorded %+v, said %+v, now %+v, settled %d", missing, l.Most, r, account, agent, settled)
		}
		if account == nil {
			return
		}
		if most := max(account.Spent-settled, 0) + account.Held + r.Granted - account.Granted; l.Most > max(most, agent.Told-settled) {
			t.Errorf("at most %d may be missing, and it cannot be more than %d: recorded %+v, said %+v, settled %d", l.Most, most, r, account, settled)
		}
	})
}
