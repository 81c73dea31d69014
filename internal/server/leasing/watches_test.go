package leasing

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Whoever has a key for names that begin alike may invent agents, and opens no more streams by that than one address
// may have. An agent that comes back takes the place of its own oldest stream.
func TestStreamsOfInventedAgentsAreBounded(t *testing.T) {
	if maxWatchesOfPeer < 10_000 {
		t.Errorf("one proxy may carry %d streams, want 10,000 gateways'", maxWatchesOfPeer)
	}
	w := newWatches()
	w.bounds.All, w.bounds.OfPeer = 2*maxWatches+2, maxWatches+1
	from := func(host string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}})
	}
	var ends []func()
	begin := func(host, agent string) (context.Context, codes.Code) {
		ctx, end, err := w.begin(from(host), agent)
		if err == nil {
			ends = append(ends, end)
		}
		return ctx, status.Code(err)
	}
	for i := range maxWatches + 3 {
		want := codes.OK
		if i > maxWatches {
			want = codes.ResourceExhausted
		}
		if _, got := begin("192.0.2.1", "gw-"+strconv.Itoa(i)); got != want {
			t.Errorf("agent %d of one address: %v, want %v", i+1, got, want)
		}
	}
	var first context.Context
	for i := range maxWatches + 1 {
		ctx, got := begin("192.0.2.2", "edge")
		if got != codes.OK {
			t.Errorf("stream %d of an agent elsewhere: %v, want OK", i+1, got)
		}
		if i == 0 {
			first = ctx
		}
	}
	if !errors.Is(context.Cause(first), errGaveWay) {
		t.Error("the agent's oldest stream does not give way")
	}
	if _, got := begin("192.0.2.3", "another"); got != codes.ResourceExhausted {
		t.Errorf("beyond what all may have: %v, want RESOURCE_EXHAUSTED", got)
	}
	for _, end := range ends {
		end()
	}
	if _, got := begin("192.0.2.1", "gw-1"); got != codes.OK || len(w.of) != 1 {
		t.Errorf("when they have ended: %v, %d agents, want OK and 1", got, len(w.of))
	}
}
