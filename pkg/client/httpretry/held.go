package httpretry

import (
	"container/list"
	"sync"
	"time"
)

// held remembers denials that say when to come again: until then nobody has to ask. It keeps at most most of them,
// each for at most longest; beyond that the oldest goes. It is safe for concurrent use.
type held struct {
	most    int
	longest time.Duration

	mu    sync.Mutex
	by    map[string]*list.Element // of denial
	order list.List                // the oldest first
}

type denial struct {
	key    string
	until  time.Time
	status int
}

// deny remembers a denial of that status, which asks to stay away for wait.
func (h *held) deny(key string, wait time.Duration, status int, now time.Time) {
	if wait <= 0 || h.most <= 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[string]*list.Element{}
	}
	if e, ok := h.by[key]; ok {
		h.removeLocked(e)
	} else if len(h.by) >= h.most {
		h.removeLocked(h.order.Front())
	}
	h.by[key] = h.order.PushBack(denial{key, now.Add(min(wait, h.longest)), status})
}

// ask returns how long a key is still held, and the denial's status; 0 where it has to be asked.
func (h *held) ask(key string, now time.Time) (left time.Duration, status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.by[key]
	if !ok {
		return 0, 0
	}
	d := e.Value.(denial)
	if left = d.until.Sub(now); left <= 0 {
		h.removeLocked(e)
		return 0, 0
	}
	return left, d.status
}

func (h *held) removeLocked(e *list.Element) {
	delete(h.by, h.order.Remove(e).(denial).key)
}
