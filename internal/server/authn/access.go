package authn

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// access is who may call a method: the only place that says so.
type access struct {
	need role
	// tenants says how a call is about tenants, for keys limited to some tenants: byTenant, ofNoTenant, or the request
	// field that names them. A dot leads into a message or a list. Empty refuses such keys.
	tenants string
}

const (
	byTenant   = "each of its tenants by itself" // the method answers for those of the key's tenants alone
	ofNoTenant = "none"                          // it tells nothing of tenants
)

// needs is what each method asks for. A method that is not here is
// refused to everybody, so that a new one cannot be served open by mistake.
var needs = map[string]access{
	quotav1.LeaseService_Renew_FullMethodName:     {roleAgent, byTenant},
	quotav1.LeaseService_Watch_FullMethodName:     {roleAgent, byTenant},
	quotav1.LeaseService_Settle_FullMethodName:    {roleAgent, byTenant},
	quotav1.LeaseService_Frontiers_FullMethodName: {roleAgent, byTenant},

	quotav1.UsageService_GetUsage_FullMethodName:           {roleViewer, "tenant"},
	quotav1.UsageService_ListBreakdown_FullMethodName:      {roleViewer, "tenant"},
	quotav1.UsageService_ExportBreakdown_FullMethodName:    {roleViewer, "breakdown.tenant"},
	quotav1.AdminService_GetPolicy_FullMethodName:          {roleViewer, ""},
	quotav1.AdminService_ListPolicyVersions_FullMethodName: {roleViewer, ""},
	quotav1.AdminService_GetShadow_FullMethodName:          {roleViewer, ""},
	quotav1.AdminService_ListPlans_FullMethodName:          {roleViewer, ofNoTenant},
	quotav1.AdminService_GetTenant_FullMethodName:          {roleViewer, "id"},
	quotav1.AdminService_ListTenants_FullMethodName:        {roleViewer, ""},
	quotav1.AdminService_ListPlanChanges_FullMethodName:    {roleViewer, "tenant"},
	quotav1.AdminService_ListPayers_FullMethodName:         {roleViewer, "tenant"},
	quotav1.AdminService_CancelPlanChange_FullMethodName:   {roleOperator, "id"},
	quotav1.AdminService_ListAgents_FullMethodName:         {roleViewer, ""},
	quotav1.AdminService_GetSwitches_FullMethodName:        {roleViewer, ""},
	quotav1.AdminService_GetVersion_FullMethodName:         {roleViewer, ofNoTenant},

	quotav1.StatementService_PreviewStatement_FullMethodName: {roleViewer, "tenant"},
	quotav1.StatementService_GetStatement_FullMethodName:     {roleViewer, "tenant"},
	quotav1.StatementService_ListStatements_FullMethodName:   {roleViewer, "tenant"},
	quotav1.StatementService_CloseStatement_FullMethodName:   {roleAdmin, ""},
	quotav1.StatementService_GiveCredit_FullMethodName:       {roleAdmin, ""},
	quotav1.StatementService_VoidCredit_FullMethodName:       {roleAdmin, ""},
	quotav1.StatementService_ListCredits_FullMethodName:      {roleViewer, "tenant"},
	quotav1.StatementService_CloseDue_FullMethodName:         {roleAdmin, ""},
	quotav1.StatementService_Simulate_FullMethodName:         {roleViewer, ""},

	quotav1.AlertService_ListAlerts_FullMethodName:  {roleViewer, "tenant"},
	quotav1.AlertService_WatchAlerts_FullMethodName: {roleViewer, "tenant"},
	quotav1.AlertService_GetAlert_FullMethodName:    {roleViewer, ""},
	quotav1.AlertService_RetryAlert_FullMethodName:  {roleOperator, ""},
	quotav1.AlertService_TestWebhook_FullMethodName: {roleOperator, ""},

	quotav1.LedgerService_Verify_FullMethodName:  {roleOperator, ""},
	quotav1.LedgerService_Rebuild_FullMethodName: {roleAdmin, ""},

	quotav1.LedgerService_ListQuarantine_FullMethodName:     {roleViewer, ""},
	quotav1.LedgerService_GetQuarantined_FullMethodName:     {roleViewer, ""},
	quotav1.LedgerService_TraceReport_FullMethodName:        {roleViewer, ""},
	quotav1.LedgerService_TraceEntry_FullMethodName:         {roleViewer, ""},
	quotav1.LedgerService_ListCorrections_FullMethodName:    {roleViewer, ""},
	quotav1.LedgerService_Reconcile_FullMethodName:          {roleViewer, ""},
	quotav1.LedgerService_GetCorrection_FullMethodName:      {roleViewer, ""},
	quotav1.LedgerService_RetryQuarantined_FullMethodName:   {roleOperator, ""},
	quotav1.LedgerService_DiscardQuarantined_FullMethodName: {roleOperator, ""},
	quotav1.LedgerService_DeclareLost_FullMethodName:        {roleOperator, ""},
	quotav1.LedgerService_Adjust_FullMethodName:             {roleAdmin, ""},
	quotav1.LedgerService_RevertCorrection_FullMethodName:   {roleAdmin, ""},
	quotav1.LedgerService_Backfill_FullMethodName:           {roleBackfill, "rows.tenant"},

	quotav1.AdminService_CreateTenant_FullMethodName:     {roleOperator, ""},
	quotav1.AdminService_SetTenantPlan_FullMethodName:    {roleOperator, "id"},
	quotav1.AdminService_SetTenantLimit_FullMethodName:   {roleOperator, "id"},
	quotav1.AdminService_UnsetTenantLimit_FullMethodName: {roleOperator, "id"},
	quotav1.AdminService_SuspendTenant_FullMethodName:    {roleOperator, "id"},
	quotav1.AdminService_ResumeTenant_FullMethodName:     {roleOperator, "id"},
	quotav1.AdminService_SetSwitches_FullMethodName:      {roleOperator, ""},

	quotav1.AdminService_ApplyPolicy_FullMethodName:    {roleAdmin, ""},
	quotav1.AdminService_DeleteTenant_FullMethodName:   {roleAdmin, ""}, // nobody can take it back
	quotav1.AdminService_RollbackPolicy_FullMethodName: {roleAdmin, ""},
	quotav1.AdminService_ClearShadow_FullMethodName:    {roleAdmin, ""},
	quotav1.AdminService_PromoteShadow_FullMethodName:  {roleAdmin, ""},
	quotav1.AdminService_CreateKey_FullMethodName:      {roleAdmin, ""},
	quotav1.AdminService_RotateKey_FullMethodName:      {roleAdmin, ""},
	quotav1.AdminService_RevokeKey_FullMethodName:      {roleAdmin, ""},
	quotav1.AdminService_ListKeys_FullMethodName:       {roleAdmin, ""},
	quotav1.AdminService_ListAudit_FullMethodName:      {roleAdmin, ""},
}

// about returns the tenants that a request names, and whether it is about those below them as well.
func (a access) about(req proto.Message) (tenants []string, subtree bool) {
	field, of := a.tenants, req.ProtoReflect()
	for {
		name, rest, more := strings.Cut(field, ".")
		fd := of.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch {
		case !more:
			if below := of.Descriptor().Fields().ByName("subtree"); below != nil {
				subtree = of.Get(below).Bool()
			}
			return []string{of.Get(fd).String()}, subtree
		case fd.IsList():
			list := of.Get(fd).List()
			for i := range list.Len() {
				m := list.Get(i).Message()
				tenants = append(tenants, m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(rest))).String())
			}
			return tenants, false
		}
		of, field = of.Get(fd).Message(), rest
	}
}

// narrow refuses a call of a key for some tenants only, unless the call is about these. authorize has checked before
// that the method can be about tenants.
func (p *Principal) narrow(ctx context.Context, a access, req proto.Message) error {
	if !p.Scope.NarrowsTenants() || a.tenants == byTenant || a.tenants == ofNoTenant {
		return nil
	}
	tenants, subtree := a.about(req)
	for i, r := range p.Scope.Reach(ctx, tenants) {
		switch {
		case tenants[i] == "":
			return fmt.Errorf("%w: key %s is for some tenants only: name one of them", fault.ErrDenied, p.Name)
		case r == Undecided:
			return fmt.Errorf("%w: whether key %s is for tenant %s cannot be found out now", fault.ErrUnavailable, p.Name, limit.Quote(tenants[i]))
		case r != Within:
			return fmt.Errorf("%w: key %s is not for tenant %s", fault.ErrDenied, p.Name, limit.Quote(tenants[i]))
		case subtree && !p.Scope.subtree:
			return fmt.Errorf("%w: key %s is not for the tenants below %s", fault.ErrDenied, p.Name, limit.Quote(tenants[i]))
		}
	}
	return nil
}
