package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// blocks checks the chain, and folds each block's reports again.
func (v *verification) blocks(ctx context.Context) error {
	for {
		k, err := v.s.Block(ctx, v.Height)
		if err != nil || k == nil {
			return err
		}
		if err := v.block(ctx, k); err != nil {
			return err
		}
		v.Height, v.Hash = k.Height, k.Hash
		v.progress(Progress{"blocks", k.Height, v.Counts.Blocks})
	}
}

func (v *verification) block(ctx context.Context, k *KeptBlock) error {
	which := fmt.Sprint(k.Height)
	switch {
	case k.Height != v.Height+1:
		v.fault("blocks", which, "the one below it is %d", v.Height)
	case k.Previous != v.Hash:
		v.fault("blocks", which, "it does not chain to the hash of the block below")
	}
	// Entries that are in files are missing here.
	missing := len(k.Entries) < k.Count && v.entriesArchived(k.Height)
	for i := range k.Entries {
		switch {
		case !k.Named[i]:
			v.fault("keys", fmt.Sprintf("%x", k.Keys[i]), "there is none, and entry %s/%d names it", which, k.N[i])
		case KeyOf(&k.Entries[i]) != k.Keys[i]:
			v.fault("keys", fmt.Sprintf("%x", k.Keys[i]), "its names have another hash")
		case k.N[i] != i && !missing:
			v.fault("entries", fmt.Sprintf("%s/%d", which, k.N[i]), "it is at place %d of its block", i)
		case k.Entries[i].Slot < v.Archived.Before:
			v.fault("entries", fmt.Sprintf("%s/%d", which, k.N[i]), "its month is archived")
		}
	}
	if !missing && k.Count != len(k.Entries) {
		v.fault("blocks", which, "it is said to have %d entries, and has %d", k.Count, len(k.Entries))
	}
	if !missing && k.Sum() != k.Hash {
		v.fault("blocks", which, "its hash is not that of its content")
	}
	runs, err := DecodeSources(k.Sources)
	if err != nil {
		v.fault("blocks", which, "its sources: %v", err)
		return nil
	}
	again, found, broken := NewSealing(v.touches), map[Epoch]int64{}, false
	err = v.s.Sources(ctx, runs, func(p *Pending) error {
		found[p.ID.Epoch]++
		err := again.Add(p)
		if errors.Is(err, ErrEncoding) { // the report's fault was told
			broken, err = true, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	archived, err := v.archivedSources(ctx, runs, found)
	if err != nil {
		return err
	}
	v.runs(which, runs, found)
	corrections, err := v.correctionsOf(ctx, k)
	if err != nil || broken {
		return err
	}
	reports := again.Reports() + archived
	sealed, of, err := again.Seal(k.Height-1, k.Previous, corrections)
	switch {
	case errors.Is(err, ErrEncoding): // the correction's fault was told
		return nil
	case err != nil:
		return err
	case k.Reports != reports:
		v.fault("blocks", which, "it is said to fold %d reports, and %d are there", k.Reports, reports)
	}
	if archived > 0 || missing {
		v.Archived.Blocks++ // what is left of it says nothing of its hash
	} else {
		v.entries(which, k.Entries[:k.Merged], sealed.Entries[:sealed.Merged])
		if !slices.Equal(k.Entries[k.Merged:], sealed.Entries[sealed.Merged:]) || !slices.Equal(k.Names, sealed.Names) {
			v.fault("entries", which, "its corrections' entries are not what the corrections say")
		}
	}
	for _, a := range of.Settled {
		v.units[a.ID] += a.Units
	}
	return v.touched(ctx, of.Touched)
}

// entriesArchived reports whether entries of that block may be in files.
func (v *verification) entriesArchived(height int64) bool {
	return slices.ContainsFunc(v.archives, func(a Archive) bool { return a.Low <= height && height <= a.High })
}

// archivedSources adds a block's archived reports to those found, and returns how many.
func (v *verification) archivedSources(ctx context.Context, runs []Source, found map[Epoch]int64) (int, error) {
	if v.Archived.Reports == 0 {
		return 0, nil
	}
	archived, err := v.s.ArchivedSources(ctx, runs)
	var all int64
	for epoch, n := range archived {
		found[epoch] += n
		all += n
	}
	return int(all), err
}

// correctionsOf are the corrections of a block, and puts its entries' in their place.
func (v *verification) correctionsOf(ctx context.Context, k *KeptBlock) ([]Correction, error) {
	which := fmt.Sprint(k.Height)
	sealed, err := DecodeSealed(k.Corrections)
	if err != nil {
		v.fault("blocks", which, "%v", err)
		return nil, nil
	}
	if len(sealed) == 0 {
		return nil, nil
	}
	numbers := make([]int64, len(sealed))
	for i, s := range sealed {
		numbers[i] = s.Number
		if other, ok := v.sealed[s.Number]; ok {
			v.fault("blocks", which, "correction %d is in block %d as well", s.Number, other)
		}
		v.sealed[s.Number] = k.Height
	}
	corrections, err := v.s.Corrections(ctx, numbers)
	if err != nil {
		return nil, err
	}
	found := map[int64][32]byte{}
	for i := range corrections {
		found[corrections[i].Number] = corrections[i].Digest
	}
	for _, s := range sealed {
		switch digest, ok := found[s.Number]; {
		case !ok:
			v.fault("blocks", which, "correction %d is not there", s.Number)
		case digest != s.Digest:
			v.fault("corrections", fmt.Sprint(s.Number), "its digest is not what block %s was sealed with", which)
		}
	}
	return corrections, nil
}

// runs checks that a block's sources are there, and in no other block.
func (v *verification) runs(which string, runs []Source, found map[Epoch]int64) {
	for _, run := range runs {
		e := v.epoch(run.Epoch)
		switch {
		case run.First <= e.above:
			v.fault("blocks", which, "reports %d to %d of %s are in an earlier block as well", run.First, e.above, run.Epoch)
		case found[run.Epoch] != run.Count:
			v.fault("blocks", which, "it is said to fold %d reports of %s, and %d are there", run.Count, run.Epoch, found[run.Epoch])
		}
		e.above = max(e.above, run.Last)
		e.folded += found[run.Epoch]
	}
}

// entries compares a block's entries with what its reports fold to.
func (v *verification) entries(which string, has, want []Row) {
	for i, j := 0, 0; i < len(has) || j < len(want); {
		var order int
		switch {
		case i == len(has):
			order = 1
		case j == len(want):
			order = -1
		default:
			order = has[i].CompareKey(&want[j])
		}
		switch {
		case order < 0:
			v.fault("entries", fmt.Sprintf("%s/%d", which, i), "no report of the block holds it: %s", describe(&has[i]))
			i++
		case order > 0:
			v.fault("entries", which, "the block's reports hold what no entry does: %s", describe(&want[j]))
			j++
		default:
			if has[i] != want[j] {
				v.fault("entries", fmt.Sprintf("%s/%d", which, i), "it is %s, and its reports add up to %d, %d, %d",
					describe(&has[i]), want[j].Admitted, want[j].Overage, want[j].Denied)
			}
			i, j = i+1, j+1
		}
	}
}

func describe(r *Row) string {
	return fmt.Sprintf("%s %q %q admitted %d, overage %d, denied %d", stamp(r.Slot), r.Tenant, r.Limit, r.Admitted, r.Overage, r.Denied)
}
