package ledger

import (
	"slices"
	"testing"
)

// An agent chooses what it tells: sums of it end at MaxSum, and do not come round.
func TestRecordedEndsAtMaxSum(t *testing.T) {
	r := Recorded{Granted: MaxSum - 1, Unrun: 1, Returned: MaxSum, Spent: -MaxSum}
	r.Add(Recorded{Granted: 2, Unrun: 1, Returned: MaxSum, Spent: -5})
	if want := (Recorded{Granted: MaxSum, Unrun: 2, Returned: MaxSum, Spent: -MaxSum}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

// Every difference between the two sides has a name that says what it came of.
func TestDifferences(t *testing.T) {
	agrees := Said{Number: 1, Granted: 100, Unrun: 10, Returned: 20, Told: 55, Spent: 55, Held: 5, Booked: 55}
	with := func(change func(*Said)) *Said {
		s := agrees
		change(&s)
		return &s
	}
	recorded := Recorded{Granted: 100, Unrun: 10, Returned: 20, Spent: 55}
	for _, c := range []struct {
		name     string
		state    string
		recorded Recorded
		said     *Said
		settled  int64
		want     []Difference
	}{
		{"all agrees", StateClosed, recorded, &agrees, 55, nil},
		{"an answer did not arrive", StateClosed, Recorded{130, 10, 40, 60}, &agrees, 55,
			[]Difference{{LostReply, "granted", 30}, {LostReply, "returned", 20}, {LostReply, "spent", 5}}},
		{"it is still under way", StateOpen, Recorded{130, 10, 20, 60}, &agrees, 55,
			[]Difference{{InFlight, "granted", 30}, {InFlight, "spent", 5}}},
		{"a server died before it wrote", StateClosed, Recorded{40, 0, 5, 30}, &agrees, 55,
			[]Difference{{RecordLost, "granted", -60}, {RecordLost, "unrun", -10}, {RecordLost, "returned", -15}, {RecordLost, "spent", -25}}},
		{"an agent died", StateLost, Recorded{130, 10, 20, 60}, &agrees, 50,
			[]Difference{{AgentGone, "granted", 30}, {AgentGone, "spent", 5}, {AgentGone, "settled", 5}}},
		{"an agent died, and its next start settled the rest", StateClosed, Recorded{130, 10, 20, 60}, &agrees, 60,
			[]Difference{{AgentGone, "granted", 30}, {AgentGone, "spent", 5}, {BroughtIn, "settled", -5}}},
		{"an agent that said nothing", StateLost, Recorded{Granted: 9, Spent: 4}, nil, 3,
			[]Difference{{AgentGone, "granted", 9}, {AgentGone, "spent", 4}}},
		{"one that told of more than it had, and said nothing", StateOpen, Recorded{Granted: 9, Unrun: 1, Returned: 2, Spent: 40}, nil, 3,
			[]Difference{{InFlight, "granted", 9}, {InFlight, "unrun", 1}, {InFlight, "returned", 2}, {InFlight, "spent", 40}, {Beyond, "spent", 34}}},
		{"out of contact", StateClosed, recorded, with(func(s *Said) { s.Spent, s.Beyond, s.Booked = 62, 7, 62 }), 62,
			[]Difference{{Untold, "spent", 7}, {Beyond, "spent", 7}}},
		{"to be settled", StateOpen, recorded, &agrees, 50, []Difference{{Unsettled, "settled", 5}}},
		{"closed and not settled", StateClosed, recorded, &agrees, 50, []Difference{{Missing, "settled", 5}}},
		{"settled later", StateClosed, recorded, &agrees, 56, []Difference{{BroughtIn, "settled", -1}}},
		{"more than it had", StateClosed, recorded, with(func(s *Said) { s.Held = 18 }), 55, []Difference{{Unbalanced, "granted", 3}}},
	} {
		r := Reconciled{State: c.state, Recorded: c.recorded, Said: c.said, Settled: c.settled}
		if got := r.Differences(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := agrees.Expired(); got != 10 {
		t.Errorf("expired: got %d, want 10", got)
	}
}
