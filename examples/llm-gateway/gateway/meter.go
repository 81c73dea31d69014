package gateway

import (
	"context"

	"github.com/f4ee788f/quota/pkg/client"
)

// The costs of a request, as the policy names them. They do not overlap.
const (
	costInput     = "tokens_in"
	costCached    = "tokens_cached"
	costOutput    = "tokens_out"
	costReasoning = "tokens_reasoning"
)

const (
	// Extension is how many tokens are reserved at a time as an answer grows, of output or of reasoning. A stream under way
	// spends at most what is reserved, so it can be cut short by one of each at most.
	Extension = 128
	// mostAtFirst is the most that a stream reserves at first. Once the client knows the model, it is what is likely.
	mostAtFirst = 2 * Extension
	// mostWhole is what is reserved for an answer that is not streamed and says no maximum.
	mostWhole = 4096
)

// Usage is what an upstream says that a request used.
type Usage struct {
	Prompt     int64 `json:"prompt_tokens"` // with cached ones
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	Input      struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Output struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// meter is what one request uses, and its reservation. It is for one goroutine.
type meter struct {
	r    *client.Reservation
	used Usage // as far as the answer has come
}

// open reserves what a request is likely to use at first; nil where it is denied.
func (g *Gateway) open(ctx context.Context, tenant string, asked *completion) (*meter, client.Decision) {
	m := &meter{}
	for i := range asked.Messages {
		m.used.Prompt += int64(len(asked.Messages[i].Content))/3 + 4 // rather too many; the upstream says how many they were
	}
	most := max(asked.MaxTokens, asked.OldMax)
	if most == 0 {
		most = mostWhole
	}
	first, reasoning := most, int64(0)
	if asked.Stream {
		first, reasoning = min(most, mostAtFirst), min(most, Extension)
	}
	var d client.Decision
	m.r, d = g.quota.ReserveRequest(ctx, client.Request{
		Units:      1,
		Costs:      []client.Cost{{Name: costInput, Units: m.used.Prompt}, {Name: costOutput, Units: first}, {Name: costReasoning, Units: reasoning}},
		Attributes: []client.Attribute{client.Tenant(tenant), {Name: "model", Value: asked.Model}},
	})
	if m.r == nil {
		return nil, d
	}
	if rest := most - m.r.Reserved(costOutput); rest > 0 && !asked.Stream { // it cannot be stopped: it needs the most
		if d := m.r.Extend(ctx, 0, client.Cost{Name: costOutput, Units: rest}); !d.Allowed {
			_ = m.r.Cancel()
			return nil, d
		}
	}
	return m, d
}

// more notes tokens of the answer before they are passed on. They are not where the budget has ended: then errEnded.
func (m *meter) more(ctx context.Context, output, reasoning int64) error {
	used := m.used
	used.Completion += output + reasoning
	used.Output.Reasoning += reasoning
	costs := used.costs()
	for _, c := range costs[2:] { // output and reasoning
		for c.Units > m.r.Reserved(c.Name) {
			if d := m.r.Extend(ctx, 0, client.Cost{Name: c.Name, Units: Extension}); !d.Allowed {
				return errEnded
			}
		}
	}
	m.used = used
	// A gateway that is killed from here on bills these tokens when it is back.
	return m.r.Use(1, costs...)
}

// said takes the upstream's word for what the request used.
func (m *meter) said(u *Usage) { m.used = *u }

// close commits what the request used, whether or not its answer came to its end. A request that the upstream did not
// answer at all costs nothing.
func (m *meter) close() {
	if m.used.Completion == 0 {
		_ = m.r.Cancel()
		return
	}
	_ = m.r.Commit(1, m.used.costs()...)
}

// costs are what was used as the policy counts it.
func (u *Usage) costs() []client.Cost {
	return []client.Cost{
		{Name: costInput, Units: u.Prompt - u.Input.Cached}, {Name: costCached, Units: u.Input.Cached},
		{Name: costOutput, Units: u.Completion - u.Output.Reasoning}, {Name: costReasoning, Units: u.Output.Reasoning},
	}
}
