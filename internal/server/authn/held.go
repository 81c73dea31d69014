package authn

import (
	"context"
	"crypto/sha256"
	"maps"
	"time"
)

// held is a stream under way, and the key that it was opened with.
type held struct {
	hash   [sha256.Size]byte
	secret bool // a key was given
	end    context.CancelCauseFunc
}

// hold ends a stream once its key is no longer good: within a second of its end, or of being revoked on any server. The
// caller calls release when the stream is over.
func (k *Keyring) hold(ctx context.Context, secret string) (_ context.Context, release func()) {
	ctx, end := context.WithCancelCause(ctx)
	h := &held{hash: sha256.Sum256([]byte(secret)), secret: secret != "", end: end}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.streams == nil {
		k.streams = make(map[*held]struct{})
	}
	k.streams[h] = struct{}{}
	return ctx, func() {
		end(nil)
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.streams, h)
	}
}

// Sweep ends the streams whose keys are no longer good.
func (k *Keyring) Sweep() {
	k.mu.RLock()
	streams := maps.Clone(k.streams)
	k.mu.RUnlock()
	for h := range streams {
		if _, err := k.authenticateHash(h.hash, h.secret, true); err != nil {
			h.end(err)
		}
	}
}

// usedEvery is how precisely the last use of a key is known, and how often it is written.
const usedEvery = time.Minute

// FlushUsed writes when keys were used, all at once, if a minute has passed since the last time. The next call tries
// again what fails.
func (k *Keyring) FlushUsed(ctx context.Context, write func(context.Context, map[string]time.Time) error) error {
	if time.Since(k.flushed) < usedEvery {
		return nil
	}
	k.flushed = time.Now()
	return k.flushUsed(ctx, write)
}

func (k *Keyring) flushUsed(ctx context.Context, write func(context.Context, map[string]time.Time) error) error {
	used := make(map[string]time.Time)
	k.mu.RLock()
	for _, c := range k.byHash {
		if at := c.used.Load(); at != 0 && at != c.written.Load() {
			used[c.id] = time.UnixMilli(at)
		}
	}
	k.mu.RUnlock()
	if len(used) == 0 {
		return nil
	}
	if err := write(ctx, used); err != nil {
		return err // it is written with the next ones
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, c := range k.byHash {
		if at, ok := used[c.id]; ok {
			c.written.Store(at.UnixMilli())
		}
	}
	return nil
}
