package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Records is what is kept beside a ledger's usage, at one moment, as VerifyRecords reads it. Each function calls do for
// everything there is, in the stated order, and ends with do's error.
type Records interface {
	// Audit is in the order of numbers; AuditHead is the number of the last row that a change wrote.
	Audit(ctx context.Context, do func(*AuditRow) error) error
	AuditHead(ctx context.Context) (int64, error)
	// Versions are the numbers of policy versions, ascending.
	Versions(ctx context.Context, do func(number int64) error) error
	Keys(ctx context.Context, do func(id, hash string, revoked bool) error) error
	// Statements are in the order of tenants and numbers.
	Statements(ctx context.Context, do func(*KeptStatement) error) error
	// Credits are in the order of ids; Burns in that of credits and statements.
	Credits(ctx context.Context, do func(*KeptCredit) error) error
	Burns(ctx context.Context, do func(*KeptBurn) error) error
}

// KeptStatement is a closed statement as it is stored.
type KeptStatement struct {
	Tenant           string
	Number           int64
	Period           string
	From, To         int64 // Unix seconds
	Height           int64
	BlockHash        string
	Digest, Document string
	Forced           string
	Block            []byte // the hash of the ledger's block of that height; nil without one
}

// KeptCredit is a credit as it is stored.
type KeptCredit struct {
	ID, Tenant string
	Amount     int64
	Voided     bool
}

// KeptBurn is what a statement used of a credit.
type KeptBurn struct {
	Credit                      string
	Number                      int64 // of the statement
	Before, Paid, Lapsed, After int64
}

// records is a verification of them. It holds some hundred bytes for each statement, key, version and credit.
type records struct {
	*faults
	audited    map[string]bool // action and object of what has an entry in the audit log
	statements map[statementID]int64
	credits    map[string]*KeptCredit
	left       map[string]int64
}

type statementID struct {
	tenant string
	number int64
}

// faults are those found, the first MaxFaults.
type faults struct {
	all  []Fault
	more int64
}

func (f *faults) fault(table, which, format string, args ...any) {
	if len(f.all) == MaxFaults {
		f.more++
		return
	}
	f.all = append(f.all, Fault{table, clip(which), fmt.Sprintf(format, args...)})
}

// VerifyRecords checks what is kept beside usage:
//
//   - The audit log has no gap, and each row's chain follows from the row before and its own content.
//   - Policy versions are numbered without a gap.
//   - So are a tenant's statements, and their periods follow one another. Each one's digest is its document's,
//     the document says what the row says, and its block is the ledger's.
//   - Credits are burnt from what was left of them, as the statements say.
//   - Keys' hashes are hashes.
//
// Each statement, version, key and credit has its entry in the audit log. It returns the first faults, and how
// many others there are.
func VerifyRecords(ctx context.Context, r Records) ([]Fault, int64, error) {
	v := &records{faults: &faults{}, audited: make(map[string]bool), statements: make(map[statementID]int64), credits: make(map[string]*KeptCredit), left: make(map[string]int64)}
	for _, check := range []func(context.Context, Records) error{v.audit, v.versions, v.keys, v.stated, v.credited, v.burnt} {
		if err := check(ctx, r); err != nil {
			return nil, 0, err
		}
	}
	return v.all, v.more, nil
}

// entry names an entry of the audit log.
func entry(action string, object ...any) string { return action + "\n" + fmt.Sprint(object...) }

func (v *records) audit(ctx context.Context, r Records) error {
	head, err := r.AuditHead(ctx)
	if err != nil {
		return err
	}
	last := AuditRow{}
	err = r.Audit(ctx, func(a *AuditRow) error {
		which := fmt.Sprint(a.Number)
		if a.Number != last.Number+1 {
			v.fault("audit_log", which, "the one before it is %d: there is a gap", last.Number)
		}
		switch {
		case len(a.Chain) == 0 && len(last.Chain) > 0:
			v.fault("audit_log", which, "it has no chain, and the one before it has")
		case len(a.Chain) > 0 && !bytes.Equal(a.Chain, a.Next(last.Chain)):
			v.fault("audit_log", which, "its chain is not that of its content and of the row before")
		}
		switch last = *a; a.Action {
		case "statement.close":
			var after struct {
				Number int64  `json:"number"`
				Digest string `json:"digest"`
			}
			if err := json.Unmarshal([]byte(a.After), &after); err != nil {
				v.fault("audit_log", which, "what it says of a statement cannot be read: %v", err)
			}
			v.audited[entry(a.Action, a.Object, "\n", after.Number, "\n", after.Digest)] = true
		default:
			kind, _, _ := strings.Cut(a.Action, ".")
			if kind == "policy" || kind == "key" || kind == "credit" {
				v.audited[entry(a.Action, a.Object)], v.audited[entry(kind, a.Object)] = true, true
			}
		}
		return nil
	})
	if err == nil && last.Number != head {
		v.fault("audit_log", fmt.Sprint(last.Number), "it is the last, and %d were written", head)
	}
	return err
}

func (v *records) versions(ctx context.Context, r Records) error {
	last := int64(0)
	return r.Versions(ctx, func(number int64) error {
		if number != last+1 {
			v.fault("policy_versions", fmt.Sprint(number), "the one before it is %d: there is a gap", last)
		}
		if !v.audited[entry("policy", number)] {
			v.fault("policy_versions", fmt.Sprint(number), "the audit log has no entry of it")
		}
		last = number
		return nil
	})
}

func (v *records) keys(ctx context.Context, r Records) error {
	return r.Keys(ctx, func(id, hash string, revoked bool) error {
		if b, err := hex.DecodeString(hash); err != nil || len(b) != sha256.Size {
			v.fault("access_keys", id, "its hash is not one")
		}
		was := v.audited[entry("key.revoke", id)]
		switch {
		case !v.audited[entry("key", id)]:
			v.fault("access_keys", id, "the audit log has no entry of it")
		case was && !revoked:
			v.fault("access_keys", id, "it is good, and was revoked by the audit log")
		case revoked && !was:
			v.fault("access_keys", id, "it is revoked, and the audit log has no entry of that")
		}
		return nil
	})
}

func (v *records) stated(ctx context.Context, r Records) error {
	var last KeptStatement
	return r.Statements(ctx, func(s *KeptStatement) error {
		which := fmt.Sprintf("%s/%d", s.Tenant, s.Number)
		if s.Tenant != last.Tenant {
			last = KeptStatement{}
		}
		switch {
		case s.Number != last.Number+1:
			v.fault("statements", which, "the one before it is %d: there is a gap", last.Number)
		case last.Number > 0 && s.From != last.To:
			v.fault("statements", which, "it begins at %s, and the one before it ends at %s", stamp(s.From), stamp(last.To))
		case s.Height < last.Height:
			v.fault("statements", which, "it was made at block %d, and the one before it at %d", s.Height, last.Height)
		}
		switch has := hex.EncodeToString(s.Block); {
		case s.Height > 0 && s.Block == nil:
			v.fault("statements", which, "it was made at block %d, and there is none of that height", s.Height)
		case s.Height > 0 && has != s.BlockHash:
			v.fault("statements", which, "it was made at block %d with the hash %s, which has the hash %s", s.Height, clip(s.BlockHash), has)
		}
		v.document(which, s)
		if !v.audited[entry("statement.close", s.Tenant, "\n", s.Number, "\n", s.Digest)] {
			v.fault("statements", which, "the audit log has no entry of it with that digest")
		}
		last = *s
		last.Document = ""
		return nil
	})
}

// document checks a statement's document against its digest and the rest of the row. It notes which credits it
// pays.
func (v *records) document(which string, s *KeptStatement) {
	if sum := sha256.Sum256([]byte(s.Document)); hex.EncodeToString(sum[:]) != s.Digest {
		v.fault("statements", which, "its digest does not fit its document")
		return
	}
	var d struct {
		Tenant string `json:"tenant"`
		Period struct {
			Name string `json:"name"`
		} `json:"period"`
		Block struct {
			Height int64  `json:"height"`
			Hash   string `json:"hash"`
		} `json:"block"`
		Credits []struct {
			Paid int64 `json:"paid"`
		} `json:"credits"`
		Quarantined *struct{} `json:"quarantined"`
	}
	if err := json.Unmarshal([]byte(s.Document), &d); err != nil {
		v.fault("statements", which, "its document cannot be read: %v", err)
		return
	}
	if d.Tenant != s.Tenant || d.Period.Name != s.Period || d.Block.Height != s.Height || d.Block.Hash != s.BlockHash {
		v.fault("statements", which, "its document is of tenant %s, %s, at block %d, %s", clip(d.Tenant), clip(d.Period.Name), d.Block.Height, clip(d.Block.Hash))
	}
	if d.Quarantined != nil && s.Forced == "" {
		v.fault("statements", which, "usage was in quarantine, and nobody said why it is closed all the same")
	}
	paid := int64(0)
	for _, c := range d.Credits {
		paid += c.Paid
	}
	v.statements[statementID{s.Tenant, s.Number}] = paid
}

func (v *records) credited(ctx context.Context, r Records) error {
	return r.Credits(ctx, func(c *KeptCredit) error {
		if !v.audited[entry("credit", c.ID)] {
			v.fault("credits", c.ID, "the audit log has no entry of it")
		}
		if c.Voided && !v.audited[entry("credit.void", c.ID)] {
			v.fault("credit_voids", c.ID, "the audit log has no entry of it")
		}
		kept := *c
		v.credits[c.ID], v.left[c.ID] = &kept, c.Amount
		return nil
	})
}

func (v *records) burnt(ctx context.Context, r Records) error {
	err := r.Burns(ctx, func(b *KeptBurn) error {
		which := fmt.Sprintf("%s of statement %d", b.Credit, b.Number)
		c := v.credits[b.Credit]
		if c == nil {
			v.fault("credit_burns", which, "there is no such credit")
			return nil
		}
		if left := v.left[b.Credit]; b.Before != left {
			v.fault("credit_burns", which, "%d were left by then, and it was made of %d", left, b.Before)
		}
		if b.Before != b.Paid+b.Lapsed+b.After || b.Paid < 0 || b.Lapsed < 0 || b.After < 0 {
			v.fault("credit_burns", which, "of %d, %d paid, %d lapsed and %d are left: that does not add up", b.Before, b.Paid, b.Lapsed, b.After)
		}
		v.left[b.Credit] = b.After
		id := statementID{c.Tenant, b.Number}
		if _, ok := v.statements[id]; !ok {
			v.fault("credit_burns", which, "tenant %s has no such statement, or none that can be read", c.Tenant)
			return nil
		}
		v.statements[id] -= b.Paid
		return nil
	})
	for id, paid := range v.statements {
		if paid != 0 {
			v.fault("statements", fmt.Sprintf("%s/%d", id.tenant, id.number), "credits pay %d more by its document than were burnt", paid)
		}
	}
	return err
}
