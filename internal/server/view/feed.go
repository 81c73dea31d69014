package view

import (
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"

	"github.com/f4ee788f/quota/internal/core/wire"
)

// watchBytes is the size at which changed tenants go into a further message.
const watchBytes = 1 << 20

// Cursor is what a stream has been sent.
type Cursor struct {
	started  bool
	turn     int64 // of inForce
	version  int64 // of the policy
	shadow   int64 // version
	switches int64 // inForce.switched
	forgot   int64
	Tenants  int64 // change number
}

// News returns what a stream has not been sent yet, and when to look again.
func (v *View) News(at *Cursor) ([]*quotav1.WatchResponse, <-chan struct{}, error) {
	v.mu.Lock()
	now, changed := v.now, v.changed
	changes, complete := v.journal.since(at.Tenants)
	head := v.journal.head()
	looked := v.looked
	v.mu.Unlock()
	if now.Rules == nil && !looked && now.Switches.Revision == 0 {
		return nil, nil, v.UnknownPolicy() // another server may know more
	}
	first := &quotav1.WatchResponse{TenantChange: head}
	news := !at.started
	if !at.started || now.turn != at.turn {
		if now.Version() != at.version { // before there is one, switches have to reach agents all the same
			first.Policy = wire.PolicyToProto(now.Rules.Policy)
			// Overrides take missing fields from the plans, which may have changed.
			first.RefreshTenants = at.started
		}
		if !at.started || now.tried() != at.shadow {
			// The absence of a shadow is told too: an agent that was away may still try one.
			first.Shadow = &quotav1.Policy{}
			if now.Shadow != nil {
				first.Shadow = wire.PolicyToProto(now.Shadow.Policy)
			}
		}
		if !at.started || now.switched != at.switches {
			first.Switches = wire.SwitchesToProto(now.Switches)
		}
		if now.forgot != at.forgot {
			first.ForgotBeforeUs = now.forgot
		}
		news = true
	}
	messages := []*quotav1.WatchResponse{first}
	switch {
	case !complete, at.Tenants == 0 && head != 0:
		// An agent without a number may have resolved tenants before this stream began.
		first.RefreshTenants = true
		news = true
	case len(changes) > 0:
		messages = append(messages[:0], withTenants(first, changes)...)
		news = true
	}
	*at = Cursor{started: true, turn: now.turn, version: now.Version(), shadow: now.tried(), switches: now.switched, forgot: now.forgot, Tenants: head}
	if !news {
		return nil, changed, nil
	}
	return messages, changed, nil
}

// withTenants spreads changed tenants over messages of bounded size, beginning with first. Only the last one tells the
// agent its new change number.
func withTenants(first *quotav1.WatchResponse, changes []change) []*quotav1.WatchResponse {
	messages := []*quotav1.WatchResponse{first}
	head := first.TenantChange
	last, size := first, 0
	for _, c := range changes {
		for i := range c.tenants {
			t := wire.TenantToProto(c.tenants[i])
			n := proto.Size(t)
			if size > 0 && size+n > watchBytes {
				last = &quotav1.WatchResponse{}
				messages = append(messages, last)
				size = 0
			}
			last.Tenants = append(last.Tenants, t)
			size += n
		}
	}
	first.TenantChange = 0
	last.TenantChange = head
	return messages
}
