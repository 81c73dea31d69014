package doors

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// reserved reserves, and returns the id.
func reserved(t *testing.T, door http.Handler, body string) string {
	t.Helper()
	w := post(door, "/v1/reserve", body)
	var answer struct {
		Reservation struct{ ID string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || answer.Reservation.ID == "" {
		t.Fatalf("reserve: %d %s, %v", w.Code, w.Body, err)
	}
	return answer.Reservation.ID
}

// course is calls in their order, with the id put in for ID, and what each is answered.
type course []struct {
	path, body string
	status     int
	says       string
}

func (c course) run(t *testing.T, s *schemas, door http.Handler, id string) {
	t.Helper()
	for i, step := range c {
		w := post(door, step.path, strings.ReplaceAll(step.body, "ID", id))
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.says) {
			t.Errorf("%d: %s %s: got %d %s, want %d %s", i, step.path, step.body, w.Code, w.Body, step.status, step.says)
		}
		s.checkAnswer(step.path, w)
	}
}

// A reservation is extended while there is something, commits once, and gives back the rest; the ledger has what was committed.
func TestJSONReserves(t *testing.T) {
	s := readOpenAPI(t)
	n := newEnvoyNode(t, document)
	reservations := NewReservations(n.client, RandomIDKey(), "")
	defer reservations.Close()
	door := NewJSON(n.client, reservations, JSONConfig{}, newMetrics(t))
	acme := `{"attributes":{"tenant":"acme"},`
	id := reserved(t, door, acme+`"units":6,"expires_seconds":90}`)
	course{
		{"/v1/reserve", acme + `"units":5}`, 200, `"status":429`},
		{"/v1/reserve", acme + `"units":0}`, 200, `"reason":"invalid"`},
		{"/v1/reserve", acme + `"expires_seconds":3601}`, 400, "expires_seconds"},
		{"/v1/reserve", `{"attributes":{"tenant":"` + strings.Repeat("a", 5000) + `"}}`, 400, "4096 bytes"},
		{"/v1/extend", `{"id":"ID","units":3,"used":{"units":4}}`, 200, `"allowed":true`},
		{"/v1/extend", `{"id":"ID","units":2}`, 200, `"status":429`},
		{"/v1/extend", `{"id":"ID","used":{"units":5}}`, 200, `"allowed":true`},
		{"/v1/extend", `{"id":"ID"}`, 400, "nothing is to be reserved"},
		{"/v1/extend", `{"id":"ID","units":-1}`, 400, "write 0 to"},
		{"/v1/extend", `{"id":"ID","used":{"units":1,"costs":{"gold":1}}}`, 400, "gold"},
		{"/v1/commit", `{"id":"ID","units":1,"costs":{"gold":1}}`, 400, "gold"},
		{"/v1/commit", `{"id":"ID","units":1000000001}`, 400, "write 0 to"},
		{"/v1/commit", `{"units":1}`, 400, "no id"},
		{"/v1/commit", `{"id":"ID","units":7}`, 200, `{"committed":{"units":7},"late":false}`},
		{"/v1/commit", `{"id":"ID","units":7}`, 200, `{"committed":{"units":7},"late":false}`},
		{"/v1/commit", `{"id":"ID","units":8}`, 409, "not with these totals"},
		{"/v1/cancel", `{"id":"ID"}`, 409, "has ended"},
		{"/v1/extend", `{"id":"ID","units":1}`, 409, "has ended"},
		{"/v1/commit", `{"id":"IDx","units":7}`, 404, "no reservation's id"},
		{"/v1/commit", `{"id":"` + strings.Repeat("A", 513) + `"}`, 400, "512"},
	}.run(t, s, door, id)
	id = reserved(t, door, acme+`"units":3}`) // 7 of 10 are spent
	course{
		{"/v1/cancel", `{"id":"ID"}`, 200, "{}"},
		{"/v1/cancel", `{"id":"ID"}`, 200, "{}"},
		{"/v1/commit", `{"id":"ID","units":1}`, 409, "has ended"},
	}.run(t, s, door, id)
	if got := n.end("acme")[0]["requests"][0]; got != 7 {
		t.Errorf("the ledger has %d units, want 7", got)
	}
}

// Costs are reserved, extended and committed beside requests, all or nothing; the ledger has each.
func TestJSONCosts(t *testing.T) {
	s := readOpenAPI(t)
	n := newEnvoyNode(t, llm)
	reservations := NewReservations(n.client, RandomIDKey(), "")
	defer reservations.Close()
	door := NewJSON(n.client, reservations, JSONConfig{}, newMetrics(t))
	id := reserved(t, door, `{"attributes":{"tenant":"acme"},"costs":{"tokens_in":900,"tokens_out":2000}}`)
	course{
		{"/v1/decide", `{"requests":[{"attributes":{"tenant":"acme"},"costs":{"tokens_in":101}}]}`, 200, `"status":429,"limit":"tokens"`},
		{"/v1/decide", `{"requests":[{"attributes":{"tenant":"acme"},"costs":{"gold":1}}]}`, 200, `"reason":"invalid","status":400`},
		{"/v1/decide", `{"requests":[{"attributes":{"tenant":"acme"},"costs":{"tokens_in":-1}}]}`, 400, "tokens_in"},
		{"/v1/decide", `{"requests":[{"attributes":{"tenant":"acme"},"costs":{"a":1,"a":1}}]}`, 400, "twice"},
		{"/v1/extend", `{"id":"ID","costs":{"tokens_out":51}}`, 200, `"status":429`},
		{"/v1/extend", `{"id":"ID","costs":{"tokens_out":50},"used":{"units":1,"costs":{"tokens_in":900}}}`, 200, `"allowed":true`},
		{"/v1/commit", `{"id":"ID","units":1,"costs":{"tokens_in":900,"tokens_out":812}}`, 200, `{"committed":{"units":1,"costs":{"tokens_in":900,"tokens_out":812}},"late":false}`},
		{"/v1/decide", `{"requests":[{"attributes":{"tenant":"acme"},"units":0,"costs":{"tokens_in":1}}]}`, 200, `"allowed":true`},
	}.run(t, s, door, id)
	got := n.end("acme")[0]
	if got["requests"][0] != 1 || got["tokens"][0] != 900+2*812+1 {
		t.Errorf("the ledger has %v", got)
	}
}

// A reservation is made once under a key, however often its caller asks.
func TestJSONReservesOnceUnderAKey(t *testing.T) {
	quota := dial(t)
	reservations := NewReservations(quota, RandomIDKey(), "")
	defer reservations.Close()
	door := NewJSON(quota, reservations, JSONConfig{}, newMetrics(t))
	const body = `{"attributes":{"tenant":"acme"},"units":6}`
	first := post(door, "/v1/reserve", body, "Idempotency-Key: k")
	again := post(door, "/v1/reserve", body, "Idempotency-Key: k")
	if first.Code != 200 || first.Body.String() != again.Body.String() || quota.Stats().Reservations != 1 {
		t.Errorf("got %s, then %s; %d reservations", first.Body, again.Body, quota.Stats().Reservations)
	}
	if w := post(door, "/v1/decide", `{"requests":[`+body+`]}`, "Idempotency-Key: k"); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("on another route: %d %s", w.Code, w.Body)
	}
}

// agents are agents in a bubble, by name: "one" and "two" share a secret with "mute", which does not advertise its
// address, and "stranger" has another.
type agents struct {
	doors   map[string]*JSON
	calls   map[string]*grpc.ClientConn
	listens map[string]*bufconn.Listener // by address
	dialing bubbled.Dialing
	down    atomic.Bool // nobody answers other agents
	stops   []func()
}

func startAgents(t *testing.T) *agents {
	t.Helper()
	a := &agents{doors: make(map[string]*JSON), calls: make(map[string]*grpc.ClientConn), listens: make(map[string]*bufconn.Listener), dialing: bubbled.NewDialing()}
	shared := RandomIDKey()
	for _, name := range []string{"one", "two", "mute", "stranger"} {
		n, stop := startNode(t, client.WithAgent(name))
		key, address := shared, name+":7611"
		switch name {
		case "mute":
			address = ""
		case "stranger":
			key = RandomIDKey()
		}
		r := NewReservations(n.client, key, address)
		r.peers.dial = func(ctx context.Context, to string) (net.Conn, error) {
			l := a.listens[to]
			if a.down.Load() || l == nil {
				return nil, net.ErrClosed
			}
			return a.dialing.Dial(ctx, l)
		}
		l := bufconn.Listen(1 << 20)
		a.listens[name+":7611"] = l
		s := grpc.NewServer(grpc.ForceServerCodecV2(ask.Codec{}))
		quotav1.RegisterDecisionServiceServer(s, NewDecide(n.client, r, n.metrics))
		go func() { _ = s.Serve(l) }()
		conn, err := grpc.NewClient("passthrough:"+name, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(a.dialing.To(l)))
		if err != nil {
			t.Fatal(err)
		}
		a.doors[name], a.calls[name] = NewJSON(n.client, r, JSONConfig{}, n.metrics), conn
		a.stops = append(a.stops, func() { r.Close(); _ = conn.Close(); s.Stop(); stop() })
	}
	return a
}

func (a *agents) stop() {
	for _, f := range a.stops {
		f()
	}
}

// Any agent of the installation takes a call about a reservation, and passes it on to the one that has it, once. Who does
// not know the secret refuses with a sentence that says whose the id is.
func TestReservationsAreReachedFromOtherAgents(t *testing.T) {
	s := readOpenAPI(t)
	synctest.Test(t, func(t *testing.T) {
		a := startAgents(t)
		defer a.stop()
		id := reserved(t, a.doors["one"], `{"attributes":{"tenant":"acme"},"units":6}`)
		course{
			{"/v1/extend", `{"id":"ID","units":2,"used":{"units":3}}`, 200, `"allowed":true,"reason":"limit","status":200,"limit":"requests"`},
			{"/v1/commit", `{"id":"ID","units":9}`, 200, `{"committed":{"units":9},"late":false}`},
		}.run(t, s, a.doors["two"], id)
		course{
			{"/v1/commit", `{"id":"ID","units":9}`, 200, `{"committed":{"units":9},"late":false}`},
			{"/v1/commit", `{"id":"ID","units":8}`, 409, "not with these totals"},
			{"/v1/cancel", `{"id":"ID"}`, 409, "has ended"},
		}.run(t, s, a.doors["mute"], id)
		course{{"/v1/commit", `{"id":"ID","units":9}`, 404, `of agent \"one\", or forged`}}.run(t, s, a.doors["stranger"], id)
		mute := reserved(t, a.doors["mute"], `{"attributes":{"tenant":"acme"}}`)
		course{{"/v1/commit", `{"id":"ID","units":1}`, 404, `agent \"mute\" has this reservation, and does not --advertise`}}.run(t, s, a.doors["one"], mute)

		ctx := metadata.AppendToOutgoingContext(t.Context(), passedOn, "1")
		_, err := quotav1.NewDecisionServiceClient(a.calls["two"]).Commit(ctx, &quotav1.CommitRequest{Id: id, Totals: &quotav1.Totals{Units: 9}})
		if status.Code(err) != codes.NotFound {
			t.Errorf("passed on twice: %v", err)
		}
		a.down.Store(true)
		other := reserved(t, a.doors["two"], `{"attributes":{"tenant":"acme"}}`)
		for range 20 {
			course{{"/v1/commit", `{"id":"ID","units":1}`, 503, "does not answer"}}.run(t, s, a.doors["one"], other)
			time.Sleep(time.Second)
		}
		a.down.Store(false) // reached again soon, however long it was away
		time.Sleep(2 * time.Second)
		course{{"/v1/commit", `{"id":"ID","units":1}`, 200, `"late":false`}}.run(t, s, a.doors["one"], other)
	})
}

// Expiry bills what was used, and a Commit that comes late books the rest and says so; later nobody knows the id.
func TestReservationsExpireAndAreCommittedLate(t *testing.T) {
	s := readOpenAPI(t)
	synctest.Test(t, func(t *testing.T) {
		a := startAgents(t)
		defer a.stop()
		id := reserved(t, a.doors["one"], `{"attributes":{"tenant":"acme"},"units":6,"expires_seconds":5}`)
		course{{"/v1/extend", `{"id":"ID","used":{"units":3}}`, 200, `"allowed":true`}}.run(t, s, a.doors["two"], id)
		time.Sleep(6 * time.Second)
		course{
			{"/v1/extend", `{"id":"ID","units":1}`, 409, "has ended"},
			{"/v1/commit", `{"id":"ID","units":8}`, 200, `{"committed":{"units":8},"late":true}`},
			{"/v1/commit", `{"id":"ID","units":8}`, 200, `{"committed":{"units":8},"late":true}`},
			{"/v1/commit", `{"id":"ID","units":9}`, 409, "has ended"},
		}.run(t, s, a.doors["two"], id)
		time.Sleep(client.ReservationKnown + time.Minute)
		course{{"/v1/commit", `{"id":"ID","units":8}`, 404, "not known any more"}}.run(t, s, a.doors["one"], id)
	})
}

// The unary calls mean what JSON means, over the same address as streams.
func TestUnaryCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAgents(t)
		defer a.stop()
		ctx, c := t.Context(), quotav1.NewDecisionServiceClient(a.calls["one"])
		acme := []*quotav1.Attribute{{Name: "tenant", Value: "acme"}}
		got, err := c.Reserve(ctx, &quotav1.ReserveRequest{Attributes: acme, Units: proto.Int64(6), ExpiresSeconds: 30})
		if err != nil || got.GetId() == "" || !got.GetDecision().GetAllowed() || got.GetDecision().GetReason() != quotav1.Answer_REASON_LIMIT || got.GetExpiresSeconds() != 30 || got.GetReserved().GetUnits() != 6 {
			t.Fatalf("%v, %v", got, err)
		}
		poor, err := c.Reserve(ctx, &quotav1.ReserveRequest{Attributes: []*quotav1.Attribute{{Name: "tenant", Value: "poor"}}})
		if err != nil || poor.GetId() != "" || poor.GetDecision().GetAllowed() || poor.GetExpiresSeconds() != 0 || poor.GetReserved() != nil {
			t.Errorf("a denial: %v, %v", poor, err)
		}
		more, err := c.Extend(ctx, &quotav1.ExtendRequest{Id: got.GetId(), Units: 2, Used: &quotav1.Totals{Units: 1}})
		if err != nil || !more.GetDecision().GetAllowed() || more.GetDecision().GetLimit() != "requests" {
			t.Errorf("%v, %v", more, err)
		}
		for range 2 {
			done, err := c.Commit(ctx, &quotav1.CommitRequest{Id: got.GetId(), Totals: &quotav1.Totals{Units: 7}})
			if err != nil || done.GetCommitted().GetUnits() != 7 || done.GetLate() {
				t.Errorf("%v, %v", done, err)
			}
		}
		for want, f := range map[codes.Code]func() error{
			codes.FailedPrecondition: func() error { _, err := c.Cancel(ctx, &quotav1.CancelRequest{Id: got.GetId()}); return err },
			codes.NotFound:           func() error { _, err := c.Cancel(ctx, &quotav1.CancelRequest{Id: "x"}); return err },
			codes.InvalidArgument: func() error {
				_, err := c.Reserve(ctx, &quotav1.ReserveRequest{Attributes: acme, Units: proto.Int64(-1)})
				return err
			},
		} {
			if err := f(); status.Code(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		for _, r := range []*quotav1.ReserveRequest{
			{Attributes: acme, Costs: []*quotav1.Cost{{Name: "a"}, {Name: "a"}}}, {Attributes: acme, Costs: []*quotav1.Cost{{Name: "a", Units: -1}}},
			{Attributes: acme, Costs: make([]*quotav1.Cost, 16)}, {Attributes: make([]*quotav1.Attribute, 33)}, {Attributes: acme, ExpiresSeconds: 3601},
			{Attributes: acme, ExpiresSeconds: -1}, {Attributes: acme, TimeoutUs: -1},
		} {
			if _, err := c.Reserve(ctx, r); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v, want INVALID_ARGUMENT", r, err)
			}
		}
	})
}

// Connections to other agents are bounded; one that is in use does not give way.
func TestPeersAreBounded(t *testing.T) {
	p := newPeers()
	defer p.close()
	var done []func()
	for i := range maxPeers {
		_, f, err := p.use(fmt.Sprint("a:", i+1))
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, f)
	}
	if _, _, err := p.use("b:1"); err == nil {
		t.Error("one more than there may be, and all are in use")
	}
	done[3]()
	if _, _, err := p.use("b:1"); err != nil || p.conns["a:4"] != nil || len(p.conns) != maxPeers {
		t.Errorf("%d connections, %v", len(p.conns), err)
	}
}
