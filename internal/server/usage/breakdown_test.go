package usage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// of is the service of stores.
func of(b *servertest.Stores) *Service {
	return &Service{ledger: b.Ledger, policy: b.Policy, books: b.Books}
}

// Pages stay those of the first one's block while more is settled and folded; what came
// meanwhile is above that block; and a file of a height has the same bytes for ever.
func TestBreakdownPages(t *testing.T) {
	b := servertest.NewStores(t, servertest.OnSQLite)
	b.Plan = "free"
	for i := range 7 {
		b.At = b.At.Add(time.Hour)
		b.Settle("gw-1", b.At.Add(-time.Hour), int64(10+i), b.At)
	}
	u := of(b)
	req := &quotav1.ListBreakdownRequest{By: "tenant,plan,meter", Every: quotav1.ListBreakdownRequest_EVERY_HOUR, PageSize: 3, Peak: true}
	var rows []*quotav1.BreakdownRow
	for i := range 3 {
		page, err := u.ListBreakdown(t.Context(), req)
		if err != nil || page.Origin.Height != 7 || (page.NextPageToken == "") != (i == 2) {
			t.Fatalf("page %d: %v, %v", i, page, err)
		}
		rows = append(rows, page.Rows...)
		req.PageToken = page.NextPageToken
		// Late usage of an hour that was read, and of one that was not yet.
		b.Settle("gw-1", time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), 100, b.At)
		b.Settle("gw-1", time.Date(2026, 10, 1, 6, 0, 0, 0, time.UTC), 1000, b.At)
	}
	if len(rows) != 7 || rows[0].Admitted != 10 || rows[6].Admitted != 16 || rows[6].Peak != 16 || strings.Join(rows[6].Names, " ") != "acme free requests" {
		t.Errorf("of block 7: %v", rows)
	}
	since, err := u.ListBreakdown(t.Context(), &quotav1.ListBreakdownRequest{By: "tenant", Every: quotav1.ListBreakdownRequest_EVERY_HOUR, SinceHeight: 7})
	if err != nil || len(since.Rows) != 2 || since.Rows[0].Admitted != 300 || since.Rows[1].Admitted != 3000 || since.Origin.Height != 13 {
		t.Errorf("since block 7: %v, %v", since, err)
	}
	if all, err := u.ListBreakdown(t.Context(), &quotav1.ListBreakdownRequest{}); err != nil || len(all.Rows) != 1 || all.Rows[0].Admitted != 91+3300 || all.Origin.CompleteThroughMs != b.At.Add(-ledger.NotedWithin).UnixMilli() {
		t.Errorf("all: %v, %v", all, err)
	}
	if top, err := u.ListBreakdown(t.Context(), &quotav1.ListBreakdownRequest{By: "tenant", Top: 3}); err != nil || len(top.Rows) != 1 || top.NextPageToken != "" {
		t.Errorf("top: %v, %v", top, err)
	}
	for what, bad := range map[string]*quotav1.ListBreakdownRequest{
		"it must be tenant, plan": {By: "agent"}, "none of a breakdown's": {PageToken: "x"}, "of another breakdown": {By: "tenant", PageToken: (&ledger.BreakdownMark{}).String()},
		"asks for 3": {Height: 3, PageToken: (&ledger.BreakdownMark{Height: 2}).String()},
	} {
		if _, err := u.ListBreakdown(t.Context(), bad); !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: %v, want %q", bad, err, what)
		}
	}

	export := func(f quotav1.ExportBreakdownRequest_Format, height int64) (file []byte, end *quotav1.ExportEnd) {
		t.Helper()
		err := u.Export(t.Context(), &quotav1.ExportBreakdownRequest{Format: f, Breakdown: &quotav1.ListBreakdownRequest{By: "tenant,limit", Every: quotav1.ListBreakdownRequest_EVERY_SLOT, Height: height}}, func(m *quotav1.ExportBreakdownResponse) error {
			file = append(file, m.Data...)
			end = m.End
			return nil
		})
		if err != nil || end == nil {
			t.Fatal(err, end)
		}
		sum := sha256.Sum256(file)
		if end.Digest != hex.EncodeToString(sum[:]) || end.Bytes != int64(len(file)) || end.Rows != 7 {
			t.Errorf("%v: %d bytes, digest %x, and it ends with %v", f, len(file), sum, end)
		}
		return file, end
	}
	for f := range quotav1.ExportBreakdownRequest_Format_name {
		before, _ := export(quotav1.ExportBreakdownRequest_Format(f), 7)
		b.Settle("gw-1", time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), 7, b.At)
		if after, _ := export(quotav1.ExportBreakdownRequest_Format(f), 7); !bytes.Equal(before, after) {
			t.Errorf("format %d: other bytes at the same height", f)
		}
	}
	gone := errors.New("gone")
	if err := u.Export(t.Context(), &quotav1.ExportBreakdownRequest{}, func(*quotav1.ExportBreakdownResponse) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("a reader that is gone: %v", err)
	}
}

// A server makes so many files at once; who comes beyond is told, and may when one has ended.
func TestExportsAreBounded(t *testing.T) {
	b := servertest.NewStores(t, servertest.OnSQLite)
	b.Settle("gw-1", b.At, 5, b.At)
	u := of(b)
	nothing := func(*quotav1.ExportBreakdownResponse) error { return nil }
	in, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	for range maxExports {
		go func() {
			first := true
			ended <- u.Export(t.Context(), &quotav1.ExportBreakdownRequest{}, func(*quotav1.ExportBreakdownResponse) error {
				if first {
					first = false
					in <- struct{}{}
					<-release
				}
				return nil
			})
		}()
		<-in
	}
	for range 2 {
		if err := wire.Error(u.Export(t.Context(), &quotav1.ExportBreakdownRequest{}, nothing)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 files are being exported") {
			t.Errorf("beyond: %v", err)
		}
	}
	close(release)
	for range maxExports {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := u.Export(t.Context(), &quotav1.ExportBreakdownRequest{}, nothing); err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}

// Each page that the server names is one that it takes, whatever the names are made of.
func TestPagesOfLongNames(t *testing.T) {
	b := servertest.NewStores(t, servertest.OnSQLite)
	var rows []ledger.Row
	for _, c := range []string{"a", "b", "c"} {
		pairs := make([]string, 8)
		for i := range pairs {
			pairs[i] = "n" + strconv.Itoa(i) + "=" + c + strings.Repeat("&", 250)
		}
		rows = append(rows, ledger.Row{Slot: b.At.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 1, Attributes: strings.Join(pairs, ledger.AttributeSep)})
	}
	if receipts, err := b.Ledger.Settle(t.Context(), []ledger.Report{ledger.NewReport("gw-9", 1, 1, 0, rows, b.At.UnixMilli(), false)}); err != nil || receipts[0].Status != ledger.Settled {
		t.Fatal(receipts, err)
	}
	if _, _, err := b.Ledger.Fold(t.Context(), b.At); err != nil {
		t.Fatal(err)
	}
	req := &quotav1.ListBreakdownRequest{By: "attributes,attribute:n1,attribute:n7", PageSize: 1}
	for i := range rows {
		if err := wire.Check(req); err != nil {
			t.Fatalf("page %d: %v", i, err)
		}
		page, err := of(b).ListBreakdown(t.Context(), req)
		if err != nil || len(page.Rows) != 1 || (page.NextPageToken == "") != (i == len(rows)-1) {
			t.Fatalf("page %d: %v, %v", i, page, err)
		}
		req.PageToken = page.NextPageToken
	}
}
