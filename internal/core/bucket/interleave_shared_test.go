//go:build interleave

package bucket

// Twins of what requests and the owner share: each operation lets the scheduler of
// interleave_test.go choose who goes on. Outside of it they are plain and not safe.
type (
	counter struct{ v int64 }
	flag    struct{ v int32 }
	lock    struct{ held bool }
)

// latch is a mutex of its own, so that orders are alike in every run.
type latch = lock

// access is what an operation is about to touch.
type access struct {
	at    any   // the counter or flag; nil for a lock's
	write bool  // it may change what is there
	lock  *lock // that it waits for; nil for none
}

// step is called before each operation, and saw with what it returned.
var (
	step = func(access) {}
	saw  = func(int64) {}
)

func (c *counter) Load() int64 { step(access{at: c}); saw(c.v); return c.v }

func (c *counter) Store(v int64) { step(access{at: c, write: true}); c.v = v }

func (c *counter) Add(n int64) int64 {
	step(access{at: c, write: true})
	c.v += n
	saw(c.v)
	return c.v
}

func (c *counter) CompareAndSwap(old, new int64) bool {
	step(access{at: c, write: true})
	if c.v != old {
		saw(0)
		return false
	}
	c.v = new
	saw(1)
	return true
}

func (f *flag) Load() int32 { step(access{at: f}); saw(int64(f.v)); return f.v }

func (f *flag) Store(v int32) { step(access{at: f, write: true}); f.v = v }

func (f *flag) Add(n int32) int32 {
	step(access{at: f, write: true})
	f.v += n
	saw(int64(f.v))
	return f.v
}

func (l *lock) Lock() {
	step(access{lock: l}) // returns when it is free
	l.held = true
}

func (l *lock) Unlock() { l.held = false }
