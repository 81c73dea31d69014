package rpc

import (
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
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
