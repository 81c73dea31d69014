package stack

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Usage reads from the ledger all units ever admitted on a meter, by tenant.
func Usage(ctx context.Context, conn grpc.ClientConnInterface, meter string) (map[string]int64, error) {
	units := make(map[string]int64)
	request := &quotav1.GetUsageRequest{By: quotav1.GetUsageRequest_TOTAL, PageSize: 10_000}
	for {
		answer, err := quotav1.NewUsageServiceClient(conn).GetUsage(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("stack: usage: %w", err)
		}
		for _, r := range answer.GetRows() {
			if r.GetMeter() == meter {
				units[r.GetTenant()] += r.GetAdmitted()
			}
		}
		if request.Page = answer.GetNextPage(); request.Page == "" {
			return units, nil
		}
	}
}

// Apply makes a document the policy in force.
func Apply(ctx context.Context, conn grpc.ClientConnInterface, document string) error {
	_, err := quotav1.NewAdminServiceClient(conn).ApplyPolicy(ctx, &quotav1.ApplyPolicyRequest{Document: document, File: "load.yaml"})
	if err != nil {
		return fmt.Errorf("stack: apply the policy: %w", err)
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
