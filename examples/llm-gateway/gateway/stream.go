package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxEvent bounds a line of a stream, in bytes.
const maxEvent = 1 << 20

// event is a part of a streamed answer.
type event struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
}

type choice struct {
	Index  int     `json:"index"`
	Delta  delta   `json:"delta"`
	Finish *string `json:"finish_reason"`
}

type delta struct {
	Content   string `json:"content,omitempty"`
	Reasoning string `json:"reasoning_content,omitempty"`
}

// relay passes a stream of server-sent events on, each once its tokens are within the budget. Where that ends, the
// stream ends as if its maximum was reached, with what was used.
func relay(ctx context.Context, w http.ResponseWriter, from io.Reader, m *meter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4096), maxEvent)
	var e event
	for lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is || bytes.Equal(data, []byte("[DONE]")) {
			continue
		}
		e = event{}
		if json.Unmarshal(data, &e) != nil {
			return // what it used so far is committed
		}
		if e.Usage != nil {
			m.said(e.Usage)
		} else if output, reasoning := e.tokens(); m.more(ctx, output, reasoning) != nil {
			length := "length"
			e.Choices, e.Usage = []choice{{Finish: &length}}, m.used.whole()
			data, _ = json.Marshal(&e)
			_ = write(w, out, data)
			break
		}
		if write(w, out, data) != nil {
			return // the caller is gone
		}
	}
	_ = write(w, out, []byte("[DONE]"))
}

// tokens are those of an event. Upstreams send one in each, or a few: what they say at the end is what counts.
func (e *event) tokens() (output, reasoning int64) {
	for i := range e.Choices {
		output += tokensOf(e.Choices[i].Delta.Content)
		reasoning += tokensOf(e.Choices[i].Delta.Reasoning)
	}
	return output, reasoning
}

func tokensOf(text string) int64 { return int64(len(text)+5) / 6 }

// whole returns the usage with its total.
func (u Usage) whole() *Usage {
	u.Total = u.Prompt + u.Completion
	return &u
}

func write(w io.Writer, out *http.ResponseController, data []byte) error {
	if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
		return err
	}
	return out.Flush()
}
