package session

import (
	"log/slog"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/renewal"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/wheel"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxQuestions is how many tenants a call asks for at most.
const maxQuestions = 1024

// questions are the tenants that the server is asked for, beside renewals. One that its store cannot look up now is
// asked for again after a while; others do not wait for it.
type questions struct {
	open  []*agent.Tenant // not answered
	at    int64           // when these are asked for again
	fails int             // times in a row that some were not answered
}

// due takes the tenants to ask for now. next is when there may be more.
func (q *questions) due(reg *agent.Registry, now int64) (tenants []*agent.Tenant, next int64) {
	if len(q.open) > 0 && now >= q.at {
		reg.AskAgain(q.open)
		q.open = nil
	}
	if next = wheel.Never; len(q.open) > 0 {
		next = q.at
	}
	return reg.Unasked(maxQuestions), next
}

// answered takes the answers about tenants, and returns those that are answers.
func (q *questions) answered(log *slog.Logger, now int64, asked []*agent.Tenant, answers []*quotav1.Tenant) []limit.Tenant {
	if now > q.at+2*renewal.LastRetry.Microseconds() {
		q.fails = 0 // those that were open are answered
	}
	var infos []limit.Tenant
	var open []*agent.Tenant
	for i, p := range answers {
		id := asked[i].ID()
		if p.GetId() == "" { // its store is away, or cannot read it
			if q.fails == 0 && len(open) == 0 {
				log.Warn("the server cannot look up tenants at present", "tenant", id)
			}
			open = append(open, asked[i])
			continue
		}
		t, err := wire.TenantFromProto(p)
		if err != nil || t.ID != id {
			log.Warn("the server's answer about a tenant is not valid", "tenant", id, "error", err)
			open = append(open, asked[i])
			continue
		}
		infos = append(infos, t)
	}
	if len(open) > 0 && len(q.open) == 0 {
		q.fails++
		q.at = now + retry.In(q.fails, renewal.FirstRetry, renewal.LastRetry).Microseconds()
	}
	q.open = append(q.open, open...)
	return infos
}
