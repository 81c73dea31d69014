package rpc

import (
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// LedgerError gives the ledger's errors the names that cross the wire.
func LedgerError(err error) error {
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return fmt.Errorf("%w: %w", fault.ErrNotFound, err)
	case errors.Is(err, ledger.ErrTaken):
		return fmt.Errorf("%w: %w", fault.ErrExists, err)
	case errors.Is(err, ledger.ErrQuery), errors.Is(err, ledger.ErrCorrection):
		return fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	case errors.Is(err, ledger.ErrUnavailable):
		return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	return err
}

// Lost are the losses that are told.
func Lost(l ledger.Losses) []*quotav1.LostEpoch {
	var all []*quotav1.LostEpoch
	most := func(units int64, known bool) *int64 {
		if !known {
			return nil
		}
		return &units
	}
	for i := range l.Told {
		x := &l.Told[i]
		p := &quotav1.LostEpoch{
			Agent: x.Epoch.Agent, Epoch: x.Epoch.Epoch, State: x.State, Reason: x.Reason, SinceMs: Millis(x.Since), MostUnits: most(x.Most, x.Known),
		}
		for _, u := range x.Limits {
			p.Limits = append(p.Limits, &quotav1.LostUnits{Limit: u.Limit, MostUnits: most(u.Most, u.Known)})
		}
		all = append(all, p)
	}
	return all
}
