package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of names. Longer or unprintable ones put their row into quarantine.
const (
	MaxAgent      = 128   // bytes of an agent id
	MaxTenant     = 128   // bytes of a tenant id
	MaxName       = 64    // bytes of a limit's, meter's or plan's name
	MaxAttributes = 2_600 // bytes of Row.Attributes: 8 pairs of 64 and 256
	// MaxTotal bounds what one epoch may admit: every value stays below 2^53.
	MaxTotal = 1<<53 - 1
)

// ErrReport means that a report breaks a stated bound or contradicts itself.
var ErrReport = errors.New("ledger: bad report")

// NewReport freezes a report: encodes the rows, adds their admitted units to
// before, and seals it with its digest. No rows make a heartbeat. Through is in
// Unix milliseconds. The caller keeps rows within Split's bounds.
func NewReport(agent string, epoch, seq, before int64, rows []Row, through int64, closed bool) Report {
	after := before
	for i := range rows {
		after += rows[i].Admitted
	}
	r := Report{
		Agent: agent, Epoch: epoch, Seq: seq, Before: before, After: after,
		Payload: EncodeRows(rows), Through: through, Closed: closed,
	}
	r.Digest = r.Sum()
	return r
}

// Sum returns the SHA-256 over all fields up to Closed but the digest, in a fixed encoding.
func (r *Report) Sum() [32]byte {
	head := make([]byte, 0, 64+len(r.Agent))
	head = append(head, "quota.report.1\n"...)
	head = binary.AppendUvarint(head, uint64(len(r.Agent)))
	head = append(head, r.Agent...)
	for _, v := range [...]int64{r.Epoch, r.Seq, r.Before, r.After, r.Through} {
		head = binary.BigEndian.AppendUint64(head, uint64(v))
	}
	if r.Closed {
		head = append(head, 1)
	} else {
		head = append(head, 0)
	}
	head = binary.AppendUvarint(head, uint64(len(r.Payload)))
	h := sha256.New()
	h.Write(head)
	h.Write(r.Payload)
	return [32]byte(h.Sum(nil))
}

// Check returns nil when the report is within its bounds, its digest is right and
// its rows' admitted units are what moves Before to After. Errors wrap ErrReport.
func (r *Report) Check() error {
	_, _, err := r.check()
	return err
}

// check is Check, and returns the rows that it had to decode, and their strings.
func (r *Report) check() ([]string, []codedRow, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrReport}, args...)...)
	}
	switch {
	case !validAgent(r.Agent):
		return nil, nil, bad("agent id must be 1 to %d bytes of [A-Za-z0-9._:-]", MaxAgent)
	case r.Epoch < 0:
		return nil, nil, bad("epoch %d is negative", r.Epoch)
	case r.Seq < 1:
		return nil, nil, bad("seq %d, they count from 1", r.Seq)
	case r.Before < 0 || r.After < r.Before || r.After > MaxTotal:
		return nil, nil, bad("totals %d to %d", r.Before, r.After)
	case r.Seq == 1 && r.Before != 0:
		return nil, nil, bad("the first report begins at %d, want 0", r.Before)
	case r.Through < 0 || r.Through > maxSlot*1000:
		return nil, nil, bad("through %d ms is out of range", r.Through)
	case r.Origin != (Origin{}) && (r.Seq != 1 || r.Origin.Epoch < 1 || r.Origin.Epoch >= r.Epoch || r.Origin.Total < 0 || r.Origin.Total > MaxTotal):
		return nil, nil, bad("report %d goes on from unit %d of epoch %d", r.Seq, r.Origin.Total, r.Origin.Epoch)
	case r.Sum() != r.Digest:
		return nil, nil, bad("digest does not fit the content")
	}
	table, rows, err := decodeCoded(r.Payload)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrReport, err)
	}
	var admitted int64
	for i := range rows {
		admitted += rows[i].admitted
	}
	if admitted != r.After-r.Before {
		return nil, nil, bad("rows admit %d units, totals move by %d", admitted, r.After-r.Before)
	}
	return table, rows, nil
}

// validAgent holds for 1 to MaxAgent bytes of [A-Za-z0-9._:-].
func validAgent(id string) bool {
	if id == "" || len(id) > MaxAgent {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._:-", c) >= 0) {
			return false
		}
	}
	return true
}

// checkNames returns why a row's names cannot be kept as text, or nil.
func (r *Row) checkNames() error {
	for _, f := range [...]struct {
		what, s string
		max     int
	}{{"tenant", r.Tenant, MaxTenant}, {"limit", r.Limit, MaxName}, {"meter", r.Meter, MaxName}, {"plan", r.Plan, MaxName}, {"attributes", r.Attributes, MaxAttributes}} {
		if err := checkText(f.what, f.s, f.max); err != nil {
			return err
		}
	}
	switch {
	case r.Tenant == "":
		return errors.New("no tenant is named")
	case r.Limit == "":
		return errors.New("no limit is named")
	}
	return nil
}

func checkText(what, s string, max int) error {
	switch {
	case len(s) > max:
		return fmt.Errorf("%s of %d bytes, at most %d", what, len(s), max)
	case !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%s is not text", what)
	}
	return nil
}
