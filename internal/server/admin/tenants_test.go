package admin

import (
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// A list has all tenants, says which of them cannot be made out and why, and goes on behind them; who mends one may.
func TestFaultyTenantListed(t *testing.T) { servertest.OnEngines(t, testFaultyTenantListed) }

func testFaultyTenantListed(t *testing.T, on servertest.Engine) {
	s := servertest.NewSpoilt(t, on)
	s.Spoil("b")
	admin := &Service{store: s.Store}
	var ids []string
	for after := ""; ; {
		resp, err := admin.ListTenants(t.Context(), &quotav1.ListTenantsRequest{PageSize: 2, PageToken: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range resp.Tenants {
			ids = append(ids, tenant.Id+" "+tenant.Plan)
			if why, faulty := resp.Faulty[tenant.Id]; faulty != (tenant.Id == "b") || faulty && !strings.Contains(why, "gone") {
				t.Errorf("tenant %s: faulty %t, %s", tenant.Id, faulty, why)
			}
		}
		if after = resp.NextPageToken; after == "" {
			break
		}
	}
	if got := strings.Join(ids, ", "); got != "a p, b p, c p" {
		t.Errorf("listed %s", got)
	}
	s.Apply(servertest.FaultyPolicy + "# and b as it was\n")
	if resp, err := admin.ListTenants(t.Context(), &quotav1.ListTenantsRequest{}); err != nil || len(resp.Faulty) != 0 {
		t.Errorf("mended: %v, %v", resp, err)
	}
}
