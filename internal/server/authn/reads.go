package authn

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxReads is how many calls that read pages go on at a time: each holds its page, in several forms.
	maxReads = 16
	// maxReadsOfKey is how many of them are of one key.
	maxReadsOfKey = 8
	// readWait is how long one more waits for its turn.
	readWait = 2 * time.Second
	// maxUnread is how many bytes of large answers may be unread by those who asked before pages are refused.
	maxUnread = 256 << 20
)

// reads bounds the cost of calls that read pages. Calls that change something, and agents' calls, are not among them.
type reads struct {
	answers *answers

	mu    sync.Mutex
	n     int
	of    map[string]int // by key
	ended chan struct{}  // closed when a turn ends; nil where nobody waits
}

func newReads() *reads { return &reads{answers: new(answers), of: make(map[string]int)} }

// readsPages reports whether a method answers with a page, or more.
func readsPages(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case quotav1.LeaseService_ServiceDesc.ServiceName:
		return false
	case quotav1.AdminService_ServiceDesc.ServiceName:
		// These are lists, policy documents and tenants with their limits. Switches and the version are a few KiB, and
		// are asked for in an emergency.
		switch method {
		case quotav1.AdminService_GetSwitches_FullMethodName, quotav1.AdminService_GetVersion_FullMethodName:
			return false
		}
		return strings.HasPrefix(name, "List") || needs[method].need == roleViewer
	}
	return needs[method].need == roleViewer
}

// begin waits for a turn; end gives it back.
func (r *reads) begin(ctx context.Context, method string) (end func(), err error) {
	if !readsPages(method) {
		return func() {}, nil
	}
	if n := r.answers.unread.Load(); n > maxUnread {
		return nil, fmt.Errorf("%w: %d MiB of answers of this server are unread by those who asked; it sends no page before they are", fault.ErrBusy, n>>20)
	}
	who := PrincipalOf(ctx).Name
	late := time.NewTimer(readWait)
	defer late.Stop()
	for {
		ended := r.take(who)
		if ended == nil {
			return func() { r.end(who) }, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late.C:
			return nil, fmt.Errorf("%w: this server reads %d pages at a time, %d of one key, and has as many to read; try again", fault.ErrBusy, maxReads, maxReadsOfKey)
		}
	}
}

// take takes a turn, or returns a channel that is closed when there may be one.
func (r *reads) take(who string) (ended <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n >= maxReads || r.of[who] >= maxReadsOfKey {
		if r.ended == nil {
			r.ended = make(chan struct{})
		}
		return r.ended
	}
	r.n++
	r.of[who]++
	return nil
}

func (r *reads) end(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n--
	if r.of[who]--; r.of[who] == 0 {
		delete(r.of, who)
	}
	if r.ended != nil {
		close(r.ended)
		r.ended = nil
	}
}

// pageTurn holds what a REST call does once its answer is written. Until then the page is in memory, in several forms.
type pageTurn struct{ then func() }

type pageTurnKey struct{}

// WithTurn returns the context of a call whose caller writes the answer itself, and then calls written.
func WithTurn(ctx context.Context) (_ context.Context, written func()) {
	answer := &pageTurn{then: func() {}}
	return context.WithValue(ctx, pageTurnKey{}, answer), func() { answer.then() }
}

// whenWritten makes a call end its turn when its answer is written, and reports whether it does. For gRPC see answers.
func whenWritten(ctx context.Context, end func()) bool {
	w, ok := ctx.Value(pageTurnKey{}).(*pageTurn)
	if ok {
		w.then = end
	}
	return ok
}
