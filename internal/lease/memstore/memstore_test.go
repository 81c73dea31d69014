package memstore_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/memstore"
)

func TestSuite(t *testing.T) {
	leasetest.Run(t, func(*testing.T) lease.Store { return memstore.New() })
}
