package stack

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Others is the tenant under which Usage puts the units of tenants that were not named. It cannot be a tenant's id.
const Others = "(others)"

// readers is how many questions are asked at a time.
const readers = 8

// Usage reads from the ledger all units ever admitted on a meter, by tenant. Those of tenants that are not named are
// added up, if there are any.
func Usage(ctx context.Context, conn grpc.ClientConnInterface, meter string, tenants []string) (map[string]int64, error) {
	units := make([]int64, len(tenants))
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, t := range tenants {
		group.Go(func() (err error) {
			units[i], err = used(asking, conn, meter, t)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	others, err := used(ctx, conn, meter, "")
	if err != nil {
		return nil, err
	}
	byTenant := make(map[string]int64, len(tenants))
	for i, t := range tenants {
		byTenant[t] = units[i]
		others -= units[i]
	}
	if others != 0 {
		byTenant[Others] = others
	}
	return byTenant, nil
}

// used reads one tenant's units, or everybody's if tenant is empty.
func used(ctx context.Context, conn grpc.ClientConnInterface, meter, tenant string) (units int64, err error) {
	request := &quotav1.GetUsageRequest{Tenant: tenant, By: quotav1.GetUsageRequest_BY_LIMIT, PageSize: 1000}
	for {
		answer, err := quotav1.NewUsageServiceClient(conn).GetUsage(ctx, request)
		if err != nil {
			return 0, fmt.Errorf("stack: usage of %q: %w", tenant, err)
		}
		for _, r := range answer.GetRows() {
			if r.GetMeter() == meter {
				units += r.GetAdmitted()
			}
		}
		if request.PageToken = answer.GetNextPageToken(); request.PageToken == "" {
			return units, nil
		}
	}
}

// Apply makes a document the policy in force, once the server is there.
func Apply(ctx context.Context, conn grpc.ClientConnInterface, document string) error {
	_, err := quotav1.NewAdminServiceClient(conn).ApplyPolicy(ctx, &quotav1.ApplyPolicyRequest{Document: document, File: "load.yaml"}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("stack: apply the policy: %w", err)
	}
	return nil
}

// SetPlan changes a tenant's plan.
func SetPlan(ctx context.Context, conn grpc.ClientConnInterface, tenant, plan string) error {
	if _, err := quotav1.NewAdminServiceClient(conn).SetTenantPlan(ctx, &quotav1.SetTenantPlanRequest{Id: tenant, Plan: plan}); err != nil {
		return fmt.Errorf("stack: plan of %q: %w", tenant, err)
	}
	return nil
}

// Bearer sends a key with every call; without one it does nothing.
func Bearer(key string) grpc.DialOption { return grpc.WithPerRPCCredentials(bearer(key)) }

type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: a load runs on a
// test network, where a key may travel in the clear.
func (bearer) RequireTransportSecurity() bool { return false }
