package client

import (
	"context"
	"flag"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

var (
	memoryClients = flag.Int("memory-clients", 10, "of the measurement of memory")
	memoryTenants = flag.Int("memory-tenants", 2000, "of each of them")
	memoryProfile = flag.String("memory-profile", "", "file for a profile of the heap")
)

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// bytesPerTenant bounds what a bucket takes of the heap, all in all, where it is the only one of its tenant.
const bytesPerTenant = 1050

// What a bucket takes of the heap, all in all, where each tenant has its plan's limit at a rate of its own. In a bubble no time
// passes while something is done, however slow the machine: no slot and no lease ends meanwhile, the usage and renewals of
// which would be measured as well.
func TestBytesPerTenant(t *testing.T) {
	unraced.Only(t)
	if *memoryProfile != "" {
		runtime.MemProfileRate = 4096
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPlenty()
		tenants := manyTenants(*memoryTenants)
		clients := make([]*Client, *memoryClients)
		for i := range clients {
			clients[i] = p.dial(t, i)
		}
		synctest.Wait()
		before := heapInUse()
		var group sync.WaitGroup
		for _, c := range clients {
			group.Go(func() { touch(t, c, tenants, 128) })
		}
		group.Wait()
		for _, c := range clients {
			for _, a := range tenants {
				for range 4 { // so that it is remembered
					c.Allow(context.Background(), a...)
				}
			}
		}
		synctest.Wait()
		each := (heapInUse() - before) / int64(len(clients)*len(tenants))
		t.Logf("%d bytes for each of %d buckets", each, len(clients)*len(tenants))
		if each > bytesPerTenant {
			t.Errorf("a bucket takes %d bytes with its tenant, want at most %d", each, bytesPerTenant)
		}
		if *memoryProfile != "" {
			f, err := os.Create(*memoryProfile)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := pprof.WriteHeapProfile(f); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range clients {
			runtime.KeepAlive(c)
		}
	})
}
