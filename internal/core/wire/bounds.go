package wire

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Bounds of messages, as the protocol states them.
const (
	MaxRenewals     = 4096     // of a RenewRequest
	MaxTenants      = 1024     // of a RenewRequest
	MaxReports      = 256      // of a SettleRequest
	MaxSettleBytes  = 16 << 20 // of a SettleRequest, encoded
	MaxAccounts     = 1024     // limits in a SettleRequest's accounts
	MaxEpochs       = 1024     // of a FrontiersRequest
	MaxDocument     = 1 << 20  // bytes of a policy document
	MaxFile         = 4096     // bytes of its file name
	MaxNote         = 256      // bytes of a key's note
	MaxReason       = 512      // bytes of a Grant's reason
	MaxTTL          = 600_000  // ms of a lease's term
	MaxPage         = 1000     // elements of a page
	DefaultPage     = 100      // where none is asked for
	MaxUsagePage    = 10_000   // rows of a page of usage
	DefaultUsage    = 1000     // where none is asked for
	MaxSimulated    = 24       // periods of a simulation
	MaxGrace        = 90 * 24 * time.Hour
	MaxOverlap      = 90 * 24 * time.Hour // of a key and its successor
	maxOverrideKeys = 64                  // more than a limit has
	maxCount        = 1<<53 - 1
	maxMilliseconds = 253_402_300_799_999 // the end of the year 9999
)

// MaxMessage is what a gRPC server or client must let through: the largest
// request, with its frame.
const MaxMessage = MaxSettleBytes + 1<<20

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fault.ErrInvalid}, args...)...)
}

// TenantID checks a tenant's id; field names it in the error, which wraps fault.ErrInvalid.
func TenantID(field, id string) error {
	if !limit.ValidTenant(id) {
		return invalid("%s is %s; it must be %s", field, limit.Quote(id), limit.TenantForm)
	}
	return nil
}

// AgentID checks an agent's id; the error wraps fault.ErrInvalid.
func AgentID(id string) error {
	if !limit.ValidAgent(id) {
		return invalid("agent is %s; it must be 1 to %d bytes of [A-Za-z0-9._:-]", limit.Quote(id), limit.MaxAgentLen)
	}
	return nil
}

func name(field, s string) error {
	if !limit.ValidName(s) {
		return invalid("%s is %s; it must be 1 to %d bytes of [A-Za-z0-9._-]", field, limit.Quote(s), limit.MaxNameLen)
	}
	return nil
}

// ranged checks numbers: a name, the number, the least and the most, for each.
func ranged(fields ...bound) error {
	for _, f := range fields {
		if f.n < f.least || f.n > f.most {
			return invalid("%s is %d; it must be %d to %d", f.field, f.n, f.least, f.most)
		}
	}
	return nil
}

type bound struct {
	field          string
	n, least, most int64
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckRenew checks a request's bounds, but for those of each renewal, which CheckRenewal has: one that breaks a bound is
// refused by itself. Errors wrap fault.ErrInvalid, and refuse the whole.
func CheckRenew(r *quotav1.RenewRequest) error {
	if err := first(AgentID(r.GetAgent()), ranged(
		bound{"epoch", r.GetEpoch(), 1, maxCount},
		bound{"policy_version", r.GetPolicyVersion(), 0, maxCount},
		bound{"renewals", int64(len(r.GetRenewals())), 0, MaxRenewals},
		bound{"tenants", int64(len(r.GetTenants())), 0, MaxTenants},
		bound{"strain", int64(r.GetStrain()), 0, lease.MaxStrain},
	)); err != nil {
		return err
	}
	for i, id := range r.Tenants {
		if err := TenantID("tenants", id); err != nil {
			return fmt.Errorf("tenant %d: %w", i, err)
		}
	}
	return nil
}

// CheckRenewal checks one renewal's bounds. Errors wrap fault.ErrInvalid.
func CheckRenewal(r *quotav1.Renewal) error {
	if r == nil {
		return invalid("it is absent")
	}
	if err := name("limit", r.Limit); err != nil {
		return err
	}
	if r.Tenant != "" {
		if err := TenantID("tenant", r.Tenant); err != nil {
			return err
		}
	}
	if len(r.Values) > limit.MaxBy {
		return invalid("values has %d elements; at most %d", len(r.Values), limit.MaxBy)
	}
	for _, v := range r.Values {
		if !limit.ValidValue(v) {
			return invalid("values holds %s; a value is at most %d bytes of UTF-8 without control characters", limit.Quote(v), limit.MaxValueLen)
		}
	}
	return ranged(
		bound{"number", r.Number, 1, maxCount},
		bound{"began", r.Began, 0, r.Number},
		bound{"admitted", r.Admitted, 0, maxCount},
		bound{"denied", r.Denied, 0, maxCount},
		bound{"told", r.Told, 0, r.Admitted},
		bound{"held", r.Held, 0, maxCount},
		bound{"waiting", r.Waiting, 0, maxCount},
		bound{"reserved", r.Reserved, 0, r.Waiting},
		bound{"window_start_ms", r.WindowStartMs, 0, maxMilliseconds},
		bound{"trickle_micros_per_s", r.TrickleMicrosPerS, 0, maxCount},
		bound{"expires_in_ms", r.ExpiresInMs, 0, MaxTTL},
		bound{"generation", r.Generation, 0, maxCount},
		bound{"largest", r.Largest, 0, r.Waiting},
		bound{"in_use", r.InUse, 0, maxCount},
		bound{"elapsed_us", r.ElapsedUs, 0, maxCount},
		bound{"void", r.Void, 0, maxCount},
		bound{"void_ago_us", r.VoidAgoUs, 0, maxCount}, bound{"within_us", r.WithinUs, 0, maxCount},
		bound{"fraction_micros", r.FractionMicros, 0, limit.Micro - 1}, bound{"heard", r.Heard, 0, maxCount},
		bound{"kind", int64(r.Kind), 0, int64(quotav1.Renewal_KIND_OVERAGE)},
	)
}

// CheckRenewResponse checks an answer against its request. Errors wrap fault.ErrInvalid.
func CheckRenewResponse(r *quotav1.RenewRequest, a *quotav1.RenewResponse) error {
	if len(a.GetGrants()) != len(r.GetRenewals()) {
		return invalid("grants has %d elements for %d renewals", len(a.GetGrants()), len(r.GetRenewals()))
	}
	if len(a.GetTenants()) != len(r.GetTenants()) {
		return invalid("tenants has %d elements for %d asked for", len(a.GetTenants()), len(r.GetTenants()))
	}
	return ranged(bound{"policy_version", a.GetPolicyVersion(), 0, maxCount})
}

func checkGrant(g *quotav1.Grant) error {
	return ranged(
		bound{"tokens", g.Tokens, 0, maxCount},
		bound{"trickle_micros_per_s", g.TrickleMicrosPerS, 0, maxCount},
		bound{"pile", g.Pile, 0, maxCount},
		bound{"ttl_ms", g.TtlMs, 0, MaxTTL},
		bound{"deny_for_ms", g.DenyForMs, 0, maxMilliseconds},
		bound{"unit_in_ms", g.UnitInMs, 0, maxMilliseconds},
		bound{"fallback_micros_per_s", g.FallbackMicrosPerS, 0, maxCount},
		bound{"valid_from_ms", g.ValidFromMs, 0, maxMilliseconds},
		bound{"valid_until_ms", g.ValidUntilMs, 0, maxMilliseconds},
		bound{"generation", g.Generation, 0, maxCount},
		bound{"reset_ms", g.ResetMs, 0, maxMilliseconds},
		bound{"next_tokens", g.NextTokens, 0, maxCount},
	)
}

// CheckWatch checks a request's bounds. Errors wrap fault.ErrInvalid.
func CheckWatch(r *quotav1.WatchRequest) error {
	return first(AgentID(r.GetAgent()), ranged(
		bound{"epoch", r.GetEpoch(), 1, maxCount},
		bound{"policy_version", r.GetPolicyVersion(), 0, maxCount},
		bound{"tenant_change", r.GetTenantChange(), 0, maxCount},
	))
}

// CheckSettle checks how much a request carries. What each report says is judged by
// the ledger, so that one bad report does not hold back its neighbours. Errors wrap
// fault.ErrInvalid.
func CheckSettle(r *quotav1.SettleRequest) error {
	if err := ranged(bound{"reports", int64(len(r.GetReports())), 0, MaxReports}); err != nil {
		return err
	}
	for i, p := range r.GetReports() {
		if p == nil {
			return fmt.Errorf("report %d: %w", i, invalid("it is absent"))
		}
	}
	if n := proto.Size(r); n > MaxSettleBytes {
		return invalid("the request has %d bytes; at most %d", n, MaxSettleBytes)
	}
	return nil
}

// CheckSettleResponse checks an answer against its request. Errors wrap fault.ErrInvalid.
func CheckSettleResponse(r *quotav1.SettleRequest, a *quotav1.SettleResponse) error {
	if len(a.GetReceipts()) != len(r.GetReports()) {
		return invalid("receipts has %d elements for %d reports", len(a.GetReceipts()), len(r.GetReports()))
	}
	return nil
}

// CheckFrontiers checks a request's bounds. Errors wrap fault.ErrInvalid.
func CheckFrontiers(r *quotav1.FrontiersRequest) error {
	if err := first(AgentID(r.GetAgent()), ranged(bound{"epochs", int64(len(r.GetEpochs())), 0, MaxEpochs})); err != nil {
		return err
	}
	for i, e := range r.GetEpochs() {
		if err := ranged(bound{"epoch", e, 0, maxCount}); err != nil {
			return fmt.Errorf("epoch %d: %w", i, err)
		}
	}
	return nil
}

// CheckFrontiersResponse checks an answer against its request. Errors wrap fault.ErrInvalid.
func CheckFrontiersResponse(r *quotav1.FrontiersRequest, a *quotav1.FrontiersResponse) error {
	if len(a.GetFrontiers()) != len(r.GetEpochs()) {
		return invalid("frontiers has %d elements for %d epochs", len(a.GetFrontiers()), len(r.GetEpochs()))
	}
	for i, f := range a.GetFrontiers() {
		if f.GetEpoch() != r.GetEpochs()[i] {
			return invalid("frontier %d is of epoch %d; it must be of %d", i, f.GetEpoch(), r.GetEpochs()[i])
		}
	}
	return nil
}

// Check checks the bounds of any request of the services; what it does not
// know has none. Errors wrap fault.ErrInvalid.
func Check(request proto.Message) error {
	switch r := request.(type) {
	case *quotav1.RenewRequest:
		return CheckRenew(r)
	case *quotav1.WatchRequest:
		return CheckWatch(r)
	case *quotav1.SettleRequest:
		return CheckSettle(r)
	case *quotav1.FrontiersRequest:
		return CheckFrontiers(r)
	case *quotav1.ApplyPolicyRequest:
		return ranged(
			bound{"document's bytes", int64(len(r.Document)), 1, MaxDocument},
			bound{"file's bytes", int64(len(r.File)), 0, MaxFile},
			bound{"base_version", r.BaseVersion, 0, maxCount},
		)
	case *quotav1.GetPolicyRequest:
		return ranged(bound{"version", r.Version, 0, maxCount})
	case *quotav1.ListPolicyVersionsRequest:
		return numberedPage(r.PageSize, r.PageToken)
	case *quotav1.RollbackPolicyRequest:
		return ranged(bound{"version", r.Version, 1, maxCount})
	case *quotav1.CreateTenantRequest:
		err := first(TenantID("id", r.Id), name("plan", r.Plan))
		if err == nil && r.Parent != "" {
			err = TenantID("parent", r.Parent)
		}
		return err
	case *quotav1.SetTenantPlanRequest:
		return first(TenantID("id", r.Id), name("plan", r.Plan), ranged(bound{"at_ms", r.AtMs, 0, maxMilliseconds}))
	case *quotav1.SetTenantLimitRequest:
		bytes := 0
		for key, value := range r.Values {
			bytes += len(key) + len(value)
		}
		return first(TenantID("id", r.Id), name("limit", r.Limit), ranged(
			bound{"values' number", int64(len(r.Values)), 1, maxOverrideKeys},
			bound{"values' bytes", int64(bytes), 1, MaxDocument},
		))
	case *quotav1.UnsetTenantLimitRequest:
		return first(TenantID("id", r.Id), name("limit", r.Limit))
	case *quotav1.ListPlanChangesRequest:
		return TenantID("tenant", r.Tenant)
	case *quotav1.ListPayersRequest:
		return TenantID("tenant", r.Tenant)
	case *quotav1.CancelPlanChangeRequest:
		return first(TenantID("id", r.Id), ranged(bound{"at_ms", r.AtMs, 1, maxMilliseconds}))
	case *quotav1.GetTenantRequest:
		return TenantID("id", r.Id)
	case *quotav1.SuspendTenantRequest:
		return TenantID("id", r.Id)
	case *quotav1.DeleteTenantRequest:
		return TenantID("id", r.Id)
	case *quotav1.ResumeTenantRequest:
		return TenantID("id", r.Id)
	case *quotav1.PromoteShadowRequest:
		return ranged(bound{"version", r.Version, 0, maxCount})
	case *quotav1.ListTenantsRequest:
		err := ranged(bound{"page_size", int64(r.PageSize), 0, MaxPage})
		if err == nil && r.PageToken != "" {
			err = TenantID("page_token", r.PageToken)
		}
		return err
	case *quotav1.ListAgentsRequest:
		err := ranged(bound{"page_size", int64(r.PageSize), 0, MaxPage})
		if err == nil && r.PageToken != "" {
			id, _ := ledger.ParseCursor(r.PageToken) // a page may end between two epochs of an agent
			err = AgentID(id)
		}
		return err
	case *quotav1.CreateKeyRequest:
		switch r.Role {
		case "viewer", "operator", "admin", "agent", "backfill":
		default:
			return invalid("role is %s; it must be viewer, operator, admin, agent or backfill", limit.Quote(r.Role))
		}
		if !limit.ValidValue(r.Note) {
			return invalid("note must be at most %d bytes without control characters", MaxNote)
		}
		return ranged(bound{"expires_ms", r.ExpiresMs, 0, maxMilliseconds}) // the store checks what goes with which role
	case *quotav1.RotateKeyRequest:
		return first(name("id", r.Id), ranged(bound{"overlap_ms", r.OverlapMs, 0, MaxOverlap.Milliseconds()}))
	case *quotav1.ListKeysRequest:
		err := ranged(bound{"page_size", int64(r.PageSize), 0, MaxPage})
		if err == nil && r.PageToken != "" {
			err = name("page_token", r.PageToken)
		}
		return err
	case *quotav1.RevokeKeyRequest:
		return name("id", r.Id)
	case *quotav1.SetSwitchesRequest:
		_, err := SwitchesFromProto(r.Switches)
		return first(err, ranged(bound{"base_revision", r.BaseRevision, 0, maxCount}))
	case *quotav1.ListQuarantineRequest:
		err := numberedPage(r.PageSize, r.PageToken)
		if err == nil && r.Agent != "" {
			err = AgentID(r.Agent)
		}
		return err
	case *quotav1.RetryQuarantinedRequest:
		return ranged(bound{"ids", int64(len(r.Ids)), 1, ledger.MaxResolved}, bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason})
	case *quotav1.DiscardQuarantinedRequest:
		return ranged(bound{"ids", int64(len(r.Ids)), 1, ledger.MaxResolved}, bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason})
	case *quotav1.TraceReportRequest:
		return first(AgentID(r.Agent), ranged(bound{"epoch", r.Epoch, 0, maxCount}, bound{"seq", r.Seq, 1, maxCount}))
	case *quotav1.TraceEntryRequest:
		return ranged(bound{"height", r.Height, 1, maxCount}, bound{"n", int64(r.N), 0, maxCount})
	case *quotav1.AdjustRequest:
		err := ranged(
			bound{"idempotency_key's bytes", int64(len(r.IdempotencyKey)), 1, ledger.MaxCorrectionKey},
			bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason},
			bound{"units", r.Units, -ledger.MaxReportUnits, ledger.MaxReportUnits},
			bound{"overage", r.Overage, -ledger.MaxReportUnits, ledger.MaxReportUnits},
			bound{"entry_height", r.EntryHeight, 0, maxCount}, bound{"entry_n", int64(r.EntryN), 0, maxCount},
			bound{"policy_version", r.PolicyVersion, 0, maxCount}, bound{"attributes", int64(len(r.Attributes)), 0, limit.MaxBy},
		)
		switch {
		case err != nil:
			return err
		case r.Units == 0:
			return invalid("units is 0; an adjustment adds some or takes some away")
		case r.EntryHeight > 0 && (r.Tenant != "" || r.Limit != "" || r.Meter != "" || len(r.Attributes) > 0 || r.AtMs != 0 || r.PolicyVersion != 0 || r.Plan != ""):
			return invalid("an entry is named, and so are tenant, limit, meter, attributes, time, version or plan, which are the entry's")
		case r.EntryHeight > 0:
			return nil
		}
		return first(TenantID("tenant", r.Tenant), name("limit", r.Limit), ranged(bound{"at_ms", r.AtMs, 1, maxMilliseconds}))
	case *quotav1.BackfillRequest:
		err := ranged(
			bound{"idempotency_key's bytes", int64(len(r.IdempotencyKey)), 1, ledger.MaxCorrectionKey},
			bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason},
			bound{"rows", int64(len(r.Rows)), 1, ledger.MaxBackfill},
		)
		for i, row := range r.Rows {
			if err != nil {
				return err
			}
			if row == nil {
				return fmt.Errorf("row %d: %w", i+1, invalid("it is absent"))
			}
			err = first(TenantID("tenant", row.Tenant), name("limit", row.Limit), ranged(
				bound{"slot_ms", row.SlotMs, 1, maxMilliseconds}, bound{"policy_version", row.PolicyVersion, 0, maxCount},
				bound{"attributes", int64(len(row.Attributes)), 0, limit.MaxBy}, bound{"admitted", row.Admitted, 0, ledger.MaxReportUnits},
				bound{"overage", row.Overage, 0, row.Admitted}, bound{"denied", row.Denied, 0, ledger.MaxReportUnits},
			))
			if err != nil {
				err = fmt.Errorf("row %d: %w", i+1, err)
			}
		}
		return err
	case *quotav1.DeclareLostRequest:
		return first(AgentID(r.Agent), ranged(bound{"epoch", r.Epoch, 0, maxCount}, bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason}))
	case *quotav1.RevertCorrectionRequest:
		return ranged(bound{"number", r.Number, 1, maxCount}, bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason})
	case *quotav1.ReconcileRequest:
		return ranged(bound{"page_size", int64(r.PageSize), 0, MaxPage}, bound{"epoch", r.Epoch, 0, maxCount}, bound{"page_token's bytes", int64(len(r.PageToken)), 0, 1024})
	case *quotav1.ListCorrectionsRequest:
		return numberedPage(r.PageSize, r.PageToken)
	case *quotav1.PreviewStatementRequest:
		return TenantID("tenant", r.Tenant)
	case *quotav1.CloseStatementRequest:
		return first(TenantID("tenant", r.Tenant), ranged(bound{"force_reason's bytes", int64(len(r.ForceReason)), 0, ledger.MaxReason}))
	case *quotav1.GiveCreditRequest:
		return first(TenantID("tenant", r.Tenant), name("id", r.Id), ranged(bound{"expires_ms", r.ExpiresMs, 0, maxMilliseconds}))
	case *quotav1.VoidCreditRequest:
		return first(name("id", r.Id), ranged(bound{"reason's bytes", int64(len(r.Reason)), 1, ledger.MaxReason}))
	case *quotav1.ListCreditsRequest:
		return TenantID("tenant", r.Tenant)
	case *quotav1.CloseDueRequest:
		err := ranged(bound{"page_size", int64(r.PageSize), 0, MaxPage}, bound{"grace_ms", r.GraceMs, 0, MaxGrace.Milliseconds()},
			bound{"force_reason's bytes", int64(len(r.ForceReason)), 0, ledger.MaxReason})
		if err == nil && r.PageToken != "" {
			err = TenantID("page_token", r.PageToken)
		}
		return err
	case *quotav1.SimulateRequest:
		err := ranged(bound{"page_size", int64(r.PageSize), 0, MaxPage}, bound{"periods", int64(r.Periods), 0, MaxSimulated},
			bound{"document's bytes", int64(len(r.Document)), 0, MaxDocument}, bound{"file's bytes", int64(len(r.File)), 0, MaxFile})
		if err == nil && r.Tenant != "" {
			err = TenantID("tenant", r.Tenant)
		}
		if err == nil && r.Plan != "" {
			err = name("plan", r.Plan)
		}
		if err == nil && r.PageToken != "" {
			err = TenantID("page_token", r.PageToken)
		}
		return err
	case *quotav1.ListAuditRequest:
		return first(numberedPage(r.PageSize, r.PageToken), ranged(bound{"actor's bytes", int64(len(r.Actor)), 0, 256},
			bound{"action's bytes", int64(len(r.Action)), 0, 256}, bound{"object's bytes", int64(len(r.Object)), 0, 256}))
	case *quotav1.ListAlertsRequest:
		err := first(numberedPage(r.PageSize, r.PageToken), ranged(bound{"after", r.After, 0, maxCount}))
		switch {
		case err != nil:
			return err
		case !r.Forward && r.After != 0:
			return invalid("after goes with forward")
		case r.State != "" && r.State != "pending" && r.State != "delivered" && r.State != "dead":
			return invalid("state is %s; it must be pending, delivered or dead", limit.Quote(r.State))
		}
		if r.Tenant != "" {
			err = TenantID("tenant", r.Tenant)
		}
		if err == nil && r.Alert != "" {
			err = name("alert", r.Alert)
		}
		return err
	case *quotav1.WatchAlertsRequest:
		err := ranged(bound{"after", r.After, 0, maxCount})
		if err == nil && r.Tenant != "" {
			err = TenantID("tenant", r.Tenant)
		}
		return err
	case *quotav1.GetAlertRequest:
		return ranged(bound{"number", r.Number, 1, maxCount})
	case *quotav1.RetryAlertRequest:
		err := ranged(bound{"number", r.Number, 1, maxCount})
		if err == nil && r.Webhook != "" {
			err = name("webhook", r.Webhook)
		}
		return err
	case *quotav1.TestWebhookRequest:
		return name("webhook", r.Webhook)
	case *quotav1.GetStatementRequest:
		return TenantID("tenant", r.Tenant)
	case *quotav1.ListStatementsRequest:
		return first(TenantID("tenant", r.Tenant), numberedPage(r.PageSize, r.PageToken))
	case *quotav1.ListBreakdownRequest:
		return checkBreakdown(r)
	case *quotav1.ExportBreakdownRequest:
		return first(checkBreakdown(r.GetBreakdown()), ranged(bound{"format", int64(r.Format), 0, int64(quotav1.ExportBreakdownRequest_FORMAT_PARQUET)}))
	case *quotav1.GetUsageRequest:
		if r.Tenant != "" {
			if err := TenantID("tenant", r.Tenant); err != nil {
				return err
			}
		}
		if err := zoned(r.Zone, r.FromMs, r.ToMs); err != nil {
			return err
		}
		return ranged(
			bound{"from_ms", r.FromMs, 0, maxMilliseconds},
			bound{"to_ms", r.ToMs, 0, maxMilliseconds},
			bound{"by", int64(r.By), 0, int64(quotav1.GetUsageRequest_BY_ATTRIBUTE)},
			bound{"page_size", int64(r.PageSize), 0, MaxUsagePage},
			bound{"page_token's bytes", int64(len(r.PageToken)), 0, 4096},
			bound{"shadow_version", r.ShadowVersion, 0, maxCount},
		)
	}
	return nil
}

func checkBreakdown(r *quotav1.ListBreakdownRequest) error {
	if r == nil {
		return nil
	}
	if r.Tenant != "" {
		if err := TenantID("tenant", r.Tenant); err != nil {
			return err
		}
	}
	for field, s := range map[string]string{"plan": r.Plan, "limit": r.Limit, "meter": r.Meter} {
		if s == "" {
			continue
		}
		if err := name(field, s); err != nil {
			return err
		}
	}
	if err := zoned(r.Zone, r.FromMs, r.ToMs); err != nil {
		return err
	}
	return ranged(
		bound{"by's bytes", int64(len(r.By)), 0, 1024},
		bound{"every", int64(r.Every), 0, int64(quotav1.ListBreakdownRequest_EVERY_MONTH)},
		bound{"from_ms", r.FromMs, 0, maxMilliseconds},
		bound{"to_ms", r.ToMs, 0, maxMilliseconds},
		bound{"attribute's bytes", int64(len(r.Attribute)), 0, 1024},
		bound{"height", r.Height, 0, maxCount},
		bound{"since_height", r.SinceHeight, 0, maxCount},
		bound{"top", int64(r.Top), 0, ledger.MaxTop},
		bound{"page_size", int64(r.PageSize), 0, MaxUsagePage},
		bound{"page_token's bytes", int64(len(r.PageToken)), 0, ledger.MaxMark},
	)
}

// zoned checks a time zone, empty for none, and a range in it, whose end is 0 for none.
func zoned(zone string, from, to int64) error {
	if zone != "" {
		if _, err := limit.LoadZone(zone); err != nil {
			return invalid("zone: %v", err)
		}
	}
	if to != 0 && from > to {
		return invalid("from_ms is %d, after to_ms, which is %d", from, to)
	}
	return nil
}
