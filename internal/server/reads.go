package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/fault"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxReads is how many calls that read pages go on at a time: each holds its page, in several forms.
	maxReads = 16
	// readWait is how long one more waits for its turn.
	readWait = 2 * time.Second
	// maxUnread is how many bytes of large answers may be unread by those who asked before pages are refused.
	maxUnread = 256 << 20
)

// reads bounds what calls that read pages take. What changes something, and what agents ask, is not among them.
type reads struct {
	turns   chan struct{}
	answers *answers
}

func newReads() *reads { return &reads{turns: make(chan struct{}, maxReads), answers: new(answers)} }

// readsPages reports whether a method answers with a page, or more.
func readsPages(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case quotav1.LeaseService_ServiceDesc.ServiceName:
		return false
	case quotav1.AdminService_ServiceDesc.ServiceName:
		return strings.HasPrefix(name, "List")
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
	select {
	case r.turns <- struct{}{}:
		return r.end, nil
	default:
	}
	late := time.NewTimer(readWait)
	defer late.Stop()
	select {
	case r.turns <- struct{}{}:
		return r.end, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, fmt.Errorf("%w: %d pages are being read from this server, as many as it reads at once; try again", fault.ErrBusy, maxReads)
	}
}

func (r *reads) end() { <-r.turns }
