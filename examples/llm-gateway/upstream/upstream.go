// Package upstream is a language model that is none: it answers OpenAI-compatible chat completions with words by chance.
// How many is heavy-tailed, as it is with real ones. It is for the example and its tests.
package upstream

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	shortest = 20   // tokens of an answer
	longest  = 4000 // likewise
	tail     = 1.2  // the exponent of the Pareto distribution of lengths
	perFlush = 8    // tokens that are sent at a time
)

// Model is the upstream. It is safe for concurrent use.
type Model struct {
	pace      time.Duration // between flushes
	seed      uint64
	requests  atomic.Uint64
	generated atomic.Int64
}

// New returns a model that sends perFlush tokens each pace.
func New(seed uint64, pace time.Duration) *Model { return &Model{seed: seed, pace: pace} }

// Generated returns how many tokens it generated.
func (m *Model) Generated() int64 { return m.generated.Load() }

type request struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Max      int64  `json:"max_tokens"`
	Messages []struct {
		Content string `json:"content"`
	} `json:"messages"`
	Options struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// ServeHTTP answers POST /v1/chat/completions.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked); err != nil {
		http.Error(w, `{"error":{"message":"not a request"}}`, http.StatusBadRequest)
		return
	}
	number := m.requests.Add(1)
	chance := rand.New(rand.NewPCG(m.seed, number))
	length := min(int64(shortest*math.Pow(1-chance.Float64(), -1/tail)), longest)
	finish := "stop"
	if asked.Max > 0 && length > asked.Max {
		length, finish = asked.Max, "length"
	}
	reasoning := length * chance.Int64N(30) / 100
	prompt := int64(0)
	for _, message := range asked.Messages {
		prompt += int64(len(message.Content))/4 + 3
	}
	usage := map[string]any{
		"prompt_tokens": prompt, "completion_tokens": length, "total_tokens": prompt + length,
		"prompt_tokens_details":     map[string]int64{"cached_tokens": prompt * chance.Int64N(50) / 100},
		"completion_tokens_details": map[string]int64{"reasoning_tokens": reasoning},
	}
	id := fmt.Sprint("chatcmpl-", number)
	if !asked.Stream {
		m.generated.Add(length)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": id, "object": "chat.completion", "model": asked.Model, "usage": usage,
			"choices": []any{map[string]any{"index": 0, "message": map[string]string{"role": "assistant", "content": "word "}, "finish_reason": finish}},
		})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(delta map[string]string, finish any, usage any) {
		e := map[string]any{"id": id, "object": "chat.completion.chunk", "model": asked.Model, "choices": []any{
			map[string]any{"index": 0, "delta": delta, "finish_reason": finish},
		}}
		if usage != nil {
			e["choices"], e["usage"] = []any{}, usage
		}
		data, _ := json.Marshal(e)
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	for i := range length {
		if i%perFlush == 0 {
			if out.Flush() != nil {
				return
			}
			select {
			case <-time.After(m.pace):
			case <-r.Context().Done():
				return
			}
		}
		kind := "content"
		if i < reasoning {
			kind = "reasoning_content"
		}
		m.generated.Add(1)
		send(map[string]string{kind: "word "}, nil, nil)
	}
	send(map[string]string{}, finish, nil)
	if asked.Options.IncludeUsage {
		send(nil, nil, usage)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
	_ = out.Flush()
}
