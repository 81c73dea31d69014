package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	"github.com/f4ee788f/quota/internal/server/switches"
	"github.com/f4ee788f/quota/internal/server/view"
	"github.com/f4ee788f/quota/internal/version"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Service is what operators call. Bounds and roles are checked before it is
// reached; every change is audited by the store, in its own transaction.
type Service struct {
	quotav1.UnimplementedAdminServiceServer
	store    policystore.Store
	keys     Keys
	ledger   ledger.Store
	view     View
	switches *switches.Switchboard
	// periodAt is the billing period of a tenant that a time is in.
	periodAt func(ctx context.Context, tenant string, at time.Time) (billing.Period, error)
	now      func() time.Time
	// policyFile is AdminConfig.PolicyFile.
	policyFile func(*policy.Document) string
	leases     string // the lease store's and
	stored     string // the ledger's engine, for GetVersion
}

// Config is what the service is made of.
type Config struct {
	Store    policystore.Store
	Ledger   ledger.Store
	Keys     Keys
	View     View
	Switches *switches.Switchboard
	// PeriodAt is the billing period of a tenant that a time is in.
	PeriodAt func(ctx context.Context, tenant string, at time.Time) (billing.Period, error)
	Now      func() time.Time
	// PolicyFile returns the path of the policy file that rules on this server, if it differs from the document. Nil
	// where there is no file.
	PolicyFile             func(*policy.Document) string
	LeaseStore, LedgerName string // engines, for GetVersion
}

// Keys is who may call: see authn.Keyring.
type Keys interface {
	// InsecurelyOpen reports whether no key is ever asked for.
	InsecurelyOpen() bool
}

// View is what is in force: see view.View.
type View interface {
	Current() *view.InForce
	Look(ctx context.Context) error
	UnknownPolicy() error
}

// New returns the service.
func New(c Config) *Service {
	return &Service{
		store: c.Store, ledger: c.Ledger, keys: c.Keys, view: c.View, switches: c.Switches, periodAt: c.PeriodAt, now: c.Now,
		policyFile: c.PolicyFile, leases: c.LeaseStore, stored: c.LedgerName,
	}
}

// changed brings this server up to date with a change that it has just made, so that its caller finds it in force. What
// this look misses the next one finds.
func (s *Service) changed(ctx context.Context) {
	_ = s.view.Look(ctx) // logged there; the change itself is stored
}

// ApplyPolicy validates a document and makes it the next version.
func (s *Service) ApplyPolicy(ctx context.Context, req *quotav1.ApplyPolicyRequest) (*quotav1.ApplyPolicyResponse, error) {
	doc, err := policy.Parse(req.File, []byte(req.Document))
	if err != nil {
		return nil, err
	}
	var applied policystore.Applied
	if req.Shadow {
		if req.BaseVersion != 0 {
			return nil, fmt.Errorf("%w: base_version is of the version in force, which a shadow does not replace", fault.ErrInvalid)
		}
		applied, err = s.store.SetShadow(ctx, authn.PrincipalOf(ctx).Name, doc, req.DryRun)
	} else {
		applied, err = s.store.Apply(ctx, authn.PrincipalOf(ctx).Name, doc, req.BaseVersion, req.DryRun)
	}
	resp, err := s.applied(ctx, applied, err, req.DryRun)
	if err != nil {
		return nil, err
	}
	resp.Warnings = append(warningsProto(doc.Warnings()), resp.Warnings...)
	if s.policyFile != nil && !req.Shadow {
		resp.PolicyFile = s.policyFile(doc)
	}
	return &quotav1.ApplyPolicyResponse{Change: resp}, nil
}

func warningsProto(warnings policy.Faults) (all []*quotav1.Fault) {
	for _, w := range warnings {
		all = append(all, &quotav1.Fault{File: w.File, Line: int32(w.Line), Message: w.Message})
	}
	return all
}

// GetShadow returns the version that is tried.
func (s *Service) GetShadow(ctx context.Context, _ *quotav1.GetShadowRequest) (*quotav1.GetShadowResponse, error) {
	heads, err := s.store.Heads(ctx)
	if err != nil {
		return nil, err
	}
	if heads.Shadow == 0 {
		return nil, fmt.Errorf("%w: no shadow policy is tried", fault.ErrNotFound)
	}
	v, err := s.store.Version(ctx, heads.Shadow)
	if err != nil {
		return nil, err
	}
	return &quotav1.GetShadowResponse{Policy: versionProto(v, heads)}, nil
}

// ClearShadow ends the trial.
func (s *Service) ClearShadow(ctx context.Context, _ *quotav1.ClearShadowRequest) (*quotav1.ClearShadowResponse, error) {
	was, err := s.store.ClearShadow(ctx, authn.PrincipalOf(ctx).Name)
	if err != nil {
		return nil, err
	}
	s.changed(ctx)
	return &quotav1.ClearShadowResponse{Version: was}, nil
}

// PromoteShadow makes the shadow's document the next version in force.
func (s *Service) PromoteShadow(ctx context.Context, req *quotav1.PromoteShadowRequest) (*quotav1.PromoteShadowResponse, error) {
	applied, err := s.store.PromoteShadow(ctx, authn.PrincipalOf(ctx).Name, req.Version)
	if err != nil {
		return nil, err
	}
	s.changed(ctx) // the trial ended, whether the policy changed or not
	out, err := s.ruled(ctx, applied)
	return &quotav1.PromoteShadowResponse{Change: out}, err
}

// ruled is the answer for a stored document that became the version in force.
func (s *Service) ruled(ctx context.Context, a policystore.Applied) (*quotav1.PolicyChange, error) {
	resp, err := s.applied(ctx, a, nil, false)
	if err != nil || s.policyFile == nil {
		return resp, err
	}
	// The change is made. If the version cannot be read, the answer leaves the file out.
	if v, err := s.store.Version(ctx, a.Version); err == nil {
		if doc, err := policy.Parse(v.File, []byte(v.Text)); err == nil {
			resp.PolicyFile = s.policyFile(doc)
		}
	}
	return resp, nil
}

// RollbackPolicy makes an earlier version's document the next version.
func (s *Service) RollbackPolicy(ctx context.Context, req *quotav1.RollbackPolicyRequest) (*quotav1.RollbackPolicyResponse, error) {
	applied, err := s.store.Rollback(ctx, authn.PrincipalOf(ctx).Name, req.Version)
	if err != nil {
		return nil, err
	}
	out, err := s.ruled(ctx, applied)
	return &quotav1.RollbackPolicyResponse{Change: out}, err
}

func (s *Service) applied(ctx context.Context, a policystore.Applied, err error, dryRun bool) (*quotav1.PolicyChange, error) {
	if err != nil {
		return nil, err
	}
	if a.Changed && !dryRun {
		s.changed(ctx)
	}
	return &quotav1.PolicyChange{Version: a.Version, Changed: a.Changed, Changes: a.Changes, Warnings: warningsProto(a.Warnings)}, nil
}

// GetPolicy returns a version's document.
func (s *Service) GetPolicy(ctx context.Context, req *quotav1.GetPolicyRequest) (*quotav1.GetPolicyResponse, error) {
	v, err := s.store.Version(ctx, req.Version)
	if err != nil {
		return nil, err
	}
	heads, err := s.store.Heads(ctx)
	if err != nil {
		return nil, err
	}
	return &quotav1.GetPolicyResponse{Policy: versionProto(v, heads)}, nil
}

func versionProto(v policystore.Version, heads policystore.Heads) *quotav1.PolicyVersion {
	return &quotav1.PolicyVersion{
		Version: v.Number, Document: v.Text, Author: v.Author, CreatedMs: rpc.Millis(v.Created),
		Shadow: v.Shadow, Active: v.Number == heads.Version || v.Number == heads.Shadow,
	}
}

// ListPolicyVersions returns versions, newest first.
func (s *Service) ListPolicyVersions(ctx context.Context, req *quotav1.ListPolicyVersionsRequest) (*quotav1.ListPolicyVersionsResponse, error) {
	n := rpc.Page(req.PageSize)
	versions, err := s.store.Versions(ctx, wire.PageNumber(req.PageToken), n)
	if err != nil {
		return nil, err
	}
	heads, err := s.store.Heads(ctx)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListPolicyVersionsResponse{}
	for _, v := range versions {
		resp.Versions = append(resp.Versions, versionProto(v, heads))
	}
	if len(versions) == n {
		resp.NextPageToken = wire.PageToken(versions[n-1].Number)
	}
	return resp, nil
}

// ListPlans returns the plans in force.
func (s *Service) ListPlans(context.Context, *quotav1.ListPlansRequest) (*quotav1.ListPlansResponse, error) {
	now := s.view.Current()
	if now.Rules == nil {
		return nil, s.view.UnknownPolicy()
	}
	resp := &quotav1.ListPlansResponse{DefaultPlan: now.Rules.Policy.DefaultPlan, Prices: make(map[string]string)}
	for _, l := range now.Rules.Policy.Limits {
		resp.Limits = append(resp.Limits, wire.LimitToProto(l))
	}
	for _, p := range now.Rules.Policy.Plans {
		resp.Plans = append(resp.Plans, wire.PlanToProto(p))
		if price := now.Document.Price(p.Name); price != nil {
			resp.Prices[p.Name] = price.String()
		}
	}
	return resp, nil
}

// CreateTenant adds a tenant.
func (s *Service) CreateTenant(ctx context.Context, req *quotav1.CreateTenantRequest) (*quotav1.CreateTenantResponse, error) {
	t, err := s.store.CreateTenant(ctx, authn.PrincipalOf(ctx).Name, req.Id, req.Plan, req.Parent)
	out, err := s.tenant(ctx, t, err)
	return &quotav1.CreateTenantResponse{Tenant: out}, err
}

// SetTenantLimit gives a tenant an override of one limit.
func (s *Service) SetTenantLimit(ctx context.Context, req *quotav1.SetTenantLimitRequest) (*quotav1.SetTenantLimitResponse, error) {
	o, err := policy.ParseOverride(req.Limit, req.Values)
	if err != nil {
		return nil, err
	}
	c, err := s.store.SetTenantLimit(ctx, authn.PrincipalOf(ctx).Name, req.Id, o, req.Add)
	out, err := s.limitChange(ctx, c, err)
	return &quotav1.SetTenantLimitResponse{Change: out}, err
}

// UnsetTenantLimit takes it back.
func (s *Service) UnsetTenantLimit(ctx context.Context, req *quotav1.UnsetTenantLimitRequest) (*quotav1.UnsetTenantLimitResponse, error) {
	c, err := s.store.UnsetTenantLimit(ctx, authn.PrincipalOf(ctx).Name, req.Id, req.Limit)
	out, err := s.limitChange(ctx, c, err)
	return &quotav1.UnsetTenantLimitResponse{Change: out}, err
}

func (s *Service) limitChange(ctx context.Context, c policy.LimitChange, err error) (*quotav1.TenantLimitChange, error) {
	t, err := s.tenant(ctx, c.Tenant, err)
	if err != nil {
		return nil, err
	}
	return &quotav1.TenantLimitChange{Tenant: t, Changed: c.Changed, Changes: c.Changes, Warnings: c.Warnings}, nil
}

// SuspendTenant has all requests of a tenant denied.
func (s *Service) SuspendTenant(ctx context.Context, req *quotav1.SuspendTenantRequest) (*quotav1.SuspendTenantResponse, error) {
	t, err := s.store.SetSuspended(ctx, authn.PrincipalOf(ctx).Name, req.Id, true)
	out, err := s.tenant(ctx, t, err)
	return &quotav1.SuspendTenantResponse{Tenant: out}, err
}

// ResumeTenant ends that.
func (s *Service) ResumeTenant(ctx context.Context, req *quotav1.ResumeTenantRequest) (*quotav1.ResumeTenantResponse, error) {
	t, err := s.store.SetSuspended(ctx, authn.PrincipalOf(ctx).Name, req.Id, false)
	out, err := s.tenant(ctx, t, err)
	return &quotav1.ResumeTenantResponse{Tenant: out}, err
}

// DeleteTenant closes a tenant for good.
func (s *Service) DeleteTenant(ctx context.Context, req *quotav1.DeleteTenantRequest) (*quotav1.DeleteTenantResponse, error) {
	t, err := s.store.CloseTenant(ctx, authn.PrincipalOf(ctx).Name, req.Id)
	out, err := s.tenant(ctx, t, err)
	return &quotav1.DeleteTenantResponse{Tenant: out}, err
}

func (s *Service) tenant(ctx context.Context, t limit.Tenant, err error) (*quotav1.Tenant, error) {
	if err != nil {
		return nil, err
	}
	s.changed(ctx)
	return wire.TenantToProto(t), nil
}

// GetTenant returns a tenant, from the store rather than from memory.
func (s *Service) GetTenant(ctx context.Context, req *quotav1.GetTenantRequest) (*quotav1.GetTenantResponse, error) {
	tenants, err := s.store.Tenants(ctx, []string{req.Id})
	if err != nil {
		return nil, err
	}
	if len(tenants) != 1 || !tenants[0].Exists {
		return nil, fmt.Errorf("tenant %s: %w", limit.Quote(req.Id), fault.ErrNotFound)
	}
	return &quotav1.GetTenantResponse{Tenant: wire.TenantToProto(tenants[0])}, nil
}

// ListTenants pages by id.
func (s *Service) ListTenants(ctx context.Context, req *quotav1.ListTenantsRequest) (*quotav1.ListTenantsResponse, error) {
	n := rpc.Page(req.PageSize)
	tenants, err := s.store.TenantPage(ctx, req.PageToken, n)
	var faulty policystore.FaultyTenants // all are there, and these without what they have of their own
	if err != nil && !errors.As(err, &faulty) {
		return nil, err
	}
	resp := &quotav1.ListTenantsResponse{}
	for id, why := range faulty {
		if resp.Faulty == nil {
			resp.Faulty = make(map[string]string)
		}
		resp.Faulty[id] = why.Error()
	}
	for _, t := range tenants {
		resp.Tenants = append(resp.Tenants, wire.TenantToProto(t))
	}
	if len(tenants) == n {
		resp.NextPageToken = tenants[n-1].ID
	}
	return resp, nil
}

// ListAgents tells who settles, and through when.
func (s *Service) ListAgents(ctx context.Context, req *quotav1.ListAgentsRequest) (*quotav1.ListAgentsResponse, error) {
	n := rpc.Page(req.PageSize)
	agents, err := s.ledger.Agents(ctx, req.PageToken, n)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.ListAgentsResponse{}
	for _, a := range agents {
		resp.Agents = append(resp.Agents, &quotav1.Agent{
			Id: a.Agent, Epoch: a.Epoch, Seq: a.Seq, Total: a.Total, ThroughMs: rpc.Millis(a.Through), SeenMs: rpc.Millis(a.Seen), State: a.State, Key: a.Key, Reason: rpc.Text(a.Reason),
		})
	}
	if len(agents) == n {
		resp.NextPageToken = agents[n-1].Cursor()
	}
	return resp, nil
}

// ListAudit pages through the audit log.
func (s *Service) ListAudit(ctx context.Context, req *quotav1.ListAuditRequest) (*quotav1.ListAuditResponse, error) {
	n := rpc.Page(req.PageSize)
	rows, err := s.store.Audit(ctx, policystore.AuditQuery{Before: wire.PageNumber(req.PageToken), N: n, Actor: req.Actor, Action: req.Action, Object: req.Object})
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListAuditResponse{}
	for _, r := range rows {
		resp.Rows = append(resp.Rows, &quotav1.AuditRow{Number: r.Number, AtMs: rpc.Millis(r.At), Actor: r.Actor, Action: r.Action, Object: r.Object, Before: r.Before, After: r.After})
	}
	if len(rows) == n {
		resp.NextPageToken = wire.PageToken(rows[n-1].Number)
	}
	return resp, nil
}

// GetSwitches tells what was set, from memory: it is what holds, whatever is away.
func (s *Service) GetSwitches(context.Context, *quotav1.GetSwitchesRequest) (*quotav1.GetSwitchesResponse, error) {
	return &quotav1.GetSwitchesResponse{Switches: s.switchState()}, nil
}

// SetSwitches replaces the switches: here at once, and in each store that answers.
func (s *Service) SetSwitches(ctx context.Context, req *quotav1.SetSwitchesRequest) (*quotav1.SetSwitchesResponse, error) {
	sw, err := wire.SwitchesFromProto(req.Switches)
	if err != nil {
		return nil, err
	}
	if err := s.switches.Set(ctx, authn.PrincipalOf(ctx).Name, sw, req.BaseRevision); err != nil {
		return nil, err
	}
	return &quotav1.SetSwitchesResponse{Switches: s.switchState()}, nil
}

func (s *Service) switchState() *quotav1.Switches {
	sw, pending, file := s.switches.State()
	out := wire.SwitchesToProto(sw)
	out.Pending, out.File = pending, file
	return out
}

// GetVersion tells what the server runs.
func (s *Service) GetVersion(context.Context, *quotav1.GetVersionRequest) (*quotav1.GetVersionResponse, error) {
	return &quotav1.GetVersionResponse{Version: version.String(), Go: version.Go(), LeaseStore: s.leases, Ledger: s.stored}, nil
}
