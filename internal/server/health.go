package server

import (
	"context"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/f4ee788f/quota/internal/server/ready"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Ready reports whether every part works, with the reasons why not.
func (s *Server) Ready() (bool, []string) {
	var reasons []string
	for _, r := range s.ready.Why() {
		reasons = append(reasons, r.Part+": "+r.Reason)
	}
	return len(reasons) == 0, reasons
}

// unready is why the server is not ready, as /readyz tells it.
func (s *Server) unready() (reasons any, ready bool) {
	all := s.ready.Why()
	return all, len(all) == 0
}

// parts are what readiness depends on.
func (s *Server) parts(ledger ready.Part) []ready.Part {
	parts := []ready.Part{{Name: "policy", Check: s.policyCheck}, ledger}
	if p, ok := s.config.Leases.(interface{ Ping(context.Context) error }); ok {
		parts = append(parts, ready.Part{Name: "leases", Check: p.Ping})
	}
	for _, c := range s.config.Checks {
		parts = append(parts, ready.Part{Name: c.Name, Check: c.Ask})
	}
	return parts
}

// policyCheck says why the policy cannot be served, or why nobody can be let in.
func (s *Server) policyCheck(ctx context.Context) error {
	if err := s.view.Check(ctx); err != nil {
		return err
	}
	if s.keys.Keyless() && !s.keys.Open() {
		return ErrNoKeys
	}
	return s.switches.Arm(ctx)
}

// announce tells gRPC health clients. Leases need the lease store and a policy,
// which may be one in memory; without the ledger they go on.
func (s *Server) announce(string, bool) {
	bad := make(map[string]bool)
	for _, r := range s.ready.Why() {
		bad[r.Part] = true
	}
	set := func(service string, serving bool) {
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if serving {
			status = healthpb.HealthCheckResponse_SERVING
		}
		s.health.SetServingStatus(service, status)
	}
	set("", len(bad) == 0)
	set(quotav1.LeaseService_ServiceDesc.ServiceName, !bad["leases"] && s.view.Current().Rules != nil)
	set(quotav1.AdminService_ServiceDesc.ServiceName, !bad["policy"])
	set(quotav1.UsageService_ServiceDesc.ServiceName, !bad["ledger"])
}
