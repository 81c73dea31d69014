package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const (
	// judgeTimeout bounds one look-up. A call waits for judgeWait at most, and then its agent sends again.
	judgeTimeout = time.Second
	judgeWait    = 3 * time.Second
	// judgeWidth is how many look-ups are under way at once. An agent has one at a time; more of its own wait.
	judgeWidth = 4
	// judgeBurst is how many look-ups an agent has at once, and judgeRate a second. A look-up is of one version, or of
	// policystore.MaxPage tenants. The largest report of unknown tenants fits in one call.
	judgeBurst = 80
	judgeRate  = 10
	// judgeFamily is how many agents' look-ups all agents of one key share. Without it a key would get more look-ups
	// with every agent that it invents.
	judgeFamily = 32
)

var (
	errLookups    = fmt.Errorf("%w: its agent names more unknown ids than are looked up for one agent: %d look-ups a second", ledger.ErrUnchecked, judgeRate)
	errKeyLookups = fmt.Errorf("%w: the agents of its key name more unknown ids than are looked up for one key: %d look-ups a second", ledger.ErrUnchecked, judgeFamily*judgeRate)
	errInquiries  = fmt.Errorf("%w: rows of too many agents name what is not known", ledger.ErrUnchecked)
)

// standing is what a tenant was found to be.
type standing uint8

const (
	absent standing = iota
	plain
	overridden
)

// Operators is the agent's name that corrections are judged under.
const Operators = ""

// misses reports whether a version was looked up, and not there.
func (in *inquiry) misses(version int64) bool {
	return in.fresh() && in.beyond != 0 && version >= in.beyond
}

func (j *Judge) misses(in *inquiry, version int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return in.misses(version)
}

// found is what a tenant was found to be, if it was looked up.
func (in *inquiry) found(tenant string) (standing, bool) {
	if !in.fresh() {
		return absent, false
	}
	as, ok := in.tenants[tenant]
	return as, ok
}

// history is which plans a tenant was found to have had, if it was looked up.
func (in *inquiry) history(tenant string) (history, bool) {
	if !in.fresh() {
		return history{}, false
	}
	h, ok := in.histories[tenant]
	return h, ok
}

func (in *inquiry) fresh() bool { return in != nil && time.Since(in.looked) < judgedFor }

// Learn looks up what an agent's rows name and is not known, so that Accept can judge them; key is the agent's. An
// error means that it did not find out everything. It is safe for concurrent use.
func (j *Judge) Learn(ctx context.Context, key, agent string, rows []ledger.Row) error {
	ctx, cancel := context.WithTimeout(ctx, judgeWait)
	defer cancel()
	in := j.of(key, agent)
	if in == nil {
		return errInquiries
	}
	select {
	case in.asking <- struct{}{}:
		defer func() { <-in.asking }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ledger.ErrUnchecked, ctx.Err())
	}
	if agent == Operators {
		in.forget(j) // who was told of a fault may have mended it
	}
	// Versions come first, because they say which tenants matter; then their plans.
	for range 3 {
		versions, tenants, histories := j.lacking(agent, rows)
		for len(versions) > 0 || len(tenants) > 0 || len(histories) > 0 {
			if err := j.may(key, in); err != nil {
				return err
			}
			var err error
			if len(versions) > 0 {
				err = j.read(ctx, func(ctx context.Context) error { return j.readVersion(ctx, in, versions[0]) })
				if versions = versions[1:]; len(versions) > 0 && j.misses(in, versions[0]) {
					versions = nil // nor is any above
				}
			} else if len(tenants) > 0 {
				page := tenants[:min(len(tenants), policystore.MaxPage)]
				err = j.read(ctx, func(ctx context.Context) error { return j.readTenants(ctx, in, page) })
				tenants = tenants[len(page):]
			} else {
				page := histories[:min(len(histories), policystore.MaxPage)]
				err = j.read(ctx, func(ctx context.Context) error { return j.readHistories(ctx, in, page) })
				histories = histories[len(page):]
			}
			if err != nil {
				return fmt.Errorf("%w: %w", ledger.ErrUnchecked, err)
			}
		}
	}
	return nil
}

// lacking is the unknown versions, tenants and histories that rows name.
func (j *Judge) lacking(agent string, rows []ledger.Row) (versions []int64, tenants, histories []string) {
	asked := make(map[lack]struct{})
	for i := range rows {
		r := &rows[i]
		if i > 0 && r.Tenant == rows[i-1].Tenant && r.Meter == rows[i-1].Meter && r.Version == rows[i-1].Version && r.Plan == rows[i-1].Plan && r.Slot == rows[i-1].Slot {
			continue
		}
		lacks, _ := j.judge(agent, r)
		if _, ok := asked[lacks]; ok || lacks == (lack{}) {
			continue
		}
		asked[lacks] = struct{}{}
		switch {
		case !lacks.named && !lacks.plans:
			versions = append(versions, lacks.version)
		case !utf8.ValidString(lacks.tenant) || strings.ContainsRune(lacks.tenant, 0): // it is refused before it is judged
		case lacks.plans:
			histories = append(histories, strings.Clone(lacks.tenant))
		default:
			tenants = append(tenants, strings.Clone(lacks.tenant)) // the report need not stay
		}
	}
	slices.Sort(versions)
	return versions, tenants, histories
}

// read runs one look-up when it is its turn.
func (j *Judge) read(ctx context.Context, do func(context.Context) error) error {
	select {
	case j.reads <- struct{}{}:
		defer func() { <-j.reads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	return do(ctx)
}

func (j *Judge) readVersion(ctx context.Context, in *inquiry, number int64) error {
	began, known := time.Now(), j.current()
	stored, err := j.store.Version(ctx, number)
	if errors.Is(err, policystore.ErrNotFound) {
		j.mu.Lock()
		defer j.mu.Unlock()
		in.begin(began)
		in.beyond = number
		return nil
	}
	if err != nil {
		return err
	}
	var v *judged
	if doc, err := policy.Parse(stored.File, []byte(stored.Text)); err == nil {
		v = judge(doc.Policy(number))
	} else { // a later release wrote it: where its rows waited for this server, they would wait for ever
		v = &judged{unread: fmt.Errorf("policy version %d cannot be read by this server; release the row on one that can: %w", number, err)}
	}
	v.Trial = stored.Shadow || v.unread != nil
	j.mu.Lock()
	defer j.mu.Unlock()
	known.versions.put(number, v)
	return nil
}

func (j *Judge) readTenants(ctx context.Context, in *inquiry, ids []string) error {
	began, known := time.Now(), j.current()
	tenants, err := j.store.Tenants(ctx, ids)
	var faulty policystore.FaultyTenants
	if err != nil && !errors.As(err, &faulty) {
		return err
	}
	if len(tenants) != len(ids) {
		return fmt.Errorf("the policy store answered %d of %d tenants", len(tenants), len(ids))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	in.begin(began)
	for i, id := range ids {
		as := absent
		switch {
		case faulty[id] != nil: // overrides that cannot be made out may feed any meter
			as = overridden
		case tenants[i].Exists && len(tenants[i].Overrides) > 0:
			as = overridden
		case tenants[i].Exists:
			as = plain
		}
		if as != absent {
			known.tenants.put(id, as == overridden)
		}
		in.tenants[id] = as
	}
	return nil
}

// Done forgets what was found missing for an agent, once the rows in question are judged. It may exist by the next
// report.
func (j *Judge) Done(agent string) {
	j.mu.Lock()
	in := j.agents[agent]
	j.mu.Unlock()
	if in != nil {
		in.forget(j)
	}
}

func (in *inquiry) forget(j *Judge) {
	j.mu.Lock()
	defer j.mu.Unlock()
	in.beyond, in.tenants, in.histories = 0, nil, nil
}

// begin makes room for what was looked up at a time.
func (in *inquiry) begin(at time.Time) {
	if in.tenants == nil || !in.fresh() || len(in.tenants) > judgedOf || len(in.histories) > judgedOf {
		in.beyond, in.tenants, in.histories, in.looked = 0, make(map[string]standing), make(map[string]history), at
	}
}

func (j *Judge) current() *asserted {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.known
}
