package usage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/export"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// exportChunk is how much of a file one message brings.
const exportChunk = 64 << 10

// maxExports is how many files a server makes at once. Each holds two of the ledger's connections and its snapshot;
// readers who stall must not keep those from others.
const maxExports = 2

// question reads a request. Fields that it leaves out have the ledger's defaults.
func (s *Service) question(ctx context.Context, req *quotav1.ListBreakdownRequest) (*ledger.BreakdownQuery, error) {
	if s.books == nil {
		return nil, fmt.Errorf("%w: this server has no books", fault.ErrUnavailable)
	}
	q := &ledger.BreakdownQuery{
		Height: req.Height, Since: req.SinceHeight, From: rpc.Moment(req.FromMs), To: rpc.Moment(req.ToMs), Every: wire.EnumFromProto[ledger.Every](req.Every),
		Tenant: req.Tenant, Subtree: req.Subtree, Plan: req.Plan, Limit: req.Limit, Meter: req.Meter, Attribute: req.Attribute,
		Peak: req.Peak, Top: int(req.Top), TopBy: req.TopBy,
	}
	if req.By != "" {
		q.By = strings.Split(req.By, ",")
	}
	if q.Top > 0 && q.TopBy == "" {
		q.TopBy = "admitted"
	}
	var err error
	if req.Zone != "" {
		if q.Zone, err = limit.LoadZone(req.Zone); err != nil {
			return nil, err
		}
	}
	q.Except, err = s.policy.Shadows(ctx)
	return q, err
}

// ListBreakdown is one page.
func (s *Service) ListBreakdown(ctx context.Context, req *quotav1.ListBreakdownRequest) (*quotav1.ListBreakdownResponse, error) {
	q, err := s.question(ctx, req)
	if err != nil {
		return nil, err
	}
	rows := int(req.PageSize)
	if rows == 0 {
		rows = wire.DefaultUsage
	}
	if req.PageToken != "" {
		if q.After, err = ledger.ParseBreakdownMark(req.PageToken); err != nil {
			return nil, rpc.LedgerError(err)
		}
		if q.Height != 0 && q.Height != q.After.Height {
			return nil, fmt.Errorf("%w: the page is of block %d, and height asks for %d", fault.ErrInvalid, q.After.Height, q.Height)
		}
		q.Height = q.After.Height
	}
	q.Rows = rows + 1 // one more tells whether there is another page
	if q.Top > 0 {
		q.Rows = 0
	}
	resp := &quotav1.ListBreakdownResponse{}
	var last *ledger.BreakdownRow
	more := false
	info, err := s.books.Breakdown(ctx, *q, func(r *ledger.BreakdownRow) error {
		if q.Rows > 0 && len(resp.Rows) == rows {
			more = true
			return nil
		}
		last = r
		resp.Rows = append(resp.Rows, breakdownToProto(q.By, r))
		return nil
	}, nil)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	if more {
		resp.NextPageToken = (&ledger.BreakdownMark{Height: info.Block.Height, Start: last.Start, Names: last.Names}).String()
	}
	resp.Origin = originToProto(&info)
	return resp, nil
}

func breakdownToProto(by []string, r *ledger.BreakdownRow) *quotav1.BreakdownRow {
	row := &quotav1.BreakdownRow{StartMs: 1000 * r.Start, Admitted: r.Admitted, Overage: r.Overage, Denied: r.Denied, Peak: r.Peak}
	for i, n := range r.Names {
		row.Names = append(row.Names, export.Name(by[i], n))
	}
	return row
}

func originToProto(i *ledger.BreakdownInfo) *quotav1.BreakdownOrigin {
	o := &quotav1.BreakdownOrigin{
		Height: i.Block.Height, CompleteThroughMs: rpc.Millis(i.Complete), Lagging: i.Lagging, SlotMs: i.Slot.Milliseconds(),
		Lost: rpc.Lost(i.Lost), MoreLost: i.Lost.More,
	}
	if o.Height > 0 {
		o.BlockHash = hex.EncodeToString(i.Block.Hash[:])
	}
	return o
}

// ExportBreakdown streams a file.
func (s *Service) ExportBreakdown(req *quotav1.ExportBreakdownRequest, stream grpc.ServerStreamingServer[quotav1.ExportBreakdownResponse]) error {
	return s.Export(stream.Context(), req, rpc.Patient(stream.Context(), stream.Send))
}

// Export makes the file, and hands it to send in messages: its bytes, its progress, and with the last its digest. It
// ends when the server does. At most maxExports are made at once.
func (s *Service) Export(caller context.Context, req *quotav1.ExportBreakdownRequest, send func(*quotav1.ExportBreakdownResponse) error) error {
	defer s.exports.Add(-1)
	if s.exports.Add(1) > maxExports {
		return fmt.Errorf("%w: %d files are being exported by this server, as many as it makes at once; try again when one has ended", fault.ErrBusy, maxExports)
	}
	ctx, cancel := rpc.Until(caller, s.stopping)
	defer cancel()
	err := s.file(ctx, req, send)
	if err != nil && ctx.Err() != nil && caller.Err() == nil {
		return rpc.ErrStopping
	}
	return err
}

func (s *Service) file(ctx context.Context, req *quotav1.ExportBreakdownRequest, send func(*quotav1.ExportBreakdownResponse) error) error {
	asked := req.GetBreakdown()
	if asked == nil {
		asked = &quotav1.ListBreakdownRequest{}
	}
	q, err := s.question(ctx, asked)
	if err != nil {
		return err
	}
	out := &sender{send: send, digest: sha256.New()}
	rows, n, told := export.New(out, wire.EnumFromProto[export.Format](req.Format), q), int64(0), time.Now()
	progress := &quotav1.ExportProgress{}
	tell := func() error {
		progress.Rows, told = n, time.Now()
		return send(&quotav1.ExportBreakdownResponse{Progress: &quotav1.ExportProgress{Rows: n, Done: progress.Done, Total: progress.Total}})
	}
	info, err := s.books.Breakdown(ctx, *q, func(r *ledger.BreakdownRow) error {
		if n++; n%1000 == 0 && time.Since(told) > rpc.ProgressEvery {
			if err := tell(); err != nil {
				return err
			}
		}
		return rows.Write(r)
	}, func(p ledger.Progress) { progress.Done, progress.Total = p.Done, p.Total })
	if err == nil {
		err = rows.Close()
	}
	if err == nil {
		err = out.flush()
	}
	if err != nil {
		return rpc.LedgerError(err)
	}
	return send(&quotav1.ExportBreakdownResponse{End: &quotav1.ExportEnd{
		Rows: n, Bytes: out.bytes, Digest: hex.EncodeToString(out.digest.Sum(nil)), Origin: originToProto(&info),
	}})
}

// sender makes messages of a file's bytes.
type sender struct {
	send   func(*quotav1.ExportBreakdownResponse) error
	buf    bytes.Buffer
	digest hash.Hash
	bytes  int64
}

// Write adds bytes, and sends what makes a message.
func (s *sender) Write(b []byte) (int, error) {
	s.buf.Write(b)
	if s.buf.Len() >= exportChunk {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (s *sender) flush() error {
	for s.buf.Len() > 0 {
		data := bytes.Clone(s.buf.Next(4 * exportChunk))
		s.digest.Write(data)
		s.bytes += int64(len(data))
		if err := s.send(&quotav1.ExportBreakdownResponse{Data: data}); err != nil {
			return err
		}
	}
	return nil
}
