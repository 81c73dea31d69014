package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/examples/llm-gateway/gateway"
)

// tally is what the callers of a tenant were told. It is a witness outside the gateway.
type tally struct {
	mu                              sync.Mutex
	answered, denied, early, failed int
	used                            gateway.Usage
}

// told returns the tokens of each meter.
func (n *tally) told() [4]int64 {
	u := &n.used
	return [4]int64{u.Prompt - u.Input.Cached, u.Input.Cached, u.Completion - u.Output.Reasoning, u.Output.Reasoning}
}

func (n *tally) tokens() int64 { return n.used.Prompt + n.used.Completion }

// ask sends one request, reads its answer to the end, and returns how long to stay away after a denial.
func (n *tally) ask(ctx context.Context, at *url.URL, key, model string) (wait time.Duration) {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, model, strings.Repeat("why ", 20))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return n.fail()
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return n.fail()
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		_, _ = io.Copy(io.Discard, answer.Body)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.denied++
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return time.Duration(max(seconds, 1)) * time.Second / 4 // it does not quite do as it is told
	default:
		return n.fail()
	}
	usage, early, err := read(answer.Body)
	if err != nil || usage == nil {
		return n.fail()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered++
	if early {
		n.early++
	}
	n.used.Prompt += usage.Prompt
	n.used.Completion += usage.Completion
	n.used.Input.Cached += usage.Input.Cached
	n.used.Output.Reasoning += usage.Output.Reasoning
	return 0
}

func (n *tally) fail() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed++
	return time.Second
}

// read reads a stream to its end. It returns the usage that it ends with, and whether the budget ended it.
func read(from io.Reader) (usage *gateway.Usage, early bool, err error) {
	lines, done := bufio.NewScanner(from), false
	for lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is {
			continue
		}
		if done = string(data) == "[DONE]"; done {
			continue
		}
		var e struct {
			Usage   *gateway.Usage `json:"usage"`
			Choices []struct {
				Finish string `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, false, err
		}
		if e.Usage != nil {
			usage = e.Usage
			early = len(e.Choices) > 0 // the model says its usage apart
		}
	}
	if err := lines.Err(); err != nil || !done {
		return nil, false, io.ErrUnexpectedEOF
	}
	return usage, early, nil
}
