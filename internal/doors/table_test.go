package doors

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/grpcquota"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// decided is a client that decides everything alike.
type decided struct {
	Client
	d client.Decision
}

func (c decided) AllowN(context.Context, int64, ...client.Attribute) client.Decision { return c.d }
func (c decided) Decide(context.Context, client.Request) client.Decision             { return c.d }

func (c decided) AllowTogether(_ context.Context, requests []client.Request) []client.Decision {
	return slices.Repeat([]client.Decision{c.d}, len(requests))
}
func (decided) Book(context.Context, ...client.Request) error           { return nil }
func (decided) Refund(context.Context, ...client.Request) (bool, error) { return true, nil }
func (decided) PolicyVersion() int64                                    { return 1 }
func (decided) Gateways() []client.Gateway {
	return []client.Gateway{{Domain: "edge", Descriptors: map[string]string{"x-tenant": "tenant"}}}
}

// documented is the table of docs/doors.md: reason to HTTP status, gRPC code, Envoy's answer and whether to come again.
func documented(t *testing.T) map[string][4]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/doors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| reason | HTTP | gRPC | Envoy | come again? |")
	if !found {
		t.Fatal("docs/doors.md has no table of answers")
	}
	rows := make(map[string][4]string)
	for i, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if i < 2 || len(cells) != 5 {
			if i > 2 {
				break
			}
			continue
		}
		var row [4]string
		for k := range row {
			row[k] = strings.Trim(strings.TrimSpace(cells[k+1]), "`")
		}
		rows[strings.Trim(strings.TrimSpace(cells[0]), "`")] = row
	}
	return rows
}

// Every door answers every reason as the table of docs/doors.md says.
func TestEveryDoorAnswersAsTheTableSays(t *testing.T) {
	rows := documented(t)
	reasons := 0
	for reason := client.Reason(0); reason.String() != "reason"; reason++ {
		word := reason.String()
		if name := quotav1.Answer_Reason_name[int32(reason)+1]; strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "REASON_")), "_", "-") != word {
			t.Errorf("%s: thin clients are told %s", word, name)
		}
		if reason == client.ReasonUnlimited || reason == client.ReasonOverage {
			continue // nothing is denied for these
		}
		reasons++
		row, is := rows[word]
		if !is {
			t.Errorf("%s: docs/doors.md does not say how it is answered", word)
			continue
		}
		d := client.Decision{Reason: reason, RetryAfter: 1500 * time.Millisecond}
		again := row[3] == "yes"
		check := func(door, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s at %s: got %s, want %s", word, door, got, want)
			}
		}
		http2 := func(h http.Handler) (string, http.Header) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/check", nil))
			return fmt.Sprint(w.Code), w.Header()
		}
		say := func(door string, h http.Handler, want string) {
			t.Helper()
			got, header := http2(h)
			check(door, got, want)
			if retry := header.Get("Retry-After"); again && retry != "2" || !again && retry != "" {
				t.Errorf("%s at %s: Retry-After: got %q, want one: %v", word, door, retry, again)
			}
		}
		never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler was reached", word) })
		say("Middleware", httpquota.Middleware(decided{d: d})(never), row[0])
		say("/check", NewCheck(decided{d: d}, CheckConfig{}, newMetrics(t)), row[0])
		unknown := row[0]
		if reason == client.ReasonNoPlan {
			unknown = "401"
		}
		say("Middleware with 401", httpquota.Middleware(decided{d: d}, httpquota.WithUnknownTenant(401))(never), unknown)
		say("/check with 401", NewCheck(decided{d: d}, CheckConfig{Unknown: 401}, newMetrics(t)), unknown)

		_, err := grpcquota.Unary(decided{d: d})(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, nil)
		check("Unary", status.Code(err).String(), codeNamed(row[1]))
		if n := len(status.Convert(err).Details()); again != (n == 1) {
			t.Errorf("%s at Unary: %d details, want a RetryInfo: %v", word, n, again)
		}
		err = grpcquota.Stream(decided{d: d})(nil, silent{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/B"}, nil)
		check("Stream", status.Code(err).String(), codeNamed(row[1]))

		answer, err := NewEnvoy(decided{d: d}, newMetrics(t), slog.New(slog.DiscardHandler)).ShouldRateLimit(t.Context(), edge(descriptor("x-tenant=acme")))
		got := answer.GetOverallCode().String()
		if err != nil {
			got = strings.ToUpper(status.Code(err).String())
		}
		check("Envoy", got, row[2])
		if answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
			wait := answer.GetStatuses()[0].GetDurationUntilReset()
			for _, h := range answer.GetResponseHeadersToAdd() {
				if h.GetKey() == "retry-after" && !again {
					t.Errorf("%s at Envoy: retry-after: %s", word, h.GetValue())
				}
			}
			if !again && wait != nil {
				t.Errorf("%s at Envoy: %v until reset, want none", word, wait)
			}
		}
		if r := headers.RowOf(word); r.Status < 400 || r.Code == codes.OK {
			t.Errorf("%s: %+v is no denial", word, r)
		}
		if over := r429(word); (row[0] == "429") != over {
			t.Errorf("%s is %s: 429 is for what is over quota", word, row[0])
		}
	}
	if len(rows) != reasons {
		t.Errorf("docs/doors.md has %d reasons, want %d", len(rows), reasons)
	}
}

func r429(reason string) bool {
	return reason == "limit" || reason == "priority" || reason == "queue-full"
}

// codeNamed is a code's name as gRPC's Go has it.
func codeNamed(name string) string {
	var c codes.Code
	if err := c.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		return name
	}
	return c.String()
}

type silent struct {
	grpc.ServerStream
	ctx context.Context
}

func (s silent) Context() context.Context    { return s.ctx }
func (s silent) SetHeader(metadata.MD) error { return nil }
