package archive

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Format is the number of the files' format.
const Format = 1

// Header is the first line of a file.
type Header struct {
	Format int    `json:"quota_archive"`
	Fact   string `json:"fact"`   // ledger.FactReports or ledger.FactEntries
	Month  string `json:"month"`  // such as 2025-10
	Ledger string `json:"ledger"` // which ledger it is of: the hash of its first block, in hexadecimal
}

// NewHeader is the header of a file of that month.
func NewHeader(fact string, month time.Time, of string) Header {
	return Header{Format: Format, Fact: fact, Month: month.UTC().Format("2006-01"), Ledger: of}
}

// Name is what the file is called.
func (h Header) Name() string { return h.Fact + "-" + h.Month + ".jsonl.gz" }

// Report is a line of reports. Those of a file are in the order of agent, epoch and seq.
type Report struct {
	Agent   string `json:"agent"`
	Epoch   int64  `json:"epoch"`
	Seq     int64  `json:"seq"`
	Before  int64  `json:"total_before"`
	After   int64  `json:"total_after"`
	Through int64  `json:"through_ms"`
	Closed  bool   `json:"closed"`
	Rows    int    `json:"rows"`
	Digest  []byte `json:"digest"`
	Payload []byte `json:"payload"` // rows in the ledger's encoding
	Held    []byte `json:"held"`    // which rows are in quarantine
	Stored  int64  `json:"stored_ms"`
}

// NewReport is the line of a report.
func NewReport(k *ledger.KeptReport) *Report {
	r := &k.Report
	return &Report{
		Agent: r.Agent, Epoch: r.Epoch, Seq: r.Seq, Before: r.Before, After: r.After, Through: r.Through, Closed: r.Closed,
		Rows: k.Rows, Digest: r.Digest[:], Payload: r.Payload, Held: k.Held, Stored: k.Stored,
	}
}

// Kept is the report of the line.
func (l *Report) Kept() *ledger.KeptReport {
	k := &ledger.KeptReport{Rows: l.Rows, Held: l.Held, Stored: l.Stored, Report: ledger.Report{
		Agent: l.Agent, Epoch: l.Epoch, Seq: l.Seq, Before: l.Before, After: l.After, Through: l.Through, Closed: l.Closed, Payload: l.Payload,
	}}
	copy(k.Report.Digest[:], l.Digest)
	return k
}

// Entry is a line of entries. Those of a file are in the order of height and n.
type Entry struct {
	Height     int64  `json:"height"`
	N          int    `json:"n"`
	Slot       int64  `json:"slot"` // Unix seconds
	Tenant     string `json:"tenant"`
	Limit      string `json:"limit"`
	Meter      string `json:"meter"`
	Version    int64  `json:"version"`
	Plan       string `json:"plan,omitempty"`
	Attributes string `json:"attributes"`
	Admitted   int64  `json:"admitted"`
	Overage    int64  `json:"overage"`
	Denied     int64  `json:"denied"`
	Correction int64  `json:"correction"` // that it is of; 0 for reports
}

// Row is what the entry says.
func (e *Entry) Row() ledger.Row {
	return ledger.Row{
		Slot: e.Slot, Tenant: e.Tenant, Limit: e.Limit, Meter: e.Meter, Version: e.Version, Plan: e.Plan, Attributes: e.Attributes,
		Admitted: e.Admitted, Overage: e.Overage, Denied: e.Denied,
	}
}
