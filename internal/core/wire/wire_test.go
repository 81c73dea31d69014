package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// over sends m through its encoding, as a call would.
func over[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

func TestSwitchesRound(t *testing.T) {
	for _, want := range []limit.Switches{{}, {Mode: limit.ModeShadowAll, Denied: []string{"a", "b"}}} {
		got, err := SwitchesFromProto(over(t, SwitchesToProto(want)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("switches: %v\n got %+v\nwant %+v", err, got, want)
		}
	}
}

// The enumerations are converted by number: their names must agree.
func TestWordsAgree(t *testing.T) {
	for _, c := range []struct {
		prefix string
		names  map[int32]string
		word   func(n int32) string // of the protocol's number
	}{
		{"ALGORITHM_", quotav1.Limit_Algorithm_name, func(n int32) string { return limit.Algorithm(n).String() }},
		{"CALENDAR_", quotav1.Rate_Calendar_name, func(n int32) string { return limit.Calendar(n).String() }},
		{"OUTAGE_", quotav1.Limit_Outage_name, func(n int32) string { return EnumFromProto[limit.Outage](n).String() }},
		{"ENFORCEMENT_", quotav1.Limit_Enforcement_name, func(n int32) string { return EnumFromProto[limit.Enforcement](n).String() }},
		{"FIRST_TOUCH_", quotav1.Limit_FirstTouch_name, func(n int32) string { return limit.FirstTouch(n).String() }},
		{"ON_CHANGE_", quotav1.Limit_OnChange_name, func(n int32) string { return EnumFromProto[limit.OnChange](n).String() }},
		{"MODE_", quotav1.Switches_Mode_name, func(n int32) string { return EnumFromProto[limit.Mode](n).String() }},
	} {
		for n, name := range c.names {
			if n > 0 && !strings.EqualFold(c.prefix+c.word(n), name) {
				t.Errorf("%d is %s here and %s in the protocol", n, c.word(n), name)
			}
		}
	}
	for s, name := range map[ledger.Status]string{
		ledger.Settled: "SETTLED", ledger.Already: "ALREADY", ledger.Ahead: "AHEAD",
		ledger.Fenced: "FENCED", ledger.Unavailable: "UNAVAILABLE", ledger.Rejected: "REJECTED",
	} {
		if got := quotav1.Receipt_Status(s).String(); got != "STATUS_"+name {
			t.Errorf("receipt status %d is %s here and %s in the protocol", s, name, got)
		}
	}
	if got := EnumFromProto[limit.Outage](quotav1.Limit_OUTAGE_UNSPECIFIED); got != 0 {
		t.Errorf("unspecified is %v, want the first", got)
	}
}

// fill sets every number of a struct to a value of its own.
func fill(v any, step int64) {
	r := reflect.ValueOf(v).Elem()
	for i := range r.NumField() {
		if f := r.Field(i); f.Kind() == reflect.Int64 {
			f.SetInt(int64(i+1) * step)
		}
	}
}

func TestLeaseRound(t *testing.T) {
	var r lease.Renewal
	fill(&r, 1000)                        // whole milliseconds, so that nothing is rounded
	r.Final, r.Now, r.Strain = true, 0, 0 // strain is the request's
	if got := RenewalFromProto(over(t, RenewalToProto(r))); !reflect.DeepEqual(got, r) {
		t.Errorf("renewal:\n got %+v\nwant %+v", got, r)
	}
	var g lease.Grant
	fill(&g, 1000)
	g.Out, g.Drawn, g.Unsure, g.ExpirySlot = 0, 0, 0, 0 // the server's own
	a := lease.Answer{Grant: g}
	p := over(t, GrantToProto(a, 7))
	if p.PolicyVersion != 7 {
		t.Errorf("policy version %d, want 7", p.PolicyVersion)
	}
	if got := GrantFromProto(p); !reflect.DeepEqual(got, a) {
		t.Errorf("grant:\n got %+v\nwant %+v", got, a)
	}

	// Rounding never makes a lease longer or a wait shorter.
	p = GrantToProto(lease.Answer{Grant: lease.Grant{TTL: 1999, DenyFor: 1001, Reset: 1}}, 0)
	if p.TtlMs != 1 || p.DenyForMs != 2 || p.ResetMs != 1 {
		t.Errorf("ttl %d, deny for %d, reset %d ms; want 1, 2, 1", p.TtlMs, p.DenyForMs, p.ResetMs)
	}
	if got := RenewalToProto(lease.Renewal{ExpiresIn: 1999}).ExpiresInMs; got != 1 {
		t.Errorf("expires in %d ms, want 1", got)
	}

	for _, want := range []error{lease.ErrUnknown, lease.ErrStale, lease.ErrUnavailable} {
		p := over(t, GrantToProto(lease.Answer{Grant: lease.Grant{Number: 3}, Err: fmt.Errorf("x: %w", want)}, 1))
		if got := GrantFromProto(p); !errors.Is(got.Err, want) || got.Grant.Number != 3 {
			t.Errorf("%v arrives as %+v", want, got)
		}
	}
	if got := GrantFromProto(GrantToProto(lease.Answer{Err: lease.ErrInvalid}, 1)); !errors.Is(got.Err, lease.ErrUnknown) || !errors.Is(got.Err, lease.ErrInvalid) {
		t.Errorf("an invalid renewal arrives as %v, want %v: the agent drops the bucket", got.Err, lease.ErrUnknown)
	}
	if got := GrantFromProto(&quotav1.Grant{Status: quotav1.Grant_STATUS_GRANTED, TtlMs: MaxTTL + 1}); !errors.Is(got.Err, lease.ErrInvalid) {
		t.Errorf("a term beyond its bound arrives as %+v, want %v", got, lease.ErrInvalid)
	}
	for _, p := range []*quotav1.Grant{nil, {}, {Status: 99}} {
		if got := GrantFromProto(p); !errors.Is(got.Err, lease.ErrUnavailable) {
			t.Errorf("%v arrives as %+v, want %v", p, got, lease.ErrUnavailable)
		}
	}
}

func TestReportRound(t *testing.T) {
	want := ledger.NewReport("agent-1", 5, 3, 100, []ledger.Row{{Slot: 300, Tenant: "acme", Limit: "requests", Meter: "m", Version: 2, Admitted: 12}}, 1234567, true)
	got, err := ReportFromProto(over(t, ReportToProto(want)))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("report: %v\n got %+v\nwant %+v", err, got, want)
	}
	if err := got.Check(); err != nil {
		t.Errorf("the report is not itself any more: %v", err)
	}
	first := ledger.NewReport("agent-1", 5, 1, 0, nil, 1234567, false)
	first.Origin, first.Unsealed = ledger.Origin{Epoch: 4, Total: 9}, true
	if got, err := ReportFromProto(over(t, ReportToProto(first))); err != nil || !reflect.DeepEqual(got, first) {
		t.Errorf("an unsealed report of an epoch with an origin: %v\n got %+v\nwant %+v", err, got, first)
	}
	if _, err := ReportFromProto(&quotav1.Report{Digest: make([]byte, 31)}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a digest of 31 bytes: %v, want %v", err, fault.ErrInvalid)
	}
	receipt := ledger.Receipt{Status: ledger.Fenced, NextSeq: 4, Total: 5, Message: "twin"}
	if got := ReceiptFromProto(over(t, ReceiptToProto(receipt))); got != receipt {
		t.Errorf("receipt: got %+v, want %+v", got, receipt)
	}
	for _, s := range []quotav1.Receipt_Status{0, 99, -1} {
		if got := ReceiptFromProto(&quotav1.Receipt{Status: s}).Status; got != ledger.Unavailable {
			t.Errorf("receipt status %d arrives as %d, want unavailable", s, got)
		}
	}
}

// Each named error keeps its name and its words through a status.
func TestErrorsRound(t *testing.T) {
	for _, n := range named {
		sent := fmt.Errorf("tenant x: %w", n.err)
		over := Error(fmt.Errorf("outer: %w", sent))
		if got := status.Code(over); got != n.code {
			t.Errorf("%v has the code %v, want %v", n.err, got, n.code)
		}
		got := FromError(status.FromProto(status.Convert(over).Proto()).Err())
		if !errors.Is(got, n.err) || !strings.Contains(got.Error(), "tenant x: "+n.err.Error()) {
			t.Errorf("%v arrives as %v", n.err, got)
		}
		for _, other := range named {
			if other.err != n.err && errors.Is(got, other.err) {
				t.Errorf("%v arrives as %v as well", n.err, other.err)
			}
		}
		if status.Code(got) != n.code {
			t.Errorf("%v has lost its code: %v, want %v", n.err, status.Code(got), n.code)
		}
		if again := status.Code(Error(got)); again != n.code {
			t.Errorf("%v passed on has the code %v, want %v", n.err, again, n.code)
		}
	}
	if Error(nil) != nil || FromError(nil) != nil {
		t.Error("no error is not nil")
	}
	if got := status.Code(Error(errors.New("secret"))); got != codes.Internal {
		t.Errorf("an error without a name has the code %v, want Internal", got)
	}
	if got := status.Code(Error(status.Error(codes.DataLoss, "x"))); got != codes.DataLoss {
		t.Errorf("a status has the code %v, want its own", got)
	}
	for code, want := range plain {
		if got := FromError(status.Error(code, "by a proxy")); !errors.Is(got, want) || got.Error() != "by a proxy" {
			t.Errorf("a plain %v arrives as %v, want %v", code, got, want)
		}
	}
	if got := FromError(context.Canceled); got != context.Canceled {
		t.Errorf("an error that is no status arrives as %v", got)
	}
}

func TestBounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		in   proto.Message
		says string // empty: within bounds
	}{
		{&quotav1.RenewRequest{Agent: "a", Epoch: 1, Renewals: make([]*quotav1.Renewal, MaxRenewals+1)}, "renewals"},
		{&quotav1.RenewRequest{Agent: "a", Epoch: 1, Tenants: make([]string, MaxTenants+1)}, "tenants"},
		{&quotav1.RenewRequest{Agent: "a", Epoch: 1, Tenants: []string{""}}, "tenants"},
		{&quotav1.RenewRequest{Agent: "a b", Epoch: 1}, "agent"},
		{&quotav1.RenewRequest{Agent: long(129), Epoch: 1}, "agent"},
		{&quotav1.RenewRequest{Agent: "a"}, "epoch"},
		{&quotav1.RenewRequest{Agent: "a", Epoch: 1, PolicyVersion: -1}, "policy_version"},
		{&quotav1.WatchRequest{Agent: "a", Epoch: 1}, ""},
		{&quotav1.WatchRequest{Agent: "a", Epoch: 1, TenantChange: -1}, "tenant_change"},
		{&quotav1.SettleRequest{Reports: make([]*quotav1.Report, MaxReports+1)}, "reports"},
		{&quotav1.SettleRequest{Reports: make([]*quotav1.Report, 1)}, "absent"},
		{&quotav1.SettleRequest{Reports: []*quotav1.Report{{Payload: make([]byte, MaxSettleBytes)}}}, "bytes"},
		{&quotav1.SettleRequest{Reports: []*quotav1.Report{{Payload: make([]byte, 4<<20)}}}, ""},
		{&quotav1.ApplyPolicyRequest{Document: "x"}, ""},
		{&quotav1.ApplyPolicyRequest{}, "document"},
		{&quotav1.ApplyPolicyRequest{Document: long(MaxDocument + 1)}, "document"},
		{&quotav1.ApplyPolicyRequest{Document: "x", BaseVersion: -1}, "base_version"},
		{&quotav1.GetPolicyRequest{Version: -1}, "version"},
		{&quotav1.RollbackPolicyRequest{}, "version"},
		{&quotav1.ListPolicyVersionsRequest{PageSize: 1001}, "page_size"},
		{&quotav1.CreateTenantRequest{Id: "a", Plan: "p"}, ""},
		{&quotav1.CreateTenantRequest{Id: "a", Plan: "p", Parent: "a b"}, "parent"},
		{&quotav1.CreateTenantRequest{Id: "a"}, "plan"},
		{&quotav1.SetTenantPlanRequest{Id: "", Plan: "p"}, "id"},
		{&quotav1.SetTenantLimitRequest{Id: "a", Limit: "l", Values: map[string]string{"rate": "1/s"}}, ""},
		{&quotav1.SetTenantLimitRequest{Id: "a", Limit: "l", Values: map[string]string{"rate": long(MaxDocument)}}, "values"},
		{&quotav1.SetTenantLimitRequest{Id: "a", Limit: "l"}, "values"},
		{&quotav1.SetTenantLimitRequest{Id: "a b", Limit: "l"}, "id"},
		{&quotav1.SetTenantLimitRequest{Id: "a", Limit: "l l"}, "limit"},
		{&quotav1.UnsetTenantLimitRequest{Id: "a"}, "limit"},
		{&quotav1.UnsetTenantLimitRequest{Limit: "l"}, "id"},
		{&quotav1.GetTenantRequest{}, "id"},
		{&quotav1.ListTenantsRequest{PageSize: -1}, "page_size"},
		{&quotav1.ListTenantsRequest{PageToken: "\x00"}, "page_token"},
		{&quotav1.ListAgentsRequest{PageToken: "a/b"}, "agent"},
		{&quotav1.CreateKeyRequest{Role: "agent", Agent: "a"}, ""},
		{&quotav1.CreateKeyRequest{Role: "root"}, "role"},
		{&quotav1.CreateKeyRequest{Role: "admin", ExpiresMs: -1}, "expires_ms"},
		{&quotav1.RotateKeyRequest{Id: "k1", OverlapMs: 91 * 24 * 3600_000}, "overlap_ms"},
		{&quotav1.RotateKeyRequest{Id: "k 1"}, "id"},
		{&quotav1.ListKeysRequest{PageSize: 1001}, "page_size"},
		{&quotav1.ListKeysRequest{PageToken: "k 1"}, "page_token"},
		{&quotav1.CreateKeyRequest{Role: "admin", Note: long(257)}, "note"},
		{&quotav1.RevokeKeyRequest{}, "id"},
		{&quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{DeniedTenants: make([]string, 1025)}}, "denied_tenants"},
		{&quotav1.ListAuditRequest{PageToken: "x"}, "page_token"},
		{&quotav1.ListAuditRequest{PageToken: "7"}, ""},
		{&quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{Mode: 9}}, "mode"},
		{&quotav1.GetUsageRequest{}, ""},
		{&quotav1.ListBreakdownRequest{}, ""},
		{&quotav1.ListBreakdownRequest{Tenant: "a b"}, "tenant"},
		{&quotav1.ListBreakdownRequest{Meter: "a b"}, "meter"},
		{&quotav1.ListBreakdownRequest{Zone: "Local"}, "zone"},
		{&quotav1.ListBreakdownRequest{Every: 9}, "every"},
		{&quotav1.ListBreakdownRequest{FromMs: 5, ToMs: 4}, "after to_ms"},
		{&quotav1.ExportBreakdownRequest{}, ""},
		{&quotav1.ExportBreakdownRequest{Format: 4}, "format"},
		{&quotav1.ExportBreakdownRequest{Breakdown: &quotav1.ListBreakdownRequest{Top: -1}}, "top"},
		{&quotav1.GetUsageRequest{PageSize: 10_001}, "page_size"},
		{&quotav1.GetUsageRequest{Zone: "Local"}, "zone"},
		{&quotav1.GetUsageRequest{By: 17}, "by"},
		{&quotav1.GetUsageRequest{FromMs: 5, ToMs: 4}, "after to_ms"},
		{&quotav1.GetUsageRequest{FromMs: 5}, ""},
		{&quotav1.GetVersionRequest{}, ""},
	} {
		err := Check(c.in)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%T %.80v: got %v, want an error that names %q", c.in, c.in, err, c.says)
		}
	}
	r := &quotav1.RenewRequest{Renewals: make([]*quotav1.Renewal, 2), Tenants: []string{"a"}}
	for _, a := range []*quotav1.RenewResponse{
		{Grants: make([]*quotav1.Grant, 1), Tenants: make([]*quotav1.Tenant, 1)}, {Grants: make([]*quotav1.Grant, 2)}, nil,
	} {
		if err := CheckRenewResponse(r, a); !errors.Is(err, fault.ErrInvalid) {
			t.Errorf("an answer with %d grants and %d tenants: %v, want %v", len(a.GetGrants()), len(a.GetTenants()), err, fault.ErrInvalid)
		}
	}
	if err := CheckSettleResponse(&quotav1.SettleRequest{Reports: make([]*quotav1.Report, 1)}, &quotav1.SettleResponse{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no receipt for a report: %v, want %v", err, fault.ErrInvalid)
	}
}

// Each bound of a renewal is its own to break: the request it comes in is within bounds.
func TestRenewalBounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	renewal := func(change func(*quotav1.Renewal)) *quotav1.Renewal {
		r := &quotav1.Renewal{Limit: "requests", Tenant: "acme", Values: []string{"ann"}, Number: 2, Began: 1, Admitted: 5, Told: 4}
		change(r)
		return r
	}
	for _, c := range []struct {
		in   *quotav1.Renewal
		says string // empty: within bounds
	}{
		{nil, "absent"},
		{renewal(func(*quotav1.Renewal) {}), ""},
		{renewal(func(r *quotav1.Renewal) { r.Tenant, r.Values = "", []string{"", long(256)} }), ""},
		{renewal(func(r *quotav1.Renewal) { r.Limit = "" }), "limit"},
		{renewal(func(r *quotav1.Renewal) { r.Limit = long(65) }), "limit"},
		{renewal(func(r *quotav1.Renewal) { r.Tenant = "a b" }), "tenant"},
		{renewal(func(r *quotav1.Renewal) { r.Tenant = long(129) }), "tenant"},
		{renewal(func(r *quotav1.Renewal) { r.Values = make([]string, 9) }), "values"},
		{renewal(func(r *quotav1.Renewal) { r.Values = []string{long(257)} }), "values"},
		{renewal(func(r *quotav1.Renewal) { r.Values = []string{"a\x1fb"} }), "values"},
		{renewal(func(r *quotav1.Renewal) { r.Number = 0 }), "number"},
		{renewal(func(r *quotav1.Renewal) { r.Began = 3 }), "began"},
		{renewal(func(r *quotav1.Renewal) { r.Admitted = -1 }), "admitted"},
		{renewal(func(r *quotav1.Renewal) { r.Admitted = 1 << 53 }), "admitted"},
		{renewal(func(r *quotav1.Renewal) { r.Told = 6 }), "told"},
		{renewal(func(r *quotav1.Renewal) { r.Denied = -1 }), "denied"},
		{renewal(func(r *quotav1.Renewal) { r.Held = -1 }), "held"},
		{renewal(func(r *quotav1.Renewal) { r.Waiting = -1 }), "waiting"},
		{renewal(func(r *quotav1.Renewal) { r.Reserved = -1 }), "reserved"},
		{renewal(func(r *quotav1.Renewal) { r.WindowStartMs = -1 }), "window_start_ms"},
		{renewal(func(r *quotav1.Renewal) { r.TrickleMicrosPerS = 1 << 53 }), "trickle_micros_per_s"},
		{renewal(func(r *quotav1.Renewal) { r.ExpiresInMs = MaxTTL + 1 }), "expires_in_ms"},
		{renewal(func(r *quotav1.Renewal) { r.Generation = -1 }), "generation"},
		{renewal(func(r *quotav1.Renewal) { r.ElapsedUs = -1 }), "elapsed_us"},
		{renewal(func(r *quotav1.Renewal) { r.Void = -1 }), "void"},
		{renewal(func(r *quotav1.Renewal) { r.VoidAgoUs = -1 }), "void_ago_us"},
	} {
		err := CheckRenewal(c.in)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: got %v, want an error that names %q", c.in, err, c.says)
		}
		if err := CheckRenew(&quotav1.RenewRequest{Agent: "a", Epoch: 1, Renewals: []*quotav1.Renewal{c.in}}); err != nil {
			t.Errorf("a request with %v: %v, want none", c.in, err)
		}
	}
	if got := GrantFromProto(over(t, RefusedToProto(&quotav1.Renewal{Number: 3}, errors.New("é"+long(1000)), 1))); !errors.Is(got.Err, lease.ErrUnknown) ||
		!errors.Is(got.Err, lease.ErrInvalid) || !strings.Contains(got.Err.Error(), long(MaxReason-2)) || got.Grant.Number != 3 {
		t.Errorf("a refused renewal arrives as %+v", got)
	}
	if got := RefusedToProto(nil, errors.New(long(MaxReason-1)+"é"), 1).Reason; got != long(MaxReason-1) {
		t.Errorf("a reason of %d bytes and a half letter, want it cut before that", len(got))
	}
}

func TestLimitBounds(t *testing.T) {
	ok := func() *quotav1.Limit {
		return &quotav1.Limit{Name: "x", Algorithm: quotav1.Limit_ALGORITHM_TOKEN_BUCKET, Rate: &quotav1.Rate{Units: 1, PeriodUs: 1000}}
	}
	if _, err := LimitFromProto(ok()); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*quotav1.Limit){
		"name":        func(l *quotav1.Limit) { l.Name = "a/b" },
		"algorithm":   func(l *quotav1.Limit) { l.Algorithm = 0 },
		"on_outage":   func(l *quotav1.Limit) { l.OnOutage = 4 },
		"enforcement": func(l *quotav1.Limit) { l.Enforcement = -1 },
		"conditions":  func(l *quotav1.Limit) { l.Match = make([]*quotav1.Match, 9) },
		"patterns":    func(l *quotav1.Limit) { l.Match = []*quotav1.Match{{Attribute: "a"}} },
		"attributes":  func(l *quotav1.Limit) { l.By = make([]string, 9) },
		"only ip":     func(l *quotav1.Limit) { l.By = []string{"user/8"} },
		"burst":       func(l *quotav1.Limit) { l.Burst = limit.MaxUnits + 1 },
		"epsilon_ppm": func(l *quotav1.Limit) { l.EpsilonPpm = limit.Micro + 1 },
		"meter":       func(l *quotav1.Limit) { l.Meter = "a b" },
		"zone":        func(l *quotav1.Limit) { l.Zone = strings.Repeat("x", 65) },
		"units":       func(l *quotav1.Limit) { l.Rate.Units = 0 },
		"period_us":   func(l *quotav1.Limit) { l.Rate.PeriodUs = 999 },
		"period_us ":  func(l *quotav1.Limit) { l.Rate.PeriodUs = 31_622_400_000_001 },
		"calendar":    func(l *quotav1.Limit) { l.Rate.Calendar = 8 },
	} {
		l := ok()
		change(l)
		if _, err := LimitFromProto(l); !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), strings.TrimSpace(says)) {
			t.Errorf("%v: got %v, want an error that says %q", l, err, says)
		}
	}
	if _, err := LimitFromProto(nil); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("no limit: %v, want %v", err, fault.ErrInvalid)
	}
	for _, p := range []*quotav1.Policy{nil, {}, {SlotSeconds: 420}, {SlotSeconds: 300, Plans: make([]*quotav1.Plan, 257)},
		{SlotSeconds: 300, Limits: make([]*quotav1.Limit, 257)}, {SlotSeconds: 300, Plans: []*quotav1.Plan{{Name: "p", Limits: make([]*quotav1.Limit, 65)}}}} {
		if _, err := PolicyFromProto(p); !errors.Is(err, fault.ErrInvalid) {
			t.Errorf("%.60v: %v, want %v", p, err, fault.ErrInvalid)
		}
	}
}
