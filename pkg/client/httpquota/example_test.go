package httpquota_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

// threeUnits stands for a client.Client, of a plan with three units an hour.
type threeUnits struct{ left int64 }

func (q *threeUnits) AllowN(_ context.Context, n int64, _ ...client.Attribute) client.Decision {
	of := client.Details{Limit: "requests", Quota: 3, Window: time.Hour, Remaining: q.left - n, Reset: time.Hour}
	if q.left < n {
		return client.Decided(false, client.ReasonLimit, time.Hour, of)
	}
	q.left -= n
	return client.Decided(true, client.ReasonLimit, 0, of)
}

// A middleware answers what a limit denies, before the handler sees it.
func ExampleMiddleware() {
	quota := &threeUnits{3} // client.Dial(ctx, "quota.internal:7600")
	app := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	limited := httpquota.Middleware(quota)(app)
	for range 4 {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set("X-Tenant", "umbrella") // set, or cleared, by whoever authenticates
		answer := httptest.NewRecorder()
		limited.ServeHTTP(answer, request)
		fmt.Println(answer.Code, answer.Header().Get("X-RateLimit-Remaining"), "left")
	}
	// Output:
	// 200 2 left
	// 200 1 left
	// 200 0 left
	// 429 0 left
}

// What a request costs, and who asks, may be said by the program.
func ExampleWithCost() {
	quota := &threeUnits{3}
	app := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	limited := httpquota.Middleware(quota,
		httpquota.WithAttributes(func(r *http.Request) []client.Attribute {
			return []client.Attribute{client.Tenant(r.Header.Get("X-Org")), client.Endpoint(r.URL.Path)}
		}),
		httpquota.WithCost(func(*http.Request) int64 { return 2 }),
	)(app)
	for range 2 {
		answer := httptest.NewRecorder()
		limited.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/reports", nil))
		fmt.Println(answer.Code)
	}
	// Output:
	// 200
	// 429
}
