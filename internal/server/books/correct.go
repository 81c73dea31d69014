package books

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Adjust adds units or takes them away.
func (s *Service) Adjust(ctx context.Context, req *quotav1.AdjustRequest) (*quotav1.AdjustResponse, error) {
	row := ledger.Row{
		Tenant: req.Tenant, Limit: req.Limit, Meter: req.Meter, Attributes: strings.Join(req.Attributes, ledger.AttributeSep),
		Version: req.PolicyVersion, Plan: req.Plan, Slot: time.UnixMilli(req.AtMs).Truncate(ledger.DefaultSlot).Unix(),
	}
	entry := ledger.EntryID{Height: req.EntryHeight, N: int(req.EntryN)}
	there, err := s.sentBefore(ctx, req.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	switch {
	case entry.Height > 0 && len(there.rows) == 1 && there.entry == entry:
		row = there.rows[0].Key()
	case entry.Height > 0:
		t, err := s.books.TraceEntry(ctx, entry)
		if err != nil {
			return nil, rpc.LedgerError(err)
		}
		row = t.Row.Key()
		if _, err := billedBy(ctx, s.policy, row.Version); err != nil && !errors.Is(err, policystore.ErrNotFound) {
			return nil, err
		}
	default:
		rows := []ledger.Row{row}
		if !there.complete(rows) {
			if err := s.bring(ctx, rows); err != nil {
				return nil, err
			}
		}
		row = rows[0]
	}
	negative := req.Units < 0
	row.Admitted, row.Overage = req.Units, req.Overage
	if negative {
		row.Admitted, row.Overage = -row.Admitted, -row.Overage
	}
	if row.Overage < 0 || row.Overage > row.Admitted {
		return nil, fmt.Errorf("%w: overage is %d; it has the sign of units, %d, and is at most those", fault.ErrInvalid, req.Overage, req.Units)
	}
	c, err := ledger.NewCorrection(ledger.KindAdjust, req.IdempotencyKey, negative, []ledger.Row{row}, req.Reason)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	c.Entry = entry
	out, err := s.correct(ctx, c)
	return &quotav1.AdjustResponse{Correction: out}, err
}

// Backfill adds usage that no agent reported.
func (s *Service) Backfill(ctx context.Context, req *quotav1.BackfillRequest) (*quotav1.BackfillResponse, error) {
	rows := make([]ledger.Row, len(req.Rows))
	for i, r := range req.Rows {
		rows[i] = ledger.Row{
			Slot: time.UnixMilli(r.SlotMs).Truncate(ledger.DefaultSlot).Unix(), Tenant: r.Tenant, Limit: r.Limit, Meter: r.Meter, Version: r.PolicyVersion, Plan: r.Plan,
			Attributes: strings.Join(r.Attributes, ledger.AttributeSep), Admitted: r.Admitted, Overage: r.Overage, Denied: r.Denied,
		}
	}
	there, err := s.sentBefore(ctx, req.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	if !there.complete(rows) {
		if err := s.bring(ctx, rows); err != nil {
			return nil, err
		}
	}
	c, err := ledger.NewCorrection(ledger.KindBackfill, req.IdempotencyKey, false, rows, req.Reason)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	out, err := s.correct(ctx, c)
	return &quotav1.BackfillResponse{Correction: out}, err
}

func (s *Service) correct(ctx context.Context, c ledger.Correction) (*quotav1.Correction, error) {
	if s.judge != nil {
		if rows, err := ledger.DecodeRows(c.Payload); err == nil {
			_ = s.judge.Learn(ctx, authn.PrincipalOf(ctx).Name, operators, rows) // what it does not find out the ledger says
		}
	}
	done, err := s.books.Correct(ctx, authn.PrincipalOf(ctx).Name, c)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	return s.correction(ctx, done.Number)
}

// RevertCorrection takes a correction back.
func (s *Service) RevertCorrection(ctx context.Context, req *quotav1.RevertCorrectionRequest) (*quotav1.RevertCorrectionResponse, error) {
	done, err := s.books.Revert(ctx, authn.PrincipalOf(ctx).Name, req.Reason, req.Number)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	out, err := s.correction(ctx, done.Number)
	return &quotav1.RevertCorrectionResponse{Correction: out}, err
}

// GetCorrection returns a correction with its rows.
func (s *Service) GetCorrection(ctx context.Context, req *quotav1.GetCorrectionRequest) (*quotav1.GetCorrectionResponse, error) {
	out, err := s.correction(ctx, req.Number)
	return &quotav1.GetCorrectionResponse{Correction: out}, err
}

func (s *Service) correction(ctx context.Context, number int64) (*quotav1.Correction, error) {
	k, err := s.books.Correction(ctx, number)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	return correctionProto(&k, true)
}

// ListCorrections returns corrections without their rows, newest first.
func (s *Service) ListCorrections(ctx context.Context, req *quotav1.ListCorrectionsRequest) (*quotav1.ListCorrectionsResponse, error) {
	n := rpc.Page(req.PageSize)
	found, err := s.books.Corrections(ctx, wire.PageNumber(req.PageToken), n)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.ListCorrectionsResponse{}
	for i := range found {
		c, err := correctionProto(&found[i], false)
		if err != nil {
			return nil, err
		}
		resp.Corrections = append(resp.Corrections, c)
	}
	if len(found) == n {
		resp.NextPageToken = wire.PageToken(found[n-1].Number)
	}
	return resp, nil
}

func correctionProto(k *ledger.KeptCorrection, whole bool) (*quotav1.Correction, error) {
	entries, err := k.Entries()
	if err != nil {
		return nil, err
	}
	c := &quotav1.Correction{
		Number: k.Number, IdempotencyKey: k.Key, Kind: k.Kind, Reverts: k.Reverts, RevertedBy: k.RevertedBy, EntryHeight: k.Entry.Height,
		EntryN: int32(k.Entry.N), Reason: k.Reason, Actor: k.Actor, AtMs: k.At, Height: k.Height, RowCount: int32(k.Rows),
	}
	for i := range entries {
		c.Admitted += entries[i].Admitted
		c.Overage += entries[i].Overage
		c.Denied += entries[i].Denied
		if whole {
			c.Rows = append(c.Rows, rowProto(&entries[i]))
		}
	}
	return c, nil
}

func rowProto(r *ledger.Row) *quotav1.LedgerRow {
	p := &quotav1.LedgerRow{
		SlotMs: r.Slot * 1000, Tenant: r.Tenant, Limit: r.Limit, Meter: r.Meter, PolicyVersion: r.Version, Plan: r.Plan,
		Admitted: r.Admitted, Overage: r.Overage, Denied: r.Denied,
	}
	if r.Attributes != "" {
		p.Attributes = strings.Split(r.Attributes, ledger.AttributeSep)
	}
	return p
}

// ListQuarantine pages through what could not become entries.
func (s *Service) ListQuarantine(ctx context.Context, req *quotav1.ListQuarantineRequest) (*quotav1.ListQuarantineResponse, error) {
	n := rpc.Page(req.PageSize)
	found, err := s.books.Quarantine(ctx, ledger.QuarantineQuery{After: wire.PageNumber(req.PageToken), N: n, Agent: req.Agent, All: req.All})
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.ListQuarantineResponse{}
	for i := range found {
		resp.Rows = append(resp.Rows, quarantinedProto(&found[i], false))
	}
	if len(found) > 0 && ledger.More(found, n) {
		resp.NextPageToken = wire.PageToken(found[len(found)-1].ID)
	}
	return resp, nil
}

// GetQuarantined is one of them.
func (s *Service) GetQuarantined(ctx context.Context, req *quotav1.GetQuarantinedRequest) (*quotav1.GetQuarantinedResponse, error) {
	k, err := s.books.Kept(ctx, req.Id)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	return &quotav1.GetQuarantinedResponse{Row: quarantinedProto(&k, true)}, nil
}

func quarantinedProto(k *ledger.KeptRow, whole bool) *quotav1.Quarantined {
	p := &quotav1.Quarantined{
		Id: k.ID, Agent: k.Of.Epoch.Agent, Epoch: k.Of.Epoch.Epoch, Seq: k.Of.Seq, RowNumber: int32(k.Row),
		Reason: rpc.Text(k.Reason), StoredMs: rpc.Millis(k.Stored),
	}
	if r := k.Resolution; r != nil {
		p.Resolution = &quotav1.Resolution{Correction: r.Correction, Reason: r.Reason, Actor: r.Actor, AtMs: rpc.Millis(r.At)}
	}
	if k.Row < 0 {
		if whole {
			p.Body = k.Body
		}
		return p
	}
	if rows, err := ledger.DecodeRows(k.Body); err == nil && len(rows) == 1 {
		// A rejected row may hold bytes that are no text, which gRPC does not carry.
		r := &rows[0]
		r.Tenant, r.Limit, r.Meter, r.Plan, r.Attributes = rpc.Text(r.Tenant), rpc.Text(r.Limit), rpc.Text(r.Meter), rpc.Text(r.Plan), rpc.Text(r.Attributes)
		p.Row = rowProto(r)
	}
	return p
}

// RetryQuarantined judges rows again.
func (s *Service) RetryQuarantined(ctx context.Context, req *quotav1.RetryQuarantinedRequest) (*quotav1.RetryQuarantinedResponse, error) {
	s.learnKept(ctx, req.Ids)
	done, err := s.books.Retry(ctx, authn.PrincipalOf(ctx).Name, req.Reason, req.Ids)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.RetryQuarantinedResponse{Correction: done.Correction, Released: done.Released}
	for _, r := range done.Refused {
		resp.Refused = append(resp.Refused, &quotav1.RefusedRow{Id: r.ID, Reason: rpc.Text(r.Reason)})
	}
	return resp, nil
}

// learnKept looks up what rows in quarantine name.
func (s *Service) learnKept(ctx context.Context, ids []int64) {
	if s.judge == nil {
		return
	}
	var rows []ledger.Row
	for _, id := range ids[:min(len(ids), ledger.MaxResolved)] {
		k, err := s.books.Kept(ctx, id)
		if err != nil || k.Row < 0 {
			continue // retrying says why
		}
		if row, err := ledger.DecodeRows(k.Body); err == nil {
			rows = append(rows, row...)
		}
	}
	_ = s.judge.Learn(ctx, authn.PrincipalOf(ctx).Name, operators, rows) // what it does not find out the ledger says
}

// DiscardQuarantined says that rows will never be used.
func (s *Service) DiscardQuarantined(ctx context.Context, req *quotav1.DiscardQuarantinedRequest) (*quotav1.DiscardQuarantinedResponse, error) {
	if err := s.books.Discard(ctx, authn.PrincipalOf(ctx).Name, req.Reason, req.Ids); err != nil {
		return nil, rpc.LedgerError(err)
	}
	return &quotav1.DiscardQuarantinedResponse{}, nil
}

// TraceReport follows a report to its block and entries.
func (s *Service) TraceReport(ctx context.Context, req *quotav1.TraceReportRequest) (*quotav1.TraceReportResponse, error) {
	t, err := s.books.TraceReport(ctx, ledger.ReportID{Epoch: ledger.Epoch{Agent: req.Agent, Epoch: req.Epoch}, Seq: req.Seq})
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	r := &t.Report
	resp := &quotav1.TraceReportResponse{
		TotalBefore: r.Before, TotalAfter: r.After, ThroughMs: r.Through, Closed: r.Closed, Digest: r.Digest[:],
		StoredMs: rpc.Millis(t.Stored), Queued: t.Queued, Block: blockProto(t.Block), Archive: t.File,
	}
	for i := range t.Rows {
		row := t.Rows[i].Row
		row.Tenant, row.Limit, row.Meter, row.Plan, row.Attributes = rpc.Text(row.Tenant), rpc.Text(row.Limit), rpc.Text(row.Meter), rpc.Text(row.Plan), rpc.Text(row.Attributes)
		p := &quotav1.TracedRow{Row: rowProto(&row), Quarantined: t.Rows[i].Quarantined}
		if e := t.Rows[i].Entry; e.Height != 0 {
			n := int32(e.N)
			p.Entry = &n
		}
		resp.Rows = append(resp.Rows, p)
	}
	return resp, nil
}

func blockProto(b ledger.KeptBlockInfo) *quotav1.BlockInfo {
	if b.Height == 0 {
		return nil
	}
	return &quotav1.BlockInfo{Height: b.Height, Hash: b.Hash[:], FoldedMs: rpc.Millis(b.Folded)}
}

// TraceEntry follows an entry back to what it is made of.
func (s *Service) TraceEntry(ctx context.Context, req *quotav1.TraceEntryRequest) (*quotav1.TraceEntryResponse, error) {
	t, err := s.books.TraceEntry(ctx, ledger.EntryID{Height: req.Height, N: int(req.N)})
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.TraceEntryResponse{Row: rowProto(&t.Row), Block: blockProto(t.Block), CorrectedBy: t.Corrected, ArchivedReports: t.Archived}
	if t.Correction != nil {
		if resp.Correction, err = correctionProto(t.Correction, false); err != nil {
			return nil, err
		}
	}
	for _, share := range t.Reports {
		resp.Reports = append(resp.Reports, &quotav1.ReportShare{
			Agent: share.ID.Epoch.Agent, Epoch: share.ID.Epoch.Epoch, Seq: share.ID.Seq,
			Admitted: share.Sum.Admitted, Overage: share.Sum.Overage, Denied: share.Sum.Denied,
		})
	}
	return resp, nil
}

// DeclareLost ends an epoch that will report no more.
func (s *Service) DeclareLost(ctx context.Context, req *quotav1.DeclareLostRequest) (*quotav1.DeclareLostResponse, error) {
	a, err := s.books.DeclareLost(ctx, authn.PrincipalOf(ctx).Name, req.Reason, ledger.Epoch{Agent: req.Agent, Epoch: req.Epoch})
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	return &quotav1.DeclareLostResponse{Agent: a.Agent, Epoch: a.Epoch, Seq: a.Seq, Total: a.Total, ThroughMs: rpc.Millis(a.Through), SeenMs: rpc.Millis(a.Seen)}, nil
}

// operators is the agent's name that corrections are judged under: no agent (judge.Operators).
const operators = ""
