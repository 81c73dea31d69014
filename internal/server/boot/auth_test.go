package boot_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const adminKey = "a-first-key-for-tests"

// least is who may call what, stated anew here: the least role, or agent.
var least = map[string]string{
	"Frontiers": "agent", "GetUsage": "viewer", "ListBreakdown": "viewer", "ExportBreakdown": "viewer", "GetPolicy": "viewer", "ListPolicyVersions": "viewer", "GetShadow": "viewer", "ListPlans": "viewer",
	"GetTenant": "viewer", "ListTenants": "viewer", "ListAgents": "viewer", "GetSwitches": "viewer", "GetVersion": "viewer",
	"CreateTenant": "operator", "SetTenantPlan": "operator", "SetTenantLimit": "operator", "UnsetTenantLimit": "operator", "ListPlanChanges": "viewer", "ListPayers": "viewer", "CancelPlanChange": "operator", "SetSwitches": "operator", "SuspendTenant": "operator", "ResumeTenant": "operator",
	"ApplyPolicy": "admin", "DeleteTenant": "admin", "RollbackPolicy": "admin", "ClearShadow": "admin", "PromoteShadow": "admin", "CreateKey": "admin", "RevokeKey": "admin", "RotateKey": "admin", "ListKeys": "admin", "ListAudit": "admin",
	"Renew": "agent", "Watch": "agent", "Settle": "agent",
}

func may(role, need string) bool {
	ranks := map[string]int{"viewer": 1, "operator": 2, "admin": 3}
	if role == "agent" || need == "agent" {
		return role == need
	}
	return ranks[role] >= ranks[need]
}

// key makes a key of a role.
func (n *node) newKey(role, agent string) *quotav1.CreateKeyResponse {
	n.t.Helper()
	resp, err := n.admin().CreateKey(n.t.Context(), &quotav1.CreateKeyRequest{Role: role, Agent: agent})
	if err != nil {
		n.t.Fatalf("create a key: %v", err)
	}
	return resp
}

// Each role with each method, and the methods' whole list: what is let in gets as
// far as the service, what is not gets no further than the gate.
func TestEachRoleWithEachMethod(t *testing.T) {
	c := embedded(t, policyText)
	c.BootstrapAdminKey = adminKey
	n := start(t, c)
	keys := map[string]string{"nobody": "", "stranger": "not-a-key-of-anybody"}
	for _, role := range []string{"viewer", "operator", "admin", "agent"} {
		agent := ""
		if role == "agent" {
			agent = "gw-1"
		}
		keys[role] = n.newKey(role, agent).Secret
	}
	called := 0
	for role, key := range keys {
		conn := n.dial(key)
		for _, d := range []grpc.ServiceDesc{quotav1.LeaseService_ServiceDesc, quotav1.AdminService_ServiceDesc, quotav1.UsageService_ServiceDesc} {
			var methods []string
			for _, m := range d.Methods {
				methods = append(methods, m.MethodName)
			}
			for _, s := range d.Streams {
				methods = append(methods, s.StreamName)
			}
			for _, m := range methods {
				called++
				got := status.Code(callEmpty(t.Context(), conn, "/"+d.ServiceName+"/"+m))
				switch {
				case role == "nobody" || role == "stranger":
					if got != codes.Unauthenticated {
						t.Errorf("%s calls %s: got %s, want Unauthenticated", role, m, got)
					}
				case may(role, least[m]) == (got == codes.PermissionDenied) || got == codes.Unauthenticated:
					t.Errorf("%s calls %s: got %s, want let in: %t", role, m, got, may(role, least[m]))
				}
			}
		}
	}
	if called != len(keys)*len(least) {
		t.Errorf("%d calls, want each of %d methods with each of %d keys", called, len(least), len(keys))
	}
	// REST passes the same gate, and so do files.
	for role, want := range map[string]int{"nobody": 401, "stranger": 401, "viewer": 200, "agent": 403} {
		if code, body := n.call("GET", "/v1/usage/export", keys[role], ""); code != want {
			t.Errorf("%s exports usage: got %d %s, want %d", role, code, body, want)
		}
	}
	for role, want := range map[string]int{"nobody": 401, "stranger": 401, "viewer": 403, "operator": 403, "admin": 200, "agent": 403} {
		if code, body := n.call("GET", "/v1/keys", keys[role], ""); code != want {
			t.Errorf("%s calls GET /v1/keys: got %d %s, want %d", role, code, body, want)
		}
	}
	if _, body := n.call("GET", "/v1/keys", keys["admin"], ""); strings.Contains(body, keys["admin"]) || !strings.Contains(body, "operator") {
		t.Errorf("the list of keys is %s: want roles, and no secret", body)
	}
}

// callEmpty calls a method with an empty message.
func callEmpty(ctx context.Context, conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&quotav1.ListPlansRequest{}); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&quotav1.ListPlansRequest{})
}

// An agent's key settles and renews for the agent it is bound to.
func TestAgentKeysAreBound(t *testing.T) {
	c := embedded(t, policyText)
	c.BootstrapAdminKey = adminKey
	n := start(t, c)
	lease := quotav1.NewLeaseServiceClient(n.dial(n.newKey("agent", "gw-1").Secret))
	for agent, want := range map[string]codes.Code{"gw-1": codes.OK, "gw-2": codes.PermissionDenied} {
		_, err := lease.Renew(t.Context(), &quotav1.RenewRequest{Agent: agent, Epoch: 1})
		if status.Code(err) != want {
			t.Errorf("renew for %s: got %v, want %s", agent, err, want)
		}
		_, err = lease.Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 1, 0, 1), report(agent, 2, 1, 1)}})
		if status.Code(err) != want {
			t.Errorf("settle for gw-1 and %s: got %v, want %s", agent, err, want)
		}
		stream, err := lease.Watch(t.Context(), &quotav1.WatchRequest{Agent: agent, Epoch: 1})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("watch for %s: got %v, want %s", agent, err, want)
		}
	}
}

// An open server closes with its first key, and a revoked key ends.
func TestFirstKeyClosesTheDoor(t *testing.T) {
	n := start(t, embedded(t, policyText))
	made := n.newKey("admin", "")
	if _, err := n.admin().ListKeys(t.Context(), &quotav1.ListKeysRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a key after the first was made: got %v, want Unauthenticated", err)
	}
	n.key = made.Secret
	second := n.newKey("viewer", "")
	conn := n.dial(second.Secret)
	if _, err := quotav1.NewAdminServiceClient(conn).GetVersion(t.Context(), &quotav1.GetVersionRequest{}); err != nil {
		t.Errorf("a good key: got %v", err)
	}
	if k, err := n.admin().RevokeKey(t.Context(), &quotav1.RevokeKeyRequest{Id: second.Key.Id}); err != nil || k.Key.RevokedMs == 0 {
		t.Fatalf("revoke: got %v, %v", k.GetKey(), err)
	}
	if _, err := quotav1.NewAdminServiceClient(conn).GetVersion(t.Context(), &quotav1.GetVersionRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked key: got %v, want Unauthenticated", err)
	}
}

// A caller without a key is refused by its headers: a message that is too large to
// be read at all is never looked at.
func TestNoKeyNoReading(t *testing.T) {
	c := embedded(t, policyText)
	c.BootstrapAdminKey = adminKey
	n := start(t, c)
	huge := &quotav1.SettleRequest{Reports: []*quotav1.Report{{Agent: "gw-1", Payload: make([]byte, 64<<20)}}}
	for key, want := range map[string]codes.Code{"": codes.Unauthenticated, "wrong": codes.Unauthenticated, n.newKey("agent", "gw-1").Secret: codes.ResourceExhausted} {
		_, err := quotav1.NewLeaseServiceClient(n.dial(key)).Settle(t.Context(), huge)
		if status.Code(err) != want {
			t.Errorf("64 MB with the key %q: got %v, want %s", key, err, want)
		}
	}
}
