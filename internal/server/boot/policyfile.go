package boot

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

//go:embed default.yaml
var defaultPolicy []byte

const (
	// fileEvery is how often the policy file is looked at.
	fileEvery = time.Second
	// fileActor is who changed the policy, in the audit log.
	fileActor = "policy file"
	// applyTimeout bounds bringing a file into force.
	applyTimeout = 10 * time.Second
)

// ErrPolicyDiffers refuses a policy file on a shared ledger that is under another policy.
var ErrPolicyDiffers = errors.New("the policy file differs from the policy in force, which servers that share a ledger take from it; " +
	"apply the file with quotactl apply, or leave --policy out")

// policyFile brings a file's policy into force. Embedded, the file is the source: it
// is applied at the start and whenever it changes. On a shared ledger it is only a
// first version; later it must say what is in force.
type policyFile struct {
	path   string // empty: the built-in default, for a store without a policy
	shared bool
	store  policystore.Store
	log    *slog.Logger

	mu     sync.Mutex
	reason error // why the file is not in force
	seen   os.FileInfo
}

// apply brings the file into force. Faults of the file are fault.Faults.
func (p *policyFile) apply(ctx context.Context) error {
	name, data := "built-in policy", defaultPolicy
	if p.path != "" {
		name = p.path
		info, err := os.Stat(p.path)
		if err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
		if data, err = os.ReadFile(p.path); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
		p.seen = info
	}
	doc, err := policy.Parse(name, data)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	heads, err := p.store.Heads(ctx)
	if err != nil {
		return err
	}
	if heads.Version != 0 && p.path == "" {
		return nil // there is a policy: the default is not needed
	}
	if heads.Version != 0 && p.shared {
		would, err := p.store.Apply(ctx, fileActor, doc, 0, true)
		switch {
		case errors.Is(err, policystore.ErrUnavailable):
			return err
		case err != nil: // what cannot even be applied differs
			return fmt.Errorf("%w (version %d in force; the file cannot be applied: %w)", ErrPolicyDiffers, heads.Version, err)
		case would.Changed:
			return fmt.Errorf("%w (version %d in force; the first difference: %s)", ErrPolicyDiffers, heads.Version, firstOf(would.Changes))
		}
		return nil
	}
	applied, err := p.store.Apply(ctx, fileActor, doc, heads.Version, false)
	if errors.Is(err, policystore.ErrConflict) && p.shared {
		return p.apply(ctx) // another server was first: now compare
	}
	if err != nil {
		return err
	}
	if applied.Changed {
		p.log.Info("policy applied", "file", name, "version", applied.Version, "changes", len(applied.Changes))
		for _, w := range slices.Concat(doc.Warnings(), applied.Warnings) {
			p.log.Warn("policy", "warning", w.String())
		}
	}
	return nil
}

// rules returns the file's path if the file differs from the document, else nothing. An embedded server applies the
// file over the document; on a shared ledger a file that differs keeps this server from starting again. A file that
// cannot be read differs.
func (p *policyFile) rules(doc *policy.Document) string {
	if p.path == "" {
		return ""
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		return p.path
	}
	file, err := policy.Parse(p.path, data)
	if err != nil || len(policy.Diff(doc, file)) > 0 {
		return p.path
	}
	return ""
}

func firstOf(changes []string) string {
	if len(changes) == 0 {
		return "none is told"
	}
	return changes[0]
}

// start applies the file once. What is wrong with the file ends the start; a store
// that is away does not: run goes on trying.
func (p *policyFile) start(ctx context.Context) error {
	err := p.apply(ctx)
	p.set(err)
	if errors.Is(err, policystore.ErrUnavailable) {
		return nil
	}
	return err
}

// run looks at the file every second until ctx ends. A file that cannot be brought into force leaves the policy as it
// is, and is reported once.
func (p *policyFile) run(ctx context.Context) {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !p.due() {
			continue
		}
		err := p.apply(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && (p.why() == nil || p.why().Error() != err.Error()) {
			var faults fault.Faults
			if errors.As(err, &faults) {
				for _, f := range faults {
					p.log.Error("policy file refused; the policy in force stays", "fault", f.String())
				}
			} else {
				p.log.Error("policy file not in force", "error", err)
			}
		}
		p.set(err)
	}
}

// due reports whether there is something to try: the store was away, or the file
// has changed since it was last read.
func (p *policyFile) due() bool {
	if errors.Is(p.why(), policystore.ErrUnavailable) {
		return true
	}
	if p.path == "" {
		return false
	}
	if p.shared {
		return p.why() != nil // until it says what is in force; afterwards it is not looked at
	}
	info, err := os.Stat(p.path)
	if err != nil || p.seen == nil {
		return true // apply says what is wrong
	}
	return !info.ModTime().Equal(p.seen.ModTime()) || info.Size() != p.seen.Size() || !os.SameFile(info, p.seen)
}

func (p *policyFile) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = err
}

func (p *policyFile) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// check is a part of readiness where the ledger is shared. Embedded, a refused file
// is not: the policy that was in force goes on.
func (p *policyFile) check(context.Context) error {
	if !p.shared && !errors.Is(p.why(), policystore.ErrUnavailable) {
		return nil
	}
	return p.why()
}
