package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const usPerMs = 1000

// RenewalToProto leaves out what only the caller knows: the limit, the tenant and
// the values that make the bucket's key.
func RenewalToProto(r lease.Renewal) *quotav1.Renewal {
	p := new(quotav1.Renewal)
	WriteRenewal(p, &r)
	return p
}

// WriteRenewal is RenewalToProto to a new message p of the caller's, which may be one of many in one piece of memory.
func WriteRenewal(p *quotav1.Renewal, r *lease.Renewal) {
	p.Number, p.Began, p.Admitted, p.Denied, p.Told = r.Number, r.Began, r.Admitted, r.Denied, r.Told
	p.Held, p.Waiting, p.Largest, p.Reserved, p.InUse, p.Final, p.Alone = r.Held, r.Waiting, r.Largest, r.Reserved, r.InUse, r.Final, r.Alone
	p.WindowStartMs, p.TrickleMicrosPerS, p.ExpiresInMs, p.Generation = r.Window/usPerMs, r.Trickle, floor(r.ExpiresIn), r.Generation
	p.ElapsedUs, p.Void, p.VoidAgoUs, p.WithinUs, p.FractionMicros, p.Heard = r.Elapsed, r.Void, r.VoidAgo, r.Within, r.Fraction, r.Heard
}

// RenewalFromProto leaves Key, Spec, Holder and Now to the caller. Bounds are
// checked by CheckRenewal.
func RenewalFromProto(p *quotav1.Renewal) lease.Renewal {
	return lease.Renewal{
		Number: p.GetNumber(), Began: p.GetBegan(), Admitted: p.GetAdmitted(), Denied: p.GetDenied(), Told: p.GetTold(),
		Held: p.GetHeld(), Waiting: p.GetWaiting(), Largest: p.GetLargest(), Reserved: p.GetReserved(), InUse: p.GetInUse(), Final: p.GetFinal(), Alone: p.GetAlone(),
		Window: p.GetWindowStartMs() * usPerMs, Trickle: p.GetTrickleMicrosPerS(), ExpiresIn: p.GetExpiresInMs() * usPerMs, Generation: p.GetGeneration(),
		Elapsed: p.GetElapsedUs(), Void: p.GetVoid(), VoidAgo: p.GetVoidAgoUs(), Within: p.GetWithinUs(), Fraction: p.GetFractionMicros(), Heard: p.GetHeard(),
	}
}

// GrantToProto is WriteGrant to a new message.
func GrantToProto(a lease.Answer, version int64) *quotav1.Grant {
	out := new(quotav1.Grant)
	WriteGrant(out, a, version)
	return out
}

// WriteGrant writes an answer over out; version is the policy version that the limit was
// read from. An error that is none of the lease package's means unavailable.
func WriteGrant(out *quotav1.Grant, a lease.Answer, version int64) {
	g := &a.Grant
	if a.Err != nil {
		*out = quotav1.Grant{Status: quotav1.Grant_STATUS_UNAVAILABLE, Number: g.Number, PolicyVersion: version}
		switch {
		case errors.Is(a.Err, lease.ErrInvalid):
			out.Status, out.Reason = quotav1.Grant_STATUS_UNKNOWN, reason(a.Err)
		case errors.Is(a.Err, lease.ErrUnknown):
			out.Status = quotav1.Grant_STATUS_UNKNOWN
		case errors.Is(a.Err, lease.ErrStale):
			out.Status = quotav1.Grant_STATUS_STALE
		}
		return
	}
	*out = quotav1.Grant{
		Status: quotav1.Grant_STATUS_GRANTED, Number: g.Number, Tokens: g.Tokens, TrickleMicrosPerS: g.Trickle, Pile: g.Pile,
		TtlMs: floor(g.TTL), DenyForMs: ceil(g.DenyFor), UnitInMs: ceil(g.UnitIn), FallbackMicrosPerS: g.Fallback,
		ValidFromMs: g.ValidFrom / usPerMs, ValidUntilMs: g.ValidUntil / usPerMs,
		Generation: g.Generation, PolicyVersion: version,
		Remaining: g.Remaining, ResetMs: ceil(g.Reset), NextTokens: g.Next,
	}
}

// RefusedToProto answers a renewal, which may be nil, that breaks a bound: err says which.
func RefusedToProto(r *quotav1.Renewal, err error, version int64) *quotav1.Grant {
	return &quotav1.Grant{Status: quotav1.Grant_STATUS_UNKNOWN, Number: r.GetNumber(), PolicyVersion: version, Reason: reason(err)}
}

// reason is what an error says, no longer than a Grant has room for.
func reason(err error) string {
	s := err.Error()
	if len(s) <= MaxReason {
		return s
	}
	return strings.ToValidUTF8(s[:MaxReason], "")
}

// GrantFromProto reads an answer and checks its bounds. Answer.Err is lease.ErrUnknown,
// lease.ErrStale or lease.ErrUnavailable where nothing was granted. It wraps
// lease.ErrInvalid where the message breaks a bound, and beside lease.ErrUnknown where the renewal did: it says which.
func GrantFromProto(p *quotav1.Grant) lease.Answer {
	a := lease.Answer{Grant: lease.Grant{Number: p.GetNumber()}}
	switch p.GetStatus() {
	case quotav1.Grant_STATUS_GRANTED:
	case quotav1.Grant_STATUS_UNKNOWN:
		a.Err = lease.ErrUnknown
		if p.Reason != "" {
			a.Err = fmt.Errorf("%w: %w: %s", lease.ErrUnknown, lease.ErrInvalid, p.Reason)
		}
		return a
	case quotav1.Grant_STATUS_STALE:
		a.Err = lease.ErrStale
		return a
	default:
		a.Err = lease.ErrUnavailable
		return a
	}
	if err := checkGrant(p); err != nil {
		a.Err = fmt.Errorf("%w: %w", lease.ErrInvalid, err)
		return a
	}
	a.Grant = lease.Grant{
		Number: p.Number, Tokens: p.Tokens, Trickle: p.TrickleMicrosPerS, Pile: p.Pile,
		TTL: p.TtlMs * usPerMs, DenyFor: p.DenyForMs * usPerMs, UnitIn: p.UnitInMs * usPerMs, Fallback: p.FallbackMicrosPerS,
		ValidFrom: p.ValidFromMs * usPerMs, ValidUntil: p.ValidUntilMs * usPerMs,
		Generation: p.Generation, Remaining: p.Remaining, Reset: p.ResetMs * usPerMs, Next: p.NextTokens,
	}
	return a
}

func floor(us int64) int64 { return us / usPerMs }

func ceil(us int64) int64 {
	if us <= 0 {
		return 0
	}
	return (us + usPerMs - 1) / usPerMs
}

// AccountsFromProto returns what an agent says of its leases; none where it breaks a
// bound, for usage settles all the same.
func AccountsFromProto(p *quotav1.LeaseAccounts) map[ledger.AccountID]ledger.Said {
	if p == nil || AgentID(p.Agent) != nil || p.Epoch < 0 || p.Number < 1 || len(p.Limits) > MaxAccounts {
		return nil
	}
	said := make(map[ledger.AccountID]ledger.Said, len(p.Limits))
	for _, l := range p.Limits {
		s := ledger.Said{
			Number: p.Number, Granted: l.GetGranted(), Unrun: l.GetUnrun(), Returned: l.GetReturned(), Told: l.GetTold(), Spent: l.GetSpent(),
			Beyond: l.GetBeyond(), Held: l.GetHeld(), Booked: l.GetBooked(),
		}
		for _, n := range [...]int64{s.Granted, s.Unrun, s.Returned, s.Told, s.Spent, s.Beyond, s.Held, s.Booked} {
			if n < 0 || n > maxCount {
				return nil
			}
		}
		if name("limit", l.GetLimit()) != nil {
			return nil
		}
		said[ledger.AccountID{Epoch: ledger.Epoch{Agent: p.Agent, Epoch: p.Epoch}, Limit: l.Limit}] = s
	}
	return said
}

// ReportToProto shares r's payload.
func ReportToProto(r ledger.Report) *quotav1.Report {
	return &quotav1.Report{
		Agent: r.Agent, Epoch: r.Epoch, Seq: r.Seq, TotalBefore: r.Before, TotalAfter: r.After,
		Payload: r.Payload, Digest: r.Digest[:], ThroughMs: r.Through, Closed: r.Closed,
		OriginEpoch: r.Origin.Epoch, OriginTotal: r.Origin.Total, Unsealed: r.Unsealed,
	}
}

// ReportFromProto shares p's payload. The ledger judges a report's content, so that a bad report is answered
// and kept without its neighbours. Only a digest of the wrong length cannot be a report at all. Errors wrap
// fault.ErrInvalid.
func ReportFromProto(p *quotav1.Report) (ledger.Report, error) {
	if len(p.GetDigest()) != len(ledger.Report{}.Digest) {
		return ledger.Report{}, fmt.Errorf("%w: digest has %d bytes; it must have %d", fault.ErrInvalid, len(p.GetDigest()), len(ledger.Report{}.Digest))
	}
	return ledger.Report{
		Agent: p.Agent, Epoch: p.Epoch, Seq: p.Seq, Before: p.TotalBefore, After: p.TotalAfter,
		Payload: p.Payload, Digest: [32]byte(p.Digest), Through: p.ThroughMs, Closed: p.Closed,
		Origin: ledger.Origin{Epoch: p.OriginEpoch, Total: p.OriginTotal}, Unsealed: p.Unsealed,
	}, nil
}

// FrontierToProto writes how far an epoch is.
func FrontierToProto(f ledger.Frontier) *quotav1.Frontier {
	p := &quotav1.Frontier{Epoch: f.Epoch.Epoch, Seq: f.Seq, Total: f.Total}
	if f.Seq > 0 {
		p.Digest = f.Digest[:]
	}
	return p
}

// FrontierFromProto reads how far an agent's epoch is: its epoch, seq, total and digest.
func FrontierFromProto(agent string, p *quotav1.Frontier) ledger.Frontier {
	f := ledger.Frontier{Epoch: ledger.Epoch{Agent: agent, Epoch: p.GetEpoch()}, Seq: p.GetSeq(), Total: p.GetTotal()}
	copy(f.Digest[:], p.GetDigest())
	return f
}

// ReceiptToProto writes a receipt.
func ReceiptToProto(r ledger.Receipt) *quotav1.Receipt {
	return &quotav1.Receipt{Status: quotav1.Receipt_Status(r.Status), NextSeq: r.NextSeq, Total: r.Total, Message: r.Message}
}

// ReceiptFromProto reads a receipt; a status that is not known, of a newer server,
// is Unavailable: the report is kept and sent again.
func ReceiptFromProto(p *quotav1.Receipt) ledger.Receipt {
	s := ledger.Status(p.GetStatus())
	if p.GetStatus() < quotav1.Receipt_STATUS_SETTLED || p.GetStatus() > quotav1.Receipt_STATUS_REJECTED {
		s = ledger.Unavailable
	}
	return ledger.Receipt{Status: s, NextSeq: p.GetNextSeq(), Total: p.GetTotal(), Message: p.GetMessage()}
}
